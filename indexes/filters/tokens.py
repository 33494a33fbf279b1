"""The words and signs of a metadata filter, and errors that point into it.

The grammar is described in `indexes.filters.grammar`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from indexes.errors import FilterError

Value = str | int | float

_KEYWORDS = frozenset(
    ("and", "or", "not", "in", "like", "contains", "exists", "true", "false", "null")
)

_TOKEN = re.compile(
    r"""\s+
    | (?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<word>[^\W\d]\w*)
    | (?P<quoted>["'`])
    | (?P<symbol>==|!=|<>|<=|>=|[=<>(),.])
    | (?P<unknown>[\w.+-]+|.)""",
    re.VERBOSE | re.DOTALL,
)


def point_at(text: str, position: int) -> str:
    """Two lines: the filter, and a caret below its character `position`, counted from 0."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return f"{line}\n{' ' * sum(map(_columns, line[:position]))}^"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def error_at(position: int, expected: str, found: str) -> FilterError:
    """The error to raise at `position`, from 0; its message counts characters from 1."""
    message = f"filter, character {position + 1}: expected {expected}, found {found}"
    return FilterError(message, position)


@dataclass(frozen=True, slots=True)
class Token:
    """One word or sign of a filter.

    Attributes:
        kind: 'name', '`name`', 'string', 'number', 'end', 'unknown', or the keyword (in lower
            case) or symbol itself.
        position: where it begins, from 0.
        raw: as written.
        value: a name or string without quotes and escapes; a number.
    """

    kind: str
    position: int
    raw: str
    value: Value = ""

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the filter"
        return repr(_shorten(self.raw))


def tokens(text: str) -> Iterator[Token]:
    """The tokens in order, read one at a time, then 'end' for ever.

    Raises:
        FilterError: a character, string or number that can be in no filter.
    """
    for position, character in enumerate(text):
        # SQLite's text functions end a string at NUL, and UTF-8 has no lone surrogates.
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise error_at(position, "text without NUL and lone surrogates", repr(character))
    position = 0
    while match := _TOKEN.match(text, position):
        raw, kind = match.group(), match.lastgroup
        if kind == "number":
            yield Token("number", position, raw, _number(raw, position))
        elif kind == "word":
            keyword = raw.lower()
            yield Token(keyword if keyword in _KEYWORDS else "name", position, raw, raw)
        elif kind == "quoted":
            value, end = _unquote(text, position)
            raw = text[position:end]
            yield Token("`name`" if raw[0] == "`" else "string", position, raw, value)
        elif kind is not None:
            yield Token(raw if kind == "symbol" else kind, position, raw)
        position += len(raw)
    while True:
        yield Token("end", len(text), "")


def _unquote(text: str, start: int) -> tuple[str, int]:
    characters: list[str] = []
    quote, position = text[start], start + 1
    while position < len(text):
        if text[position] == quote:
            return "".join(characters), position + 1
        if text[position] == "\\":
            position += 1
            if text[position : position + 1] not in (quote, "\\"):
                found = repr(text[position - 1 : position + 1])
                raise error_at(position - 1, rf"\{quote} or \\ (write a backslash as \\)", found)
        characters.append(text[position])
        position += 1
    raise error_at(start, f"a closing {quote}", "the end of the filter")


def _number(raw: str, position: int) -> int | float:
    if raw.lstrip("+-").isdigit():
        digits = raw.lstrip("+-0") or "0"
        # int() refuses thousands of digits with an error of its own.
        integer = int(digits) if len(digits) <= 19 else 2**64
        if raw[0] == "-":
            integer = -integer
        if -(2**63) <= integer < 2**63:
            return integer
        raise error_at(position, "an integer of 64 bits", _shorten(raw))
    real = float(raw)
    if math.isinf(real):
        raise error_at(position, "a number that a float can hold", _shorten(raw))
    return real


def _shorten(raw: str) -> str:
    return raw if len(raw) <= 40 else raw[:39] + "…"
