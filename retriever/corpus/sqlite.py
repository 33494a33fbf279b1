"""SQLite databases: the rows of a table, a view or a query; opened for reading only.

sqlite-utils is imported when a database is read, because importing it takes 0.3 s.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from retriever.corpus.documents import Record
from retriever.corpus.fields import Columns, Fields, find_columns, listed
from retriever.corpus.sources import OpenSource
from retriever.errors import SourceError

if TYPE_CHECKING:
    from sqlite_utils import Database


_SEPARATOR = "::"
# https://www.sqlite.org/fileformat2.html#the_database_header
_READ_VERSION_AT, _WAL = 19, 2


def split_table(source: str | Path) -> tuple[Path, str | None]:
    """The file and the table that ``data.db::table`` names; a path that exists is a file's own."""
    path, separator, table = str(source).rpartition(_SEPARATOR)
    if not separator or os.path.lexists(source):
        return Path(source), None
    return Path(path), table


def read(
    source: OpenSource, fields: Fields, table: str | None, sql: str | None
) -> Iterator[Record]:
    """The rows of a table by primary key (else rowid), or of a view or query in their own order.

    All rows come from one state of the database, whatever others write meanwhile. NULL is an empty
    text, no title, and no metadata.

    Args:
        source: of the format ``sqlite``.
        fields: which column holds what.
        table: a table or view; None with `sql`.
        sql: a statement that returns rows; None with `table`.

    Raises:
        SourceError: the database, the table or the query cannot be read; a column is missing.
    """
    if source.path is None:
        raise SourceError(
            f"{source.name}: a SQLite database is read from an uncompressed file; decompress it "
            "or save it as one"
        )
    if table is not None and sql is not None:
        raise SourceError(
            f"{source.name}: found both the table {table!r} and an SQL query; give one of the two"
        )
    from sqlite_utils import Database

    size, before, rows = source.path.stat().st_size, source.meter.bytes, 0
    with _explained(source.name, sql), closing(_connect(source.path)) as connection:
        database = Database(connection, recursive_triggers=False, execute_plugins=False)
        if sql is None:
            sql, rows = _select(database, table, source.name)
        cursor = database.execute(sql)
        if cursor.description is None:
            raise SourceError(
                f"{source.name}: expected a query, found an SQL statement without result columns; "
                "use a SELECT"
            )
        header = [column[0] for column in cursor.description]
        where = source.name if table is None else f"{source.name}{_SEPARATOR}{table}"
        columns = find_columns(header, fields, where)
        for number, row in enumerate(cursor, 1):
            values = _values(header, row, columns)
            yield Record(number, f"{where}: row {number}", values)
            if rows:
                source.meter.bytes = before + size * min(number, rows) // rows
    source.meter.bytes = before + size


@contextmanager
def _explained(name: str, sql: str | None) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        what = "the database cannot be read" if sql is None else "the SQL query fails"
        raise SourceError(f"{name}: {what}: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    if not os.access(path.parent, os.W_OK) and _rests_in_wal_mode(path):
        # Otherwise SQLite would have to create the files of its write-ahead log.
        uri += "&immutable=1"
    # The reader is a generator, which another thread may resume.
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.execute("PRAGMA query_only = ON")
    # Bytes that are not UTF-8 become surrogates, which no text may hold: a fault of that row only.
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    return connection


def _rests_in_wal_mode(path: Path) -> bool:
    """Whether a database has a write-ahead log that no process has open."""
    with path.open("rb") as file:
        head = file.read(_READ_VERSION_AT + 1)
    return head[-1:] == bytes([_WAL]) and not path.with_name(f"{path.name}-wal").exists()


def _select(database: Database, table: str | None, name: str) -> tuple[str, int]:
    """The statement that reads a table or view, and its number of rows (0 for a view)."""
    tables = [one for one in database.table_names() if not one.startswith("sqlite_")]
    views = database.view_names()
    known = listed([*tables, *views])
    if table is None:
        first = next(iter([*tables, *views]), "table")
        raise SourceError(
            f"{name}: a SQLite database; name one of its tables, as in {name}{_SEPARATOR}{first}, "
            f"or give a query with --sql; the tables are {known}"
        )
    if table in views:
        return f"SELECT * FROM {_quoted(table)}", 0  # noqa: S608
    if table not in tables:
        raise SourceError(f"{name}: no table {table!r}; the tables are {known}")
    found = database.table(table)
    # `is_pk` is the 1-based place of a column in the primary key.
    keys = sorted((column.is_pk, column.name) for column in found.columns if column.is_pk)
    order = ", ".join(_quoted(name) for _, name in keys) or "rowid"
    return f"SELECT * FROM {_quoted(table)} ORDER BY {order}", found.count  # noqa: S608


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _values(header: list[str], row: tuple[object, ...], columns: Columns) -> dict[str, object]:
    values: dict[str, object] = {}
    for column, cell in zip(header, row, strict=True):
        if cell is not None:
            values[column] = cell
        elif column == columns.text:
            values[column] = ""
        elif column in (columns.id, columns.title):
            values[column] = None
    return values
