"""`retriever reindex`: encode the documents of an index again."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Literal

import click

from cli.options.analyzer import AnalyzerOptions, analyzer_options
from cli.options.declaring import Command, option
from cli.options.encoder import EncoderOptions, encoder_options
from cli.options.index import OWN, Location, index_option
from cli.options.output import json_option, quiet_option
from cli.options.structure import StructureOptions, structure_options
from cli.output.progress import counted
from cli.output.results import say


@dataclass(slots=True)
class _DocumentsRead:
    """Progress for `EncodingProgress`, in documents instead of bytes."""

    total_bytes: int
    bytes_read: int = 0

    def count(self, documents: int) -> None:
        self.bytes_read += documents


@click.command("reindex", cls=Command)
@index_option
@encoder_options(OWN, OWN)
@option(
    "--on-long",
    type=click.Choice(["split", "truncate"]),
    help="How to treat a text longer than the encoder's window: split it into passages, or cut it.",
    shown_default=OWN,
    section="Index",
)
@analyzer_options(OWN)
@structure_options(OWN)
@quiet_option
@json_option
def command(
    folder: Location,
    encoder: EncoderOptions,
    on_long: Literal["split", "truncate"] | None,
    analyzer: AnalyzerOptions,
    structure: StructureOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Rebuild an index from its own documents, with another encoder.

    The old index serves searches until the new one is complete and replaces it. Settings that you
    do not give stay as they are; with --model, those of the encoder are that model's own. An
    interrupted run resumes when you run the same command again.
    """
    from cli.output.progress import EncodingProgress
    from retriever.index import Index
    from retriever.indexing.reindex import reindexed
    from retriever.indexing.report import IndexingReport

    started = time.monotonic()
    choice = encoder.choice()
    with Index.open(folder) as index:
        documents = _DocumentsRead(index.info()["documents"])
        analyzer_settings = analyzer.settings(index.analyzer.settings)
        passages = None if on_long is None else replace(index.passages, on_long=on_long)
        structures = structure.settings(index.structures)
    report = IndexingReport()
    with EncodingProgress(documents, quiet=quiet) as progress:
        try:
            done = reindexed(
                folder,
                choice.encoder,
                device=choice.device,
                download=choice.download,
                analyzer=analyzer_settings,
                passages=passages,
                structures=structures,
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
        say(f"{folder}: nothing changes, the index has this encoder and these settings", err=False)
    else:
        resumed = f", {counted(report.unchanged, 'document')} from the interrupted run"
        say(
            f"{folder}: {counted(documents.bytes_read, 'document')}, "
            f"{counted(report.passages, 'passage')} encoded"
            + (resumed if report.unchanged else "")
            + f" in {seconds:.1f} s",
            err=False,
        )
