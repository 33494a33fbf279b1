"""`retriever eval`: how good is a ranking?"""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group(
    "eval",
    cls=LazyGroup,
    modules={
        "qa": "cli.evaluate_qa",
        "run": "cli.evaluate_run",
        "compare": "cli.evaluate_compare",
    },
)
def command() -> None:
    """Score rankings against relevance judgements."""
