"""The outline of a document's text: marks of pages, headings, lines and messages, and places
by it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

MarkKind = Literal["page", "heading", "line", "message", "label"]

_KINDS = get_args(MarkKind)
_HEADING_SEPARATOR = " › "
_offset = attrgetter("offset")
_NUMBER = re.compile("[0-9]{1,9}")
_LABEL = re.compile("[^\0\n\ud800-\udfff]*")


class Mark(NamedTuple):
    """The beginning of a page, heading, numbered line or message, or a name of the document.

    Attributes:
        offset: offset of its first character in the document's text; 0 for a label.
        kind: ``page``, ``heading``, ``line``, ``message`` or ``label``.
        label: text of the mark, by kind. A page has its label, such as "3" or "iv". A heading has
            its text; with an empty one it ends the headings of its level. A line has its number in
            the source; the following lines of the text are numbered from it. A message has its
            date, sender and subject: "2024-03-01 Alice: Subject". A label has words that name the
            document and are not in its text: the path of its file, or its keywords.
        level: level of a heading, 1 to 6; 0 for other kinds.
    """

    offset: int
    kind: MarkKind
    label: str
    level: int = 0


# Marks by offset, ascending.
Outline: TypeAlias = tuple[Mark, ...]


def outline_fault(outline: object, length: int) -> str | None:
    """Describe why an outline of a text of `length` characters cannot be stored; None if it can."""
    if not isinstance(outline, tuple):
        return "is not a tuple of marks"
    for number, mark in enumerate(outline, 1):
        if not isinstance(mark, Mark) or [*map(type, mark)] != [int, str, str, int]:
            return f"mark {number} is {mark!r:.80}, which is no mark"
        levels = range(1, 7) if mark.kind == "heading" else range(1)
        label = _NUMBER if mark.kind == "line" else _LABEL
        if (
            mark.kind not in _KINDS
            or mark.level not in levels
            or not label.fullmatch(mark.label)
            or (mark.kind == "label" and mark.offset)
            or not 0 <= mark.offset <= length
        ):
            return f"mark {number} is {mark!r:.200}, which no text of {length} characters has"
    if any(after[0] < before[0] for before, after in pairwise(outline)):
        return "has marks that are not in ascending order of their offsets"
    return None


def outline_json(outline: Outline) -> str:
    """Return the stored form of an outline: arrays of offset, kind, label and level of a heading.

    Empty for an empty outline.
    """
    if not outline:
        return ""
    rows = [mark if mark.level else mark[:3] for mark in outline]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def read_outline(text: str) -> Outline:
    """Return the outline that `outline_json` wrote."""
    return tuple(Mark(*row) for row in json.loads(text)) if text else ()


def parse_outline(value: object, text: str) -> Outline | None:
    """Return the outline in a field of a record, in the form of `outline_json`; None if invalid."""
    if not isinstance(value, list) or not value:
        return None
    rows = [row for row in value if isinstance(row, list) and 3 <= len(row) <= 4]
    outline = tuple(Mark(*row) for row in rows)
    is_valid = len(rows) == len(value) and outline_fault(outline, len(text)) is None
    return outline if is_valid else None


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a passage in its document; `str` describes it in words.

    Attributes:
        pages: labels of its first and last page; None in a document without pages.
        headings: the path of headings above its beginning, or at it.
        lines: numbers of its first and last line in the source; None if they are unknown.
        message: date, sender and subject of the message in which it begins, or None.
    """

    pages: tuple[str, str] | None = None
    headings: tuple[str, ...] = ()
    lines: tuple[int, int] | None = None
    message: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the known attributes as JSON values."""
        attributes = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in attributes.items()
            if value
        }

    def of(self, id_: str, title: str | None = None) -> tuple[str, str]:
        """Return the id with its lines, as in ``notes.md:120-141``, and the other parts in words.

        A first heading that equals `title` is left out, since the title is shown beside it.
        """
        lines = "" if self.lines is None else ":" + "-".join(map(str, sorted({*self.lines})))
        headings = self.headings[self.headings[:1] == (title,) :]
        return id_ + lines, str(replace(self, headings=headings, lines=None))

    def __str__(self) -> str:
        parts = [
            _format_range("page", self.pages),
            self.message or "",
            _HEADING_SEPARATOR.join(self.headings),
        ]
        return ", ".join(filter(None, [*parts, _format_range("line", self.lines)]))


def _format_range(name: str, ends: tuple[object, object] | None) -> str:
    if ends is None:
        return ""
    first, last = ends
    return f"{name} {first}" if first == last else f"{name}s {first}-{last}"


def place(outline: Outline, text: str, span: tuple[int, int]) -> Place:
    """Return the place of a span of a text, without the white space at its ends."""
    passage = text[slice(*span)]
    start = span[0] + len(passage) - len(passage.lstrip())
    last = max(start, span[0] + len(passage.rstrip()) - 1)
    marks_at_start = bisect_right(outline, start, key=_offset)
    marks_at_end = bisect_right(outline, last, marks_at_start, key=_offset)
    page, line, message = (
        last_mark(outline, marks_at_start, kind) for kind in ("page", "line", "message")
    )
    last_page, last_line = (last_mark(outline, marks_at_end, kind) for kind in ("page", "line"))
    lines = None
    if line is not None and last_line is not None:
        lines = _line_at(line, text, start), _line_at(last_line, text, last)
    return Place(
        None if last_page is None else ((page or last_page).label, last_page.label),
        tuple(mark.label for mark in heading_path(outline, start)),
        lines,
        None if message is None else message.label,
    )


def span_of_lines(outline: Outline, text: str, first: int, last: int) -> tuple[int, int] | None:
    """Return the offsets of the lines `first` to `last` of the source; None if all are unknown."""
    marks = [mark for mark in outline if mark.kind == "line"]
    start = None
    for mark, after in pairwise([*marks, Mark(len(text), "line", "")]):
        offset = mark.offset
        lines = text[offset : after.offset].removesuffix("\n").split("\n")
        for number, line in enumerate(lines, int(mark.label)):
            if number > last and start is not None:
                return start, offset
            if start is None and first <= number <= last:
                start = offset
            offset += len(line) + 1
    return None if start is None else (start, len(text))


def lines_of(outline: Outline, text: str) -> tuple[int, int] | None:
    """Return the first and the last line of the source in a text; None if they are unknown."""
    marks = [mark for mark in outline if mark.kind == "line"]
    if not marks:
        return None
    return int(marks[0].label), _line_at(marks[-1], text, len(text.rstrip()))


def span_of_pages(outline: Outline, text: str, first: str, last: str) -> tuple[int, int] | None:
    """Return the offsets from page `first` to page `last`, by label; None if one is unknown."""
    pages = [mark for mark in outline if mark.kind == "page"]
    labels = [mark.label for mark in pages]
    try:
        number = labels.index(first)
        last_number = labels.index(last, number)
    except ValueError:
        return None
    following = pages[last_number + 1 :]
    return pages[number].offset, following[0].offset if following else len(text)


def heading_path(outline: Outline, offset: int) -> list[Mark]:
    """Return the headings above an offset, the highest first; one that begins there is the last."""
    path: list[Mark] = []
    level = 7
    for number in range(bisect_right(outline, offset, key=_offset) - 1, -1, -1):
        mark = outline[number]
        if mark.kind == "message" or level == 1:
            break
        if mark.kind == "heading" and mark.level < level:
            # A heading without a label ends those of its level.
            path += [mark] if mark.label else []
            level = mark.level
    return path[::-1]


def last_mark(outline: Outline, stop: int, kind: MarkKind) -> Mark | None:
    """Return the last mark of a kind among the first `stop`; None if there is none."""
    numbers = range(stop - 1, -1, -1)
    return next((outline[number] for number in numbers if outline[number].kind == kind), None)


def _line_at(mark: Mark, text: str, offset: int) -> int:
    return int(mark.label) + text.count("\n", mark.offset, offset)
