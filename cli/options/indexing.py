"""Putting documents into an index that is open, with progress, and what is said of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from retriever.corpus import CorpusReader
    from retriever.index import Index

on_long_option = click.option(
    "--on-long",
    type=click.Choice(["split", "truncate", "error"]),
    help="What to do with a text longer than the window. [default: the index's own way; "
    "split for a new one]",
)


def index_documents(
    open_index: Callable[[], AbstractContextManager[Index]],
    folder: Path,
    reader: CorpusReader,
    *,
    on_long: Literal["split", "truncate", "error"] | None,
    prune: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add the documents of a corpus to an index, and print what became of them.

    Args:
        open_index: opens the index, or makes it.
        folder: what the user calls it.
        reader: the corpus.
        on_long: as `Index.add` takes it.
        prune: delete every document that is not in the corpus.
        quiet: print nothing but warnings.
        as_json: print an object.

    Raises:
        What `open_index` and `Index.add` raise.
    """
    from cli.output.progress import EncodingProgress, human_bytes, warn_reader
    from retriever.description import size_on_disk
    from retriever.indexing.report import IndexingReport

    started = time.monotonic()
    report = IndexingReport()
    with ExitStack() as stack:
        index = stack.enter_context(open_index())
        progress = stack.enter_context(EncodingProgress(reader, quiet=quiet))
        stack.callback(warn_reader, reader, _note)
        try:
            index.add(reader, on_long=on_long, progress=progress, report=report, prune=prune)
        except KeyboardInterrupt:
            _note(f"{folder}: what was encoded is kept; run the same command again to go on")
            raise
    summary: dict[str, Any] = {
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "deleted": report.deleted,
        "skipped": reader.skipped,
        "empty": reader.empty,
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
            + (f"{report.deleted:,} deleted, " if prune else "")
            + f"{reader.skipped:,} skipped"
            + (f", {reader.empty:,} empty" if reader.empty else "")
            + f"; {report.passages:,} passages encoded"
            + (f" ({report.split:,} documents split)" if report.split else "")
            + f" in {summary['seconds']:.1f} s; {human_bytes(summary['bytes'])} on disk"
        )


def _note(line: str) -> None:
    click.echo(line, err=True)
