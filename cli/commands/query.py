"""`retriever query` and `retriever search`: search an index."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from cli.index_access import in_option, ocr_option, open_index, refresh_for_query, use_ocr_command
from cli.options import (
    OWN,
    PATIENCE,
    Command,
    EncoderOptions,
    Location,
    Settings,
    config_option,
    encoder_options,
    index_option,
    json_option,
    marking_filter_errors,
    query_map_option,
    quiet_option,
    synonyms_option,
    where_option,
)
from cli.output.text import counted, say
from retriever.search import USED_BY_METHOD, SearchSettings, search_fields, search_settings
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever import Facets
    from retriever.index import Index
    from retriever.search import Hit, ParsedQuery
    from retriever.search.calibration import Answer

# Maximum width of hits, in cells of the terminal.
MAX_WIDTH = 120
# A word of a query that begins with a hyphen, such as -40 or "-v prints lines". It is an option
# only if its letter is one.
_HYPHENATED = re.compile(r"-(?:[^-A-Za-z]|[^\s=]*\s)")
# Marks such words while click reads the options. No argument of a process can hold it.
_MARK = "\0"


class RankingOptions:
    """The settings of a search that are given, by the names of `search_fields`."""

    def __init__(self, **values: Any) -> None:
        self.values = {name: value for name, value in values.items() if value is not None}

    def settings(self) -> SearchSettings:
        """Return the given settings, with the defaults of the library for the others."""
        values = dict(self.values)
        # The command line wins over a file of settings that names another method of fusion.
        source = click.get_current_context().get_parameter_source
        alpha = source("alpha")
        fusion = source("fusion")
        names: tuple[str, ...] = ()
        if alpha is ParameterSource.DEFAULT_MAP and values.get("fusion") == "rrf":
            names = USED_BY_METHOD["convex"]
        if fusion is ParameterSource.DEFAULT_MAP and alpha is ParameterSource.COMMANDLINE:
            names = ("fusion", *USED_BY_METHOD["rrf"])
        for name in names:
            values.pop(name, None)
        return search_settings(None, values)


def ranking_options(listed: str, *, leave_out: Collection[str] = (), **defaults: Any) -> Settings:
    """Return the options of a search; the command takes `ranking: RankingOptions`."""
    usual = SearchSettings()
    return Settings(
        "ranking",
        RankingOptions,
        listed,
        declared=search_fields(),
        metavars={"alpha": "WEIGHT", "recency": "DAYS", "date_field": "FIELD"},
        defaults={"k": usual.k, "mode": usual.mode, **defaults},
        leave_out=leave_out,
    )


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Conditions on the hits, and the form in which they are printed."""

    refresh: bool = setting(
        False,
        "Read changes in the sources of the index before each answer.",
        section="Index",
    )
    raw: bool = setting(
        False,
        'Search for TEXT as it is. Otherwise "quoted words" must occur as a phrase, and a -word '
        "at the end excludes documents.",
        section="Search",
    )
    collapse: bool = setting(
        False, "Merge hits that nearly repeat a better hit into that hit.", section="Search"
    )
    min_probability: float | None = setting(
        None,
        "Print hits only if one of the first ten is relevant with at least this probability. Run "
        "`retriever calibrate` first.",
        low=0,
        high=1,
        section="Search",
    )
    queries: str | None = setting(
        None,
        "Answer every query in a .jsonl, .csv, .tsv or .txt file (one per line), or - for "
        "standard input.",
        section="Search",
    )
    rerank: Path | None = setting(
        None,
        "Rank the best --depth hits again with a cross-encoder or a trained reranker. FOLDER is "
        "its folder, or the hub id of a cross-encoder.",
        section="Ranking",
    )
    facets: tuple[str, ...] = setting(
        (),
        "Count the documents for each value of this metadata field; repeatable. One count covers "
        "documents that pass the filter, the other those that also share a term with the query.",
        section="Search",
    )
    explain: bool = setting(
        False, "Print the score and rank of each hit in each ranking.", section="Output"
    )
    full: bool = setting(False, "Print whole passages instead of excerpts.", section="Output")
    run: Path | None = setting(
        None, "Write a TREC run instead of printing hits; requires --queries.", section="Output"
    )


