"""The columns of metadata compared with the documents that they are to agree with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.filters.column_rows import read_codes, stored_metadata
from indexes.filters.columns import CHUNK, Cells, cells_of, fields_of
from indexes.store.connection import DATABASE_FILE, format_version
from indexes.store.documents import MetadataChange
from indexes.store.schema import COLUMNS_SINCE

_UNREADABLE = (AttributeError, TypeError, ValueError)


@dataclass(slots=True)
class _Column:
    """A field's codes by value, and the passages found so far whose code is another."""

    codes: dict[str, int]
    wrong: list[int] = field(default_factory=list)


def column_problems(connection: sqlite3.Connection, folder: Path) -> Iterator[str]:
    """Recompute the columns of metadata from all documents.

    Args:
        connection: inside a transaction.
        folder: of the index.

    Yields:
        One line for each field whose column is not as it should be, with the first passage.
    """
    if format_version(connection) < COLUMNS_SINCE:
        return
    database = folder / DATABASE_FILE
    columns: dict[str, _Column] = {}
    given_up: set[str] = set()
    for name, kept in connection.execute("SELECT field, kept FROM fields ORDER BY field"):
        if kept == 1:
            columns[name] = _Column({})
        elif kept == 0:
            given_up.add(name)
        else:
            yield f"{database}: field {name!r}: expected 0 or 1 for kept, found {kept!r}"
    yield from _value_problems(connection, database, columns)
    yield from _code_problems(connection, database, columns)
    unknown: dict[str, int] = {}
    for documents in stored_metadata(connection):
        passages, cells = _cells(documents)
        for name, column in columns.items():
            expected = _expected(cells.get(name), column, passages)
            found = _found(connection, name, passages)
            column.wrong += passages[expected != found].tolist()
        for name in cells.keys() - columns - given_up:
            unknown.setdefault(name, cells[name].passages[0])
    for name, column in columns.items():
        if column.wrong:
            yield (
                f"{database}: field {name!r}: the column has another value than the document for "
                f"{_passage(connection, column.wrong[0])} ({len(column.wrong)} passages in all)"
            )
    for name, passage in sorted(unknown.items()):
        yield f"{database}: field {name!r}: no column, found in {_passage(connection, passage)}"


def _value_problems(
    connection: sqlite3.Connection, database: Path, columns: dict[str, _Column]
) -> Iterator[str]:
    """What is wrong with the values alone; fills in their codes."""
    rows = connection.execute(
        "SELECT field, code, metadata, CASE WHEN code = 0 THEN type = 'null' AND value IS NULL "
        "WHEN json_valid(metadata) THEN EXISTS (SELECT 1 FROM json_each(v.metadata) AS j "
        "WHERE j.type = v.type AND j.value IS v.value) ELSE 0 END "
        "FROM field_values AS v ORDER BY field, code"
    )
    for name, code, metadata, typed in rows:
        column = columns.get(name)
        if column is None:
            yield f"{database}: field {name!r}: values of a field that is not kept as a column"
            continue
        if code != len(column.codes) or not typed or not _is_value(name, code, metadata):
            yield f"{database}: field {name!r}: the value with code {code!r} was altered"
        else:
            column.codes[metadata] = code


def _code_problems(
    connection: sqlite3.Connection, database: Path, columns: dict[str, _Column]
) -> Iterator[str]:
    """What is wrong with the stored codes alone."""
    rows = connection.execute("SELECT field, chunk FROM field_codes ORDER BY field, chunk")
    for name, chunk in rows.fetchall():
        if name not in columns:
            yield f"{database}: field {name!r}: codes of a field that is not kept as a column"
            continue
        try:
            read_codes(connection, name, chunk, chunk)
        except _UNREADABLE as error:
            yield f"{database}: {error}"


def _cells(changes: list[MetadataChange]) -> tuple[NDArray[np.int64], dict[str, Cells]]:
    """The passages of documents whose metadata can be read, and its cells.

    Of another document the checksum of its row tells.
    """
    try:
        cells = cells_of(changes)
    except _UNREADABLE:
        changes = [change for change in changes if _is_object(change.after)]
        cells = cells_of(changes)
    return np.array([id_ for change in changes for id_ in change.passages], np.int64), cells


def _expected(
    cell: Cells | None, column: _Column, passages: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The codes by the documents; -1 for a value that the column does not have."""
    codes = np.zeros(len(passages), np.int64)
    if cell is not None:
        at = np.searchsorted(passages, np.array(cell.passages, np.int64))
        codes[at] = [column.codes.get(value, -1) for value in cell.values]
    return codes


def _found(
    connection: sqlite3.Connection, name: str, passages: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """The codes that are stored for passages of one chunk; 0 where they cannot be read."""
    if not len(passages):
        return np.empty(0, np.uint16)
    chunk = int(passages[0]) // CHUNK
    try:
        return read_codes(connection, name, chunk, chunk)[passages % CHUNK]
    except _UNREADABLE:
        # Told already.
        return np.zeros(len(passages), np.uint16)


def _passage(connection: sqlite3.Connection, passage: int) -> str:
    row = connection.execute(
        "SELECT d.id FROM documents AS d JOIN passages AS p ON p.doc = d.doc WHERE p.passage = ?",
        (passage,),
    ).fetchone()
    return f"passage {passage} of document {row[0]!r}"


def _is_object(metadata: str) -> bool:
    try:
        fields_of(metadata)
    except _UNREADABLE:
        return False
    return True


def _is_value(name: str, code: int, metadata: str) -> bool:
    try:
        return fields_of(metadata) == ({name: metadata} if code else {})
    except _UNREADABLE:
        return False
