"""The files of data sets, gzipped or not: lines, cells, JSON, and checks that readers share."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from retriever.documents import Meter, TextLines
from retriever.documents.sources import bytes_of
from retriever.errors import SourceError

SHOWN = 60
"""Number of characters of a malformed line in a message."""
AGAIN = "copy or download it again"

_T = TypeVar("_T")


def fault(
    where: str | Path, expected: str, found: str, remedy: str = "correct the line"
) -> SourceError:
    """The error of a file, or of a line as `file:line`."""
    return SourceError(f"{where}: expected {expected}, found {found}; {remedy}")


def shown(value: object) -> str:
    """The beginning of a line, or of a JSON value, in quotes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return repr(text.strip()[:SHOWN])


def existing(*paths: Path) -> Path | None:
    """The first of the files that is there, gzipped or not, or None."""
    candidates = (file for path in paths for file in (path, path.with_name(path.name + ".gz")))
    return next((file for file in candidates if file.is_file()), None)


def required(path: Path, split: str, splits: Iterable[str] = ()) -> Path:
    """A file of a split, or the gzipped one; an error names the splits that are there."""
    file = existing(path)
    if file is None:
        has = f"none; the folder has the splits {', '.join(splits)}" if splits else "none"
        raise SourceError(f"{path}: expected this file of the split {split!r}, found {has}")
    return file


def matching(folder: Path, pattern: str) -> list[Path]:
    """Files and folders whose names match, gzipped or not, in the order of their names."""
    return sorted({*folder.glob(pattern), *folder.glob(pattern + ".gz")})


def listed(folder: Path) -> str:
    """The names in a folder, for a message."""
    return ", ".join(sorted(path.name for path in folder.iterdir()))[:SHOWN] or "none"


def between(folder: Path, prefix: str, suffix: str) -> tuple[str, ...]:
    """The parts of file names between prefix and suffix, in alphabetical order."""
    names = {path.name.removesuffix(".gz") for path in matching(folder, f"{prefix}*{suffix}")}
    return tuple(sorted(name.removeprefix(prefix).removesuffix(suffix) for name in names))


def numbered_lines(
    path: Path, *, blank: bool = False, latin1: bool = False
) -> Iterator[tuple[str, str]]:
    """`file:line` and each line that is not blank; `latin1` is for files that are not UTF-8."""
    with bytes_of(path, str(path), Meter()) as stream:
        lines = TextLines(_recoded(stream.read()) if latin1 else stream)
        for line in lines:
            where = f"{path}:{lines.number}"
            broken = lines.take_fault()
            if broken is not None:
                raise SourceError(f"{where}: {broken}")
            if blank or line.strip():
                yield where, line.removesuffix("\n").removesuffix("\r")


def _recoded(content: bytes) -> BinaryIO:
    try:
        content.decode()
    except UnicodeDecodeError:
        content = content.decode("latin-1").encode()
    return io.BytesIO(content)


def cells_of(where: str, line: str, names: Sequence[str], *, more: bool = False) -> list[str]:
    """The cells of a line between tabs, one for each name, not quoted; `more` are left out."""
    cells = line.split("\t")
    if len(cells) < len(names) or (len(cells) > len(names) and not more):
        expected = f"{len(names)} cells separated by tabs ({', '.join(names)})"
        raise fault(where, expected, f"{len(cells)} in {shown(line)}")
    return cells[: len(names)]


def rows(path: Path, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """`file:line` and the cells of each line."""
    where = None
    for where, line in numbered_lines(path):
        yield where, cells_of(where, line, names)
    if where is None:
        raise fault(path, f"lines of {', '.join(names)}", "an empty file", AGAIN)


def table(path: Path, header: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """`rows` below a line with the names of the columns."""
    lines = rows(path, header)
    where, names = next(lines)
    if [name.strip() for name in names] != list(header):
        expected = f"the header {', '.join(header)}"
        raise fault(where, expected, shown(", ".join(names)), "check that it is the right file")
    yield from lines


def json_lines(path: Path, form: str, fits: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """`file:line` and the JSON value of each line; `form` describes in messages what fits."""
    for where, line in numbered_lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise fault(where, form, shown(line)) from error
        if not fits(value):
            raise fault(where, form, shown(value))
        yield where, value


def are_texts(value: Any) -> bool:
    """Whether a JSON value is a list of texts."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def has_texts(value: Any, name: str, list_name: str) -> bool:
    """Whether a JSON value is an object with a text and a list of texts by these names."""
    return (
        isinstance(value, dict)
        and isinstance(value.get(name), str)
        and are_texts(value.get(list_name))
    )


def text_of(path: Path) -> str:
    """A whole file with LF alone as line ends."""
    return "".join(f"{line}\n" for _, line in numbered_lines(path, blank=True))


def put_new(values: dict[str, _T], where: str, id_: str, value: _T, kind: str) -> None:
    """Record what belongs to an id, which must not be blank or recorded already."""
    if not id_.strip() or id_ in values:
        found = f"{id_} again" if id_ in values else "none"
        raise fault(where, f"an id of its own for each {kind}", found, "correct or remove the line")
    values[id_] = value


def put_text(texts: dict[str, str], where: str, id_: str, text: str, kind: str) -> None:
    """Record the text of an id, which must not have another text already."""
    if texts.setdefault(id_, text) != text:
        raise fault(where, f"one text for {kind} {id_}", "another")


def pool_of(ids: Iterable[str]) -> tuple[str, ...]:
    """Ids in the order of `Question.candidates`: each once, descending."""
    return tuple(sorted(set(ids), reverse=True))
