"""Files of word vectors, gzipped or not, whose format is detected from the content.

GloVe files are text, with a word and its numbers on each line. word2vec's text and fastText's .vec
have a first line with the numbers of words and dimensions. word2vec also has a binary form. A word
is everything before the numbers, so it may hold spaces, as in some files of GloVe.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from retriever.documents.sources import Meter, open_bytes
from retriever.errors import SourceError

VectorFormat = Literal["glove", "word2vec-text", "word2vec-binary"]
# Bytes read to detect the format.
HEAD = 1 << 16
NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf)")
_HEADER = re.compile(rb"([0-9]{1,18})[ \t]+([0-9]{1,9})[ \t]*\r?\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
# Lines that decide the number of dimensions, if there is no header.
_VOTERS = 100
# Bytes of a read.
_BLOCK = 1 << 20
_SPACE = b" \t\r\n"
_LONGEST_WORD = 1 << 16
# Factor by which the array of vectors grows.
_GROWTH = 1.25


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of a file, read from its first bytes; `header` is its length in bytes."""

    format: VectorFormat
    dimensions: int
    # Number of words in the header, if there is one.
    count: int | None = None
    header: int = 0


def read_layout(head: bytes, name: str) -> Layout:
    """Detect the format of a file from its first bytes."""
    header = _HEADER.match(head)
    if header is None:
        if _CONTROL.search(head):
            raise SourceError(
                f"{name}: expected word vectors as text (GloVe, word2vec, fastText .vec) or in "
                "word2vec's binary format, found other binary data; unpack or convert it, or use "
                "fastText's .vec file"
            )
        return _headerless(head, name)
    count = int(header[1])
    dimensions = int(header[2])
    if not count or not dimensions:
        raise SourceError(
            f"{name}:1: expected the number of words and of dimensions, found {count} and "
            f"{dimensions}; download the file again"
        )
    first_line = head[header.end() :].partition(b"\n")[0]
    is_text = trailing_numbers(first_line) >= dimensions
    kind: VectorFormat = "word2vec-text" if is_text else "word2vec-binary"
    return Layout(kind, dimensions, count, header.end())


def _headerless(head: bytes, name: str) -> Layout:
    lines = head.split(b"\n")
    # Without the last line, which may continue beyond the head.
    whole = [line for line in lines[: max(1, min(_VOTERS, len(lines) - 1))] if line.strip()]
    # The most frequent number counts: words with spaces and malformed lines have other numbers.
    sizes = Counter(map(trailing_numbers, whole))
    dimensions = max(sizes, key=lambda size: (sizes[size], -size), default=0)
    if dimensions == 0:
        raise SourceError(
            f"{name}:1: expected a word and its vector, found "
            f"{head.lstrip()[:40].decode(errors='replace')!r}; name a file of word vectors"
        )
    return Layout("glove", dimensions)


def trailing_numbers(line: bytes) -> int:
    """Count the numbers at the end of a line, except its first field."""
    fields = line.split()[1:]
    for count, field in enumerate(reversed(fields)):
        if not NUMBER.fullmatch(field.lower()):
            return count
    return len(fields)


class WordVectors:
    """Distinct words in the order of the file, and finite (words, dimensions) float32 vectors.

    The array grows in place while the file is read.
    """

    def __init__(self, name: str, layout: Layout) -> None:
        self.name = name
        self._layout = layout
        # Not allocated by the header, which may promise more words than there are.
        self.vectors = np.empty((1, layout.dimensions), np.float32)
        self._rows: dict[str, int] = {}
        self.entries = 0

    def add(self, word: bytes, vector: NDArray[np.float32], where: str) -> None:
        """Append an entry, unless its word is a repetition or cannot occur in a text."""
        # A dot product is one fast call. It is finite only if all numbers are; it may overflow,
        # without a warning by vdot.
        if not np.isfinite(np.vdot(vector, vector)) and not np.isfinite(vector).all():
            raise SourceError(
                f"{where}: expected finite numbers, found {vector[~np.isfinite(vector)][0]}; "
                "remove the entry or download the file again"
            )
        self.entries += 1
        try:
            text = word.strip(_SPACE).decode()
        except UnicodeDecodeError:
            return
        # Some files have a vector for white space.
        if "\n" in text or not text.strip():
            return
        row = len(self._rows)
        if self._rows.setdefault(text, row) != row:
            return
        if row == len(self.vectors):
            self._resize(int(row * _GROWTH) + 1)
        self.vectors[row] = vector

    def finish(self) -> None:
        """Check the number of words, and free unused rows."""
        count = self._layout.count
        if count is not None and self.entries != count:
            raise SourceError(
                f"{self.name}: expected {count:,} words as its first line says, found "
                f"{'more' if self.entries > count else format(self.entries, ',')}; the file is not "
                "complete or was altered: download it again"
            )
        if not self._rows:
            raise SourceError(f"{self.name}: holds no word with a vector; name another file")
        self._resize(len(self._rows))

    @property
    def words(self) -> list[str]:
        """The words in the order of the file."""
        return list(self._rows)

    def _resize(self, rows: int) -> None:
        # In place, to avoid a second copy. No caller holds the array.
        self.vectors.resize((rows, self._layout.dimensions), refcheck=False)


