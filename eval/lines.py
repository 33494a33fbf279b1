"""The lines of a text file, each with its place for a message."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from retriever.corpus.lines import TextLines
from retriever.corpus.sources import Meter, bytes_of
from retriever.errors import SourceError


def numbered_lines(
    path: Path, *, blank: bool = False, latin1: bool = False
) -> Iterator[tuple[str, str]]:
    """`file:line` and the line without its end, for each line that is not blank.

    In the order of the file, which may be gzipped; lines count from 1, blank ones too.

    Args:
        path: the file.
        blank: give blank lines too, for files whose lines belong to those of another one.
        latin1: a file that is not UTF-8 as a whole is Latin-1, as old data sets are.

    Raises:
        SourceError: the file cannot be read, or a line is not UTF-8 text; names file and line.
    """
    with bytes_of(path, str(path), Meter()) as stream:
        lines = TextLines(_recoded(stream) if latin1 else stream)
        for line in lines:
            where = f"{path}:{lines.number}"
            fault = lines.take_fault()
            if fault is not None:
                raise SourceError(f"{where}: {fault}")
            if blank or line.strip():
                yield where, line.removesuffix("\n").removesuffix("\r")


def _recoded(stream: BinaryIO) -> BinaryIO:
    content = stream.read()
    try:
        content.decode()
    except UnicodeDecodeError:
        content = content.decode("latin-1").encode()
    return io.BytesIO(content)
