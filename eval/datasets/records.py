"""Reading the files of data sets: cells, JSON, and the checks that all readers share."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eval.datasets.files import numbered_lines
from retriever.corpus.sources import Meter, bytes_of
from retriever.errors import SourceError

SHOWN = 60


def rows(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """`file:line` and the cells of each line, which tabs separate; quotes mean nothing.

    Raises:
        SourceError: a line has another number of cells than there are `names`, or the file has no
            line.
    """
    where = None
    for where, line in numbered_lines(path):
        cells = line.split("\t")
        if len(cells) != len(names):
            raise SourceError(
                f"{where}: expected {len(names)} cells separated by tabs ({', '.join(names)}), "
                f"found {len(cells)} in {line[:SHOWN]!r}; correct the line"
            )
        yield where, cells
    if where is None:
        raise SourceError(
            f"{path}: expected lines of {', '.join(names)}, found an empty file; copy or download "
            "it again"
        )


def first_cells(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """`file:line` and as many cells of each line as there are `names`, without space around them.

    Tabs separate cells; quotes mean nothing. Cells after these, such as the sources of sentences,
    are left out.

    Raises:
        SourceError: a line has fewer; names file and line.
    """
    for where, line in numbered_lines(path):
        yield where, cells_of(where, line, names)


def cells_of(where: str, line: str, names: tuple[str, ...]) -> list[str]:
    """The first cells of one line, as `first_cells` gives them.

    Raises:
        SourceError: it has fewer.
    """
    cells = line.split("\t")
    if len(cells) < len(names):
        raise SourceError(
            f"{where}: expected {len(names)} cells separated by tabs ({', '.join(names)}), found "
            f"{len(cells)} in {line[:SHOWN]!r}; correct the line"
        )
    return [cell.strip() for cell in cells[: len(names)]]


def table(path: Path, header: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """`rows` below a line with the names of the columns.

    Raises:
        SourceError: as `rows`, or the first line is not the header.
    """
    lines = rows(path, header)
    where, found = next(lines)
    if [cell.strip() for cell in found] != list(header):
        raise SourceError(
            f"{where}: expected the header {', '.join(header)}, found "
            f"{', '.join(found)[:SHOWN]!r}; check that it is the right file"
        )
    yield from lines


def json_lines(path: Path, form: str) -> Iterator[tuple[str, Any]]:
    """`file:line` and the value of each line.

    Raises:
        SourceError: a line is not JSON; says that `form` was expected.
    """
    for where, line in numbered_lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise unexpected(where, form, line) from error
        yield where, value


def unexpected(where: str, form: str, line: object) -> SourceError:
    """The error for a line that does not have the expected form."""
    found = line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
    return SourceError(
        f"{where}: expected {form}, found {found.strip()[:SHOWN]!r}; correct the line"
    )


def text_of(path: Path) -> str:
    """A whole file, without a byte order mark.

    Raises:
        SourceError: it cannot be read, or is not UTF-8 text; names file and line.
    """
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
    """A whole file as one JSON value.

    Raises:
        SourceError: as `text_of`, or it is not JSON, or an object has a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in value if keys.count(key) > 1)
            raise SourceError(
                f"{path}: expected each key of an object once, found {twice!r} twice; remove one"
            )
        return value

    text = text_of(path)
    try:
        return json.loads(text, object_pairs_hook=once)
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


def put_new(seen: dict[str, str], where: str, id_: str, kind: str) -> None:
    """Record where an id stands; raises SourceError if it is blank or recorded already."""
    if not id_.strip() or id_ in seen:
        found = f"{id_} again, first at {seen[id_]}" if id_ in seen else "none"
        raise SourceError(
            f"{where}: expected an id of its own for each {kind}, found {found}; correct or remove "
            "the line"
        )
    seen[id_] = where


def pool_of(ids: Iterable[str]) -> tuple[str, ...]:
    """Ids in the order of `Question.candidates`: each once, descending."""
    return tuple(sorted(set(ids), reverse=True))


def check_judged(
    qrels: Path, judged: Mapping[str, Mapping[str, int]], asked: Container[str], queries: Path
) -> None:
    """Refuse judgments of questions that are not in the file of queries.

    Raises:
        SourceError: names the first.
    """
    unknown = next((query for query in judged if query not in asked), None)
    if unknown is not None:
        raise SourceError(
            f"{qrels}: expected judgments of the questions in {queries.name}, found question "
            f"{unknown}; add it there or remove its lines"
        )


def check_answered(qrels: Path, judged: Mapping[str, Mapping[str, int]], queries: Path) -> None:
    """Refuse judgments without a relevant passage.

    Raises:
        SourceError: no grade is at least 1.
    """
    if not any(grade >= 1 for grades in judged.values() for grade in grades.values()):
        raise SourceError(
            f"{qrels}: expected a question of {queries.name} with a grade of at least 1, found "
            "none; check the file"
        )
