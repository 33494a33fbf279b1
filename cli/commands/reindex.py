"""`retriever reindex`: rebuild an index from its own documents."""

from __future__ import annotations

import shlex
import time

import click

from cli.index_options import INDEX_FIELDS, IndexOptions, index_options
from cli.options import (
    OWN,
    Command,
    EncoderOptions,
    Location,
    encoder_options,
    index_option,
    json_option,
    quiet_option,
)
from cli.output.progress import DocumentsRead, EncodingProgress
from cli.output.text import counted, say, tell


@click.command("reindex", cls=Command)
@index_option
@encoder_options(OWN, "layers pooling dtype", own=OWN)
@index_options(
    "on_long context language",
    "index_type overlap stemming stop_words memory",
    dict.fromkeys(INDEX_FIELDS, OWN),
)
@quiet_option
@json_option
def reindex_command(
    folder: Location,
    encoder: EncoderOptions,
    asked: IndexOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Rebuild an index from its own documents, with another encoder.

    The old index serves searches until the new one is complete and replaces it. Settings that you
    do not give stay as they are; with --model, those of the encoder are that model's own. An
    interrupted run resumes when you run the same command again.
    """
    from retriever.index import Index, IndexingReport, reindexed
    from retriever.index.sources import memory_path

    if asked.on_long == "error":
        raise click.UsageError("--on-long error: texts are in the index; use split or truncate")
    started = time.monotonic()
    chosen = encoder.keywords()
    with Index.open(folder) as index:
        documents = DocumentsRead(index.info()["documents"])
        lacks_labels = not index.passages.labels and memory_path(index.store).exists()
    report = IndexingReport()
    with EncodingProgress(documents, quiet=quiet) as progress:
        try:
            done = reindexed(
                folder,
                **chosen,
                **asked.keywords(),
                progress=progress,
                report=report,
                read=documents.count,
            )
        except KeyboardInterrupt:
            say(
                f"{folder}: the old index keeps serving; "
                f"{counted(report.added, 'document')} of this run committed to the new one, what "
                "was being encoded is lost; run the same command again to resume"
            )
            raise
    seconds = round(time.monotonic() - started, 3)
    if report.truncated:
        say(f"warning: {counted(report.truncated, 'document')} truncated to the encoder's window")
    if lacks_labels and done is not None and not quiet:
        place = shlex.quote(str(folder))
        say(f"note: `retriever refresh -i {place}` brings the names and keywords of the files")
    facts = {
        "changed": done is not None,
        "documents": documents.bytes_read,
        "passages": report.passages,
        "resumed": report.unchanged,
        "split": report.split,
        "truncated": report.truncated,
        "seconds": seconds,
    }
    resumed = f", {counted(report.unchanged, 'document')} from the interrupted run"
    summary = (
        f"{folder}: nothing changes, the index has this encoder and these settings"
        if done is None
        else f"{folder}: {counted(documents.bytes_read, 'document')}, "
        f"{counted(report.passages, 'passage')} encoded"
        + (resumed if report.unchanged else "")
        + f" in {seconds:.1f} s"
    )
    tell(summary, facts, as_json=as_json, quiet=quiet)
