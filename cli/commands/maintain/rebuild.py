"""`retriever rebuild`: build another search structure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options.declaring import Command, option
from cli.options.index import Location, index_option
from cli.options.output import json_option
from cli.options.structure import StructureOptions, structure_options
from cli.output.progress import Stages, counted, human_bytes
from cli.output.results import say

if TYPE_CHECKING:
    from retriever import Store, StructureSettings


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
def command(folder: Location, structure: StructureOptions, dry_run: bool, as_json: bool) -> None:
    """Build the search structure of an index again.

    All segments become one, and its structure is built from the stored vectors; nothing is
    encoded. Searches use the old structure until then. The memory that the build takes is printed
    first. At the end the recall@10 of the new structure against exact search is measured and
    printed for each search effort.
    """
    from retriever import StructureSettings
    from retriever.index import Index

    settings = structure.settings() or StructureSettings()
    if not isinstance(folder, Path) and folder.folder is None:
        _rebuild_elsewhere(folder, settings, dry_run=dry_run, as_json=as_json)
        return
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
            say(reason, err=not dry_run)
        if not plan.build_bytes:
            say(f"{plan.spec.factory}: nothing to build", err=not dry_run)
        elif dry_run:
            say(
                f"{plan.spec.factory}: about {human_bytes(plan.memory_bytes)}; building it takes "
                f"up to {human_bytes(plan.build_bytes)} of memory",
                err=False,
            )
        if dry_run:
            return
        with Stages(quiet=False) as stage:
            index.rebuild(settings, stage=stage)
        segments = index.info()["segments"]
    if as_json:
        click.echo(json.dumps({"index_type": settings.index_type, "segments": segments}))
        return
    for segment in segments:
        passages = counted(segment["passages"], "passage")
        say(f"{folder}: {passages}, {segment['structure']}", err=False)
        for measured in segment["recall"]:
            effort, recall = measured["effort"], measured["recall"]
            say(f"  effort {effort:<6} recall@10 {recall:.4f}", err=False)


def _rebuild_elsewhere(
    store: Store, settings: StructureSettings, *, dry_run: bool, as_json: bool
) -> None:
    """Rebuild the structure of a store that is no folder, which plans its memory itself."""
    from retriever.index import Index

    if dry_run:
        raise click.UsageError(f"{store}: --dry-run plans index folders alone")
    with Index.open(store) as index:
        with Stages(quiet=False) as stage:
            index.rebuild(settings, stage=stage)
        facts = index.info()["store"]
    if as_json:
        click.echo(json.dumps({"index_type": settings.index_type, "store": facts}))
        return
    for name, value in facts.items():
        say(f"{name:<12} {value}", err=False)
