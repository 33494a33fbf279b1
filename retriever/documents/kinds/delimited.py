"""Tables of a folder as one document each: CSV, TSV and JSON Lines.

A row is a line. CSV becomes a table with its header, which the division into passages puts before
each part. A record of JSON Lines becomes `name: value | name: value`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from itertools import islice

from retriever.documents.kinds import Parsed, one_line
from retriever.documents.kinds.plain import read_plain
from retriever.documents.losses import Loss
from retriever.documents.outline import Mark

_DELIMITERS = ",;\t|"
# Rows that decide the delimiter.
_SAMPLE_ROWS = 20
_BETWEEN_CELLS = " | "
# Maximum length of a cell in characters; the library's own limit is lower.
_LONGEST_CELL = 1 << 26


def read_csv(text: str) -> Parsed:
    """Return the rows of CSV or TSV as a table, or the text as it is if it has no rows."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    lines = text.splitlines(keepends=True)
    reader = csv.reader(lines, delimiter=_find_delimiter(lines), strict=True)
    rows: list[tuple[int, str]] = []
    try:
        number = 1
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((number, _BETWEEN_CELLS.join(map(_cell_text, row))))
            if len(rows) == 1:
                rows.append((number, _BETWEEN_CELLS.join(["---"] * len(row))))
            number = reader.line_num + 1
    except csv.Error as error:
        return _as_plain_text(text, f"line {reader.line_num} is no row ({error})")
    return _join_rows(rows)


def read_json_lines(text: str) -> Parsed:
    """Return the records of JSON Lines, a line each, or the text as it is if a line is none."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            return _as_plain_text(text, f"line {number} is no JSON ({error})")
        rows.append((number, _record_text(value)))
    return _join_rows(rows)


def _find_delimiter(lines: list[str]) -> str:
    """Return the sign that gives the first rows the most cells, equally many in each."""
    best = (1, ",")
    for delimiter in _DELIMITERS:
        try:
            rows = list(islice(csv.reader(lines, delimiter=delimiter, strict=True), _SAMPLE_ROWS))
        except csv.Error:
            continue
        sizes = {len(row) for row in rows if row}
        if len(sizes) == 1:
            best = max(best, (sizes.pop(), delimiter), key=lambda choice: choice[0])
    return best[1]


def _cell_text(cell: str) -> str:
    """Return a cell on one line, without bars, which part cells."""
    return one_line(cell).replace("|", "\u00a6")


def _record_text(value: object) -> str:
    """Return a record on one line, with the names of its fields."""
    if not isinstance(value, dict):
        return one_line(json.dumps(value, ensure_ascii=False))
    fields = (
        f"{name}: {one_line(_value_text(field))}"
        for name, field in value.items()
        if field not in (None, "")
    )
    return _BETWEEN_CELLS.join(fields)


def _value_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def _join_rows(rows: Iterable[tuple[int, str]]) -> Parsed:
    """Return rows as lines, with the numbers of their lines in the file."""
    parts = []
    marks: list[Mark] = []
    offset = 0
    expected = 0
    for number, row in rows:
        if number != expected:
            marks.append(Mark(offset, "line", str(number)))
        parts.append(row)
        offset += len(row) + 1
        expected = number + 1
    return Parsed("\n".join(parts), outline=tuple(marks))


def _as_plain_text(text: str, reason: str) -> Parsed:
    """Return a text as it is, with a note that says why."""
    parsed = read_plain(text)
    return parsed._replace(losses=(*parsed.losses, Loss("parts", f"read as text: {reason}")))
