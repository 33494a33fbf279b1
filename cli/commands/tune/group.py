"""`retriever tune`: settings chosen by what they are worth on data."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group("tune", cls=LazyGroup, modules={"layers": "cli.commands.tune.layers"})
def command() -> None:
    """Choose settings on scored data."""
