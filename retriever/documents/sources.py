"""Opening of sources, detection of their format, and reading of lines.

The format is detected by magic bytes, then by name, then by content.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import sqlite3
import stat
import unicodedata
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from retriever.documents.decoding import REMEDY, check_encoding, detect_encoding, encoding_fault
from retriever.documents.document import (
    ID_NAMES,
    TEXT_NAMES,
    TITLE_NAMES,
    ColumnType,
    Document,
    Fields,
    content_id,
)
from retriever.errors import ConfigError, SourceError, StorageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Format = Literal["jsonl", "csv", "tsv", "parquet", "lines", "sqlite"]

NUL_FAULT = f"holds a NUL byte; expected text (it may be utf-16-le; {REMEDY})"
# Maximum size in bytes of a line, a row or a text file of a folder. A small compressed file can
# expand to any size.
LONGEST = 1 << 26
TOO_LONG = f"longer than {LONGEST >> 20} MiB; split it into several documents"

_GZIP = b"\x1f\x8b"
_MAGIC: dict[bytes, Format] = {b"PAR1": "parquet", b"SQLite format 3\0": "sqlite"}
# Bytes that are read at once.
_CHUNK = 1 << 17
_FORMATS_BY_SUFFIX: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "lines",
}

# A URL, as written or as an absolute path, which has one slash after the scheme.
_URL = re.compile(r"(?:/.*/)?(?:https?|ftp):/")


class UnopenedError(SourceError):
    """A source that does not exist or that this user cannot read."""


@dataclass(slots=True)
class Meter:
    """Counters of what is read from disk or standard input."""

    # Bytes before decompression.
    bytes: int = 0
    # Sources by their detected encoding, if it is not UTF-8.
    recoded: dict[str, FieldCount] = field(default_factory=dict)


@dataclass(slots=True)
class FieldCount:
    """The number of records with a problem of one field, and the first of these problems."""

    first: str
    records: int = 0

    @staticmethod
    def add(counts: dict[str, FieldCount], name: str, first: str) -> None:
        """Count one more record."""
        counts.setdefault(name, FieldCount(first)).records += 1


@dataclass(frozen=True, slots=True)
class TextForm:
    """The form of text sources.

    Attributes:
        encoding: name of the encoding. None detects it: by a byte-order mark, else UTF-8, else by
            chardet if the first bytes are not UTF-8.
        delimiter: one character between the cells of CSV. If set, any text without another suffix
            is read as CSV. None is a comma, and a tab in TSV.
        header: whether the first row of CSV and TSV has the names of the columns. Otherwise the
            names are 1, 2, ..., and a single column is `text`.

    Raises:
        ConfigError: there is no such encoding, or the delimiter is not one character.
    """

    encoding: str | None = None
    delimiter: str | None = None
    header: bool = True

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '\r\n"'):
            raise ConfigError(
                f"delimiter: expected one character, such as ; or a tab, found {self.delimiter!r}"
            )


_DETECTED_FORM = TextForm()


@dataclass(frozen=True, slots=True)
class OpenSource:
    """An open source of known format."""

    name: str
    format: Format
    # Decompressed bytes from the first on.
    stream: BinaryIO
    # A file that supports random access; None if the source is compressed or a pipe.
    path: Path | None
    meter: Meter
    form: TextForm = _DETECTED_FORM
    # Types of metadata columns, and cells that do not fit; the readers of CSV and TSV fill them.
    columns: dict[str, ColumnType] = field(default_factory=dict)
    misfits: dict[str, FieldCount] = field(default_factory=dict)


def base_name(name: str) -> str:
    """Return a file name in lower case, without `.gz`."""
    return name.lower().removesuffix(".gz")


def normalize_name(name: str) -> str:
    """Return a name in NFC, in which names are compared and ids are stored."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def path_on_disk(path: str | Path) -> str | Path:
    """Return a path as the file system spells it, which may use another normal form of Unicode."""
    written = str(path)
    if written.isascii() or os.path.lexists(written):
        return path
    folder = Path()
    for part in Path(written).parts:
        name = part
        if not (folder / part).exists():
            with suppress(OSError):
                entries = sorted(os.listdir(folder))
                name = next((e for e in entries if normalize_name(e) == normalize_name(part)), part)
        folder /= name
    return folder if folder.exists() else path


