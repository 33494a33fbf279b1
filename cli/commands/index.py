"""`retriever index`: add documents to an index."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cli.index_access import (
    decide_model,
    follow,
    has_automatic_model,
    ocr_option,
    use_ocr_command,
    watch_option,
)
from cli.index_options import IndexOptions, index_options
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Location,
    Settings,
    config_option,
    encoder_options,
    index_option,
    json_option,
    quiet_option,
)
from cli.output.progress import EncodingProgress, Stages, warn_metadata, warn_reader
from cli.output.text import counted, human_bytes, merge_note, say, say_earlier_terms, tell
from cli.source_options import NO_COMPACT, SourceOptions, document_options, sources_argument
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever.documents import CorpusReader
    from retriever.index import Index, IndexingReport
    from retriever.index.automatic import ModelDecision


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """Effects of a run on the index, and the files that it reads of folders."""

    recreate: bool = setting(
        False, "Replace the index once the new index is complete.", section="Index"
    )
    existing: bool = setting(
        False, "Fail if the index does not exist, instead of creating it.", section="Index"
    )
    prune: bool = setting(
        False, "Delete documents of the index that no SOURCE contains.", section="Index"
    )
    no_compact: bool = NO_COMPACT
    include: tuple[str, ...] = setting(
        (),
        "In folders, read only files that match PATTERN, in .gitignore syntax; repeatable. A "
        "PATTERN such as '*.log' also reads files of other kinds, as text.",
        section="Input",
    )
    exclude: tuple[str, ...] = setting(
        (),
        "In folders, skip what matches PATTERN, in .gitignore syntax; repeatable.",
        section="Input",
    )
    as_: tuple[str, ...] = setting(
        (),
        "Read files that match PATTERN as this kind, such as text='*.nfo' or markdown='*.txt'; "
        "repeatable.",
        section="Input",
    )
    archives: bool = setting(
        False,
        "Read the files in .zip and .tar archives too, each as a document.",
        section="Input",
    )
    dry_run: bool = setting(
        False,
        "List the files that a run would read or skip, with the reason; change nothing.",
        section="Input",
    )


@click.command("index", cls=Command)
@sources_argument
@config_option
@index_option
@watch_option
@Settings(
    "run",
    UpdateOptions,
    "prune recreate existing no_compact include exclude as_ archives dry_run",
    metavars={"include": "PATTERN", "exclude": "PATTERN", "as_": "KIND=PATTERN"},
)
@ocr_option("Input")
@document_options
@index_options("on_long context language index_type", "overlap stemming stop_words memory")
@encoder_options(MINILM, "layers pooling dtype", dtype="auto", automatic=True)
@quiet_option
@json_option
def index_command(
    sources: tuple[str, ...],
    folder: Location,
    run: UpdateOptions,
    watch: bool,
    ocr: str | None,
    source: SourceOptions,
    index_settings: IndexOptions,
    encoder: EncoderOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add documents to an index, and create it if needed.

    A SOURCE is a folder, a file, a table of a SQLite database (data.db::table), or - for standard
    input. In a folder, each file becomes a document: text, Markdown, HTML, PDF, DOCX, PPTX, XLSX,
    OpenDocument, RTF, EPUB, e-mail, notebooks or code. A .jsonl, .csv, .tsv, .parquet or .txt file
    that you name holds one passage per line or row. Files may be gzipped.

    A document replaces the stored document with the same id; unchanged documents are not encoded
    again. Run the same command again to resume an interrupted run. Hidden files are skipped, and
    files that .gitignore, .ignore or .retrieverignore exclude. The index remembers its sources for
    `retriever refresh`. The defaults below hold for a new index. To give an existing index another
    encoder, analyzer or search structure, use `retriever reindex`.
    """
    from retriever.errors import require_extra
    from retriever.index import Index

    if run.recreate and run.existing:
        raise click.UsageError("--existing: --recreate makes a new index; leave one of them out")
    if watch:
        require_extra("watch", "--watch", "watchfiles")
    use_ocr_command(ocr)
    if run.dry_run:
        _print_plan(sources, run, as_json=as_json)
        return
    reader = source.reader(
        sources,
        on_empty="yield",
        include=run.include,
        exclude=run.exclude,
        as_kinds=run.as_,
        archives=run.archives,
    )
    if run.existing:
        # Refuses a folder without an index.
        Index.open(folder).close()
    started = time.monotonic()
    encoder_keywords = encoder.keywords()
    decision = None
    if has_automatic_model(encoder_keywords):
        keywords = encoder_keywords | _index_keywords(index_settings)
        decision = decide_model(folder, reader, keywords, replaces=run.recreate, quiet=quiet)
        encoder_keywords["model"] = decision.settings
    outcome = _add_documents(
        reader, folder, run, encoder_keywords, index_settings, decision, quiet=quiet
    )
    _warn_documents(outcome)
    facts: dict[str, Any] = {"seconds": round(time.monotonic() - started, 3)}
    if decision is not None:
        facts["auto"] = decision.reason or None
    _tell_outcome(folder, reader, run, outcome, facts, as_json=as_json, quiet=quiet)
    if watch:
        with Index.open(folder, **encoder_keywords) as index:
            _follow_until_interrupted(index, folder)


def _print_plan(sources: tuple[str, ...], run: UpdateOptions, *, as_json: bool) -> None:
    """Print which files would be read and left out."""
    from cli.output.dry_run import print_plan
    from retriever.documents.folder_rules import FolderRules
    from retriever.documents.plan import plan_reading

    rules = FolderRules(run.include, run.exclude, run.as_, run.archives)
    print_plan(plan_reading(sources, rules), as_json=as_json)


