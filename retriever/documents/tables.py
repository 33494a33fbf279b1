"""Tables as sources: Parquet, SQLite, and tables of pandas, polars and Arrow; one record a row.

pyarrow and sqlite-utils, which takes 0.3 s, are imported when something is read.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote
from uuid import UUID

from retriever.documents.document import (
    TEXT_NAMES,
    Assembler,
    Columns,
    Document,
    Fields,
    Record,
    detect_field,
    find_columns,
    quote_names,
)
from retriever.documents.sources import OpenSource
from retriever.errors import MissingExtraError, SourceError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlite_utils import Database


# Rows that are converted at once.
_BATCH_ROWS = 512
# Bytes of a page of Parquet that are buffered.
_BUFFER = 1 << 16
# Method of a table with the Arrow interface.
_ARROW = "__arrow_c_stream__"
# pandas' name for an index without a name among the columns.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
_SEPARATOR = "::"


def read_parquet(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """Yield the rows of a source in file order, without null cells of metadata."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(
            f'{source.name}: reading Parquet needs pyarrow: pip install "layer-retriever[parquet]"'
        ) from error
    name = source.name
    meter = source.meter
    before = meter.bytes
    size = 0 if source.path is None else source.path.stat().st_size
    try:
        with (
            _open_random_access(source) as file,
            # Only with both settings does pyarrow stream the pages of a row group. By default it
            # loads the row group first, which may be the whole file.
            pq.ParquetFile(
                file, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
            ) as parquet,
        ):
            columns = find_columns(parquet.schema_arrow.names, fields, name)
            number = 0
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
                yield from batch_records(name, number, batch, columns)
                number += batch.num_rows
                meter.bytes = max(meter.bytes, before + size * number // parquet.metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise SourceError(
            f"{name}: not a readable Parquet file ({reason}); write, copy or download it again"
        ) from error


def batch_records(
    name: str, before: int, batch: pa.RecordBatch, columns: Columns
) -> Iterator[Record]:
    """Yield the rows of a batch after `before` rows of the source, as `read_parquet` does."""
    cells = [_column_cells(column) for column in batch.columns]
    for number, row in enumerate(zip(*cells, strict=True), start=before + 1):
        values = {
            column: _json_value(cell)
            for column, cell in zip(batch.schema.names, row, strict=True)
            if cell is not None or column in columns
        }
        yield Record(number, f"{name}: row {number}", values)


@contextmanager
def _open_random_access(source: OpenSource) -> Iterator[str | BinaryIO]:
    if source.path is not None:
        yield str(source.path)
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source.stream, file)
            file.seek(0)
        except OSError as error:
            raise StorageError(
                f"{source.name}: cannot be kept in a temporary file ({error.strerror}); "
                "free space there, or point TMPDIR to another disk"
            ) from error
        yield file


def _column_cells(column: pa.Array) -> list[object]:
    """Return the cells of a column as Python values; an error stands for an unconvertible cell."""
    import pyarrow as pa

    unit = getattr(column.type, "unit", None)
    if unit == "ns":
        # Python's times are limited to microseconds.
        if pa.types.is_timestamp(column.type):
            coarser = pa.timestamp("us", column.type.tz)
        else:
            coarser = pa.time64("us") if pa.types.is_time(column.type) else pa.duration("us")
        column = column.cast(coarser, safe=False)
    errors = (ValueError, OverflowError, LookupError, pa.ArrowException)
    try:
        return list(column.to_pylist())
    except errors:
        cells: list[object] = []
        for cell in column:
            try:
                cells.append(cell.as_py())
            except errors as error:
                cells.append(error)
        return cells


