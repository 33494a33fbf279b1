"""`retriever inspect weights`: the weight of each word of a text in its SBERT-WK vector."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.commands.inspect.texts import checked_text, text_of_file
from cli.options.declaring import Command, option
from cli.options.encoder import MINILM, STATES, WEIGHTING, EncoderOptions, encoder_options
from cli.options.evaluation import plot_option
from cli.options.output import json_option, quiet_option
from cli.output.tables import on_one_line

if TYPE_CHECKING:
    from eval import WeightInspection

# Of the 256 colors of a terminal: white to red, each light enough for black letters.
_SHADES = (231, 224, 217, 210, 203, 196)
_BLACK = 16


@click.command("weights", cls=Command)
@click.argument("text", required=False)
@option(
    "--text-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="UTF-8 file that holds the text, instead of TEXT.",
    section="Input",
)
@option(
    "--unit",
    type=click.Choice(["word", "piece"]),
    default="word",
    help="Show whole words or word pieces.",
    section="Output",
)
@encoder_options(MINILM, only=(*STATES, *WEIGHTING))
@plot_option
@json_option
@quiet_option
def command(
    text: str | None,
    text_file: Path | None,
    unit: Literal["word", "piece"],
    encoder: EncoderOptions,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show the weight of each word of TEXT in its SBERT-WK vector; the weights sum to 1.

    On a terminal a word with a greater weight has a darker background; elsewhere its weight follows
    it. --json adds the weights of the layers in each word.

    If --model is a meta-embedding, show the weights of its sources, and the length of each source's
    part of each word's vector.
    """
    from cli.output.results import draw, say, show
    from eval import Loading, inspect_meta, inspect_weights, is_meta, sbert_wk_form

    if (text is None) == (text_file is None):
        raise click.UsageError("give either TEXT or --text-file FILE")
    read = text_of_file(text_file) if text_file else checked_text(text or "", "TEXT")
    if is_meta(encoder.model or ""):
        asked = encoder.choice()
        loading = Loading(asked.device, asked.download)
        parts = inspect_meta(read, asked.encoder, loading=loading, notify=say)
        draw(parts, plot)
        show(parts, as_json=as_json)
        return
    choice = replace(encoder, model=sbert_wk_form(encoder.model or "")).choice()
    result = inspect_weights(
        read,
        choice.encoder,
        unit=unit,
        loading=Loading(choice.device, choice.download),
        notify=say,
    )
    draw(result, plot)
    if not as_json and sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        click.echo(_shaded(result), color=True)
    else:
        show(result, as_json=as_json)


def _shaded(found: WeightInspection) -> str:
    """The text, each word on a background as dark as its share of the greatest weight."""
    greatest = max(word.weight for word in found.words)
    parts: list[str] = []
    last = 0
    for word in found.words:
        if word.start is not None and word.stop is not None:
            gap = found.passage[last : word.start] if word.start > last else ""
            last = max(last, word.stop)
        else:
            gap = " " if parts else ""
        parts += [on_one_line(gap), _shade(on_one_line(word.text), word.weight / greatest)]
        if word.start is None:
            parts.append(" ")
    scale = "".join(_shade("  ", step / (len(_SHADES) - 1)) for step in range(len(_SHADES)))
    return f"{''.join(parts).rstrip()}\n\n0 {scale} {greatest:.3f}"


def _shade(text: str, share: float) -> str:
    background = _SHADES[min(int(share * len(_SHADES)), len(_SHADES) - 1)]
    return click.style(text, fg=_BLACK, bg=background)
