"""How a cross-encoder is fine-tuned, beside what all trainings share."""

from __future__ import annotations

import click

from cli.options.declaring import RARE, Decorator, option


def loss_option(default: str | None, what: str = "Loss") -> Decorator:
    """--loss.

    Args:
        default: None for an option that takes the training's own.
        what: what it is the loss of.
    """
    return option(
        "--loss",
        type=click.Choice(["hinge", "softmax", "pointwise"]),
        default=default,
        shown_default="hinge" if default is None else None,
        help=f"{what}: hinge compares two passages, softmax a relevant passage with all negatives; "
        "pointwise takes each passage by itself, and questions without a relevant one too.",
        section="Training",
    )


def layer_decay_option(default: float | None) -> Decorator:
    """--layer-decay; the argument is of `loss_option`."""
    return option(
        "--layer-decay",
        type=click.FloatRange(0, 1, min_open=True),
        default=default,
        shown_default="1" if default is None else None,
        metavar="FACTOR",
        help="Factor of a cross-encoder's learning rate from each layer to the one below it.",
        section=RARE,
    )
