"""Which triples a reranker is trained on: options of the `train` commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cli.options.shared import Command

if TYPE_CHECKING:
    from retriever.rerankers.training.sampling import SamplingSettings


def sampling_options(
    count: int | None, positives: int | None, questions: int
) -> Callable[[Command], Command]:
    """--negatives, --count, --positives and --batch, with a command's own defaults."""
    options: list[Callable[[Command], Command]] = [
        click.option(
            "--margin",
            type=click.FloatRange(min=0),
            default=1.0,
            show_default=True,
            help="Of the hinge loss; 0 is the paper's, for which a constant scorer has no loss.",
        ),
        click.option(
            "--negatives",
            type=click.Choice(["pool", "random", "hard"]),
            default="pool",
            show_default=True,
            help="From the question's pool, from all passages, or from those that BM25 ranks high.",
        ),
        click.option(
            "--count",
            type=click.IntRange(min=1),
            default=count,
            show_default="all" if count is None else True,
            help="Negatives of a question in an epoch, for each of its positives.",
        ),
        click.option(
            "--positives",
            type=click.IntRange(min=1),
            default=positives,
            show_default="all" if positives is None else True,
            help="At most so many positives of a question in an epoch.",
        ),
        click.option(
            "--batch",
            type=click.IntRange(min=1),
            default=questions,
            show_default=True,
            help="Questions of a step.",
        ),
    ]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def sampling_settings(options: dict[str, Any]) -> SamplingSettings:
    """What the options ask for; they are taken out of `options`."""
    from retriever.rerankers.training.sampling import SamplingSettings

    return SamplingSettings(
        negatives=options.pop("negatives"),
        count=options.pop("count"),
        positives=options.pop("positives"),
        questions=options.pop("batch"),
    )
