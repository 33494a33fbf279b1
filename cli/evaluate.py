"""`retriever eval`: how good is a ranking, or an encoder?"""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group(
    "eval",
    cls=LazyGroup,
    modules={
        "qa": "cli.evaluate_qa",
        "sts": "cli.evaluate_sts",
        "transfer": "cli.evaluate_transfer",
        "probe": "cli.evaluate_probe",
        "run": "cli.evaluate_run",
        "compare": "cli.evaluate_compare",
    },
)
def command() -> None:
    """Score rankings against relevance judgements, and encoders on sentences."""
