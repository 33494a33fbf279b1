"""The parts of a file that have no place in its text."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

LossKind: TypeAlias = Literal["pages", "characters", "bytes", "parts", "data"]


class Loss(NamedTuple):
    """A part of a file that has no place in its text.

    Attributes:
        kind: ``pages`` without text, ``characters`` that the file does not name, ``bytes`` that
            are not of its encoding, or ``parts`` that are missing or cannot be read. ``data``, such
            as pictures within the text, is left out on purpose.
        detail: how many of how many, on one line: "3 of 4 pages have no text".
    """

    kind: LossKind
    detail: str
