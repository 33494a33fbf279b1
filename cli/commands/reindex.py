"""`retriever reindex`: rebuild an index from its own documents."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from retriever.index import IndexingReport


@click.command("reindex", cls=Command)
@index_option
@encoder_options(OWN, "layers pooling dtype", default=OWN)
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
    index_settings: IndexOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Rebuild an index from its documents with another encoder.

    You can search the old index until the new index is complete and replaces it. Settings that you
    do not give stay as they are. With --model, encoder settings are the defaults of that model. Run
    the same command again to resume an interrupted run.
    """
    from retriever.index import Index, IndexingReport
    from retriever.index.sources.memory import memory_path

    if index_settings.on_long == "error":
        raise click.UsageError(
            "--on-long error: the index already has the texts; use split or truncate"
        )
    started = time.monotonic()
    with Index.open(folder) as index:
        documents = DocumentsRead(index.info()["documents"])
        lacks_labels = not index.passages.labels and memory_path(index.store).exists()
    report = IndexingReport()
    keywords = {**encoder.keywords(), **index_settings.keywords()}
    has_changed = _rebuild(folder, keywords, documents, report, quiet=quiet)
    seconds = round(time.monotonic() - started, 3)
    if report.truncated:
        say(f"warning: {counted(report.truncated, 'document')} truncated to the encoder's window")
    if lacks_labels and has_changed and not quiet:
        place = shlex.quote(str(folder))
        say(f"note: `retriever refresh -i {place}` brings the names and keywords of the files")
    facts = {
        "changed": has_changed,
        "documents": documents.bytes_read,
        "passages": report.passages,
        "resumed": report.unchanged,
        "split": report.split,
        "truncated": report.truncated,
        "seconds": seconds,
    }
    summary = f"{folder}: nothing changes, the index has this encoder and these settings"
    if has_changed:
        summary = _summary(folder, documents.bytes_read, report, seconds)
    tell(summary, facts, as_json=as_json, quiet=quiet)


def _rebuild(
    folder: Location,
    keywords: Mapping[str, Any],
    documents: DocumentsRead,
    report: IndexingReport,
    *,
    quiet: bool,
) -> bool:
    """Rebuild an index with a bar; return whether it has changed. Fills `report`."""
    from retriever.index import reindexed

    with EncodingProgress(documents, quiet=quiet) as progress:
        try:
            new_index = reindexed(
                folder, **keywords, progress=progress, report=report, read=documents.count
            )
        except KeyboardInterrupt:
            say(
                f"{folder}: the old index still serves searches; "
                f"{counted(report.added, 'document')} committed to the new index; vectors in "
                "progress are lost; run the same command again to resume"
            )
            raise
    return new_index is not None


def _summary(folder: Location, documents: int, report: IndexingReport, seconds: float) -> str:
    """Return the line on a new index."""
    resumed = f", {counted(report.unchanged, 'document')} from the interrupted run"
    return (
        f"{folder}: {counted(documents, 'document')}, "
        f"{counted(report.passages, 'passage')} encoded"
        + (resumed if report.unchanged else "")
        + f" in {seconds:.1f} s"
    )
