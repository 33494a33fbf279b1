"""Which format a file of word vectors has, by its first bytes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from retriever.errors import SourceError

VectorFormat = Literal["glove", "word2vec-text", "word2vec-binary"]

# How many bytes tell.
HEAD = 1 << 16
NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf)")
_HEADER = re.compile(rb"([0-9]{1,18})[ \t]+([0-9]{1,9})[ \t]*\r?\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
# Lines of the head that say how many numbers a line has, where no header does.
_VOTERS = 100
# What no word vectors begin with, and what to do about it.
_OTHERS: tuple[tuple[bytes, str], ...] = (
    (
        (793712314).to_bytes(4, "little"),
        "a fastText model (.bin), which holds more than word vectors; use the .vec file beside it, "
        "or save its words and vectors as text",
    ),
    (b"PK\x03\x04", "a zip archive; unzip it and name the file inside"),
    (b"BZh", "a bzip2 file; decompress it with bunzip2"),
    (b"\xfd7zXZ", "an xz file; decompress it with unxz"),
    (b"\x93NUMPY", "a NumPy array, which names no words; save the vectors in word2vec's format"),
    (b"\x80", "a pickle, which could run code; save the vectors in word2vec's format"),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """What the first bytes of a file say.

    Attributes:
        format: how it is read.
        dimensions: numbers of a word, at least 1.
        count: how many words there are, at least 1; None if there is no header.
        header: bytes of the header; 0 if there is none.
        first_line: bytes of the first line if there is no header, else 0.
    """

    format: VectorFormat
    dimensions: int
    count: int | None
    header: int
    first_line: int


def read_layout(head: bytes, name: str) -> Layout:
    """Tell the format.

    Args:
        head: the first `HEAD` bytes, decompressed; less where the file is shorter.
        name: of the file, for an error.

    Raises:
        SourceError: it is none of the formats; the message says what it is, where that is known.
    """
    for magic, what in _OTHERS:
        if head.startswith(magic):
            raise SourceError(f"{name}: expected word vectors, found {what}")
    header = _HEADER.match(head)
    if header is None:
        if _CONTROL.search(head):
            raise SourceError(
                f"{name}: expected word vectors as text (GloVe, word2vec, fastText .vec) or in "
                "word2vec's binary format, found other binary data; convert the file"
            )
        return _headerless(head, name)
    count, dimensions = int(header[1]), int(header[2])
    if not count or not dimensions:
        raise SourceError(
            f"{name}:1: expected the number of words and of dimensions, found {count} and "
            f"{dimensions}; download the file again"
        )
    text = _is_text(head, header.end(), count, dimensions)
    kind: VectorFormat = "word2vec-text" if text else "word2vec-binary"
    return Layout(kind, dimensions, count, header.end(), 0)


def _headerless(head: bytes, name: str) -> Layout:
    lines = head.split(b"\n")
    # The last one may continue beyond the head.
    whole = [line for line in lines[: max(1, min(_VOTERS, len(lines) - 1))] if line.strip()]
    # A word with spaces, or a malformed line, has another number of fields than most.
    sizes = Counter(trailing_numbers(line) for line in whole)
    dimensions = max(sizes, key=lambda size: (sizes[size], -size), default=0)
    if dimensions == 0:
        raise SourceError(
            f"{name}:1: expected a word and its vector, found "
            f"{head.lstrip()[:40].decode(errors='replace')!r}; name a file of word vectors"
        )
    return Layout("glove", dimensions, None, 0, len(lines[0]) + 1)


def trailing_numbers(line: bytes) -> int:
    """How many numbers end a line, its first field not counted."""
    fields = line.split()[1:]
    for count, field in enumerate(reversed(fields)):
        if not NUMBER.fullmatch(field.lower()):
            return count
    return len(fields)


def _is_text(head: bytes, header: int, count: int, dimensions: int) -> bool:
    """Whether what follows a header is text.

    Its first line says so if it is complete and well-formed. Numbers of four bytes can look like
    text too when there are few of them; then the places of the words tell, where the head is all.
    """
    body = head[header:]
    line, ended, _ = body.partition(b"\n")
    if ended and trailing_numbers(line) >= dimensions:
        return True
    if len(head) < HEAD and _fills(body, count, 4 * dimensions):
        return False
    record = body.partition(b" ")[2][: 4 * dimensions]
    if _CONTROL.search(record):
        return False
    try:
        # The head can end within a character.
        record[:-4].decode()
    except UnicodeDecodeError:
        return False
    return True


def _fills(body: bytes, count: int, width: int) -> bool:
    """Whether words that a space and `width` bytes follow are all that there is."""
    start = 0
    for _ in range(count):
        space = body.find(b" ", start)
        if space < 0 or len(body) < space + 1 + width:
            return False
        start = space + 1 + width
    return not body[start:].strip()
