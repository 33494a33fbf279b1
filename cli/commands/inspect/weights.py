"""`retriever inspect weights`: weights of words in an SBERT-WK vector."""

from __future__ import annotations

from typing import Literal

import click

from cli.options import MINILM, Command, EncoderOptions, encoder_options, option
from cli.output.results import ResultOptions, result_options
from cli.output.text import say


@click.command("weights", cls=Command)
@click.argument("text")
@option(
    "--unit",
    type=click.Choice(["word", "piece"]),
    default="word",
    help="Show whole words, or word pieces as the tokenizer makes them.",
    section="Output",
)
@encoder_options(MINILM)
@result_options(plot=True)
def weights_command(
    text: str,
    unit: Literal["word", "piece"],
    encoder: EncoderOptions,
    results: ResultOptions,
) -> None:
    """Show the weight of each word of TEXT in its SBERT-WK vector.

    The weights sum to 1. With --json, each word also has the weights of the layers.
    """
    from eval import inspect_weights

    result = inspect_weights(text, encoder.model, unit=unit, loading=encoder.loading(), notify=say)
    results.show(result)
