"""The lines of a text file, each with its place for a message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from indexes.errors import SourceError
from retriever.corpus.decoding import TextLines
from retriever.corpus.sources import Meter, bytes_of


def numbered_lines(path: Path) -> Iterator[tuple[str, str]]:
    """`file:line` and the line without its end, for each line that is not blank.

    In the order of the file, which may be gzipped; lines count from 1, blank ones too.

    Raises:
        SourceError: the file cannot be read, or a line is not UTF-8 text; names file and line.
    """
    with bytes_of(path, str(path), Meter()) as stream:
        lines = TextLines(stream)
        for line in lines:
            where = f"{path}:{lines.number}"
            fault = lines.take_fault()
            if fault is not None:
                raise SourceError(f"{where}: {fault}")
            if line.strip():
                yield where, line.removesuffix("\n").removesuffix("\r")
