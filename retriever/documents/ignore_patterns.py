"""Patterns of .gitignore files, matched as Git matches them, without backtracking.

The patterns of a file form one automaton. Its states are the bits of an integer; a state means that
a pattern is matched up to one of its elements. A byte of a name moves all states at once. The time
for a name is therefore proportional to its length times the length of the patterns. A walk keeps
the states of each folder, so an entry costs only its own name.

The rules are those of `dir.c` and `wildmatch.c` of Git 2.39, which compare bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

_BACKSLASH = ord("\\")
_HYPHEN = ord("-")
_LEFT_BRACKET = ord("[")
_QUESTION = ord("?")
_RIGHT_BRACKET = ord("]")
_SLASH = ord("/")
_SPACE = ord(" ")
_STAR = ord("*")
_SPECIAL = b"*?[\\"
# Any number of folders directly after a literal, as in `a**/b`.
_GLUED = re.compile(rb"([^*?[\\]*[^*?[\\/])(?:\*\*+/)++")
_CLASS = re.compile(rb"\[:([^]]*):\]")
_ALL_BYTES = frozenset(range(256))
_ANY = _ALL_BYTES - {_SLASH}
_LOWER = frozenset(b"abcdefghijklmnopqrstuvwxyz")
_UPPER = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGIT = frozenset(b"0123456789")
_GRAPHIC = frozenset(range(0x21, 0x7F))
# Classes of ASCII characters. Vertical tab and form feed are no white space.
_CLASSES = {
    b"alnum": _LOWER | _UPPER | _DIGIT,
    b"alpha": _LOWER | _UPPER,
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset((*range(0x20), 0x7F)),
    b"digit": _DIGIT,
    b"graph": _GRAPHIC,
    b"lower": _LOWER,
    b"print": _GRAPHIC | {_SPACE},
    b"punct": _GRAPHIC - _LOWER - _UPPER - _DIGIT,
    b"space": frozenset(b" \t\n\r"),
    b"upper": _UPPER,
    b"xdigit": _DIGIT | frozenset(b"abcdefABCDEF"),
}


class Position(NamedTuple):
    """The states of an automaton in a folder, before the names of its entries."""

    states: int
    # States that return at the beginning of each name below, as after ``**/``.
    returning: int
    # End states of patterns that match a folder above.
    matched_above: int = 0


class IgnorePatterns:
    """The patterns of a file; the last one that matches decides.

    A line that is no pattern, or that can match nothing, is ignored.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        builder = _Builder()
        # The number of the line, from 0, of each last state.
        self._line_numbers: dict[int, int] = {}
        for number, line in enumerate(lines):
            ends_before = len(builder.ends)
            builder.add_line(line)
            self._line_numbers |= dict.fromkeys(builder.ends[ends_before:], number)
        bits = builder.bits
        self._moves = builder.moves()
        self._stays = bits(builder.stays)
        self._stays_at_slash = bits(builder.stays_at_slash)
        self._returns = bits(builder.returns)
        self._ends = bits(builder.ends)
        self._ends_of_files = bits(builder.ends_of_files)
        self._negative = bits(builder.negative)
        starts = bits(builder.starts)
        self.start = Position(starts, starts & self._returns)

    def __bool__(self) -> bool:
        """Return whether there is a pattern that can match."""
        return self._ends != 0

    def below(self, position: Position, name: bytes) -> Position:
        """Return the position in a subfolder of the folder of `position`."""
        states, returning, above = position
        states = self._advance(states, name)
        above |= states & self._ends
        states = ((states & self._moves[_SLASH]) << 1) | (states & self._stays_at_slash)
        states |= returning
        return Position(states, returning | (states & self._returns), above)

    def verdict(
        self, position: Position, name: bytes, is_folder: bool, *, inherits: bool = False
    ) -> bool | None:
        """Return whether an entry in the folder of `position` is matched; None if undecided.

        With `inherits`, a pattern that matches a folder matches everything below it, too.
        """
        matched = self._matched(position, name, is_folder, inherits=inherits)
        if not matched:
            return None
        # A later pattern has higher states.
        return (matched & self._negative).bit_length() != matched.bit_length()

    def deciding_line(
        self, position: Position, name: bytes, is_folder: bool, *, inherits: bool = False
    ) -> int | None:
        """Return the number of the line that decides, from 0; None if none does."""
        matched = self._matched(position, name, is_folder, inherits=inherits)
        return self._line_numbers[matched.bit_length() - 1] if matched else None

    def _matched(self, position: Position, name: bytes, is_folder: bool, *, inherits: bool) -> int:
        """Return the last states of the patterns that match an entry."""
        matched = self._advance(position.states, name)
        matched &= self._ends if is_folder else self._ends_of_files
        return matched | position.matched_above if inherits else matched

    def _advance(self, states: int, name: bytes) -> int:
        moves = self._moves
        stays = self._stays
        for byte in name:
            if not states:
                break
            states = ((states & moves[byte]) << 1) | (states & stays)
        return states


