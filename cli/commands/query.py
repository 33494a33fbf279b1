"""`retriever query`: search an index."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options.shared import (
    LAYER_FUSIONS,
    encoder_options,
    index_option,
    json_option,
    on_error_option,
)

if TYPE_CHECKING:
    from retriever.index import Index
    from retriever.search.engine import Hit, SearchSettings

HYBRID_FUSIONS = ("convex", "rrf")

Search = Callable[[list[str]], Iterator[list["Hit"]]]
Print = Callable[[list["Hit"], str, str | None], None]


@click.command("query")
@click.argument("text", nargs=-1)
@index_option
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, help="Hits wanted.")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "dense", "bm25"]),
    default="hybrid",
    show_default=True,
    help="Rank by embeddings, by BM25, or by both.",
)
@click.option("--where", help="Rank only documents that match, such as 'year >= 2020'.")
@click.option(
    "--queries", help="Answer every query of a file: .jsonl, .tsv, .txt (one a line), ... or -."
)
@click.option(
    "--run", "run_file", type=click.Path(path_type=Path), help="Write a TREC run (with --queries)."
)
@click.option("--alpha", type=float, help="Weight of the embeddings in convex fusion, 0 to 1.")
@click.option(
    "--normalization", type=click.Choice(["min-max", "z-score"]), help="Of scores, before fusion."
)
@click.option("--rrf-k", type=float, help="The constant of rrf.")
@click.option(
    "--variant",
    type=click.Choice(["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]),
    help="Which BM25.",
)
@click.option("--k1", type=float, help="BM25: saturation of term frequency.")
@click.option("--b", type=float, help="BM25: normalisation by length, 0 to 1.")
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    help="Candidate passages from each component (hybrid); hits that are reranked. [default: 100]",
)
@click.option(
    "--recall",
    type=click.FloatRange(0, 1, min_open=True),
    help="Recall@10 of the embedding side where an index has search structures. [default: 0.95]",
)
@click.option(
    "--rerank",
    type=click.Path(path_type=Path),
    help="The folder of a trained reranker, which ranks the first --depth hits anew.",
)
@click.option("--explain", is_flag=True, help="Show a table of component scores and ranks.")
@click.option("--full", is_flag=True, help="Show whole passages.")
@encoder_options(
    click.option(
        "--fusion",
        "fusions",
        type=click.Choice([*HYBRID_FUSIONS, *LAYER_FUSIONS]),
        multiple=True,
        help="How hybrid fuses scores (convex, rrf); how the encoder fuses layers (the others).",
    )
)
@on_error_option
@json_option
def command(
    text: tuple[str, ...],
    folder: Path,
    k: int,
    mode: Literal["hybrid", "dense", "bm25"],
    where: str | None,
    queries: str | None,
    run_file: Path | None,
    rerank: Path | None,
    explain: bool,
    full: bool,
    on_error: Literal["fail", "skip"],
    as_json: bool,
    fusions: tuple[str, ...],
    **options: Any,
) -> None:
    """Rank the documents of an index for TEXT.

    Without TEXT, at a terminal, asks for queries one after the other. --json prints one object a
    hit. Higher scores are better; equal ones are ordered by id. With --rerank, scores are the
    reranker's and in no fixed range.
    """
    from cli.options.encoder import model_choice
    from cli.options.filters import pointing
    from retriever.index import Index

    if text and queries is not None:
        raise click.UsageError("give either TEXT or --queries")
    if run_file is not None and queries is None:
        raise click.UsageError("--run needs --queries")
    if not text and queries is None and not sys.stdin.isatty():
        raise click.UsageError("nothing to search for: give TEXT or --queries FILE")
    settings = _settings(mode, k, {**options, "method": _one_of(fusions, HYBRID_FUSIONS)})
    choice = model_choice({**options, "fusion": _one_of(fusions, LAYER_FUSIONS)})
    reranker = None
    if rerank is not None:
        from retriever.search.reranking import load_reranker

        reranker = load_reranker(rerank, device=choice.device)
    with (
        Index.open(folder, choice) as index,
        pointing(where),
    ):
        search = partial(index.search_many, settings=settings, where=where, reranker=reranker)
        show = _printer(index, settings, where, as_json=as_json, explain=explain, full=full)
        if queries is not None:
            _answer_file(search, settings, queries, on_error, run_file, show)
        elif text:
            _answer(search, " ".join(text), show)
        else:
            if settings.mode != "bm25":
                _ = index.encoder
            _prompt(search, show)


def _one_of(fusions: tuple[str, ...], kind: tuple[str, ...]) -> str | None:
    """The fusion of one kind that was asked for, or None."""
    asked = [fusion for fusion in fusions if fusion in kind]
    if len(asked) > 1:
        raise click.UsageError(f"--fusion: {asked[0]} and {asked[1]} exclude each other")
    return asked[0] if asked else None


def _settings(mode: Literal["hybrid", "dense", "bm25"], k: int, given: dict[str, Any]) -> Any:
    """Settings from the options that were given, defaults for the rest."""
    from indexes.bm25.scoring import BM25Settings
    from retriever.search.engine import SearchSettings
    from retriever.search.fusion import FusionSettings

    given = {name: value for name, value in given.items() if value is not None}

    def chosen(kind: Any) -> Any:
        names = {field.name for field in fields(kind)} & set(given)
        return kind(**{name: given[name] for name in names})

    own = {name: given[name] for name in ("depth", "recall") if name in given}
    return SearchSettings(
        mode=mode, k=k, fusion=chosen(FusionSettings), bm25=chosen(BM25Settings), **own
    )


def _printer(
    index: Index,
    settings: SearchSettings,
    where: str | None,
    *,
    as_json: bool,
    explain: bool,
    full: bool,
) -> Print:
    from cli.output.hits import explanation, hit_json, hit_text

    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)

    def show(hits: list[Hit], text: str, query: str | None) -> None:
        if as_json:
            for hit in hits:
                click.echo(hit_json(hit, query))
            return
        if query is not None:
            click.echo(f"== {query}: {text}")
        terms = frozenset(index.analyzer.tokens(text))
        for hit in hits:
            click.echo(
                hit_text(hit, terms, index.analyzer, width=width, color=color, full=full),
                color=color,
            )
        if explain and hits:
            click.echo(explanation(hits, settings))
        if not hits:
            click.echo(_why_nothing(index, text, settings, where), err=True)

    return show


def _why_nothing(index: Index, text: str, settings: SearchSettings, where: str | None) -> str:
    if index.info()["documents"] == 0:
        return "no hits: the index is empty"
    if settings.mode != "bm25" and where is not None:
        return "no hits: no document matches the filter"
    if settings.mode == "bm25" and not index.analyzer.tokens(text):
        return "no hits: the query holds nothing but stop words and punctuation"
    return "no hits"


def _answer(search: Search, text: str, show: Print) -> None:
    show(next(search([text])), text, None)


def _answer_file(
    search: Search,
    settings: SearchSettings,
    queries: str,
    on_error: Literal["fail", "skip"],
    run_file: Path | None,
    show: Print,
) -> None:
    from cli.output.progress import warn_reader
    from eval.metrics.trec import write_run
    from retriever.corpus import CorpusReader

    reader = CorpusReader([queries], on_error=on_error, on_empty="fail", number_ids=True)
    asked = list(reader)
    warn_reader(reader, lambda line: click.echo(line, err=True))
    answers = search([query.text for query in asked])
    if run_file is None:
        for query, hits in zip(asked, answers, strict=True):
            show(hits, query.text, query.id)
        return
    ranked = {
        query.id: [(hit.id, hit.score) for hit in hits]
        for query, hits in zip(asked, answers, strict=True)
    }
    write_run(run_file, ranked, f"retriever-{settings.mode}")
    click.echo(
        f"{run_file}: {len(ranked):,} queries, {sum(map(len, ranked.values())):,} hits", err=True
    )


def _prompt(search: Search, show: Print) -> None:
    """Ask for queries until end of input; the model stays loaded between them."""
    try:
        import readline  # noqa: F401  (line editing and history for input())
    except ImportError:
        click.echo("note: no line editing here", err=True)
    click.echo("One query a line; Ctrl-D ends.", err=True)
    # input() writes its prompt to standard output, which may be a file of hits.
    shown = "> " if sys.stdout.isatty() else ""
    while True:
        try:
            text = input(shown)
        except EOFError:
            click.echo(err=True)
            return
        if text.strip():
            _answer(search, text, show)
