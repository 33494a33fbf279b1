"""`retriever compact`: make an index as small and quick as it can be."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.options.shared import index_option, json_option


@click.command("compact")
@index_option
@json_option
def command(folder: Path, as_json: bool) -> None:
    """Merge all segments into one, and drop deleted passages from the disk.

    Answers stay the same, and searches go on meanwhile. For a while the disk needs room for a
    second copy.
    """
    from cli.output.progress import human_bytes
    from retriever.description import size_on_disk
    from retriever.index import Index

    with Index.open(folder) as index:
        before = index.info()
        merged = index.compact()
        after = index.info()
    # SQLite drops its log when the last connection is closed.
    bytes_after = size_on_disk(folder)
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
    click.echo(
        f"{folder}: {merged} segments merged, {dropped:,} deleted passages dropped, "
        f"{human_bytes(before['bytes'])} before, {human_bytes(bytes_after)} now"
    )
