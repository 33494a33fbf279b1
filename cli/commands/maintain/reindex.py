"""`retriever reindex`: another encoder for the documents of an index."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from cli.options.analyzer import analyzer_options, analyzer_settings
from cli.options.shared import (
    index_option,
    index_type_option,
    json_option,
    memory_option,
    model_options,
    quiet_option,
)


@dataclass(slots=True)
class _DocumentsRead:
    """Shown by `EncodingProgress` like a corpus, in documents instead of bytes."""

    total_bytes: int
    bytes_read: int = 0

    def count(self, documents: int) -> None:
        self.bytes_read += documents


@click.command("reindex")
@index_option
@model_options
@click.option(
    "--on-long",
    type=click.Choice(["split", "truncate"]),
    help="What to do with a text longer than the window. [default: the index's own way]",
)
@analyzer_options
@index_type_option
@memory_option
@quiet_option
@json_option
def command(
    folder: Path,
    on_long: Literal["split", "truncate"] | None,
    language: str | None,
    stemming: bool | None,
    stop_words: bool | None,
    index_type: str | None,
    memory: int | None,
    quiet: bool,
    as_json: bool,
    **encoder_options: Any,
) -> None:
    """Make an index anew from its own documents, with another encoder.

    The old index answers until the new one is complete and takes its place. What is not given is
    as in the index. An interrupted run goes on where it was when it is started again.
    """
    from dataclasses import replace

    from cli.options.encoder import model_choice
    from cli.output.progress import EncodingProgress
    from indexes.vectors.choice import StructureSettings
    from retriever.index import Index
    from retriever.indexing.reindex import reindexed
    from retriever.indexing.report import IndexingReport

    started = time.monotonic()
    choice = model_choice(encoder_options)
    with Index.open(folder) as index:
        documents = _DocumentsRead(index.info()["documents"])
        analyzer = analyzer_settings(language, stemming, stop_words, index.analyzer.settings)
        passages = None if on_long is None else replace(index.passages, on_long=on_long)
        structures = StructureSettings(
            index_type or index.structures.index_type, memory or index.structures.memory_bytes
        )
    report = IndexingReport()
    with EncodingProgress(documents, quiet=quiet) as progress:
        try:
            done = reindexed(
                folder,
                choice.encoder,
                device=choice.device,
                download=choice.download,
                analyzer=analyzer,
                passages=passages,
                structures=structures,
                progress=progress,
                report=report,
                read=documents.count,
            )
        except KeyboardInterrupt:
            click.echo(
                f"{folder}: the old index goes on serving, and what was encoded is kept; run the "
                "same command again to go on",
                err=True,
            )
            raise
    seconds = round(time.monotonic() - started, 3)
    if report.truncated:
        click.echo(
            f"warning: the end of {report.truncated:,} documents was cut off: they are longer than "
            "the encoder's window",
            err=True,
        )
    if as_json:
        facts = {
            "changed": done is not None,
            "documents": documents.bytes_read,
            "passages": report.passages,
            "resumed": report.unchanged,
            "split": report.split,
            "truncated": report.truncated,
            "seconds": seconds,
        }
        click.echo(json.dumps(facts))
    elif quiet:
        return
    elif done is None:
        click.echo(f"{folder}: nothing changes, the index has this encoder and these settings")
    else:
        click.echo(
            f"{folder}: {documents.bytes_read:,} documents, {report.passages:,} passages encoded"
            + (f", {report.unchanged:,} documents from the run before" if report.unchanged else "")
            + f" in {seconds:.1f} s"
        )