class QueryCommand(Command):
    """A command whose text may begin with a hyphen, as in ``-40 degrees``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options, and take words that only look like an option as text."""
        if not any(map(_HYPHENATED.match, args)):
            return super().parse_args(ctx, args)
        rest = super().parse_args(ctx, self._marked(args))
        words = ctx.params.get("text") or ()
        ctx.params["text"] = tuple(word.removeprefix(_MARK) for word in words)
        return rest

    def _marked(self, args: Sequence[str]) -> list[str]:
        """Mark words of the text that begin with a hyphen, up to ``--``; not values of options."""
        options = [option for option in self.params if isinstance(option, click.Option)]
        spellings = {name for option in options for name in option.opts}
        valued = {name for option in options if not option.is_flag for name in option.opts}
        marked: list[str] = []
        is_value = False
        for place, arg in enumerate(args):
            if arg == "--" and not is_value:
                return [*marked, *args[place:]]
            is_word = (
                not is_value and arg[:2] not in spellings and _HYPHENATED.match(arg) is not None
            )
            marked.append(_MARK + arg if is_word else arg)
            # In -qk, the last letter can be an option that takes a value.
            last = arg if arg.startswith("--") else f"-{arg[-1:]}"
            is_value = not is_value and not is_word and arg.startswith("-") and last in valued
        return marked


