"""The files of a data set, and their lines; each may be gzipped, with `.gz` after its name."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from retriever.corpus.lines import TextLines
from retriever.corpus.sources import Meter, bytes_of
from retriever.errors import SourceError


def existing(path: Path) -> Path | None:
    """The file, or the gzipped one, or None."""
    for one in (path, path.with_name(path.name + ".gz")):
        if one.is_file():
            return one
    return None


def required(path: Path, split: str, splits: tuple[str, ...] = ()) -> Path:
    """A file of a split, or the gzipped one.

    Raises:
        SourceError: there is neither; names `splits`, those that are there.
    """
    found = existing(path)
    if found is None:
        has = f"; the folder has the splits {', '.join(splits)}" if splits else ""
        raise SourceError(f"{path}: expected this file of the split {split!r}, found none{has}")
    return found


def matching(folder: Path, pattern: str) -> list[Path]:
    """Files and folders whose names match, gzipped or not, in the order of their names."""
    return sorted({*folder.glob(pattern), *folder.glob(pattern + ".gz")})


def between(folder: Path, prefix: str, suffix: str) -> tuple[str, ...]:
    """What stands between prefix and suffix in names of files, in alphabetical order."""
    names = {path.name.removesuffix(".gz") for path in matching(folder, f"{prefix}*{suffix}")}
    return tuple(sorted(name.removeprefix(prefix).removesuffix(suffix) for name in names))


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
