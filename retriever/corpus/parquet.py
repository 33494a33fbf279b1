"""Parquet: a record per row, read in batches; pyarrow is imported when a file is read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, BinaryIO
from uuid import UUID

from retriever.corpus.documents import Record
from retriever.corpus.fields import Columns, Fields, find_columns
from retriever.corpus.sources import OpenSource
from retriever.errors import MissingExtraError, SourceError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 512
_BUFFER = 1 << 16


def read(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """The rows of a source, in file order; null cells of metadata are skipped.

    Dates and times become ISO 8601 strings (to the microsecond), durations seconds. A decimal
    becomes a float if that is the same number, else a string.

    Raises:
        MissingExtraError: pyarrow is not installed.
        SourceError: the file is corrupt, or a column is missing or of a wrong type.
        StorageError: a compressed source or a pipe does not fit on the disk of temporary files.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(
            f'{source.name}: reading Parquet needs pyarrow: pip install "layer-retriever[parquet]"'
        ) from error
    name, meter, before = source.name, source.meter, source.meter.bytes
    size = 0 if source.path is None else source.path.stat().st_size
    with (
        _at_random(source) as file,
        _explained(name),
        # Only with both settings does pyarrow stream the pages of a row group that may be the
        # whole file; by default it loads the row group first.
        pq.ParquetFile(
            file, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        ) as parquet,
    ):
        header = parquet.schema_arrow
        columns = find_columns(header.names, fields, name)
        _check_types(header, columns, name)
        number = 0
        for batch in parquet.iter_batches(batch_size=_ROWS):
            yield from batch_records(name, number, batch, columns)
            number += batch.num_rows
            meter.bytes = max(meter.bytes, before + size * number // parquet.metadata.num_rows)


def batch_records(
    name: str, before: int, batch: pa.RecordBatch, columns: Columns
) -> Iterator[Record]:
    """The rows of a batch, converted as `read` says.

    Args:
        name: of the source, for error messages.
        before: number of rows of the source before the batch.
        batch: any columns.
        columns: those that are not metadata.
    """
    cells = [_cells(column) for column in batch.columns]
    for number, row in enumerate(zip(*cells, strict=True), start=before + 1):
        yield _record(name, number, batch.schema.names, row, columns)


@contextmanager
def _at_random(source: OpenSource) -> Iterator[str | BinaryIO]:
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


@contextmanager
def _explained(name: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        found = " ".join(str(error).split())
        raise SourceError(
            f"{name}: not a readable Parquet file ({found}); write, copy or download it again"
        ) from error


def _check_types(header: pa.Schema, columns: Columns, name: str) -> None:
    from pyarrow import types

    for role, column in (("id", columns.id), ("text", columns.text), ("title", columns.title)):
        if column is None:
            continue
        found = header.field(column).type
        stored = found.value_type if types.is_dictionary(found) else found
        usable = str(stored) in ("string", "large_string", "string_view")
        if role == "id":
            usable = usable or types.is_integer(stored)
        elif role == "title":
            usable = usable or types.is_null(stored)
        if not usable:
            expected = "strings or integers" if role == "id" else "strings"
            raise SourceError(
                f"{name}: the {role} column {column!r} is of type {found}, expected {expected}"
            )


def _cells(column: pa.Array) -> list[object]:
    """Python values; an error in place of each value that cannot be converted."""
    import pyarrow as pa

    unit = getattr(column.type, "unit", None)
    if unit == "ns":
        # Python's times have microseconds at most.
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


def _record(
    name: str, number: int, header: list[str], row: tuple[object, ...], columns: Columns
) -> Record:
    values = {
        column: _json(cell)
        for column, cell in zip(header, row, strict=True)
        if cell is not None or column in (columns.id, columns.text, columns.title)
    }
    return Record(number, f"{name}: row {number}", values)


def _json(cell: object) -> object:
    """The cell as JSON; what JSON does not have stays as it is."""
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
        return {str(key): _json(value) for key, value in cell.items()}
    if isinstance(cell, list):
        # pyarrow gives a map as a list of pairs, and makes tuples of nothing else.
        if cell and all(isinstance(item, tuple) for item in cell):
            return {str(key): _json(value) for key, value in cell}
        return [_json(item) for item in cell]
    return cell
