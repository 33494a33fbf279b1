"""What stands where in the text of a document: its outline."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

MarkKind = Literal["page", "heading", "line", "message"]


class Mark(NamedTuple):
    """Where a page, heading, numbered line or message begins.

    Attributes:
        offset: of its first character in the document's text.
        kind: ``page``, ``heading``, ``line`` or ``message``.
        label: of a page its label, such as "3" or "iv"; of a heading its text; of a line its number
            in the source, from which line feeds of the text count on; of a message its date, sender
            and subject: "2024-03-01 Alice: Subject".
        level: of a heading, 1 to 6; of others 0.
    """

    offset: int
    kind: MarkKind
    label: str
    level: int = 0


# Marks by offset, ascending.
Outline: TypeAlias = tuple[Mark, ...]
