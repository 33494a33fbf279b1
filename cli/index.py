"""`retriever index`: put documents into an index."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import click

from cli.analyzer_options import analyzer_options, analyzer_settings
from cli.options import (
    field_options,
    index_option,
    index_type_option,
    json_option,
    memory_option,
    model_options,
    on_error_option,
    quiet_option,
)


@click.command("index")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@index_option
@field_options
@model_options
@click.option(
    "--on-long",
    type=click.Choice(["split", "truncate", "error"]),
    help="What to do with a text longer than the window. [default: split, or the index's own way]",
)
@analyzer_options
@index_type_option
@memory_option
@on_error_option
@click.option("--recreate", is_flag=True, help="Start over; the old index serves until then.")
@quiet_option
@json_option
def command(
    sources: tuple[str, ...],
    folder: Path,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    on_long: Literal["split", "truncate", "error"] | None,
    language: str | None,
    stemming: bool | None,
    stop_words: bool | None,
    index_type: str | None,
    memory: int | None,
    on_error: Literal["fail", "skip"],
    recreate: bool,
    quiet: bool,
    as_json: bool,
    **encoder_options: Any,
) -> None:
    """Add the documents of SOURCE... to an index, which is made if there is none.

    A SOURCE is a .jsonl, .csv, .tsv, .parquet or .txt file (a passage a line), gzipped or not, a
    folder of .txt and .md files, or - for standard input. Documents whose id the index holds are
    replaced; unchanged ones cost no encoding. An interrupted run goes on where it was when it is
    started again.
    """
    from cli.encoders import model_choice
    from cli.progress import EncodingProgress, human_bytes, warn_reader
    from indexes.segment_structure import StructureSettings
    from retriever.corpus import CorpusReader, Fields
    from retriever.index import Index, size_on_disk
    from retriever.passages import PassageSettings
    from retriever.progress import IndexingReport
    from retriever.recreation import recreated

    started = time.monotonic()
    reader = CorpusReader(sources, Fields(id_field, text_field, title_field), on_error=on_error)
    choice = model_choice(encoder_options)
    analyzer = analyzer_settings(language, stemming, stop_words)
    passages = None
    if on_long is not None and on_long != "error":
        passages = PassageSettings(on_long=on_long)
    structures = None
    if index_type is not None or memory is not None:
        structures = StructureSettings(index_type or "auto", memory)
    report = IndexingReport()
    with ExitStack() as stack:
        if recreate:
            index = stack.enter_context(
                recreated(
                    folder,
                    choice,
                    analyzer=analyzer,
                    passages=passages,
                    structures=structures,
                )
            )
        else:
            index = stack.enter_context(
                Index.create(
                    folder,
                    choice,
                    analyzer=analyzer,
                    passages=passages,
                    structures=structures,
                )
            )
        progress = stack.enter_context(EncodingProgress(reader, quiet=quiet))
        stack.callback(warn_reader, reader, _note)
        try:
            index.add(reader, on_long=on_long, progress=progress, report=report, prune=recreate)
        except KeyboardInterrupt:
            _note(f"{folder}: what was encoded is kept; run the same command again to go on")
            raise
    summary: dict[str, Any] = {
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "deleted": report.deleted,
        "skipped": reader.skipped,
        "identical": reader.duplicates,
        "passages": report.passages,
        "pieces": report.pieces,
        "split": report.split,
        "truncated": report.truncated,
        "seconds": round(time.monotonic() - started, 3),
        "bytes": size_on_disk(folder),
    }
    if report.truncated:
        _note(
            f"warning: the end of {report.truncated:,} documents was cut off: they are longer than "
            f"the window of {index.encoder_spec.max_length} word pieces"
        )
    if as_json:
        click.echo(json.dumps(summary))
    elif not quiet:
        click.echo(
            f"{folder}: {report.added:,} added, {report.updated:,} updated, "
            f"{report.unchanged:,} unchanged, "
            + (f"{report.deleted:,} deleted, " if recreate else "")
            + f"{reader.skipped:,} skipped; {report.passages:,} passages encoded"
            + (f" ({report.split:,} documents split)" if report.split else "")
            + f" in {summary['seconds']:.1f} s; {human_bytes(summary['bytes'])} on disk"
        )


def _note(line: str) -> None:
    click.echo(line, err=True)
