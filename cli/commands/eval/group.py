"""`retriever eval`: how good is a ranking, or an encoder?"""

from __future__ import annotations

import click

from cli.lazy import LazyGroup


@click.group(
    "eval",
    cls=LazyGroup,
    modules={
        "qa": "cli.commands.eval.qa",
        "sts": "cli.commands.eval.sts",
        "transfer": "cli.commands.eval.transfer",
        "probe": "cli.commands.eval.probe",
        "run": "cli.commands.eval.run",
        "compare": "cli.commands.eval.compare",
    },
)
def command() -> None:
    """Score rankings against relevance judgements, and encoders on sentences."""
