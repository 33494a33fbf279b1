"""Physical lines of UTF-8 text, with their faults told apart from reading errors."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import BinaryIO

NUL_FAULT = "holds a NUL byte; expected UTF-8 text (UTF-16 can be converted with iconv)"


def decode_fault(error: UnicodeDecodeError) -> str:
    """What is wrong with bytes that are not UTF-8."""
    byte = error.object[error.start]
    return f"invalid UTF-8: byte 0x{byte:02x} ({error.reason}); convert the file to UTF-8"


class TextLines:
    """Iterates over lines, each with its line end; only a line feed ends a line.

    A line that is not UTF-8 does not stop the iteration: its bad bytes become surrogates and
    `take_fault` tells of it, so that a quoted cell of several lines stays in one piece.

    Attributes:
        number: 1-based number of the line returned last; 0 before the first.
        ended: whether the iteration came to its end.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = iter(stream)
        self._fault: str | None = None
        self._unread: str | None = None
        self.number = 0
        self.ended = False

    def __iter__(self) -> TextLines:
        return self

    def unread(self, line: str) -> None:
        """Give back the line returned last, with its fault, to be returned again."""
        self._unread = line
        self.number -= 1

    def __next__(self) -> str:
        if self._unread is not None:
            unread, self._unread = self._unread, None
            self.number += 1
            return unread
        try:
            line = next(self._lines)
        except StopIteration:
            self.ended = True
            raise
        if self.number == 0:
            line = line.removeprefix(BOM_UTF8)
        self.number += 1
        if b"\0" in line:
            self._fault = self._fault or NUL_FAULT
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self._fault = self._fault or f"{decode_fault(error)} (in line {self.number})"
            return line.decode(errors="surrogateescape")

    def take_fault(self) -> str | None:
        """The first fault of the lines since the last call, or None."""
        fault, self._fault = self._fault, None
        return fault
