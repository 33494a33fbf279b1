"""The store that is an index of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from indexes.errors import DamagedIndexError
from indexes.postgres.connection import Connection, connect, database_errors
from indexes.postgres.location import Location, parse_location
from indexes.postgres.locks import drop_retired, release, wait_for_mark
from indexes.postgres.schema import check_format, create_tables, drop_index, prepare
from indexes.postgres.session import find_index, seal_of, settings_text
from indexes.postgres.vectors import check_structures
from indexes.postgres.verify import verify
from indexes.postgres.view import PostgresReader, damaged
from indexes.postgres.writer import PostgresWriter
from indexes.protocol import StructureSettings


class PostgresStore:
    """An index of a database; see `indexes.protocol.Store`.

    Args:
        location: the database and the index, or their URL.
        replaces: the number of the index that this one, which is hidden, is to replace.
        begun_with: see `replacement`.

    Raises:
        ConfigError: the URL is malformed.
    """

    folder = None

    def __init__(
        self, location: Location | str, replaces: int | None = None, begun_with: str | None = None
    ) -> None:
        self._location = parse_location(location) if isinstance(location, str) else location
        self._replaces = replaces
        self._begun_with = begun_with

    @property
    def name(self) -> str:
        """The name of the index in its database."""
        return self._location.index

    def __str__(self) -> str:
        return str(self._location)

    def __repr__(self) -> str:
        return f"PostgresStore({str(self)!r})"

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        connection = connect(self._location)
        try:
            with database_errors(self._location):
                yield connection
        finally:
            release(connection)

    def exists(self) -> bool:
        """Whether the database holds an index of that name."""
        with self._connected() as connection:
            return check_format(connection, self._location) and (
                find_index(connection, self._location, self._replaces) is not None
            )

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        """Make an empty index, and the tables that all indexes share; see the protocol.

        Raises:
            ConfigError: a setting that only a folder has, or pgvector is missing or too old.
        """
        del lock_timeout
        dimensions = settings.get("encoder", {}).get("dimensions")
        structures = StructureSettings.from_json(settings.get("structures", {}))
        check_structures(structures, dimensions, self._location)
        with self._connected() as connection:
            prepare(connection, self._location)
            text = settings_text(settings)
            name = self._location.index if self._replaces is None else None
            with connection.transaction():
                row = connection.execute(
                    "INSERT INTO retriever.indexes (name, replaces, begun_with, settings, seal) "
                    "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING number",
                    (name, self._replaces, self._begun_with, text, seal_of(text)),
                ).fetchone()
                if row is not None:
                    create_tables(connection, row[0])

    def reader(self) -> PostgresReader:
        """Open it for reading."""
        return PostgresReader(self._location, self._replaces)

    def writer(self, lock_timeout: float = 0.0) -> PostgresWriter:
        """Open it for writing, beside other writers."""
        return PostgresWriter(self._location, self._replaces, lock_timeout)

    @contextmanager
    def replacement(self, begun_with: str) -> Iterator[PostgresStore]:
        """A new index without a name; see `indexes.protocol.Store`.

        Where there is no index yet, that is this one.

        Raises:
            IndexLockedError: a writer holds the old index.
        """
        with self._connected() as connection:
            old = None
            if check_format(connection, self._location):
                old = find_index(connection, self._location, None)
            if old is None:
                yield self
                return
            wait_for_mark(connection, self._location, old.number, 0.0, alone=True)
            drop_retired(connection)
            new = find_index(connection, self._location, old.number)
            if new is not None and new.begun_with != begun_with:
                drop_index(connection, new.number)
            # The connection keeps the mark while the block runs.
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
        """Check counts, checksums and postings; see `indexes.postgres.verify`."""
        with closing(self.reader()) as reader, reader.view() as view:
            return verify(view)

    def size(self) -> int:
        """Bytes of its tables and their indexes."""
        with closing(self.reader()) as reader, reader.view() as view:
            return sum(view.sizes().values())

    def damaged(self, reason: object) -> DamagedIndexError:
        """The error to raise if what is stored was altered."""
        return damaged(self._location, reason)