def _tell_outcome(
    folder: Location,
    reader: CorpusReader,
    run: UpdateOptions,
    outcome: _Outcome,
    facts: Mapping[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print what was done, with further facts in JSON."""
    size = _index_size(folder)
    copies = f"; exact copies of others: {outcome.copies:,}" if outcome.copies else ""
    summary = (
        f"{folder}: {_counts(reader, outcome.report, run)} in {facts['seconds']:.1f} s"
        f"{merge_note(outcome.report)}{copies}; {human_bytes(size)} on disk"
    )
    all_facts = {**_facts(reader, outcome), **facts, "bytes": size}
    tell(summary, all_facts, as_json=as_json, quiet=quiet)


class _Outcome(NamedTuple):
    """The result of adding documents."""

    report: IndexingReport
    copies: int | None  # documents that are exact copies of others; None if not counted
    window: int | None  # of the encoder, in word pieces


def _add_documents(
    reader: CorpusReader,
    folder: Location,
    run: UpdateOptions,
    encoder_keywords: Mapping[str, Any],
    index_settings: IndexOptions,
    decision: ModelDecision | None,
    *,
    quiet: bool,
) -> _Outcome:
    """Create, replace or open the index, and add the documents of `reader`."""
    from retriever.index import Index, IndexingReport, recreated

    keywords = {**encoder_keywords, **_index_keywords(index_settings)}
    make_index = recreated if run.recreate else Index.create
    report = IndexingReport()
    with ExitStack() as stack:
        index = stack.enter_context(make_index(folder, **keywords))
        if decision is not None:
            decision.record(index.store)
        _warn_settings(index)
        progress = stack.enter_context(EncodingProgress(reader, quiet=quiet))
        stack.callback(warn_metadata, reader)
        stack.callback(warn_reader, reader, quiet=quiet)
        try:
            index.add(
                reader,
                on_long=index_settings.on_long,
                progress=progress,
                stage=stack.enter_context(Stages(quiet=quiet)),
                report=report,
                prune=run.prune or run.recreate,
                remember=True,
                compact=not run.no_compact,
            )
        except KeyboardInterrupt:
            say(
                f"{folder}: {counted(report.added + report.updated, 'document')} committed; "
                "vectors in progress are lost; run the same command again to resume"
            )
            raise
        outcome = _Outcome(report, index.count_copies(), index.encoder_spec.max_length)
        say_earlier_terms(index, quiet=quiet)
    return outcome


def _index_keywords(index_settings: IndexOptions) -> dict[str, Any]:
    """Return the settings of an index as `Index.create` takes them."""
    keywords = index_settings.keywords()
    if index_settings.on_long == "error":
        # A setting of this run, which no index stores.
        del keywords["on_long"]
    return keywords


def _warn_documents(outcome: _Outcome) -> None:
    """Report documents that became empty, and those that were truncated."""
    report = outcome.report
    if report.emptied:
        say(f"note: {counted(report.emptied, 'document')} deleted, whose new version is empty")
    if report.truncated:
        say(
            f"warning: {counted(report.truncated, 'document')} truncated to the encoder's window "
            f"of {outcome.window} tokens"
        )


def _facts(reader: CorpusReader, outcome: _Outcome) -> dict[str, Any]:
    """Return the counts of a run for --json."""
    return {
        **asdict(outcome.report),
        "merge_seconds": round(outcome.report.merge_seconds, 3),
        "skipped": reader.skipped,
        "empty": reader.empty,
        "identical": reader.duplicates,
        "copies": outcome.copies,
        "columns": reader.columns,
        "files": reader.files.to_json(),
        "files_left_out": dict(reader.files_left_out),
        "left_out": {name: count.records for name, count in reader.left_out.items()},
    }


def _counts(reader: CorpusReader, report: IndexingReport, run: UpdateOptions) -> str:
    """Return the counts of a run in words."""
    shows_deleted = run.recreate or run.prune or report.deleted
    return (
        f"{report.added:,} added, {report.updated:,} updated, {report.unchanged:,} unchanged, "
        + (f"{report.deleted:,} deleted, " if shows_deleted else "")
        + f"{reader.skipped:,} skipped"
        + (f", {reader.empty:,} empty" if reader.empty else "")
        + f"; {counted(report.passages, 'passage')} encoded"
        + (f" ({counted(report.split, 'document')} split)" if report.split else "")
    )


def _index_size(folder: Location) -> int:
    """Return the size of an index in bytes."""
    from retriever import open_store

    return open_store(folder).size()


def _follow_until_interrupted(index: Index, folder: Location) -> None:
    """Refresh an index whenever a source changes, until Ctrl-C."""
    stop = Event()

    def end(*_: object) -> None:
        # A library's callback can swallow the exception. The event stays set.
        stop.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, end)
    say(f"{folder}: watching its sources; press Ctrl-C to stop")
    with suppress(KeyboardInterrupt):
        follow(index, stop)


def _warn_settings(index: Index) -> None:
    """Warn of settings that the encoder of an index lacks, and of a slow number format."""
    from retriever.encoders import missing_settings
    from retriever.encoders.computing import is_int8_slower

    fault = missing_settings(index.encoder_spec)
    if fault is not None:
        say(f"warning: {fault}")
    if index.encoder_spec.settings.dtype == "int8" and is_int8_slower():
        say("note: bfloat16, the default, is faster than int8 on this processor; leave dtype out")