def _json_value(cell: object) -> object:
    """Return a cell as JSON, durations in seconds; other types stay as they are."""
    if cell is None or isinstance(cell, str | bool | int | float):
        return cell
    if isinstance(cell, datetime | date | time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return cell.total_seconds()
    if isinstance(cell, Decimal):
        near = float(cell)
        return near if Decimal(repr(near)) == cell else str(cell)
    if isinstance(cell, UUID):
        return str(cell)
    if isinstance(cell, dict):
        return {str(key): _json_value(value) for key, value in cell.items()}
    if isinstance(cell, list):
        # pyarrow returns a map as a list of pairs, and uses tuples for nothing else.
        if cell and all(isinstance(item, tuple) for item in cell):
            return {str(key): _json_value(value) for key, value in cell}
        return [_json_value(item) for item in cell]
    return cell


def is_table(value: object) -> bool:
    """Return whether iterating over an object gives its columns or blocks instead of its rows."""
    kind = type(value)
    names = ("columns", "schema") if hasattr(kind, _ARROW) else ("columns",)
    attributes = [getattr(kind, name, None) for name in names]
    return any(attribute is not None and not callable(attribute) for attribute in attributes)


def table_documents(table: Any) -> Iterator[Document]:
    """Yield the rows of a table as documents, converted like those of a Parquet file.

    A batch of rows is in memory at a time.
    """
    name = type(table).__name__
    if not hasattr(type(table), _ARROW):
        raise TypeError(
            "documents: expected a table with the Arrow interface, such as a table of pandas 2.2, "
            f"polars or pyarrow, found a {name} without; give its rows as mappings"
        )
    try:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_stream(table)
    except ImportError as error:
        raise MissingExtraError(
            f'{name}: reading a table needs pyarrow: pip install "layer-retriever[parquet]"; or '
            "give its rows as mappings"
        ) from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SourceError(f"{name}: has no Arrow form: {reason}; convert that column") from error
    names = [column for column in reader.schema.names if not _UNNAMED_INDEX.fullmatch(column)]
    if detect_field(TEXT_NAMES, names, Fields()) is None:
        raise SourceError(
            f"{name}: no column of texts (looked for {quote_names(TEXT_NAMES)}); the columns are "
            f"{quote_names(names)}: rename the column of texts to 'text'"
        )
    columns = find_columns(names, Fields(), name)
    assembler = Assembler(Fields())
    before = 0
    for batch in reader:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            rows = batch.select(names).slice(start, _BATCH_ROWS)
            yield from map(assembler.document, batch_records(name, before, rows, columns))
            before += rows.num_rows


def split_table(source: str | Path) -> tuple[Path, str | None]:
    """Return the file and table that ``data.db::table`` names; an existing path has no table."""
    path, separator, table = str(source).rpartition(_SEPARATOR)
    if not separator or os.path.lexists(source):
        return Path(source), None
    return Path(path), table


def read_sqlite(
    source: OpenSource, fields: Fields, table: str | None, sql: str | None
) -> Iterator[Record]:
    """Yield the rows of a table by primary key (else rowid), or of a view or query in its order."""
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

    size = source.path.stat().st_size
    before = source.meter.bytes
    rows = 0
    statement = sql
    try:
        with closing(_open_read_only(source.path)) as connection:
            database = Database(connection, recursive_triggers=False, execute_plugins=False)
            if statement is None:
                statement, rows = _select_statement(database, table, source.name)
            cursor = database.execute(statement)
            if cursor.description is None:
                raise SourceError(
                    f"{source.name}: expected a query, found an SQL statement without result "
                    "columns; use a SELECT"
                )
            header = [column[0] for column in cursor.description]
            where = source.name if table is None else f"{source.name}{_SEPARATOR}{table}"
            columns = find_columns(header, fields, where)
            for number, row in enumerate(cursor, 1):
                values = {
                    column: "" if cell is None and column == columns.text else cell
                    for column, cell in zip(header, row, strict=True)
                    if cell is not None or column in columns
                }
                yield Record(number, f"{where}: row {number}", values)
                if rows:
                    source.meter.bytes = before + size * min(number, rows) // rows
    except (sqlite3.Error, sqlite3.Warning) as error:
        what = "the database cannot be read" if sql is None else "the SQL query fails"
        raise SourceError(f"{source.name}: {what}: {error}") from error
    source.meter.bytes = before + size


def _open_read_only(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    # The reader is a generator, which another thread may resume.
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.execute("PRAGMA query_only = ON")
    # Bytes that are not UTF-8 become surrogates. No text may hold these, so the fault is limited to
    # that row.
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    return connection


def _select_statement(database: Database, table: str | None, name: str) -> tuple[str, int]:
    """Return the statement that reads a table or view, and its number of rows (0 for a view)."""
    tables = [
        candidate for candidate in database.table_names() if not candidate.startswith("sqlite_")
    ]
    views = database.view_names()
    quoted_names = quote_names([*tables, *views])
    if table is None:
        first = next(iter([*tables, *views]), "table")
        raise SourceError(
            f"{name}: a SQLite database; name one of its tables, as in {name}{_SEPARATOR}{first}, "
            f"or give a query with --sql; the tables are {quoted_names}"
        )
    if table in views:
        return f"SELECT * FROM {_quote_identifier(table)}", 0  # noqa: S608
    if table not in tables:
        raise SourceError(f"{name}: no table {table!r}; the tables are {quoted_names}")
    stored_table = database.table(table)
    # `is_pk` is the 1-based position of a column in the primary key.
    keys = sorted((column.is_pk, column.name) for column in stored_table.columns if column.is_pk)
    order = ", ".join(_quote_identifier(name) for _, name in keys) or "rowid"
    return f"SELECT * FROM {_quote_identifier(table)} ORDER BY {order}", stored_table.count  # noqa: S608


def _quote_identifier(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
