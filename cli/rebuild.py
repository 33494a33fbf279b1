"""`retriever rebuild`: give an index another search structure."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.options import index_option, index_type_option, json_option, memory_option


@click.command("rebuild")
@index_option
@index_type_option
@memory_option
@json_option
def command(folder: Path, index_type: str | None, memory: int | None, as_json: bool) -> None:
    """Build the search structure of an index anew from its stored vectors; nothing is encoded.

    All segments become one. Searches go on meanwhile with what was there before. The recall@10 of
    the new structure against an exact search is measured and printed by search effort.
    """
    from cli.progress import human_bytes
    from indexes.segment_structure import StructureSettings
    from retriever.index import Index

    settings = StructureSettings(index_type or "auto", memory)
    with Index.open(folder) as index:
        plan = index.plan(settings)
        for reason in plan.reasons:
            click.echo(reason, err=True)
        if plan.build_operations:
            click.echo(
                f"{plan.spec.factory}: about {human_bytes(plan.memory_bytes)} to search, "
                f"{human_bytes(plan.build_bytes)} and {plan.build_operations:.1e} multiplications "
                "to build",
                err=True,
            )
        index.rebuild(settings)
        segments = index.info()["segments"]
    if as_json:
        click.echo(json.dumps({"index_type": settings.index_type, "segments": segments}))
        return
    for segment in segments:
        click.echo(f"{folder}: {segment['passages']:,} passages, {segment['structure']}")
        for measured in segment["recall"]:
            click.echo(f"  effort {measured['effort']:<6} recall@10 {measured['recall']:.4f}")
