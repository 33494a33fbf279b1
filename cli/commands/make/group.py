"""`retriever make`: data sets that are made from a corpus."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group("make", cls=LazyGroup, modules={"probing": "cli.commands.make.probing"})
def command() -> None:
    """Make data sets from a corpus."""
