"""`retriever compact`: merge the segments of an index."""

from __future__ import annotations

import json

import click

from cli.options.declaring import Command
from cli.options.index import Location, index_option
from cli.options.output import json_option
from cli.output.progress import counted
from cli.output.results import say


@click.command("compact", cls=Command)
@index_option
@json_option
def command(folder: Location, as_json: bool) -> None:
    """Merge all segments and free disk space.

    Makes the index as small and fast as possible, whatever it costs; a run that adds documents
    merges only what is worth its cost. Deleted passages are removed from the disk. Answers stay the
    same, and searches continue during the merge. The disk temporarily needs room for a second copy.
    """
    from cli.output.progress import Stages, human_bytes
    from retriever.index import Index

    with Index.open(folder) as index:
        before = index.info()
        with Stages(quiet=False) as stage:
            merged = index.compact(stage=stage)
        after = index.info()
    # SQLite deletes its log when the last connection is closed.
    bytes_after = index.store.size()
    dropped = before["deleted_passages"] - after["deleted_passages"]
    if as_json:
        facts = {
            "merged_segments": merged,
            "dropped_passages": dropped,
            "bytes_before": before["bytes"],
            "bytes": bytes_after,
        }
        click.echo(json.dumps(facts))
        return
    part = "segment" if index.store.folder else "part"
    say(
        f"{folder}: {counted(merged, part)} merged, {counted(dropped, 'deleted passage')} "
        f"removed, {human_bytes(before['bytes'])} before, {human_bytes(bytes_after)} now",
        err=False,
    )
