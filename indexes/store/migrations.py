"""An index of an earlier format made one of this format, by the first writer that opens it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from indexes.files.atomic import storage_errors
from indexes.filters.column_rows import ColumnRows
from indexes.filters.columns import Limits
from indexes.store.connection import FORMAT_VERSION, format_version, transaction
from indexes.store.schema import COLUMN_TABLES


def upgrade(connection: sqlite3.Connection, folder: Path, limits: Limits) -> None:
    """Bring an index up to this format in one transaction; an interruption leaves it as it was.

    Format 2 has columns of metadata; they are made from all documents.

    Args:
        connection: of the one writer, outside of a transaction.
        folder: of the index.
        limits: what is kept as a column.

    Raises:
        DamagedIndexError: a document's metadata is no JSON object.
        StorageError: the disk is full or cannot be written.
    """
    if format_version(connection) == FORMAT_VERSION:
        return
    with storage_errors(folder), transaction(connection):
        for statement in COLUMN_TABLES:
            connection.execute(statement)
        ColumnRows(connection, folder, limits).rebuild()
        connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
