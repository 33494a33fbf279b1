"""`retriever index`: add documents to an index, and create it."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING

import click

from cli.commands.refresh import follow, watch_option
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Location,
    config_option,
    encoder_options,
    index_option,
    json_option,
    option,
    quiet_option,
)
from cli.output.text import counted, human_bytes, say, tell
from cli.source_options import (
    IndexOptions,
    SourceOptions,
    compact_option,
    document_options,
    index_options,
    sources_argument,
)

if TYPE_CHECKING:
    from retriever.index.add import IndexingReport


@click.command("index", cls=Command)
@sources_argument
@config_option("model", "index")
@index_option
@option(
    "--recreate",
    is_flag=True,
    help="Replace the index, once the new one is complete.",
    section="Index",
)
@option(
    "--existing",
    is_flag=True,
    help="Fail if there is no index, instead of making one.",
    section="Index",
)
@option(
    "--prune",
    is_flag=True,
    help="Delete every document of the index that no SOURCE holds.",
    section="Index",
)
@watch_option
@document_options
@option(
    "--include",
    metavar="PATTERN",
    multiple=True,
    help="Of a folder, read only the files that a pattern as in .gitignore matches; repeatable.",
    section="Input",
)
@option(
    "--exclude",
    metavar="PATTERN",
    multiple=True,
    help="Of a folder, leave out what a pattern as in .gitignore matches; repeatable.",
    section="Input",
)
@index_options("on_long context language index_type", "overlap stemming stop_words memory")
@encoder_options(MINILM)
@compact_option
@quiet_option
@json_option
def index_command(
    sources: tuple[str, ...],
    folder: Location,
    recreate: bool,
    existing: bool,
    prune: bool,
    watch: bool,
    source: SourceOptions,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    asked: IndexOptions,
    encoder: EncoderOptions,
    no_compact: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add documents to an index, and create it if needed.

    A SOURCE is a .jsonl, .csv, .tsv, .parquet or .txt file (a passage per line), gzipped or not, a
    folder or file of text, Markdown, HTML, PDF, DOCX, PPTX, EPUB, e-mail, notebooks or code (a
    document per file), a table of a SQLite database (data.db::table), or - for standard input.

    Documents whose id is in the index are replaced; unchanged ones are not encoded again, and an
    interrupted run resumes. Of a folder, hidden files and those that .gitignore, .ignore or
    .retrieverignore name are left out. The index remembers its sources, for `retriever refresh`.
    Defaults are those of a new index; an existing one refuses another encoder, analyzer or search
    structure.
    """
    from cli.output.progress import EncodingProgress, Stages, warn_metadata, warn_reader
    from retriever import open_store
    from retriever.errors import require_extra
    from retriever.index import Index
    from retriever.index.add import IndexingReport
    from retriever.index.recreation import recreated

    if recreate and existing:
        raise click.UsageError("--existing: --recreate makes a new index; leave one of them out")
    if watch:
        require_extra("watch", "--watch", "watchfiles")
    reader = source.reader(sources, on_empty="yield", include=include, exclude=exclude)
    chosen, wanted = encoder.keywords(), asked.keywords()
    if asked.on_long == "error":
        # Of this run alone, not of the index.
        del wanted["on_long"]
    if existing:
        # Refuses a place without one.
        Index.open(folder).close()
    started = time.monotonic()
    report = IndexingReport()
    with ExitStack() as stack:
        index = stack.enter_context(
            (recreated if recreate else Index.create)(folder, **chosen, **wanted)
        )
        window = index.encoder_spec.max_length
        progress = stack.enter_context(EncodingProgress(reader, quiet=quiet))
        stack.callback(warn_metadata, reader)
        stack.callback(warn_reader, reader)
        try:
            index.add(
                reader,
                on_long=asked.on_long,
                progress=progress,
                stage=stack.enter_context(Stages(quiet=quiet)),
                report=report,
                prune=prune or recreate,
                remember=True,
                compact=not no_compact,
            )
        except KeyboardInterrupt:
            say(
                f"{folder}: {counted(report.added + report.updated, 'document')} of this run "
                "committed, what was being encoded is lost; run the same command again to resume"
            )
            raise
        copies = index.count_copies()
    seconds = round(time.monotonic() - started, 3)
    if report.emptied:
        say(f"note: {counted(report.emptied, 'document')} deleted, whose new version is empty")
    if report.truncated:
        say(
            f"warning: {counted(report.truncated, 'document')} truncated to the encoder's window "
            f"of {window} word pieces"
        )
    size = open_store(folder).size()
    facts = {
        **asdict(report),
        "merge_seconds": round(report.merge_seconds, 3),
        "skipped": reader.skipped,
        "empty": reader.empty,
        "identical": reader.duplicates,
        "copies": copies,
        "columns": reader.columns,
        "files_left_out": dict(reader.files_left_out),
        "left_out": {name: count.records for name, count in reader.left_out.items()},
        "seconds": seconds,
        "bytes": size,
    }
    summary = (
        f"{folder}: {report.added:,} added, {report.updated:,} updated, "
        f"{report.unchanged:,} unchanged, "
        + (f"{report.deleted:,} deleted, " if recreate or prune or report.deleted else "")
        + f"{reader.skipped:,} skipped"
        + (f", {reader.empty:,} empty" if reader.empty else "")
        + f"; {counted(report.passages, 'passage')} encoded"
        + (f" ({counted(report.split, 'document')} split)" if report.split else "")
        + f" in {seconds:.1f} s"
        + merge_note(report)
        + (f"; exact copies of others: {copies:,}" if copies else "")
        + f"; {human_bytes(size)} on disk"
    )
    tell(summary, facts, as_json=as_json, quiet=quiet)
    if watch:
        with Index.open(folder, **chosen) as index:
            stop = Event()

            def end(*_: object) -> None:
                # A callback of a library can swallow the exception; the event stays set.
                stop.set()
                raise KeyboardInterrupt

            signal.signal(signal.SIGINT, end)
            say(f"{folder}: follows its sources; Ctrl-C ends")
            with suppress(KeyboardInterrupt):
                follow(index, stop)


def merge_note(report: IndexingReport) -> str:
    """What a summary says of the merge at the end; empty if there was none."""
    if not report.merged_segments:
        return ""
    merged = counted(report.merged_segments, "segment")
    return f", {report.merge_seconds:.1f} s of it to merge {merged}"