def split_lines(content: bytes) -> list[bytes]:
    """Return the lines of an ignore file."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r") for line in lines]


class _Wildcard(Enum):
    """An element that matches any number of bytes."""

    # ``*``
    IN_NAME = auto()
    # ``**`` at the end
    IN_PATH = auto()
    # ``**/``
    FOLDERS = auto()


# A set holds the bytes that match one byte of a name.
_Element = frozenset[int] | _Wildcard


class _Builder:
    """Builds the tables of an automaton from patterns."""

    def __init__(self) -> None:
        self._size = 0
        self._sets: list[tuple[int, frozenset[int]]] = []
        self.starts: list[int] = []
        # States that any byte except a slash keeps, and those that a slash keeps.
        self.stays: list[int] = []
        self.stays_at_slash: list[int] = []
        self.returns: list[int] = []
        # Last states of all patterns, of patterns that match files, and of patterns after ``!``.
        self.ends: list[int] = []
        self.ends_of_files: list[int] = []
        self.negative: list[int] = []

    def add_line(self, line: bytes) -> None:
        """Add the pattern of a line, unless it can match nothing."""
        # Git reads no further than a NUL.
        pattern = _strip_trailing_spaces(line.split(b"\0", 1)[0])
        if pattern.startswith(b"#"):
            return
        is_negative = pattern.startswith(b"!")
        pattern = pattern[is_negative:]
        is_for_folders = pattern.endswith(b"/")
        pattern = pattern[: len(pattern) - is_for_folders]
        is_name = b"/" not in pattern
        pattern = pattern.removeprefix(b"/")
        forms = [pattern]
        glued = None if is_name else _GLUED.match(pattern)
        if glued is not None:
            # For Git, a**/b is ab as well as a*/**/b, if there is no wildcard before.
            head = glued[1]
            rest = pattern[glued.end() :]
            forms = [head + rest, head + b"*/**/" + rest]
        for form in forms:
            if elements := _parse_pattern(form, is_name):
                self._add(elements, is_for_folders, is_negative)

    def _add(self, elements: list[_Element], is_for_folders: bool, is_negative: bool) -> None:
        self.starts.append(self._size)
        for element in elements:
            if element is _Wildcard.FOLDERS:
                self.returns.append(self._size)
            elif isinstance(element, _Wildcard):
                self.stays.append(self._size)
                if element is _Wildcard.IN_PATH:
                    self.stays_at_slash.append(self._size)
            else:
                self._sets.append((self._size, element))
                self._size += 1
        self.ends.append(self._size)
        if not is_for_folders:
            self.ends_of_files.append(self._size)
        if is_negative:
            self.negative.append(self._size)
        self._size += 1

    def moves(self) -> list[int]:
        """Return for each byte the states that it advances."""
        accepting: list[list[int]] = [[] for _ in _ALL_BYTES]
        # For a set with most bytes, the bytes that it lacks are entered.
        large: list[int] = []
        refusing: list[list[int]] = [[] for _ in _ALL_BYTES]
        for state, accepted in self._sets:
            is_large = len(accepted) > len(_ALL_BYTES) // 2
            if is_large:
                large.append(state)
            rows = refusing if is_large else accepting
            for byte in _ALL_BYTES - accepted if is_large else accepted:
                rows[byte].append(state)
        most = self.bits(large)
        return [
            (most & ~self.bits(refused)) | self.bits(states)
            for refused, states in zip(refusing, accepting, strict=True)
        ]

    def bits(self, states: list[int]) -> int:
        """Return states as the bits of an integer."""
        if not states:
            return 0
        row = bytearray((states[-1] >> 3) + 1)
        for state in states:
            row[state >> 3] |= 1 << (state & 7)
        return int.from_bytes(row, "little")


def _strip_trailing_spaces(line: bytes) -> bytes:
    end = place = 0
    while place < len(line):
        is_space = line[place] == _SPACE
        # A space after a backslash stays.
        place += 2 if line[place] == _BACKSLASH else 1
        if not is_space:
            end = place
    return line[:end]


def _parse_pattern(pattern: bytes, is_name: bool) -> list[_Element] | None:
    """Return the elements of a pattern without slashes around it; None if it can match nothing.

    A pattern that `is_name` counts in every folder.
    """
    if not pattern:
        return None
    elements: list[_Element] = [_Wildcard.FOLDERS] if is_name else []
    # Git compares what is before the first wildcard on its own, and the rest as another pattern.
    first = next((n for n, byte in enumerate(pattern) if byte in _SPECIAL), len(pattern))
    place = 0
    while place < len(pattern):
        byte = pattern[place]
        if byte == _STAR:
            is_alone = place == first or pattern[place - 1] == _SLASH
            wildcard, place = _parse_stars(pattern, place, is_folder_name=is_alone and not is_name)
            elements.append(wildcard)
        elif byte == _LEFT_BRACKET:
            bracket = _parse_bracket(pattern, place + 1)
            if bracket is None:
                return None
            accepted, place = bracket
            elements.append(accepted - {_SLASH})
        elif byte == _QUESTION:
            elements.append(_ANY)
            place += 1
        else:
            place += byte == _BACKSLASH
            if place == len(pattern):
                return None
            elements.append(frozenset(pattern[place : place + 1]))
            place += 1
    return elements


def _parse_stars(pattern: bytes, place: int, *, is_folder_name: bool) -> tuple[_Wildcard, int]:
    """Return the wildcard of a row of stars from `place` on, and the offset after it.

    Two stars or more are special where they begin the name of a folder in a path.
    """
    end = place + 1
    while pattern[end : end + 1] == b"*":
        end += 1
    if end - place == 1 or not is_folder_name:
        return _Wildcard.IN_NAME, end
    rest = pattern[end : end + 2]
    if rest.startswith(b"/"):
        return _Wildcard.FOLDERS, end + 1
    return (_Wildcard.IN_PATH if rest in (b"", b"\\/") else _Wildcard.IN_NAME), end


def _parse_bracket(pattern: bytes, place: int) -> tuple[frozenset[int], int] | None:
    """Return the bytes that a bracket matches, from after its ``[``, and the offset after it."""
    is_negative = pattern[place : place + 1] in (b"!", b"^")
    place += is_negative
    members: set[int] = set()
    # The last byte, if it can begin a range, else 0.
    previous = 0
    start = place
    try:
        while pattern[place] != _RIGHT_BRACKET or place == start:
            byte = pattern[place]
            is_range = byte == _HYPHEN and previous > 0
            if is_range and pattern[place + 1] != _RIGHT_BRACKET:
                place += 1
                place += pattern[place] == _BACKSLASH
                members.update(range(previous, pattern[place] + 1))
                previous = 0
            elif (named := _CLASS.match(pattern, place)) is not None:
                members |= _CLASSES[named[1]]
                place = named.end() - 1
                previous = 0
            else:
                place += byte == _BACKSLASH
                previous = pattern[place]
                members.add(previous)
            place += 1
    except (IndexError, KeyError):
        # The bracket has no end, or names no class.
        return None
    return (_ALL_BYTES - members if is_negative else frozenset(members)), place + 1
