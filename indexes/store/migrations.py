"""The tables of an index, as numbered migrations from one format to the next.

======================  ============================================================
settings                JSON values: encoder, analyzer, counters, generation; a checksum over all
documents               one row per document: the user's id, title, text, metadata (a JSON
                        object), a hash of title and text, and a checksum over the row and its
                        passages
passages                one row per passage: its stable int64 id and which characters of its
                        document it covers
pending                 since format 3, passages that no segment holds yet: vector (float32,
                        little-endian), terms (a JSON array) and a checksum
segments                the live segments, each with the SHA-256 of its manifest
tombstones              ids of passages that a live segment still holds but that are deleted
fields                  since format 3, the top-level fields of metadata
metadata_values         since format 3, for each segment, field and distinct value of it: JSON type
                        and value as SQLite's `json_each` gives them, and which passages have it;
                        see `indexes.filters.columns`
corpus                  since format 3, a view for other programs: id, title, text, metadata and
                        number of passages of each document
======================  ============================================================

A further table, `unfinished`, comes and goes (`indexes.store.unfinished`).

`PRAGMA user_version` is the format's number. An index is brought up to the newest format by its
first writer, in one transaction. Format 2 had metadata in columns of codes (tables fields,
field_values and field_codes), which migration 3 replaces.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexes.files.faults import storage_errors
from indexes.store.connection import (
    APPLICATION_ID,
    CORPUS_VIEW,
    FORMAT_VERSION,
    connect,
    format_version,
    refuse_remains,
    require_vacant,
    transaction,
)
from indexes.store.settings import write_setting

if TYPE_CHECKING:
    from sqlite_utils import Database


def create_database(folder: Path, settings: Mapping[str, Any]) -> None:
    """Create the database of a new index with `settings` (JSON values), in one transaction.

    A folder that holds anything but the remains of an interrupted creation is refused.

    Raises:
        NotAnIndexError: the folder holds other files.
        DamagedIndexError: it holds the segments of an index whose database was lost.
        StorageError: the folder cannot be written.
    """
    require_vacant(folder)
    with storage_errors(folder):
        refuse_remains(folder)
        connection = connect(folder, "rwc")
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            with transaction(connection):
                _migrate(connection, 0)
                for key, value in {"generation": 0, "next_passage": 1, "next_segment": 1}.items():
                    write_setting(connection, key, value)
                for key, value in settings.items():
                    write_setting(connection, key, value)
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        finally:
            connection.close()


def upgrade(connection: sqlite3.Connection, folder: Path, fill: Callable[[], None]) -> None:
    """Bring an index to the newest format; an interruption leaves it as it was.

    Args:
        connection: of the one writer, outside of a transaction.
        folder: of the index.
        fill: called inside the transaction, fills `metadata_values` and `fields` from the
            documents.

    Raises:
        StorageError: the disk is full or cannot be written.
        What `fill` raises.
    """
    found = format_version(connection)
    if found == FORMAT_VERSION:
        return
    with storage_errors(folder), transaction(connection):
        _migrate(connection, found)
        fill()


def _migrate(connection: sqlite3.Connection, found: int) -> None:
    """Run the migrations above format `found`; the caller is inside a transaction."""
    from sqlite_utils import Database

    database = Database(connection)
    for number, migration in _MIGRATIONS.items():
        if number > found:
            migration(database)
    connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")


def _documents_and_segments(database: Database) -> None:
    database.execute(
        "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
    )
    database.table("documents").create(
        {
            "doc": int,
            "id": str,
            "title": str,
            "text": str,
            "metadata": str,
            "hash": bytes,
            "checksum": bytes,
        },
        pk="doc",
        not_null={"id", "text", "metadata", "hash", "checksum"},
    )
    database.table("documents").create_index(["id"], unique=True)
    # sqlite-utils has no ON DELETE CASCADE.
    database.execute(
        "CREATE TABLE passages (passage INTEGER PRIMARY KEY, "
        "doc INTEGER NOT NULL REFERENCES documents (doc) ON DELETE CASCADE, "
        "start INTEGER NOT NULL, stop INTEGER NOT NULL)"
    )
    database.table("passages").create_index(["doc"], "passages_by_document")
    database.table("segments").create(
        {"segment": int, "passages": int, "manifest": str},
        pk="segment",
        not_null={"passages", "manifest"},
    )
    database.table("tombstones").create({"passage": int}, pk="passage")


def _pending_and_metadata_values(database: Database) -> None:
    for table in ("fields", "field_values", "field_codes"):
        database.execute(f"DROP TABLE IF EXISTS {table}")
    database.execute(
        "CREATE TABLE pending ("
        "passage INTEGER PRIMARY KEY REFERENCES passages (passage) ON DELETE CASCADE, "
        "vector BLOB NOT NULL, terms TEXT NOT NULL, checksum BLOB NOT NULL)"
    )
    database.table("fields").create({"field": int, "name": str}, pk="field", not_null={"name"})
    database.table("fields").create_index(["name"], unique=True)
    # sqlite-utils has no WITHOUT ROWID.
    database.execute(
        "CREATE TABLE metadata_values (segment INTEGER, field INTEGER, type TEXT, value, "
        "passages NOT NULL, checksum INTEGER NOT NULL, "
        "PRIMARY KEY (segment, field, type, value)) WITHOUT ROWID"
    )
    database.create_view("corpus", CORPUS_VIEW)


_MIGRATIONS: dict[int, Callable[[Database], None]] = {
    1: _documents_and_segments,
    3: _pending_and_metadata_values,
}
