"""Text as a source: JSON Lines, plain text with one passage a line, CSV and TSV.

CSV and TSV have a header. A column has one type, so one filter finds all of its values. A TSV file
without a header, whose first line is a number and a text, is a collection like MS MARCO's. It has
an id and a text per line, in which quotes are ordinary characters.
"""

from __future__ import annotations

import csv
import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import chain, islice
from typing import cast

from retriever.documents.dates import iso_date
from retriever.documents.document import (
    Columns,
    ColumnType,
    Fields,
    Json,
    Record,
    find_columns,
    quote_names,
)
from retriever.documents.sources import LONGEST, FieldCount, OpenSource, TextLines
from retriever.errors import SourceError

# White space of JSON.
_JSON_SPACE = " \t\r\n"
# Rows, and characters of rows, whose cells decide the types of columns.
SAMPLE_ROWS = 1000
_SAMPLE_CHARACTERS = 1 << 24
# A line of a collection. Possessive, so that any other line is refused in one pass.
_COLLECTION = re.compile(r"[0-9]+\t[0-9. -]*+[^\t\r\n][^\t\r\n]*\r?\n?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# Digits of the largest integer of 64 bits, with its sign.
_MOST_DIGITS = 20
_BOOLEANS = {"true": True, "false": False}
_DOUBLE_IT = 'write a quote inside a quoted cell twice ("")'
# The line on which a row begins, its cells, and its fault or None.
_NumberedRow = tuple[int, list[str], str | None]


def read_jsonl(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """Yield an object per line in file order; skip blank lines."""
    lines = TextLines(source.stream)
    for line in lines:
        fault = lines.take_fault()
        # The line end is removed first, so that the position of an error is a column of this line.
        text = line.rstrip(_JSON_SPACE)
        if not text and fault is None:
            continue
        value: Json = {}
        if fault is None:
            try:
                value = json.loads(text)
            except json.JSONDecodeError as error:
                fault = (
                    f"not JSON, expected one object per line: {error.msg} at column {error.pos + 1}"
                )
            except RecursionError:
                fault = "the JSON is nested too deeply"
            except ValueError:
                fault = "holds an integer of thousands of digits; write it as a string"
        if not isinstance(value, dict):
            value = {}
            fault = f"expected a JSON object, found {text:.60}"
        yield Record(lines.number, f"{source.name}:{lines.number}", value, fault)


def read_lines(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """Yield the lines of a source as texts without their line ends; skip blank lines."""
    refuse_named_fields(source.name, fields)
    key = fields.text or "text"
    lines = TextLines(source.stream)
    for line in lines:
        fault = lines.take_fault()
        where = f"{source.name}:{lines.number}"
        if fault is not None:
            yield Record(lines.number, where, {}, fault)
        elif line.strip():
            text = line[:-1].removesuffix("\r") if line.endswith("\n") else line
            yield Record(lines.number, where, {key: text})


def refuse_named_fields(name: str, fields: Fields) -> None:
    """Raise SourceError if a name of a field is set that plain text does not have."""
    for role, named in (("id", fields.id), ("title", fields.title)):
        if named is not None:
            raise SourceError(
                f"{name}: read as plain text, which has no {role} field {named!r}; "
                "use JSONL, CSV, TSV, Parquet or SQLite to give one"
            )


def read_csv(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """Yield the rows of a comma-separated source in file order."""
    return _read_delimited(source, fields, source.form.delimiter or ",", TextLines(source.stream))


def read_tsv(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """Yield the rows of a tab-separated source, or the lines of a collection, in file order."""
    # The stream is buffered, and the buffer holds the first line.
    first, end, _ = cast(BufferedReader, source.stream).peek().partition(b"\n")
    line = (first.removeprefix(BOM_UTF8) + end).decode(errors="replace")
    lines = TextLines(source.stream)
    if fields == Fields() and source.form.header and _COLLECTION.fullmatch(line):
        return _read_collection(source, lines)
    return _read_delimited(source, fields, "\t", lines)


def _read_collection(source: OpenSource, lines: TextLines) -> Iterator[Record]:
    """Yield an id and a text per line, without header or quoting; skip blank lines."""
    for line in lines:
        where = f"{source.name}:{lines.number}"
        fault = lines.take_fault()
        cells = line.rstrip("\r\n").split("\t")
        if fault is None and not line.strip():
            continue
        if fault is None and len(cells) != 2:
            fault = (
                f"expected an id, a tab and a text as in the first line, found {len(cells)} cells"
            )
        values: dict[str, str] = {} if fault else {"id": cells[0], "text": cells[1]}
        yield Record(lines.number, where, values, fault)


def _read_delimited(
    source: OpenSource, fields: Fields, delimiter: str, lines: TextLines
) -> Iterator[Record]:
    """Yield the rows below the header, metadata cells as values of the type of their column."""
    rows = _numbered_rows(source, delimiter, lines)
    first = next(rows, None)
    if first is None:
        return
    number, header, fault = first
    if fault is not None:
        raise SourceError(f"{source.name}:{number}: {fault}")
    if not source.form.header:
        rows = chain([first], rows)
        header = [str(column) for column in range(1, len(header) + 1)] if header[1:] else ["text"]
    columns = find_columns(header, fields, f"{source.name}:{number}")
    for name in fields.types:
        if name not in header or name in (columns.id, columns.text, columns.title):
            raise SourceError(
                f"{source.name}:{number}: no column {name!r} of metadata to give the type "
                f"{fields.types[name]!r}; the columns are {quote_names(header)}"
            )
    sample = _take_sample(rows)
    complete_rows = [row for _, row, fault in sample if fault is None and len(row) == len(header)]
    _set_column_types(source, fields, header, columns, complete_rows)
    for number, row, row_fault in chain(sample, rows):
        where = f"{source.name}:{number}"
        fault = row_fault
        if fault is None and len(row) != len(header):
            fault = f"expected {len(header)} cells as in the header, found {len(row)}"
        values = {} if fault else _row_values(source, where, header, row, columns)
        yield Record(number, where, values, fault)


def _take_sample(rows: Iterator[_NumberedRow]) -> list[_NumberedRow]:
    """Take the first rows, whose cells decide the types of columns, from the iterator."""
    sample = []
    characters = 0
    for numbered_row in islice(rows, SAMPLE_ROWS):
        sample.append(numbered_row)
        characters += sum(map(len, numbered_row[1]))
        if characters > _SAMPLE_CHARACTERS:
            break
    return sample


def _set_column_types(
    source: OpenSource,
    fields: Fields,
    header: list[str],
    columns: Columns,
    sample: list[list[str]],
) -> None:
    """Enter the types of metadata columns, as named or as their cells in a sample of rows show."""
    for column, name in enumerate(header):
        cells = [row[column] for row in sample if row[column]]
        if name in fields.types:
            source.columns[name] = fields.types[name]
        elif cells and name not in (columns.id, columns.text, columns.title):
            source.columns[name] = _detect_type(cells)


def _numbered_rows(source: OpenSource, delimiter: str, lines: TextLines) -> Iterator[_NumberedRow]:
    """Yield each row with the line on which it begins and its fault or None."""
    # The limit applies to the whole process; `lines` and `row_lines` bound lines and rows.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    room = 0
    ended = False

    def row_lines() -> Iterator[str]:
        nonlocal room, ended
        for line in lines:
            room -= len(line)
            if room < 0:
                break
            yield line
        ended = True

    rows = csv.reader(row_lines(), delimiter=delimiter, strict=True)
    while not ended:
        number = lines.number + 1
        room = LONGEST
        fault = None
        try:
            row = next(rows, [])
        except csv.Error as error:
            if ended:
                raise SourceError(
                    f"{source.name}:{number}: a quote opened in this row is never closed, at least "
                    f"not within {LONGEST >> 20} MiB; {_DOUBLE_IT}"
                ) from error
            row = []
            # Without advice on how to open the file in Python.
            reason = str(error).partition(" - ")[0]
            fault = f"not a valid row ({reason}); {_DOUBLE_IT}, and end lines with \\n or \\r\\n"
        fault = lines.take_fault() or fault
        if row or fault is not None:
            yield number, row, fault


def _row_values(
    source: OpenSource, where: str, header: list[str], row: list[str], columns: Columns
) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for name, cell in zip(header, row, strict=True):
        if name in (columns.id, columns.text):
            values[name] = cell
        elif name == columns.title:
            values[name] = cell or None
        elif cell:
            if (kind := source.columns.get(name)) is None:
                kind = source.columns[name] = _detect_type([cell])
            value = _PARSERS[kind](cell)
            if value is None:
                FieldCount.add(source.misfits, name, f"{where}: {cell!r:.60}")
                value = cell
            values[name] = value
    return values


def _parse_number(cell: str) -> int | float | None:
    """Return a number in the form of JSON, integers within 64 bits; else None, as for ``007``."""
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return None
    if match.lastindex is not None:
        real = float(cell)
        return real if math.isfinite(real) else None
    if len(cell) > _MOST_DIGITS:
        return None
    whole = int(cell)
    return whole if -(2**63) <= whole < 2**63 else None


# Types in the order in which they are tried; what fits none is a string.
_PARSERS: dict[ColumnType, Callable[[str], int | float | str | None]] = {
    "number": _parse_number,
    "boolean": lambda cell: _BOOLEANS.get(cell.lower()),
    "date": iso_date,
    "string": str,
}


def _detect_type(cells: list[str]) -> ColumnType:
    """Return the type that fits all of the cells."""
    return next(
        kind
        for kind, value_of in _PARSERS.items()
        if not any(value_of(cell) is None for cell in cells)
    )
