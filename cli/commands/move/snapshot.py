"""`retriever snapshot`: a consistent copy of an index."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from cli.options.declaring import Command
from cli.options.index import Location, index_folder, index_option
from cli.options.output import json_option, quiet_option
from cli.output.progress import counted
from cli.output.results import say


@click.command("snapshot", cls=Command)
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@index_option
@quiet_option
@json_option
def command(target: Path, folder: Location, quiet: bool, as_json: bool) -> None:
    """Copy an index into the new folder DIR, and verify the copy.

    Other programs can read and write the index meanwhile. On the same disk the two share the files
    that never change, so that a copy takes little more room than the documents; on another disk
    all files are copied.
    """
    from cli.output.progress import Stages
    from retriever import snapshot_index

    with Stages(quiet=quiet) as stage:
        made = snapshot_index(index_folder(folder), target, stage)
    if as_json:
        click.echo(json.dumps({"folder": str(target), **asdict(made)}, ensure_ascii=False))
    elif not quiet:
        say(
            f"{target}: {counted(made.documents, 'document')} in "
            f"{counted(made.segments, 'segment')}, generation {made.generation}; "
            f"{counted(made.linked, 'file')} shared, {made.copied} copied; sound",
            err=False,
        )
