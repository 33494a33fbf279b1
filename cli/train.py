"""`retriever train`: rerankers that learn from a question set."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group(
    "train",
    cls=LazyGroup,
    modules={"reranker": "cli.train_reranker", "cross-encoder": "cli.train_cross_encoder"},
)
def command() -> None:
    """Train rerankers on questions with judged passages."""