def read_word_vectors(path: Path) -> WordVectors:
    """Read a file of word vectors, in the memory of its matrix and words."""
    name = str(path)
    with open_bytes(path, name, Meter()) as stream:
        layout = read_layout(stream.read(HEAD), name)
    table = WordVectors(name, layout)
    with open_bytes(path, name, Meter()) as stream:
        stream.read(layout.header)
        if layout.format == "word2vec-binary":
            _read_binary(stream, table, layout)
        else:
            _read_text(stream, table, layout)
    table.finish()
    return table


def _read_text(stream: BinaryIO, table: WordVectors, layout: Layout) -> None:
    for number, line in enumerate(stream, start=2 if layout.header else 1):
        if not line.strip():
            continue
        if table.entries == layout.count:
            table.entries += 1
            return
        where = f"{table.name}:{number}"
        word, _, numbers = line.partition(b" ")
        vector = _numbers(numbers)
        if vector is None or len(vector) != layout.dimensions:
            # A word with spaces, or tabs between the fields.
            word, vector = _split(line, layout.dimensions)
        if vector is None:
            count = trailing_numbers(line)
            fields = len(line.split())
            problem = f"{count}"
            if count != fields - 1:
                problem = f"{count} at the end of {fields} fields"
            raise SourceError(
                f"{where}: expected a word and {layout.dimensions} numbers, found {problem}; "
                "correct or remove the line, or download the file again"
            )
        table.add(word, vector, where)


def _numbers(text: bytes) -> NDArray[np.float32] | None:
    """Parse numbers between white space; return None for other text, or none at all."""
    if not text.strip():
        return None
    try:
        return np.fromstring(text, np.float32, sep=" ")
    except ValueError:
        return None


def _split(line: bytes, dimensions: int) -> tuple[bytes, NDArray[np.float32] | None]:
    """Split a line into word and numbers from the right, by the number of dimensions."""
    # A line that begins with white space has an empty word.
    fields = line.rstrip(_SPACE).rsplit(None, dimensions)
    if len(fields) == dimensions and line[:1] in (b" ", b"\t"):
        fields.insert(0, b"")
    numbers = fields[1:]
    # A surplus number means a malformed line rather than a word that ends in a number.
    if len(numbers) < dimensions or trailing_numbers(line) > dimensions:
        return b"", None
    if not all(NUMBER.fullmatch(field.lower()) for field in numbers):
        return b"", None
    return fields[0], np.array([float(field) for field in numbers], np.float32)


def _read_binary(stream: BinaryIO, table: WordVectors, layout: Layout) -> None:
    width = 4 * layout.dimensions
    buffer = b""
    start = 0
    for entry in range(1, (layout.count or 0) + 1):
        where = f"{table.name}: entry {entry:,}"
        space = buffer.find(b" ", start)
        while space < 0 or len(buffer) < space + 1 + width:
            block = stream.read(max(_BLOCK, width))
            if not block or len(buffer) - start > _LONGEST_WORD + width:
                raise SourceError(
                    f"{where}: expected a word and {width:,} bytes of {layout.dimensions} "
                    f"numbers, found {len(buffer) - start:,} bytes of {layout.count:,} entries; "
                    "the file is not complete: download it again"
                )
            buffer = buffer[start:] + block
            start = 0
            space = buffer.find(b" ")
        vector = np.frombuffer(buffer, "<f4", layout.dimensions, space + 1)
        table.add(buffer[start:space], vector, where)
        start = space + 1 + width
    if (buffer[start:] + stream.read(_BLOCK)).strip():
        table.entries += 1
