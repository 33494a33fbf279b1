"""Text of any origin as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$&!])")


def printable(text: str) -> str:
    """The text on one line: spaces for white space, U+FFFD for what else cannot be printed."""
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "\ufffd" for letter in text
    )


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "---:"
) -> Iterator[str]:
    """A table, after an empty line; the columns after the first are aligned so."""
    yield ""
    for row in (header, None, *rows):
        cells = ["---", *[align] * (len(header) - 1)] if row is None else map(escaped, row)
        yield f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """On one line, and nothing in it is Markdown."""
    return _MARKDOWN.sub(r"\\\1", printable(text))
