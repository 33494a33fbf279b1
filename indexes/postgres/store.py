"""The store that is an index of a PostgreSQL database; see `indexes.protocol.Store`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from indexes.errors import DamagedIndexError, IndexLockedError
from indexes.postgres.connection import (
    Connection,
    PostgresLocation,
    connect,
    database_errors,
    parse_location,
    release,
)
from indexes.postgres.ranking import check_structures
from indexes.postgres.schema import (
    IndexRow,
    Tables,
    acquire_index_lock,
    checksum_of_settings,
    create_shared_tables,
    create_tables,
    drop_index,
    drop_retired,
    encode_settings,
    find_index,
    has_tables,
)
from indexes.postgres.snapshot import damaged
from indexes.postgres.view import PostgresReader, missing
from indexes.postgres.writer import PostgresWriter
from indexes.protocol import Store, StructureSettings


class PostgresStore(Store):
    """An index of a database, or the hidden index that replaces index number `replaces`."""

    def __init__(
        self,
        location: PostgresLocation | str,
        replaces: int | None = None,
        begun_with: str | None = None,
    ) -> None:
        self._location = parse_location(location) if isinstance(location, str) else location
        self._replaces = replaces
        self._begun_with = begun_with

    @property
    def name(self) -> str:
        return self._location.index

    def __str__(self) -> str:
        return str(self._location)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        connection = connect(self._location)
        try:
            with database_errors(self._location):
                yield connection
        finally:
            release(connection)

    def _row(self, connection: Connection) -> IndexRow | None:
        if not has_tables(connection, self._location):
            return None
        return find_index(connection, self._location, self._replaces)

    def exists(self) -> bool:
        with self._connected() as connection:
            return self._row(connection) is not None

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        del lock_timeout
        dimensions = settings.get("encoder", {}).get("dimensions")
        structures = StructureSettings(**settings.get("structures", {}))
        check_structures(structures, dimensions, self._location)
        with self._connected() as connection:
            create_shared_tables(connection, self._location)
            text = encode_settings(settings)
            name = self._location.index if self._replaces is None else None
            with connection.transaction():
                row = connection.execute(
                    "INSERT INTO retriever.indexes (name, replaces, begun_with, settings, seal) "
                    "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING number",
                    (name, self._replaces, self._begun_with, text, checksum_of_settings(text)),
                ).fetchone()
                if row is not None:
                    create_tables(Tables(connection, row[0]))

    def reader(self) -> PostgresReader:
        return PostgresReader(self._location, self._replaces)

    @contextmanager
    def writer(self, lock_timeout: float = 0.0) -> Iterator[PostgresWriter]:
        """Open it for writing, beside other writers; IndexLockedError while it is replaced."""
        with self._connected() as connection:
            row = self._row(connection)
            if row is None:
                raise missing(self._location)
            if self._replaces is None:
                acquire_index_lock(
                    connection, self._location, row.number, lock_timeout, alone=False
                )
                current = self._row(connection)
                if current is None or current.number != row.number:
                    raise IndexLockedError(
                        f"{self._location}: another index has just taken its place; run the same "
                        "command again"
                    )
            tables = Tables(connection, row.number)
            if not {"outline", "languages"} <= tables.document_columns():
                tables.execute(
                    "ALTER TABLE {documents} "
                    "ADD COLUMN IF NOT EXISTS outline text NOT NULL DEFAULT '', "
                    "ADD COLUMN IF NOT EXISTS languages text"
                )
            connection.execute('CREATE TEMP TABLE touched (id text COLLATE "C" PRIMARY KEY)')
            yield PostgresWriter(self._location, tables)

    @contextmanager
    def replacement(self, begun_with: str) -> Iterator[PostgresStore]:
        """Open a new index without a name, or this store if there is no index yet."""
        with self._connected() as connection:
            old = self._row(connection)
            if old is None:
                yield self
                return
            acquire_index_lock(connection, self._location, old.number, 0.0, alone=True)
            drop_retired(connection)
            new = find_index(connection, self._location, old.number)
            if new is not None and new.begun_with != begun_with:
                drop_index(Tables(connection, new.number))
            # The connection keeps the lock while the block runs.
            yield PostgresStore(self._location, old.number, begun_with)
            new = find_index(connection, self._location, old.number)
            if new is None:
                return
            update = (
                "UPDATE retriever.indexes SET name = %s, replaces = NULL, begun_with = NULL "
                "WHERE number = %s"
            )
            with connection.transaction():
                connection.execute(update, (None, old.number))
                connection.execute(update, (self._location.index, new.number))
            drop_retired(connection)

    def verify(self) -> list[str]:
        with (
            closing(self.reader()) as reader,
            reader.view() as view,
            database_errors(self._location),
        ):
            return list(view.problems())

    def damaged(self, reason: object) -> DamagedIndexError:
        return damaged(self._location, reason)
