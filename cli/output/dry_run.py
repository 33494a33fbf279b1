"""The output of `retriever index --dry-run`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cli.output.text import human_bytes
from retriever.terminal import on_one_line, table

if TYPE_CHECKING:
    from retriever.documents.plan import ReadingPlan

# Groups that are shown; `--json` has all of them.
_MOST_GROUPS = 40


def print_plan(plan: ReadingPlan, *, as_json: bool) -> None:
    """Print what would be read and left out."""
    if as_json:
        click.echo(json.dumps(plan.to_json(), ensure_ascii=False))
        return
    for line in _plan_lines(plan):
        click.echo(line)


def _plan_lines(plan: ReadingPlan) -> Iterator[str]:
    rows = [
        [kind, f"{files:,}", human_bytes(plan.bytes[kind])]
        for kind, files in plan.files.most_common()
    ]
    yield from table(["would be read", "files", "size"], rows)
    if plan.missing:
        missing = [[kind, f"{files:,}"] for kind, files in plan.missing.most_common()]
        yield ""
        yield from table(['needs pip install "layer-retriever[documents]"', "files"], missing)
    groups = plan.largest_groups()
    if groups:
        yield ""
        yield from table(
            ["left out", "files", "first", "why"],
            [
                [group.reason, f"{files:,}", first, group.rule]
                for group, (files, first) in groups[:_MOST_GROUPS]
            ],
            left=(0, 2, 3),
        )
        if len(groups) > _MOST_GROUPS:
            yield f"and {len(groups) - _MOST_GROUPS:,} more groups; --json lists them"
    if plan.unreadable:
        yield ""
        yield "cannot be read"
        yield from map(on_one_line, plan.unreadable)
