"""`retriever inspect weights`: how much each word of a text weighs in its SBERT-WK vector."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.commands.inspect.texts import checked_text, inspected, plot_option, warn_cut
from cli.commands.inspect.wk import wk_choice
from cli.options.shared import json_option, model_options, quiet_option
from cli.output.safe_text import on_one_line

if TYPE_CHECKING:
    from eval.inspect.word_weights import WeightedWord

# Of the 256 colours of a terminal: white to red, each dark enough for black letters' contrast.
_SHADES = (231, 224, 217, 210, 203, 196)
_BLACK = 16


@click.command("weights")
@click.argument("text", required=False)
@click.option(
    "--text-file",
    type=click.Path(path_type=Path),
    help="A UTF-8 file whose content is the text, instead of TEXT.",
)
@click.option(
    "--unit",
    type=click.Choice(["word", "piece"]),
    default="word",
    show_default=True,
    help="Whole words, or word pieces.",
)
@plot_option
@model_options
@json_option
@quiet_option
def command(
    text: str | None,
    text_file: Path | None,
    unit: Literal["word", "piece"],
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **encoder: Any,
) -> None:
    """Show the weight of each word of TEXT in its SBERT-WK vector; they sum to 1.

    On a terminal a word is the darker the more it weighs, elsewhere its weight follows it. --json
    adds the weights of the layers in each word.
    """
    from eval.inspect.word_weights import word_weights
    from eval.reports.figure_files import check_figure
    from eval.reports.inspect_figures import draw_weights
    from retriever.encoders.resolution import sbert_wk_settings

    read = _text(text, text_file)
    if plot is not None:
        check_figure(plot)
    model = wk_choice(encoder).load()
    settings = sbert_wk_settings(model.spec.settings, model.depth)
    with inspected(model, iter([read]), 1, quiet=quiet) as inspection:
        (one,) = inspection
    words = word_weights(one, settings, unit)
    warn_cut(inspection.cut, model.spec.max_length)
    if plot is not None:
        draw_weights(words, settings.start_layer or 0, plot)
    if as_json:
        facts = {
            "encoder": str(model.spec),
            "text": one.text,
            "cut": bool(inspection.cut),
            "unit": unit,
            "first_layer": settings.start_layer,
            "words": [asdict(word) for word in words],
        }
        click.echo(json.dumps(facts))
    elif sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        click.echo(_shaded(words, one.text), color=True)
    else:
        click.echo(" ".join(f"{on_one_line(word.text)}({word.weight:.3f})" for word in words))


def _text(text: str | None, text_file: Path | None) -> str:
    from retriever.errors import SourceError

    if (text is None) == (text_file is None):
        raise click.UsageError("give either TEXT or --text-file FILE")
    name = "TEXT" if text_file is None else str(text_file)
    if text_file is not None:
        try:
            text = text_file.read_text(encoding="utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{name}: expected UTF-8, found byte {error.object[error.start]:#04x} at offset "
                f"{error.start}; convert the file"
            ) from error
    return checked_text(text or "", name)


def _shaded(words: Sequence[WeightedWord], text: str) -> str:
    """The text with each word on a background as dark as its share of the greatest weight."""
    greatest = max(word.weight for word in words)
    parts: list[str] = []
    last = 0
    for word in words:
        if word.start is not None and word.stop is not None:
            gap = text[last : word.start] if word.start > last else ""
            last = max(last, word.stop)
        else:
            gap = " " if parts else ""
        parts += [on_one_line(gap), _shade(on_one_line(word.text), word.weight / greatest)]
        if word.start is None:
            parts.append(" ")
    scale = "".join(_shade("  ", step / (len(_SHADES) - 1)) for step in range(len(_SHADES)))
    return f"{''.join(parts).rstrip()}\n\n0 {scale} {greatest:.3f}"


def _shade(text: str, share: float) -> str:
    return click.style(
        text, fg=_BLACK, bg=_SHADES[min(int(share * len(_SHADES)), len(_SHADES) - 1)]
    )
