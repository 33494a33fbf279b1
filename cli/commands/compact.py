"""`retriever compact`: merge segments, or build another search structure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.index_options import IndexOptions, index_options
from cli.options import Command, Location, index_option, json_option
from cli.output.progress import Stages
from cli.output.text import counted, human_bytes, tell

if TYPE_CHECKING:
    from retriever import StructureSettings


@click.command("compact", cls=Command)
@index_option
@index_options("index_type", "memory")
@json_option
def compact_command(folder: Location, index_settings: IndexOptions, as_json: bool) -> None:
    """Merge all segments and free disk space.

    The command makes the index as small and fast as possible. (A run that adds documents merges
    only segments that are worth the cost.) Deleted passages are removed from the disk. Answers stay
    the same, and you can search during the merge. The disk temporarily needs room for a second
    copy.

    With --index-type or `--set memory=SIZE`, the command builds this search structure from the
    stored vectors, without encoding. It first prints the memory that the build needs. At the end it
    prints the recall@10 of the new structure against exact search for each search effort.
    """
    from retriever.index import Index

    settings = index_settings.parts().structures
    if settings is not None:
        _rebuild(folder, settings, as_json=as_json)
        return
    with Index.open(folder) as index:
        before = index.info()
        with Stages() as stage:
            merged = index.compact(stage=stage)
        after = index.info()
    # SQLite deletes its log when the last connection is closed.
    bytes_after = index.store.size()
    dropped = before["deleted_passages"] - after["deleted_passages"]
    facts = {
        "merged_segments": merged,
        "dropped_passages": dropped,
        "bytes_before": before["bytes"],
        "bytes": bytes_after,
    }
    part = "segment" if index.store.folder else "part"
    summary = (
        f"{folder}: {counted(merged, part)} merged, {counted(dropped, 'deleted passage')} "
        f"removed, {human_bytes(before['bytes'])} before, {human_bytes(bytes_after)} now"
    )
    tell(summary, facts, as_json=as_json)


def _rebuild(folder: Location, settings: StructureSettings, *, as_json: bool) -> None:
    from retriever.index import Index

    with Index.open(folder) as index, Stages() as stage:
        index.rebuild(settings, stage=stage)
        facts = index.info()
    part = "segments" if "segments" in facts else "store"
    lines = [f"{name:<12} {value}" for name, value in facts.get("store", {}).items()]
    for segment in facts.get("segments", ()):
        passages = counted(segment["passages"], "passage")
        lines.append(f"{folder}: {passages}, {segment['structure']}")
        lines += [
            f"  effort {measurement['effort']:<6} recall@10 {measurement['recall']:.4f}"
            for measurement in segment["recall"]
        ]
    tell(lines, {"index_type": settings.index_type, part: facts[part]}, as_json=as_json)
