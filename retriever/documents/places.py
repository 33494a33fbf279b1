"""Parts of a document, found by a place in the form that hits show."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from retriever.documents.document import Document
from retriever.documents.outline import (
    Mark,
    Place,
    heading_path,
    last_mark,
    lines_of,
    span_of_lines,
    span_of_pages,
)
from retriever.errors import BadInputError

# Lines or characters after an id, at the end or before the words of headings.
_NUMBERS = re.compile(
    r"(?::(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?"
    r"|\[(?P<start>[0-9]{0,9}):(?P<stop>[0-9]{0,9})\])(?=$|, )"
)
# Maximum number of prefixes that are tried as an id. An id may itself look like a place.
_MOST_IDS = 20
# Maximum length of the words of a place, which are compared with each page and heading.
_LONGEST_WORDS = 1_000


class DocumentPart(NamedTuple):
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


def find_part(place: str, get: Callable[[str], Document | None]) -> DocumentPart:
    """Return the part of a document that a place names.

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
        return DocumentPart(document, 0, len(document.text))
    for numbers in [*_NUMBERS.finditer(place)][: -_MOST_IDS - 1 : -1]:
        if (document := get(place[: numbers.start()])) is not None:
            return _part_by_numbers(document, numbers)
    for comma in [*re.finditer(", ", place)][:_MOST_IDS]:
        if (document := get(place[: comma.start()])) is not None:
            return _part_by_words(document, place[comma.end() :])
    raise BadInputError(
        f"no document has the id {place!r:.200}: take one from the hits of a search"
    )


def _part_by_numbers(document: Document, numbers: re.Match[str]) -> DocumentPart:
    if numbers["first"] is not None:
        return part_of_lines(
            document, int(numbers["first"]), int(numbers["last"] or numbers["first"])
        )
    length = len(document.text)
    start = int(numbers["start"] or 0)
    stop = min(int(numbers["stop"] or length), length)
    if start > max(stop, length) or int(numbers["stop"] or length) < start:
        raise BadInputError(
            f"{document.id}: characters {numbers[0]}: expected a start before the stop, and at "
            f"most {length:,}"
        )
    return DocumentPart(document, start, stop)


def part_of_lines(document: Document, first: int, last: int) -> DocumentPart:
    """Return lines `first` to `last` of a document's source, counted from 1.

    Raises BadInputError if the document has no such line.
    """
    named = f"line {first}" if first == last else f"lines {first} to {last}"
    if not 1 <= first <= last:
        raise BadInputError(f"{document.id}: {named}: expected lines from 1 on, in ascending order")
    span = span_of_lines(document.outline, document.text, first, last)
    if span is not None:
        return DocumentPart(document, *span)
    line_range = lines_of(document.outline, document.text)
    if line_range is None:
        raise BadInputError(
            f"{document.id}: its lines are not numbered: name characters, as in "
            f"{document.id}[0:500]"
        )
    first_stored, last_stored = line_range
    raise BadInputError(
        f"{document.id}: {named}: not in its stored text, which has lines {first_stored} to "
        f"{last_stored}"
    )


def _part_by_words(document: Document, words: str) -> DocumentPart:
    words = words[:_LONGEST_WORDS]
    span = _page_span(document, words) or _section_span(document, words)
    if span is None:
        raise BadInputError(
            f"{document.id}: no page or heading is called {words!r:.200}: name characters, as in "
            f"{document.id}[0:500]"
        )
    return DocumentPart(document, *span)


def _page_span(document: Document, words: str) -> tuple[int, int] | None:
    """Return the offsets of ``page LABEL`` or ``pages FIRST-LAST``; words may follow.

    Labels may contain hyphens and commas, so the longest text that names pages is used.
    """
    prefix = re.match("pages? ", words)
    if prefix is None:
        return None
    rest = words[prefix.end() :]
    for end in [len(rest), *(comma.start() for comma in reversed([*re.finditer(", ", rest)]))]:
        named = rest[:end]
        ranges = [(named, named)]
        ranges += [
            (named[: hyphen.start()], named[hyphen.end() :]) for hyphen in re.finditer("-", named)
        ]
        for first, last in ranges:
            span = span_of_pages(document.outline, document.text, first, last)
            if span is not None:
                return span
    return None


def _section_span(document: Document, name: str) -> tuple[int, int] | None:
    """Return the offsets of the first section or message with a name as hits show it."""
    marks = [mark for mark in document.outline if mark.kind in ("heading", "message")]
    for number, mark in enumerate(marks):
        if name in _section_names(document, mark):
            later = (after.offset for after in marks[number + 1 :] if _ends_section(mark, after))
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


def _ends_section(section: Mark, mark: Mark) -> bool:
    """Return whether a later mark ends a section: messages end all, headings those below them."""
    return mark.kind == "message" or (section.kind == "heading" and mark.level <= section.level)
