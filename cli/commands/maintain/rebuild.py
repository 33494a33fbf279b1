"""`retriever rebuild`: build another search structure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from cli.options.declaring import Command, option
from cli.options.index import index_option
from cli.options.output import json_option
from cli.options.structure import StructureOptions, structure_options
from cli.output.progress import counted


@click.command("rebuild", cls=Command)
@index_option
@structure_options("auto", section="Index")
@option(
    "--dry-run",
    is_flag=True,
    help="Only print what would be built, and what that takes.",
    section="Index",
)
@json_option
def command(folder: Path, structure: StructureOptions, dry_run: bool, as_json: bool) -> None:
    """Build the search structure of an index again.

    All segments become one, and its structure is built from the stored vectors; nothing is
    encoded. Searches use the old structure until then. What the build takes is estimated first;
    the recall@10 of the new structure against exact search is measured and printed for each search
    effort.
    """
    from indexes.vectors.segment_structure import StructureSettings
    from retriever.index import Index

    settings = structure.settings() or StructureSettings()
    with Index.open(folder) as index:
        plan, estimate = index.plan(settings), index.estimate(settings)
        if dry_run and as_json:
            facts = {
                "index_type": settings.index_type,
                "structure": plan.spec.name,
                "factory": plan.spec.factory,
                "reasons": plan.reasons,
                "memory_bytes": plan.memory_bytes,
                "build": None if estimate is None else asdict(estimate),
            }
            click.echo(json.dumps(facts))
            return
        for reason in plan.reasons:
            click.echo(reason, err=not dry_run)
        takes = "nothing to build" if estimate is None else f"building it takes {estimate}"
        click.echo(f"{plan.spec.factory}: {takes}", err=not dry_run)
        if dry_run:
            return
        index.rebuild(settings)
        segments = index.info()["segments"]
    if as_json:
        click.echo(json.dumps({"index_type": settings.index_type, "segments": segments}))
        return
    for segment in segments:
        click.echo(f"{folder}: {counted(segment['passages'], 'passage')}, {segment['structure']}")
        for measured in segment["recall"]:
            click.echo(f"  effort {measured['effort']:<6} recall@10 {measured['recall']:.4f}")
        for behind in segment["filtered"]:
            click.echo(f"  behind a filter that leaves {100 * behind['share']:.3g}%")
            for measured in behind["recall"]:
                click.echo(f"    effort {measured['effort']:<6} recall@10 {measured['recall']:.4f}")
