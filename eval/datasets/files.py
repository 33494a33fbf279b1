"""The files of data sets: lines, cells, JSON, and the checks that all readers share.

A file may be gzipped, with `.gz` after its name. A SourceError names the file and the line.
"""

from __future__ import annotations

import io
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from retriever.documents.sources import Meter, TextLines, bytes_of
from retriever.errors import SourceError

SHOWN = 60
"""Number of characters of a malformed line in a message."""

Judgments = Mapping[str, Mapping[str, int]]
"""Question to passage to grade."""


def existing(path: Path) -> Path | None:
    """The file, or the gzipped one, or None."""
    candidates = (path, path.with_name(path.name + ".gz"))
    return next((file for file in candidates if file.is_file()), None)


def required(path: Path, split: str, splits: tuple[str, ...] = ()) -> Path:
    """A file of a split, or the gzipped one; an error names the splits that are there."""
    file = existing(path)
    if file is None:
        has = f"; the folder has the splits {', '.join(splits)}" if splits else ""
        raise SourceError(f"{path}: expected this file of the split {split!r}, found none{has}")
    return file


def matching(folder: Path, pattern: str) -> list[Path]:
    """Files and folders whose names match, gzipped or not, in the order of their names."""
    return sorted({*folder.glob(pattern), *folder.glob(pattern + ".gz")})


def between(folder: Path, prefix: str, suffix: str) -> tuple[str, ...]:
    """The parts of file names between prefix and suffix, in alphabetical order."""
    names = {path.name.removesuffix(".gz") for path in matching(folder, f"{prefix}*{suffix}")}
    return tuple(sorted(name.removeprefix(prefix).removesuffix(suffix) for name in names))


def numbered_lines(
    path: Path, *, blank: bool = False, latin1: bool = False
) -> Iterator[tuple[str, str]]:
    """`file:line` from 1 and the line without its end, for each line that is not blank.

    With `latin1`, a file that is not UTF-8 is read as a whole as Latin-1, as old data sets are.
    """
    with bytes_of(path, str(path), Meter()) as stream:
        lines = TextLines(_recoded(stream.read()) if latin1 else stream)
        for line in lines:
            where = f"{path}:{lines.number}"
            fault = lines.take_fault()
            if fault is not None:
                raise SourceError(f"{where}: {fault}")
            if blank or line.strip():
                yield where, line.removesuffix("\n").removesuffix("\r")


def _recoded(content: bytes) -> BinaryIO:
    try:
        content.decode()
    except UnicodeDecodeError:
        content = content.decode("latin-1").encode()
    return io.BytesIO(content)


def rows(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """`file:line` and the cells of each line: one for each name, separated by tabs, not quoted."""
    where = None
    for where, line in numbered_lines(path):
        cells = line.split("\t")
        if len(cells) != len(names):
            raise _wrong_cells(where, line, names)
        yield where, cells
    if where is None:
        raise SourceError(
            f"{path}: expected lines of {', '.join(names)}, found an empty file; copy or download "
            "it again"
        )


def first_cells(where: str, line: str, names: tuple[str, ...]) -> list[str]:
    """The first cells of a line, one for each name, stripped; further cells are left out."""
    cells = line.split("\t")
    if len(cells) < len(names):
        raise _wrong_cells(where, line, names)
    return [cell.strip() for cell in cells[: len(names)]]


def _wrong_cells(where: str, line: str, names: tuple[str, ...]) -> SourceError:
    return SourceError(
        f"{where}: expected {len(names)} cells separated by tabs ({', '.join(names)}), found "
        f"{line.count(chr(9)) + 1} in {line[:SHOWN]!r}; correct the line"
    )


def table(path: Path, header: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """`rows` below a line with the names of the columns."""
    lines = rows(path, header)
    where, names = next(lines)
    if [name.strip() for name in names] != list(header):
        raise SourceError(
            f"{where}: expected the header {', '.join(header)}, found "
            f"{', '.join(names)[:SHOWN]!r}; check that it is the right file"
        )
    yield from lines


def unexpected(where: str, form: str, line: object) -> SourceError:
    """The error for a line, or a JSON value, that does not have the expected form."""
    text = line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
    return SourceError(
        f"{where}: expected {form}, found {text.strip()[:SHOWN]!r}; correct the line"
    )


def json_lines(path: Path, form: str) -> Iterator[tuple[str, Any]]:
    """`file:line` and the JSON value of each line; `form` describes it in messages."""
    for where, line in numbered_lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise unexpected(where, form, line) from error
        yield where, value


def text_of(path: Path) -> str:
    """A whole file as UTF-8 text, without a byte order mark."""
    with bytes_of(path, str(path), Meter()) as stream:
        content = stream.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise SourceError(
            f"{path}:{number}: expected UTF-8 text, found byte {content[error.start]:#04x}; "
            "convert the file to UTF-8"
        ) from error


def json_of(path: Path, form: str) -> Any:
    """A whole file as one JSON value, whose objects have each key once."""

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            keys = [key for key, _ in pairs]
            repeated = next(key for key in value if keys.count(key) > 1)
            raise SourceError(
                f"{path}: expected each key of an object once, found {repeated!r} twice; remove one"
            )
        return value

    text = text_of(path)
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        found = repr(line.strip()[:SHOWN]) if text.strip() else "an empty file"
        raise SourceError(
            f"{path}:{error.lineno}: expected {form}, found {found} ({error.msg} at column "
            f"{error.colno}); copy or download it again"
        ) from error
    except RecursionError as error:
        raise SourceError(
            f"{path}: expected {form}, found JSON that is nested too deeply; copy or download it "
            "again"
        ) from error


def put_new(places: dict[str, str], where: str, id_: str, kind: str) -> None:
    """Record the place of an id, which must not be blank or recorded already."""
    if not id_.strip() or id_ in places:
        found = f"{id_} again, first at {places[id_]}" if id_ in places else "none"
        raise SourceError(
            f"{where}: expected an id of its own for each {kind}, found {found}; correct or remove "
            "the line"
        )
    places[id_] = where


def rows_by_id(path: Path, names: tuple[str, ...], kind: str) -> Iterator[tuple[str, list[str]]]:
    """`rows` whose first cells are different ids of a `kind`."""
    places: dict[str, str] = {}
    for where, cells in rows(path, names):
        put_new(places, where, cells[0], kind)
        yield where, cells


def put_text(texts: dict[str, str], where: str, id_: str, text: str, kind: str) -> None:
    """Record the text of an id, which must not have another text already."""
    if texts.setdefault(id_, text) != text:
        raise SourceError(
            f"{where}: expected one text for {kind} {id_}, found another; correct the line"
        )


def pool_of(ids: Iterable[str]) -> tuple[str, ...]:
    """Ids in the order of `Question.candidates`: each once, descending."""
    return tuple(sorted(set(ids), reverse=True))


def check_judgments(
    qrels: Path, judged: Judgments, questions: Container[str], queries: Path
) -> None:
    """Require that all judged questions are in the file of queries and one has an answer."""
    unknown = next((query for query in judged if query not in questions), None)
    if unknown is not None:
        raise SourceError(
            f"{qrels}: expected judgments of the questions in {queries.name}, found question "
            f"{unknown}; add it there or remove its lines"
        )
    if not any(grade >= 1 for grades in judged.values() for grade in grades.values()):
        raise SourceError(
            f"{qrels}: expected a question of {queries.name} with a grade of at least 1, found "
            "none; check the file"
        )
