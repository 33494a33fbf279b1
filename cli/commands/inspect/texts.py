"""What the commands that look inside a model share: the texts that they read."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options.declaring import option

limit_option = option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    metavar="N",
    help="Maximum number of texts to read.",
    section="Input",
)


def text_of_file(path: Path) -> str:
    """The content of a file without white space around it.

    Raises:
        SourceError: it is blank or not UTF-8.
    """
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
    """The text itself.

    Args:
        text: from the command line or a file.
        name: of its source, for the message.

    Raises:
        SourceError: it is blank, or a character of the command line was not UTF-8.
    """
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