@click.command("query", cls=QueryCommand)
@click.argument("text", nargs=-1)
@config_option
@index_option
@in_option
@ocr_option("Other settings")
@ranking_options("k mode alpha fusion depth recency sort")
@where_option
@Settings(
    "options",
    QueryOptions,
    "refresh queries raw collapse facets min_probability rerank full explain run",
    metavars={
        "min_probability": "P",
        "queries": "FILE",
        "rerank": "FOLDER",
        "facets": "FIELD",
    },
)
@query_map_option
@synonyms_option
@encoder_options(OWN, automatic=True)
@quiet_option
@json_option
def query_command(
    text: tuple[str, ...],
    folder: Location,
    sources: tuple[str, ...],
    ocr: str | None,
    ranking: RankingOptions,
    where: str | None,
    options: QueryOptions,
    query_map: Path | None,
    synonyms: Path | None,
    encoder: EncoderOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Search an index or a folder for TEXT.

    Without TEXT, `retriever query` asks for queries at a terminal. Hits are sorted by score, the
    highest first; equal scores are sorted by id. The queries of --queries are
    searched as with --raw. With --rerank, scores are the reranker's and have no fixed range.
    """
    use_ocr_command(ocr)
    _refuse_conflicts(text, options, query_map)
    raw = options.raw or options.queries is not None
    settings = replace(ranking.settings(), raw=raw, collapse=options.collapse)
    reranker = None
    if options.rerank is not None:
        from retriever.search import load_reranker

        reranker = load_reranker(options.rerank, device=encoder.device, download=encoder.download)
    if query_map is not None and settings.mode == "bm25":
        raise click.UsageError("--query-map: --mode bm25 has no vectors; leave one of them out")
    _note_paths(text, is_expanded=bool(sources))
    lock_timeout = PATIENCE if options.refresh else 0.0
    with (
        open_index(
            folder, sources, encoder.keywords(), lock_timeout=lock_timeout, quiet=quiet
        ) as index,
        marking_filter_errors(where),
    ):
        _add_query_map_and_synonyms(index, query_map, synonyms)
        search = partial(index.search_many, settings=settings, where=where, reranker=reranker)
        session = _Session(index, search, settings, where, options, as_json, quiet)
        if options.min_probability is not None:
            # Refuses an index without calibration before anything is refreshed or searched.
            session.judge([])
        if options.refresh and not sources:
            refresh_for_query(index, quiet=quiet)
        words = " ".join(text) if text else None
        session.run(words, refreshes=options.refresh or bool(sources))


search_command = copy(query_command)
search_command.name = "search"
search_command.short_help = "Do the same as `retriever query`."


def _add_query_map_and_synonyms(
    index: Index, query_map: Path | None, synonyms: Path | None
) -> None:
    """Give an index the query map and the synonyms of files, if any."""
    if query_map is not None:
        from retriever import load_query_map

        index.query_map = load_query_map(query_map)
    if synonyms is not None:
        from retriever import load_synonyms

        index.synonyms = load_synonyms(synonyms)


def _refuse_conflicts(text: Sequence[str], options: QueryOptions, query_map: Path | None) -> None:
    """Refuse options that have no effect together."""
    if text and options.queries is not None:
        raise click.UsageError("give either TEXT or --queries")
    if options.run is not None and options.queries is None:
        raise click.UsageError("--run needs --queries")
    if options.run is not None and options.facets:
        raise click.UsageError("--facets has no effect with --run; leave it out")
    is_reranked = options.rerank is not None or query_map is not None
    if options.min_probability is not None and is_reranked:
        raise click.UsageError(
            "--min-probability: it works only without reranker and query map; leave it out, or "
            "--rerank and --query-map"
        )
    if not text and options.queries is None and not sys.stdin.isatty():
        raise click.UsageError("nothing to search for: give TEXT or --queries FILE")


def is_styled() -> bool:
    """Return whether hits are printed in color: at a terminal, unless ``NO_COLOR`` is set."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _note_paths(words: Sequence[str], *, is_expanded: bool) -> None:
    """Note which words of a query are paths, which a shell may have expanded from a pattern.

    Without `is_expanded`, a word counts as a path only if it has a slash.
    """
    if len(words) < 2:
        return
    paths = [word for word in words if (is_expanded or os.sep in word) and os.path.exists(word)]
    if paths:
        names = ", ".join(map(repr, paths[:3])) + (", …" if len(paths) > 3 else "")
        say(
            f"note: these words belong to the query and name no source: {names}; to search a file "
            f"or folder, write --in before it: --in {shlex.quote(paths[0])}"
        )


def _print_json(
    records: Sequence[dict[str, Any]], remarks: Sequence[dict[str, Any]], query: str | None
) -> None:
    """Print hits to stdout and remarks to stderr, with the id of a query of a file."""
    of_query = {} if query is None else {"query": query}
    for record in records:
        click.echo(json.dumps(of_query | record, ensure_ascii=False))
    # A program that reads hits from stdout does not meet remarks.
    for remark in remarks:
        click.echo(json.dumps(of_query | remark, ensure_ascii=False), err=True)


class _QueryResult(NamedTuple):
    """The hits of one query, and remarks on them."""

    query: ParsedQuery
    hits: list[Hit]
    answer: Answer | None
    no_hits_reason: str | None
    suggestion: str | None
    note: str | None
    facets: Facets | None

    def records(self) -> list[dict[str, Any]]:
        """Return the hits and the facets for --json."""
        records = [hit.to_json() for hit in self.hits]
        return records if self.facets is None else [*records, {"facets": self.facets.to_json()}]

    def remarks(self) -> list[dict[str, Any]]:
        """Return the remarks for --json."""
        remarks: list[dict[str, Any]] = []
        if self.no_hits_reason is not None:
            remarks.append({"no_hits": self.no_hits_reason})
        if self.query.excluded:
            remarks.append({"excluded": self.query.excluded, "note": self._operators_note()})
        if self.answer is not None:
            remarks.append(
                {"has_answer": self.answer.has_answer, "probability": self.answer.probability}
            )
        if self.suggestion is not None:
            remarks.append({"did_you_mean": self.suggestion})
        if self.note is not None:
            remarks.append({"note": self.note})
        return remarks

    def notes(self) -> Iterator[str]:
        """Yield the remarks as lines of text."""
        reason = self.no_hits_reason
        if self.answer is not None and not self.answer.has_answer and reason is None:
            yield self._doubt(self.answer.probability)
        if self.note is not None:
            yield f"note: {self.note}"
        if reason is not None:
            yield f"no hits: {reason}"
        if self.query.excluded or (self.query.phrases and reason is not None):
            yield f"note: {self._operators_note()}"
        if self.suggestion is not None:
            yield f"did you mean: {self.suggestion}"

    def _operators_note(self) -> str:
        from retriever.search import operators_note

        return operators_note(self.query, "--raw")

    def _doubt(self, probability: float) -> str:
        chance = f"probability of an answer {probability:.1%}"
        if self.hits:
            return f"note: perhaps nothing relevant was found ({chance})"
        return f"nothing relevant was found ({chance}): lower --min-probability to see hits"


@dataclass(frozen=True)
class _Session:
    """An open index, its search settings, and the form in which hits are printed."""

    index: Index
    search: Callable[[list[str]], Iterator[list[Hit]]]  # the hits of each query
    settings: SearchSettings
    where: str | None
    options: QueryOptions
    as_json: bool
    quiet: bool

    def run(self, text: str | None, *, refreshes: bool) -> None:
        """Answer the queries of a file, or `text`, or else queries that are typed at a prompt.

        With `refreshes`, the index is refreshed before each query of the prompt.
        """
        if self.options.queries is not None:
            self.answer_file(self.options.queries)
        elif text is not None:
            self.show(next(self.search([text])), text)
        else:
            self.prompt(refreshes=refreshes)

    def note(self, line: str) -> None:
        """Print a remark on the answer to stderr, unless `quiet`."""
        if not self.quiet:
            say(line)

    def judge(self, hits: list[Hit]) -> tuple[list[Hit], Answer | None]:
        """Return the hits and the probability of an answer; no hits below --min-probability."""
        minimum = self.options.min_probability
        answer = self.index.answer(hits, self.settings, least=minimum)
        if answer is not None and answer.warning is not None:
            warnings.warn(answer.warning, stacklevel=2)
        withheld = minimum is not None and answer is not None and not answer.has_answer
        return [] if withheld else hits, answer

    def show(self, hits: list[Hit], text: str, query_id: str | None = None) -> None:
        """Print the hits for a text, which has an id if it comes from a file."""
        result = self._result(hits, text, is_suggested=query_id is None)
        if self.as_json:
            _print_json(result.records(), result.remarks(), query_id)
            return
        if query_id is not None:
            say(f"== {query_id}: {result.query.text}", err=False)
        self._print_hits(result.hits, result.query.text)
        if result.facets is not None:
            from cli.output.hits import facets_text

            click.echo(facets_text(result.facets))
        for line in result.notes():
            self.note(line)

    def _result(self, hits: list[Hit], text: str, *, is_suggested: bool) -> _QueryResult:
        """Return the hits that are printed for a text, with remarks on them."""
        from retriever.search import ParsedQuery, parse_query

        index = self.index
        settings = self.settings
        where = self.where
        judged_hits, answer = self.judge(hits)
        reason = None if hits else index.no_hits_reason(text, settings, where=where)
        query = ParsedQuery(text) if settings.raw else parse_query(text, index.has_flag)
        fields = self.options.facets
        is_bm25 = settings.mode == "bm25"
        return _QueryResult(
            query,
            judged_hits,
            answer,
            reason,
            index.suggestion(query.text) if is_suggested else None,
            index.search_note(hits, settings, where=where) if is_bm25 else None,
            index.facets(fields, query.text, where=where, raw=settings.raw) if fields else None,
        )

    def _print_hits(self, hits: list[Hit], text: str) -> None:
        """Print hits with their matches marked and, with `--explain`, their component scores."""
        from cli.output.hits import expansion_lines, explanation, hit_text
        from retriever.search.queries import highlights

        index = self.index
        raw = self.settings.raw
        styled = is_styled()
        cells = min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)
        weights = index.term_weights(text, raw=raw)
        analyzer = index.analyzer
        languages = index.languages
        for hit in hits:
            spans = highlights(hit.passage, analyzer, weights, languages)
            output = hit_text(hit, spans, cells=cells, styled=styled, full=self.options.full)
            click.echo(output, color=styled)
        if self.options.explain and hits:
            fusion = self.settings.fusion.completed(index.default_weight)
            click.echo(explanation(hits, replace(self.settings, fusion=fusion)))
            if self.settings.mode != "dense":
                for line in expansion_lines(index.expansions(text, raw=raw), cells):
                    click.echo(line)

    def answer_file(self, source: str) -> None:
        """Print the hits of every query of a file, or write them as a run."""
        from cli.output.progress import warn_reader
        from eval.metrics.trec import write_run
        from retriever.documents import CorpusReader

        reader = CorpusReader([source], on_empty="fail", number_ids=True)
        queries = list(reader)
        warn_reader(reader)
        rankings = zip(queries, self.search([query.text for query in queries]), strict=True)
        run_file = self.options.run
        if run_file is None:
            for query, hits in rankings:
                self.show(hits, query.text, query.id)
            return
        ranked = {
            query.id: [(hit.id, hit.score) for hit in self.judge(hits)[0]]
            for query, hits in rankings
        }
        write_run(run_file, ranked, f"retriever-{self.settings.mode}")
        number = f"{len(ranked):,} {'query' if len(ranked) == 1 else 'queries'}"
        self.note(f"{run_file}: {number}, {counted(sum(map(len, ranked.values())), 'hit')}")

    def prompt(self, *, refreshes: bool) -> None:
        """Ask for queries until end of input; the model stays loaded between them."""
        with suppress(ImportError):
            import readline  # noqa: F401  (line editing and history for input())
        if self.settings.mode != "bm25":
            _ = self.index.encoder
        self.note("One query per line; Ctrl-D ends.")
        # input() writes its prompt to standard output, which may be a file of hits.
        prompt = "> " if sys.stdout.isatty() else ""
        while True:
            try:
                text = input(prompt)
            except EOFError:
                click.echo(err=True)
                return
            if not text.strip():
                continue
            if refreshes:
                refresh_for_query(self.index, quiet=self.quiet)
            self.show(next(self.search([text])), text)
