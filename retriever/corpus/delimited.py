"""CSV and TSV with a header: quoted cells may span lines; blank lines are skipped.

A TSV file without a header, whose first line is a number and a text, is a collection as that of
MS MARCO: an id and a text per line, in which a quote is a character like any other.

Rows are split here rather than by the `csv` module, whose limit on the length of a cell (128 KiB)
belongs to the whole process: raising it would change it for every other user of `csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from retriever.corpus.documents import Json, Record
from retriever.corpus.fields import Columns, Fields, find_columns
from retriever.corpus.lines import TextLines
from retriever.corpus.sources import OpenSource
from retriever.errors import SourceError

_COLLECTION = re.compile(r"[0-9]+\t[^\t\r\n]*[^\t\r\n0-9. -][^\t\r\n]*\r?\n?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DOUBLE_IT = 'write a quote inside a quoted cell twice ("")'


def read_csv(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """The rows of a comma-separated source, in file order; see `_read`."""
    return _read(source, fields, ",", TextLines(source.stream))


def read_tsv(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """The rows of a tab-separated source, in file order; see `_read`."""
    lines = TextLines(source.stream)
    first = next(lines, None)
    if first is not None:
        lines.unread(first)
        if fields == Fields() and _COLLECTION.fullmatch(first):
            return _collection(source, lines)
    return _read(source, fields, "\t", lines)


def _collection(source: OpenSource, lines: TextLines) -> Iterator[Record]:
    """An id and a text per line, without header or quoting; blank lines are skipped."""
    for line in lines:
        where, fault = f"{source.name}:{lines.number}", lines.take_fault()
        cells = line.rstrip("\r\n").split("\t")
        if fault is None and not line.strip():
            continue
        if fault is None and len(cells) != 2:
            fault = (
                f"expected an id, a tab and a text as in the first line, found {len(cells)} cells"
            )
        if fault is not None:
            yield Record(lines.number, where, {}, fault)
        else:
            yield Record(lines.number, where, {"id": cells[0], "text": cells[1]})


def _read(source: OpenSource, fields: Fields, delimiter: str, lines: TextLines) -> Iterator[Record]:
    """The rows below the header; a metadata cell that is a JSON number becomes one.

    Raises:
        SourceError: the header cannot be used, or a quote is never closed. The latter is not a
            fault of one record: it hides all that follow, so it cannot be skipped.
    """
    rows = _numbered_rows(source, delimiter, lines)
    first = next(rows, None)
    if first is None:
        return
    number, header, fault = first
    if fault is not None:
        raise SourceError(f"{source.name}:{number}: {fault}")
    columns = find_columns(header, fields, f"{source.name}:{number}")
    for number, row, row_fault in rows:
        where = f"{source.name}:{number}"
        fault = row_fault
        if fault is None and len(row) != len(header):
            fault = f"expected {len(header)} cells as in the header, found {len(row)}"
        if fault is not None:
            yield Record(number, where, {}, fault)
            continue
        try:
            yield Record(number, where, _values(header, row, columns))
        except ValueError:
            yield Record(number, where, {}, "holds a number of thousands of digits")


def _numbered_rows(
    source: OpenSource, delimiter: str, lines: TextLines
) -> Iterator[tuple[int, list[str], str | None]]:
    """(line on which the row begins, its cells, what is wrong with it or None) for each row."""
    for line in lines:
        number, row, fault = lines.number, [], None
        try:
            row = split_row(line, delimiter, lines)
        except EOFError as error:
            raise SourceError(
                f"{source.name}:{number}: a quote opened in this row is never closed; {_DOUBLE_IT}"
            ) from error
        except ValueError as error:
            fault = str(error)
        fault = lines.take_fault() or fault
        if row or fault is not None:
            yield number, row, fault


def split_row(line: str, delimiter: str, more: Iterator[str]) -> list[str]:
    """The cells of a row, as RFC 4180 quotes them; none if the line is blank.

    A quote opens a quoted cell only at its beginning; elsewhere it is a character like any other.

    Args:
        line: the first line of the row, with its line end if it has one.
        delimiter: one character.
        more: the lines that follow, of which a quoted cell takes those that it spans.

    Raises:
        ValueError: the row is malformed; the message says how.
        EOFError: `more` ends inside a quoted cell.
    """
    cells: list[str] = []
    place = 0
    while True:
        if line.startswith('"', place):
            cell, line, place = _quoted(line, place + 1, more)
            cells.append(cell)
            rest = line[place : place + 1]
            if rest not in ("", delimiter, "\r", "\n"):
                raise ValueError(
                    f"not a valid row: {rest!r} after a closing quote, expected {delimiter!r} or "
                    f"the end of the line; {_DOUBLE_IT}"
                )
            end = place if rest == delimiter else -1
            plain = "" if end == place else line[place:].rstrip("\r\n")
        else:
            end = line.find(delimiter, place)
            plain = line[place:].rstrip("\r\n") if end < 0 else line[place:end]
            cells.append(plain)
        if "\r" in plain:
            raise ValueError("a carriage return outside quotes; end lines with \\n or \\r\\n")
        if end < 0:
            return [] if cells == [""] and place == 0 else cells
        place = end + 1


def _quoted(line: str, place: int, more: Iterator[str]) -> tuple[str, str, int]:
    """The quoted cell whose content begins at `place`; the line and the place where it ends."""
    parts = []
    while True:
        end = line.find('"', place)
        if end < 0:
            parts.append(line[place:])
            line, place = next(more, ""), 0
            if not line:
                raise EOFError
            continue
        parts.append(line[place:end])
        if not line.startswith('"', end + 1):
            return "".join(parts), line, end + 1
        parts.append('"')
        place = end + 2


def _values(header: list[str], row: list[str], columns: Columns) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for name, cell in zip(header, row, strict=True):
        if name in (columns.id, columns.text):
            values[name] = cell
        elif name == columns.title:
            values[name] = cell or None
        elif cell:
            values[name] = _cell(cell)
    return values


def _cell(cell: str) -> Json:
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return cell
    return int(cell) if match.lastindex is None else float(cell)
