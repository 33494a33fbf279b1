"""`retriever snapshot`: copy an index."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import Command, Location, index_option, json_option, quiet_option
from cli.output.text import counted, tell


@click.command("snapshot", cls=Command)
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@index_option
@quiet_option
@json_option
def snapshot_command(target: Path, folder: Location, quiet: bool, as_json: bool) -> None:
    """Copy an index into the new folder DIR, and verify the copy.

    Other programs can read and write the index during the copy. On the same disk, both indexes
    share the files that never change. The copy then takes little more room than the documents. On
    another disk all files are copied.
    """
    from cli.output.progress import Stages
    from retriever import snapshot_index

    source = folder if isinstance(folder, Path) else folder.folder
    if source is None:
        raise click.UsageError(
            f"{folder}: expected an index folder, found another store; back it up with its own "
            "tools, or copy its documents with `retriever export`"
        )
    with Stages(quiet=quiet) as stage:
        snapshot = snapshot_index(source, target, stage)
    shared = f", {counted(snapshot.linked, 'file')} shared with {folder}" if snapshot.linked else ""
    summary = f"{target}: {counted(snapshot.documents, 'document')} copied and verified{shared}"
    tell(summary, {"folder": str(target), **snapshot._asdict()}, as_json=as_json, quiet=quiet)
