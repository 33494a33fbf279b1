"""Opens sources and detects their format: by magic bytes, by name, then by content."""

from __future__ import annotations

import csv
import gzip
import io
import re
import stat
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from retriever.corpus.column_types import ColumnType
from retriever.corpus.documents import FieldCount
from retriever.corpus.fields import ID_NAMES, TEXT_NAMES, TITLE_NAMES, Fields
from retriever.errors import SourceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Format = Literal["jsonl", "csv", "tsv", "parquet", "lines", "sqlite"]

_GZIP = b"\x1f\x8b"
_MAGIC: dict[bytes, Format] = {b"PAR1": "parquet", b"SQLite format 3\0": "sqlite"}
_CHUNK = 1 << 17
_FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "lines",
}


class UnopenedError(SourceError):
    """A source that does not exist or that this user cannot read."""


@dataclass(slots=True)
class Meter:
    """Counts the bytes read from disk or standard input, before decompression."""

    bytes: int = 0


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A source that is open and whose format is known.

    Attributes:
        name: its name in error messages.
        format: which reader it needs.
        stream: its bytes, decompressed, from the first.
        path: a file that supports random access; None if the source is compressed or a pipe.
        meter: counts the bytes read.
        columns: the types of metadata columns, entered by the readers of CSV and TSV.
        misfits: cells of these columns that do not fit the type, by column.
    """

    name: str
    format: Format
    stream: BinaryIO
    path: Path | None
    meter: Meter
    columns: dict[str, ColumnType] = field(default_factory=dict)
    misfits: dict[str, FieldCount] = field(default_factory=dict)


def base_name(name: str) -> str:
    """A file name in lower case, without `.gz`."""
    return name.lower().removesuffix(".gz")


def file_size(path: Path) -> int | None:
    """Bytes on disk; None for a pipe or device.

    Raises:
        UnopenedError: there is no such file, or it cannot be read.
    """
    with _explained(str(path)):
        status = path.stat()
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextmanager
def opened(path: Path, name: str, fields: Fields, meter: Meter) -> Iterator[OpenSource]:
    """A file, opened; closed on leaving.

    Raises:
        UnopenedError: it cannot be opened.
        SourceError: it is damaged gzip, is a JSON array, or its format is unknown.
    """
    before = meter.bytes
    with _explained(name):
        file = path.open("rb", buffering=0)
    with file:
        outer = _Bytes(name, file.read, meter)
        stream = _gunzipped(outer, name)
        kind = _detect(stream.head(), base_name(path.name), name, fields)
        at_random = path if stream is outer and file_size(path) is not None else None
        if kind in _MAGIC.values() and at_random is not None:
            # It is read again through its path, and counted by rows.
            meter.bytes = before
        yield OpenSource(name, kind, io.BufferedReader(stream, _CHUNK), at_random, meter)


@contextmanager
def opened_stream(stdin: BinaryIO, name: str, fields: Fields, meter: Meter) -> Iterator[OpenSource]:
    """A stream that the caller opened and closes; raises as `opened` does."""
    # read1 returns the available bytes; read would wait for a full buffer of a slow pipe.
    stream = _gunzipped(_Bytes(name, getattr(stdin, "read1", stdin.read), meter), name)
    kind = _detect(stream.head(), "", name, fields)
    yield OpenSource(name, kind, io.BufferedReader(stream, _CHUNK), None, meter)


@contextmanager
def bytes_of(path: Path, name: str, meter: Meter) -> Iterator[BinaryIO]:
    """The bytes of a file of any format, decompressed; raises as `opened` does."""
    with _explained(name):
        file = path.open("rb", buffering=0)
    with file:
        yield io.BufferedReader(_gunzipped(_Bytes(name, file.read, meter), name), _CHUNK)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise UnopenedError(f"{name}: no such file or folder") from error
    except OSError as error:
        raise UnopenedError(f"{name}: cannot be read: {error.strerror or error}") from error


class _Bytes(io.RawIOBase):
    """Bytes from a `read` function, with lookahead; counts them and explains errors."""

    def __init__(self, name: str, read: Callable[[int], bytes], meter: Meter | None) -> None:
        self._name = name
        self._read = read
        self._meter = meter
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        size = len(view)
        if self._ahead:
            chunk, self._ahead = self._ahead[:size], self._ahead[size:]
        else:
            chunk = self._fetch(size)
        view[: len(chunk)] = chunk
        return len(chunk)

    def head(self) -> bytes:
        """The first bytes, without consuming them: at least the first line that is not blank.

        Reads no more than two chunks, however long that line is.
        """
        while len(self._ahead) < _CHUNK and b"\n" not in self._ahead.removeprefix(BOM_UTF8).strip():
            if not (chunk := self._fetch(_CHUNK)):
                break
            self._ahead += chunk
        return self._ahead

    def _fetch(self, size: int) -> bytes:
        try:
            chunk = self._read(size) or b""
        except EOFError as error:
            raise SourceError(
                f"{self._name}: the gzip data ends too early; copy or download the file again"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise SourceError(
                f"{self._name}: the gzip data is corrupt ({error}); copy or download it again"
            ) from error
        except OSError as error:
            raise SourceError(f"{self._name}: cannot be read: {error.strerror or error}") from error
        if self._meter is not None:
            self._meter.bytes += len(chunk)
        return chunk


def _gunzipped(stream: _Bytes, name: str) -> _Bytes:
    if not stream.head().startswith(_GZIP):
        return stream
    compressed = io.BufferedReader(stream, _CHUNK)
    return _Bytes(name, gzip.GzipFile(fileobj=cast(BinaryIO, compressed)).read1, None)


def _detect(head: bytes, file_name: str, name: str, fields: Fields) -> Format:
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    body = head.removeprefix(BOM_UTF8).lstrip()
    named = _FORMATS.get(Path(file_name).suffix)
    array = body.startswith(b"[") if named == "jsonl" else re.match(rb"\[\s*\{", body)
    if array and named in ("jsonl", None):
        raise SourceError(
            f"{name}: found a JSON array, expected one object per line; "
            f"`jq -c '.[]' {name}` converts it"
        )
    if named is not None:
        return named
    if body.startswith(b"{"):
        return "jsonl"
    return _detect_text(body.split(b"\n", 1)[0].decode(errors="replace"), name, fields)


def _is_header(cells: list[str]) -> bool:
    """Whether cells name the text and something else, in any case: one alone may begin a text."""
    spelled = {cell.lower() for cell in cells}
    return not spelled.isdisjoint(TEXT_NAMES) and not spelled.isdisjoint((*ID_NAMES, *TITLE_NAMES))


def _detect_text(line: str, name: str, fields: Fields) -> Format:
    wanted = TEXT_NAMES if fields.text is None else (fields.text,)
    candidates: tuple[tuple[Format, str], ...] = (("tsv", "\t"), ("csv", ","))
    for kind, delimiter in candidates:
        # A header of one column has neither; programs that write such files quote like CSV.
        if delimiter == "\t" and delimiter not in line:
            continue
        try:
            cells = next(csv.reader([line.rstrip("\r")], delimiter=delimiter), [])
        except csv.Error:
            continue
        if any(cell in wanted for cell in cells) or _is_header(cells):
            return kind
    if fields.text is not None and line:
        raise SourceError(
            f"{name}: neither its name nor its first line shows a format that has the text field "
            f"{fields.text!r}; name the file .jsonl, .csv, .tsv or .parquet, or omit the field"
        )
    return "lines"
