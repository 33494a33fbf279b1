"""`retriever snapshot`: a consistent copy of an index."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from cli.options.shared import index_option, json_option, quiet_option


@click.command("snapshot")
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@index_option
@quiet_option
@json_option
def command(target: Path, folder: Path, quiet: bool, as_json: bool) -> None:
    """Copy an index into the new folder DIR while others read and write it, and verify the copy.

    On the same disk the files that never change are shared between the two, so that a copy costs
    little more than the documents; on another disk they are copied.
    """
    from cli.output.progress import Stages
    from indexes.backup import snapshot_index

    with Stages(quiet=quiet) as stage:
        made = snapshot_index(folder, target, stage)
    if as_json:
        click.echo(json.dumps({"folder": str(target), **asdict(made)}, ensure_ascii=False))
    elif not quiet:
        click.echo(
            f"{target}: {made.documents:,} documents in {made.segments} segments, generation "
            f"{made.generation}; {made.linked} files shared, {made.copied} copied; sound"
        )
