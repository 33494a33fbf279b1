"""`retriever train`: rerankers that learn from a question set."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group(
    "train",
    cls=LazyGroup,
    modules={
        "reranker": "cli.commands.train.reranker",
        "cross-encoder": "cli.commands.train.cross_encoder",
    },
)
def command() -> None:
    """Train rerankers on questions with judged passages."""
