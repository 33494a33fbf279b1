"""`retriever rebuild`: give an index another search structure."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.options.shared import index_option, index_type_option, json_option, memory_option


@click.command("rebuild")
@index_option
@index_type_option
@memory_option
@click.option("--dry-run", is_flag=True, help="Only say what would be built and what it takes.")
@json_option
def command(
    folder: Path, index_type: str | None, memory: int | None, dry_run: bool, as_json: bool
) -> None:
    """Build the search structure of an index anew from its stored vectors; nothing is encoded.

    All segments become one. Searches go on meanwhile with what was there before. What it takes is
    estimated first. The recall@10 of the new structure against an exact search is measured and
    printed by search effort.
    """
    from indexes.vectors.choice import StructureSettings
    from retriever.index import Index

    settings = StructureSettings(index_type or "auto", memory)
    with Index.open(folder) as index:
        plan = index.plan(settings)
        if dry_run and as_json:
            facts = {
                "index_type": settings.index_type,
                "structure": plan.spec.name,
                "factory": plan.spec.factory,
                "reasons": plan.reasons,
                "memory_bytes": plan.memory_bytes,
                "build_bytes": plan.build_bytes,
            }
            click.echo(json.dumps(facts))
            return
        for reason in plan.reasons:
            click.echo(reason, err=not dry_run)
        takes = (
            f"up to {plan.build_size} of memory to build"
            if plan.build_bytes
            else "nothing to build"
        )
        click.echo(f"{plan.spec.factory}: {takes}", err=not dry_run)
        if dry_run:
            return
        index.rebuild(settings)
        segments = index.info()["segments"]
    if as_json:
        click.echo(json.dumps({"index_type": settings.index_type, "segments": segments}))
        return
    for segment in segments:
        click.echo(f"{folder}: {segment['passages']:,} passages, {segment['structure']}")
        for measured in segment["recall"]:
            click.echo(f"  effort {measured['effort']:<6} recall@10 {measured['recall']:.4f}")
