"""`retriever refresh`: read again what has changed in the sources of an index."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from cli.index_access import changes_text, ocr_option, use_ocr_command, warn_refresh
from cli.options import Command, Location, index_option, json_option, option, quiet_option
from cli.output.text import say, say_earlier_terms, tell


@click.command("refresh", cls=Command)
@index_option
@option(
    "--prune",
    is_flag=True,
    help="Delete the documents of missing sources, and forget these sources.",
    section="Index",
)
@ocr_option("Input")
@quiet_option
@json_option
def refresh_command(
    folder: Location, prune: bool, ocr: str | None, quiet: bool, as_json: bool
) -> None:
    """Update an index after its source files have changed.

    An index remembers the files and folders that it was made of. New files are added, changed files
    replaced, and the documents of deleted files deleted. If a whole source is missing, nothing
    changes.
    """
    from cli.output.progress import DocumentsRead, EncodingProgress, Stages, left_out_line
    from retriever.index import Index

    use_ocr_command(ocr)
    started = time.monotonic()
    with (
        Index.open(folder) as index,
        EncodingProgress(DocumentsRead(None), quiet=quiet) as progress,
        Stages(quiet=quiet) as stage,
    ):
        report = index.refresh(prune=prune, progress=progress, stage=stage)
        say_earlier_terms(index, quiet=quiet)
    seconds = round(time.monotonic() - started, 3)
    warn_refresh(report, quiet=quiet)
    if report.files_left_out and not quiet:
        say(left_out_line(report.files_left_out))
    summary = f"{folder}: {changes_text(report)}, {report.unchanged:,} unchanged in {seconds:.1f} s"
    tell(summary, {**asdict(report), "seconds": seconds}, as_json=as_json, quiet=quiet)