def file_size(path: Path) -> int | None:
    """Return the bytes on disk; None for a pipe or device. Raise UnopenedError if unreadable."""
    with _explain_errors(str(path)):
        status = path.stat()
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextmanager
def open_source(
    path: Path, name: str, fields: Fields, meter: Meter, form: TextForm = _DETECTED_FORM
) -> Iterator[OpenSource]:
    """Open a file, and close it on leaving.

    Raises UnopenedError if it cannot be opened, SourceError if it is unusable.
    """
    with _explain_errors(name):
        file = path.open("rb", buffering=0)
    with file, open_stream(file, name, fields, meter, form, path) as source:
        yield source


@contextmanager
def open_stream(
    stream: BinaryIO,
    name: str,
    fields: Fields,
    meter: Meter,
    form: TextForm = _DETECTED_FORM,
    path: Path | None = None,
) -> Iterator[OpenSource]:
    """Read a stream that the caller opens and closes, perhaps of a file.

    Raises as `open_source` does.
    """
    before = meter.bytes
    # read1 returns the available bytes; read would wait for a full buffer of a slow pipe.
    outer = _ByteStream(name, getattr(stream, "read1", stream.read), meter)
    unzipped = _decompress(outer, name)
    text = _recode(unzipped, name, form, meter)
    file_name = "" if path is None else base_name(path.name)
    kind = _detect_format(text.head(), file_name, name, fields, form)
    if path is None or unzipped is not outer or file_size(path) is None:
        path = None
    elif kind in _MAGIC.values():
        # The file is read again through its path, and counted by rows.
        meter.bytes = before
    yield OpenSource(name, kind, io.BufferedReader(text, _CHUNK), path, meter, form)


@contextmanager
def open_bytes(path: Path, name: str, meter: Meter) -> Iterator[io.BufferedReader]:
    """Open the bytes of a file of any format, decompressed; raise as `open_source` does."""
    with _explain_errors(name):
        file = path.open("rb", buffering=0)
    with file:
        yield io.BufferedReader(_decompress(_ByteStream(name, file.read, meter), name), _CHUNK)


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        hint = "; web pages are not fetched: save them to a folder" if _URL.match(name) else ""
        raise UnopenedError(f"{name}: no such file or folder{hint}") from error
    except OSError as error:
        raise UnopenedError(f"{name}: cannot be read: {error.strerror or error}") from error


