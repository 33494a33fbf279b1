"""What the commands that look inside a model share: options, and texts with their progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.options.shared import (
    Command,
    field_options,
    json_option,
    model_options,
    on_error_option,
    quiet_option,
)
from cli.output.progress import counting

if TYPE_CHECKING:
    from eval.inspect.states import Inspection
    from retriever.corpus import CorpusReader
    from retriever.encoders.encoder import Encoder

plot_option = click.option(
    "--plot", type=click.Path(path_type=Path), help="A .png or .svg file to draw into."
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many texts of the sources to look at, from the first on.",
)


def source_options(command: Command) -> Command:
    """What the commands that look at the documents of sources take, but --limit."""
    for option in (
        quiet_option,
        json_option,
        model_options,
        plot_option,
        on_error_option,
        field_options,
    ):
        command = option(command)
    return command


def open_sources(
    sources: Sequence[str],
    fields: tuple[str | None, str | None, str | None],
    on_error: Literal["fail", "skip"],
) -> CorpusReader:
    """A reader of the sources; `fields` names those that hold id, text and title."""
    from retriever.corpus import CorpusReader, Fields

    return CorpusReader(sources, Fields(*fields), on_error=on_error)


def texts_of(reader: CorpusReader) -> Iterator[str]:
    """What is encoded of each document: title, space, text."""
    from retriever.indexing.add import passage_text

    for document in reader:
        yield passage_text(document, None)


def checked_text(text: str, name: str) -> str:
    """The text itself.

    Raises:
        SourceError: it is blank, or was not UTF-8 on the command line.
    """
    from retriever.errors import SourceError

    if not text.strip():
        raise SourceError(f"{name}: expected a text, found nothing but space; give some words")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SourceError(
            f"{name}: expected UTF-8, found a byte that is not at character {error.start + 1}; "
            "convert the text"
        ) from error
    return text


@contextmanager
def inspected(
    encoder: Encoder, texts: Iterator[str], limit: int, *, quiet: bool
) -> Iterator[Inspection]:
    """The hidden states of the first texts, with a count on stderr where that is a terminal."""
    from eval.inspect.states import Inspection

    with counting("texts", None, quiet=quiet) as count:
        yield Inspection(encoder, texts, limit, lambda: count(1))


def said_texts(inspection: Inspection, limit: int, sources: bool) -> str:
    """How many texts were looked at, in words."""
    if not sources:
        return "1 text"
    if inspection.texts == limit:
        return f"the first {limit:,} texts (--limit)"
    return f"{inspection.texts:,} texts"


def warn_cut(cut: int, window: int) -> None:
    """Say on stderr that the ends of texts were not read."""
    if cut:
        click.echo(
            f"warning: the end of {cut:,} texts was not read: they are longer than the window of "
            f"{window} word pieces",
            err=True,
        )
