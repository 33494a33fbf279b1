"""`retriever inspect`: hidden states, words and SBERT-WK weights."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    complete_path,
    encoder_options,
    option,
    settings,
)
from cli.output.results import ResultOptions, command_line, result_options
from cli.output.text import say
from cli.source_options import SourceOptions, corpus_texts, source_options, sources_argument
from retriever.settings import setting
from retriever.terminal import on_one_line

if TYPE_CHECKING:
    from eval import WeightInspection


limit_option = option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    metavar="N",
    help="Maximum number of texts to read.",
    section="Input",
)


def text_of_file(path: Path) -> str:
    """The content of a file without white space around it."""
    from retriever.errors import SourceError

    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path}: expected UTF-8, found byte {error.object[error.start]:#04x} at offset "
            f"{error.start}; convert the file"
        ) from error
    return checked_text(text, str(path))


def checked_text(text: str, name: str) -> str:
    """The text itself, unless it is blank, or a character of the command line was not UTF-8."""
    from retriever.errors import SourceError

    if not text.strip():
        raise SourceError(f"{name}: expected a text, found only white space; give some words")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SourceError(
            f"{name}: expected UTF-8, found another byte at character {error.start + 1}; convert "
            "the text"
        ) from error
    return text


@click.command("layers", cls=Command)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", shell_complete=complete_path)
@option("--text", metavar="TEXT", help="Text to read instead of SOURCE.", section="Input")
@limit_option
@source_options
@encoder_options(MINILM)
@result_options("the report and its figure", plot=True)
def layers_command(
    sources: tuple[str, ...],
    text: str | None,
    limit: int,
    source: SourceOptions,
    encoder: EncoderOptions,
    shown: ResultOptions,
) -> None:
    """Show the mean cosine between every two hidden states of a word piece.

    Reads the documents of SOURCE... or one --text, and shows the mean and spread of each offset
    diagonal too (SBERT-WK, Fig. 1). Hidden state 0 is the embedding output.
    """
    from cli.output.progress import warn_reader
    from eval import Loading, inspect_layers

    if bool(sources) == (text is not None):
        raise click.UsageError("give either SOURCE... or --text TEXT")
    given = [] if text is None else [checked_text(text, "--text")]
    reader = source.reader(sources) if sources else None
    choice = encoder.choice()
    with shown.stages() as progress:
        result = inspect_layers(
            corpus_texts(reader) if reader else given,
            choice.encoder,
            limit=limit,
            loading=Loading(choice.device, choice.download),
            progress=progress,
            notify=shown.notify,
            command=command_line(),
        )
    if reader:
        warn_reader(reader, say)
    shown.draw(result)
    shown.write(result)


@dataclass(frozen=True, slots=True)
class WordOptions:
    """Which words are shown."""

    min_count: int = setting(5, "Minimum number of occurrences of a word.", low=1)


@click.command("words", cls=Command)
@sources_argument
@limit_option
@source_options
@settings("counted", WordOptions)
@option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="Maximum number of words to show in each group.",
    section="Output",
)
@encoder_options(MINILM)
@result_options("the report and its figure", plot=True)
def words_command(
    sources: tuple[str, ...],
    limit: int,
    source: SourceOptions,
    counted: WordOptions,
    top: int,
    encoder: EncoderOptions,
    shown: ResultOptions,
) -> None:
    """Show the words of SOURCE... whose adjacent-layer cosines vary least, moderately and most.

    Words are in lower case. The vector of a word is the mean over its pieces, its variance the mean
    over its occurrences (SBERT-WK, Table I).
    """
    from cli.output.progress import warn_reader
    from eval import Loading, inspect_words

    reader = source.reader(sources)
    choice = encoder.choice()
    with shown.stages() as progress:
        result = inspect_words(
            corpus_texts(reader),
            choice.encoder,
            min_count=counted.min_count,
            top=top,
            limit=limit,
            loading=Loading(choice.device, choice.download),
            progress=progress,
            notify=shown.notify,
            command=command_line(),
        )
    warn_reader(reader, say)
    shown.draw(result)
    shown.write(result)


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
@encoder_options(MINILM)
@result_options(plot=True, quiet=False)
def weights_command(
    text: str | None,
    text_file: Path | None,
    unit: Literal["word", "piece"],
    encoder: EncoderOptions,
    shown: ResultOptions,
) -> None:
    """Show the weight of each word of TEXT in its SBERT-WK vector; the weights sum to 1.

    On a terminal a word with a greater weight has a darker background; elsewhere its weight follows
    it. --json adds the weights of the layers in each word.

    If --model is a meta-embedding, show the weights of its sources, and the length of each source's
    part of each word's vector.
    """
    from eval import Loading, inspect_meta, inspect_weights, is_meta, sbert_wk_form

    if (text is None) == (text_file is None):
        raise click.UsageError("give either TEXT or --text-file FILE")
    read = text_of_file(text_file) if text_file else checked_text(text or "", "TEXT")
    if is_meta((encoder.model or "").partition("::")[0]):
        asked = encoder.choice()
        loading = Loading(asked.device, asked.download)
        parts = inspect_meta(read, asked.encoder, loading=loading, notify=shown.notify)
        shown.draw(parts)
        shown.show(parts)
        return
    choice = replace(encoder, model=sbert_wk_form(encoder.model or "")).choice()
    result = inspect_weights(
        read,
        choice.encoder,
        unit=unit,
        loading=Loading(choice.device, choice.download),
        notify=shown.notify,
    )
    shown.draw(result)
    if not shown.as_json and sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        click.echo(_shaded(result), color=True)
    else:
        shown.show(result)


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
