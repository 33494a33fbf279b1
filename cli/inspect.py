"""`retriever inspect`: what happens inside a model."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group(
    "inspect",
    cls=LazyGroup,
    modules={
        "layers": "cli.inspect_layers",
        "words": "cli.inspect_words",
        "weights": "cli.inspect_weights",
        "sensitivity": "cli.inspect_sensitivity",
    },
)
def command() -> None:
    """Look inside a model: its layers, its words, and what SBERT-WK makes of them."""
