"""`retriever fit`: encoders that are made from a corpus."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group("fit", cls=LazyGroup, modules={"static": "cli.commands.train.static"})
def command() -> None:
    """Make encoders from a corpus."""
