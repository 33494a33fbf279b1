"""Lines of UTF-8 text, and plain text as a source: a passage per line."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from retriever.corpus.documents import Record
from retriever.corpus.fields import Fields
from retriever.errors import SourceError

if TYPE_CHECKING:
    from retriever.corpus.sources import OpenSource

NUL_FAULT = "holds a NUL byte; expected UTF-8 text (UTF-16 can be converted with iconv)"
# Bytes of the longest line, row or file of a folder: a small compressed file can hold any length.
LONGEST = 1 << 26
TOO_LONG = f"longer than {LONGEST >> 20} MiB; split it into several documents"


def read(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """The passages of a source, in file order, each without its line end; blank lines are skipped.

    Raises:
        SourceError: the caller names an id or title field, which plain text cannot have.
    """
    refuse_named_fields(source.name, fields)
    key = fields.text or "text"
    lines = TextLines(source.stream)
    for line in lines:
        fault = lines.take_fault()
        where = f"{source.name}:{lines.number}"
        if fault is not None:
            yield Record(lines.number, where, {}, fault)
        elif line.strip():
            text = line[:-1].removesuffix("\r") if line.endswith("\n") else line
            yield Record(lines.number, where, {key: text})


def refuse_named_fields(name: str, fields: Fields) -> None:
    """Raise SourceError if `fields` names what plain text does not have: an id or a title."""
    for role, field in (("id", fields.id), ("title", fields.title)):
        if field is not None:
            raise SourceError(
                f"{name}: read as plain text, which has no {role} field {field!r}; "
                "use JSONL, CSV, TSV, Parquet or SQLite to give one"
            )


def decode_fault(error: UnicodeDecodeError) -> str:
    """What is wrong with bytes that are not UTF-8."""
    byte = error.object[error.start]
    return f"invalid UTF-8: byte 0x{byte:02x} ({error.reason}); convert the file to UTF-8"


class TextLines:
    """Iterates over lines, each with its line end; only a line feed ends a line.

    A line that is not UTF-8 does not stop the iteration: its bad bytes become surrogates and
    `take_fault` reports it, so that a quoted cell of several lines stays in one piece. A line
    longer than `LONGEST` is reported too, and becomes an empty one.

    Attributes:
        number: 1-based number of the line returned last; 0 before the first.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._fault: str | None = None
        self._unread: str | None = None
        self.number = 0

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
        line = self._stream.readline(LONGEST + 1)
        if not line:
            raise StopIteration
        if len(line) > LONGEST:
            while not line.endswith(b"\n") and (line := self._stream.readline(LONGEST)):
                pass
            line, self._fault = b"\n", self._fault or TOO_LONG
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
