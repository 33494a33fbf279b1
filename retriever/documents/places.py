"""From a place, as hits show it, back to the part of a document that it names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from retriever.documents import Document
from retriever.documents.outline import (
    Mark,
    Place,
    heading_path,
    last_mark,
    span_of_lines,
    span_of_pages,
)
from retriever.errors import BadInputError

# ID:LINE, ID:FIRST-LAST or ID[START:STOP], which words about headings may follow.
_BY_NUMBERS = re.compile(
    r"(?P<id>.+?)(?::(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?"
    r"|\[(?P<start>[0-9]{0,9}):(?P<stop>[0-9]{0,9})\])(?:, .*)?",
    re.DOTALL,
)
_PAGES = re.compile(r"pages? (?P<first>[^,]+?)(?:-(?P<last>[^,]+?))?(?:, .*)?", re.DOTALL)


class Part(NamedTuple):
    """A part of a document.

    Attributes:
        document: the whole document.
        start, stop: character offsets of the part in the document's text.
    """

    document: Document
    start: int
    stop: int

    @property
    def text(self) -> str:
        """The text of the part."""
        return self.document.text[self.start : self.stop]


def find_part(place: str, get: Callable[[str], Document | None]) -> Part:
    """Return the part of a document that a text names.

    Args:
        place: an id; or an id with lines (``notes.md:120-141``), characters (``notes.md[0:500]``),
            pages (``report.pdf, page 3``) or the headings above a passage
            (``guide.html, Install › Linux``), as hits show them.
        get: returns the document with an id, or None.

    Raises:
        BadInputError: there is no such document, or it has no such part.
    """
    document = get(place)
    if document is not None:
        return Part(document, 0, len(document.text))
    numbers = _BY_NUMBERS.fullmatch(place)
    if numbers is not None and (document := get(numbers["id"])) is not None:
        return _part_by_numbers(document, numbers)
    comma = place.find(", ")
    while comma > 0:
        document = get(place[:comma])
        if document is not None:
            return _part_by_words(document, place[comma + 2 :])
        comma = place.find(", ", comma + 1)
    raise BadInputError(f"no document has the id {place!r}: take one from the hits of a search")


def _part_by_numbers(document: Document, numbers: re.Match[str]) -> Part:
    length = len(document.text)
    if numbers["first"] is None:
        start = int(numbers["start"] or 0)
        stop = int(numbers["stop"] or length)
        return Part(document, min(start, length), min(stop, length))
    first = int(numbers["first"])
    last = int(numbers["last"] or first)
    return part_of_lines(document, min(first, last), max(first, last))


def part_of_lines(document: Document, first: int, last: int) -> Part:
    """Return lines `first` to `last` of a document's source, counted from 1.

    Raises BadInputError if the document has no such line.
    """
    span = span_of_lines(document.outline, document.text, first, last)
    if span is None:
        named = f"line {first}" if first == last else f"lines {first} to {last}"
        raise BadInputError(
            f"{document.id}: {named}: no such lines are known: use ID[start:stop] (characters)"
        )
    return Part(document, *span)


def _part_by_words(document: Document, words: str) -> Part:
    pages = _PAGES.fullmatch(words)
    span = None
    if pages is not None:
        last = pages["last"] or pages["first"]
        span = span_of_pages(document.outline, document.text, pages["first"], last)
    if span is None:
        span = _section_span(document, words)
    if span is None:
        raise BadInputError(
            f"{document.id}: no page or heading is called {words!r}: use ID[start:stop] "
            "(characters)"
        )
    return Part(document, *span)


def _section_span(document: Document, name: str) -> tuple[int, int] | None:
    """Return the offsets of the first section or message with a name as hits show it."""
    marks = [mark for mark in document.outline if mark.kind in ("heading", "message")]
    for number, mark in enumerate(marks):
        if name in _section_names(document, mark):
            later = (after.offset for after in marks[number + 1 :] if _ends(mark, after))
            return mark.offset, next(later, len(document.text))
    return None


def _section_names(document: Document, mark: Mark) -> tuple[str, str]:
    """Return the name of a section or message, with and without the title as its first heading."""
    outline = document.outline
    message = last_mark(outline, outline.index(mark) + 1, "message")
    headings = tuple(above.label for above in heading_path(outline, mark.offset))
    place = Place(headings=headings, message=None if message is None else message.label)
    _, beside_title = place.of(document.id, document.title)
    return str(place), beside_title


def _ends(section: Mark, mark: Mark) -> bool:
    """Return whether a later mark ends a section: messages end all, headings those below them."""
    return mark.kind == "message" or (section.kind == "heading" and mark.level <= section.level)
