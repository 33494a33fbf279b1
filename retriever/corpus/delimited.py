"""CSV and TSV with a header: quoted cells may span lines; blank lines are ignored.

A TSV without one, whose first line is a number and a text, is a collection as that of MS MARCO: an
id and a text a line, where a quote is a character like any other.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from retriever.corpus.columns import Columns, find_columns
from retriever.corpus.decoding import TextLines
from retriever.corpus.documents import Fields, Json, Record
from retriever.corpus.sources import OpenSource
from retriever.errors import SourceError

_LONGEST_CELL = 2**31 - 1
_COLLECTION = re.compile(r"[0-9]+\t[^\t\r\n]*[^\t\r\n0-9. -][^\t\r\n]*\r?\n?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


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
    """An id and a text a line, without header or quoting; blank lines are ignored."""
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
        SourceError: the header cannot be used, or a quote is never closed. The latter is no fault
            of one record: it hides all that follow, so it cannot be skipped.
    """
    rows = _rows(source, delimiter, lines)
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


def _rows(
    source: OpenSource, delimiter: str, lines: TextLines
) -> Iterator[tuple[int, list[str], str | None]]:
    """(line where the row begins, its cells, what is wrong with it or None) for each row."""
    # The limit belongs to the process; long texts need more than its default of 128 KiB.
    csv.field_size_limit(_LONGEST_CELL)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        number = lines.number + 1
        row: list[str] = []
        fault = None
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if lines.ended:
                raise SourceError(
                    f"{source.name}:{number}: a quote opened in this row is never closed; "
                    'write a quote inside a quoted cell twice ("")'
                ) from error
            fault = f'not a valid row: {error}; write a quote inside a quoted cell twice ("")'
            if "new-line" in str(error):
                fault = "a carriage return outside quotes; end lines with \\n or \\r\\n"
        fault = lines.take_fault() or fault
        if row or fault is not None:
            yield number, row, fault


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