class _ByteStream(io.RawIOBase):
    """Bytes from a `read` function, with lookahead; counts them and explains errors."""

    def __init__(self, name: str, read: Callable[[int], bytes], meter: Meter) -> None:
        self._name = name
        self._read = read
        self._meter = meter
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        size = len(view)
        chunk = self._ahead or self._fetch(size)
        self._ahead = chunk[size:]
        count = min(size, len(chunk))
        view[:count] = chunk[:count]
        return count

    def head(self) -> bytes:
        """Return the first bytes, up to the end of the first line with content.

        Longer lines are cut after about two chunks.
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
        self._meter.bytes += len(chunk)
        return chunk


def _decompress(stream: _ByteStream, name: str) -> _ByteStream:
    if not stream.head().startswith(_GZIP):
        return stream
    compressed = io.BufferedReader(stream, _CHUNK)
    return _ByteStream(name, gzip.GzipFile(fileobj=cast(BinaryIO, compressed)).read1, Meter())


def _recode(stream: _ByteStream, name: str, form: TextForm, meter: Meter) -> _ByteStream:
    """Return a stream of a text as UTF-8, and any other source unchanged."""
    head = stream.head()
    if head.startswith(tuple(_MAGIC)):
        return stream
    encoding = form.encoding
    if encoding is None:
        # Lines of damaged UTF-8 are reported as faults later.
        with suppress(UnicodeDecodeError):
            encoding = detect_encoding(head)
        # JSON is Unicode, so other bytes are faults.
        is_json = head.lstrip().startswith(b"{")
        if is_json and encoding and not encoding.startswith("utf"):
            encoding = None
    if encoding is None:
        return stream
    if form.encoding is None:
        FieldCount.add(meter.recoded, encoding, name)
    decoder = codecs.getincrementaldecoder(encoding)()
    raw = io.BufferedReader(stream, _CHUNK)

    def read(size: int) -> bytes:
        try:
            while True:
                chunk = raw.read1(size)
                text = decoder.decode(chunk, not chunk)
                if text or not chunk:
                    return text.encode()
        except UnicodeError as error:
            raise SourceError(f"{name}: {encoding_fault(encoding, error)}") from error

    return _ByteStream(name, read, Meter())


def _detect_format(
    head: bytes, file_name: str, name: str, fields: Fields, form: TextForm
) -> Format:
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    body = head.removeprefix(BOM_UTF8).lstrip()
    named = _FORMATS_BY_SUFFIX.get(Path(file_name).suffix)
    if form.delimiter is not None and named in (None, "lines", "csv", "tsv"):
        return "csv"
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
    return _detect_text_format(body.split(b"\n", 1)[0].decode(errors="replace"), name, fields)


def _detect_text_format(line: str, name: str, fields: Fields) -> Format:
    text_names = TEXT_NAMES if fields.text is None else (fields.text,)
    roles = {*ID_NAMES, *TITLE_NAMES}
    candidates: tuple[tuple[Format, str], ...] = (("tsv", "\t"), ("csv", ","))
    for kind, delimiter in candidates:
        # A header of one column has no delimiter; programs that write such files quote as in CSV.
        if delimiter == "\t" and delimiter not in line:
            continue
        try:
            cells = next(csv.reader([line.rstrip("\r")], delimiter=delimiter), [])
        except csv.Error:
            continue
        # In another case, a single field name may be the first word of a text.
        lower_names = {cell.lower() for cell in cells}
        if any(cell in text_names for cell in cells) or (
            lower_names & set(TEXT_NAMES) and lower_names & roles
        ):
            return kind
    if fields.text is not None and line:
        raise SourceError(
            f"{name}: neither its name nor its first line shows a format that has the text field "
            f"{fields.text!r}; name the file .jsonl, .csv, .tsv or .parquet, or omit the field"
        )
    return "lines"


def decode_fault(error: UnicodeDecodeError) -> str:
    """Describe bytes that are not UTF-8."""
    byte = error.object[error.start]
    return f"invalid UTF-8: byte 0x{byte:02x} ({error.reason}); {REMEDY}"


class TextLines:
    """Iterator over lines; bytes that are not UTF-8 become surrogates, too long lines are empty."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._fault: str | None = None
        # Number of the line returned last, counted from 1.
        self.number = 0

    def __iter__(self) -> TextLines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(LONGEST + 1)
        if not line:
            raise StopIteration
        if len(line) > LONGEST:
            while not line.endswith(b"\n") and (line := self._stream.readline(LONGEST)):
                pass
            line = b"\n"
            self._fault = self._fault or TOO_LONG
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
        """Return the first fault of the lines since the last call, or None."""
        fault = self._fault
        self._fault = None
        return fault


class SeenIds:
    """The ids seen so far with their places, in a private temporary database of any size."""

    def __init__(self) -> None:
        # The reader is a generator, which another thread may resume.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        # Nothing is ever rolled back, so a journal would only double the writing.
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA cache_size = -32768")
        self._database.execute("CREATE TABLE seen (id TEXT PRIMARY KEY, place BLOB) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def identify(self, document: Document, where: str) -> Document | None:
        """Return a document with its id; None for a repetition without an id.

        A missing id is generated from the content. Raises SourceError if the id was seen before.
        """
        id_ = document.id or content_id(document.title, document.text)
        try:
            # A file name may not be valid UTF-8.
            row = (id_, where.encode(errors="surrogatepass"))
            if self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", row).rowcount:
                return document if document.id else replace(document, id=id_)
            rows = self._database.execute("SELECT place FROM seen WHERE id = ?", (id_,))
            [place] = rows.fetchone()
        except sqlite3.OperationalError as error:
            raise StorageError(
                f"the ids read so far cannot be kept in a temporary file ({error}); "
                "free space there, or point TMPDIR to another disk"
            ) from error
        if not document.id:
            return None
        earlier = place.decode(errors="surrogatepass")
        raise SourceError(
            f"{where}: the id {id_!r} was given before, at {earlier}; "
            "ids must be unique within a file and among all files of a run"
        )

    def close(self) -> None:
        """Delete the temporary database."""
        self._database.close()
