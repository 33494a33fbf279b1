"""Files of data sets, gzipped or not: lines, cells, JSON, and checks that readers share."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from retriever.documents import Meter, TextLines
from retriever.documents.sources import open_bytes
from retriever.errors import SourceError

QUOTED_LENGTH = 60
"""Number of characters of a malformed line in a message."""
AGAIN = "copy or download it again"

_T = TypeVar("_T")


def fault(
    where: str | Path, expected: str, actual: str, remedy: str = "correct the line"
) -> SourceError:
    """Return the error of a file, or of a line as `file:line`."""
    return SourceError(f"{where}: expected {expected}, found {actual}; {remedy}")


def quoted(value: object) -> str:
    """Return the beginning of a line or a JSON value in quotes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return repr(text.strip()[:QUOTED_LENGTH])


def find_file(*paths: Path) -> Path | None:
    """Return the first of the files that exists, gzipped or not; None if none does."""
    candidates = (file for path in paths for file in (path, path.with_name(path.name + ".gz")))
    return next((file for file in candidates if file.is_file()), None)


def require_file(path: Path, split: str, splits: Iterable[str] = ()) -> Path:
    """Return a file of a split, gzipped or not; the error names the splits of the folder."""
    file = find_file(path)
    if file is None:
        has = f"none; the folder has the splits {', '.join(splits)}" if splits else "none"
        raise SourceError(f"{path}: expected this file of the split {split!r}, found {has}")
    return file


def matching_files(folder: Path, pattern: str) -> list[Path]:
    """Return files and folders whose names match, gzipped or not, by name."""
    return sorted({*folder.glob(pattern), *folder.glob(pattern + ".gz")})


def list_names(folder: Path) -> str:
    """Return the names in a folder, for a message."""
    return ", ".join(sorted(path.name for path in folder.iterdir()))[:QUOTED_LENGTH] or "none"


def name_parts(folder: Path, prefix: str, suffix: str) -> tuple[str, ...]:
    """Return the parts of file names between prefix and suffix, in alphabetical order."""
    names = {path.name.removesuffix(".gz") for path in matching_files(folder, f"{prefix}*{suffix}")}
    return tuple(sorted(name.removeprefix(prefix).removesuffix(suffix) for name in names))


def numbered_lines(
    path: Path, *, blank: bool = False, latin1: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield `file:line` and each line that is not blank; with `latin1` also of Latin-1 files."""
    with open_bytes(path, str(path), Meter()) as stream:
        lines = TextLines(_as_utf8(stream.read()) if latin1 else stream)
        for line in lines:
            where = f"{path}:{lines.number}"
            damage = lines.take_fault()
            if damage is not None:
                raise SourceError(f"{where}: {damage}")
            if blank or line.strip():
                yield where, line.removesuffix("\n").removesuffix("\r")


def _as_utf8(content: bytes) -> BinaryIO:
    try:
        content.decode()
    except UnicodeDecodeError:
        content = content.decode("latin-1").encode()
    return io.BytesIO(content)


def cells_of(where: str, line: str, names: Sequence[str], *, more: bool = False) -> list[str]:
    """Return the unquoted cells of a line between tabs, one for each name.

    With `more`, further cells are left out.
    """
    cells = line.split("\t")
    if len(cells) < len(names) or (len(cells) > len(names) and not more):
        expected = f"{len(names)} cells separated by tabs ({', '.join(names)})"
        raise fault(where, expected, f"{len(cells)} in {quoted(line)}")
    return cells[: len(names)]


def rows(path: Path, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` and the cells of each line."""
    where = None
    for where, line in numbered_lines(path):
        yield where, cells_of(where, line, names)
    if where is None:
        raise fault(path, f"lines of {', '.join(names)}", "an empty file", AGAIN)


def table(path: Path, header: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield `rows` below a line with the names of the columns."""
    lines = rows(path, header)
    where, names = next(lines)
    if [name.strip() for name in names] != list(header):
        expected = f"the header {', '.join(header)}"
        raise fault(where, expected, quoted(", ".join(names)), "check that it is the right file")
    yield from lines


def json_lines(path: Path, form: str, fits: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Yield `file:line` and the JSON value of each line; `form` describes the expected value."""
    for where, line in numbered_lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise fault(where, form, quoted(line)) from error
        if not fits(value):
            raise fault(where, form, quoted(value))
        yield where, value


def are_texts(value: Any) -> bool:
    """Return whether a JSON value is a list of texts."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def has_texts(value: Any, name: str, list_name: str) -> bool:
    """Return whether a JSON value is an object with a text and a list of texts by these names."""
    return (
        isinstance(value, dict)
        and isinstance(value.get(name), str)
        and are_texts(value.get(list_name))
    )


def read_text(path: Path) -> str:
    """Return the content of a file with LF line ends."""
    return "".join(f"{line}\n" for _, line in numbered_lines(path, blank=True))


def put_new(values: dict[str, _T], where: str, id_: str, value: _T, kind: str) -> None:
    """Record the value of an id, which must be new and not blank."""
    if not id_.strip() or id_ in values:
        problem = f"{id_} again" if id_ in values else "none"
        raise fault(
            where, f"an id of its own for each {kind}", problem, "correct or remove the line"
        )
    values[id_] = value


def put_text(texts: dict[str, str], where: str, id_: str, text: str, kind: str) -> None:
    """Record the text of an id; refuse a second, different text."""
    if texts.setdefault(id_, text) != text:
        raise fault(where, f"one text for {kind} {id_}", "another")


def make_pool(ids: Iterable[str]) -> tuple[str, ...]:
    """Return ids in the order of `Question.candidates`: each once, descending."""
    return tuple(sorted(set(ids), reverse=True))
