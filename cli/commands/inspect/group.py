"""`retriever inspect`: what happens inside a model."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group(
    "inspect",
    cls=LazyGroup,
    modules={
        "layers": "cli.commands.inspect.layers",
        "words": "cli.commands.inspect.words",
        "weights": "cli.commands.inspect.weights",
        "sensitivity": "cli.commands.inspect.sensitivity",
    },
)
def command() -> None:
    """Look inside a model: its layers, its words, and what SBERT-WK makes of them."""
