"""The tables of all indexes and of each, in the schema ``retriever``.

==============  ====================================================================================
format          the number of the format
indexes         a row for each index: its name (none while it replaces another), its settings with
                a checksum, its generation, and the counts that BM25 needs
batches         for each index, the passages whose postings were written together
fields          for each index, the top-level fields of metadata
documents_N     documents of index N: id, title, text, metadata, a hash of title and text, a
                checksum, an outline, and the languages of its passages as one text; the next
                writer adds the last two columns to tables of earlier releases
passages_N      passage id, document, characters, number of terms, vector
postings_N      blocks of postings, see `indexes.postgres.postings`
deleted_N       deleted passages whose postings are still stored
==============  ====================================================================================

Each index has tables of its own. Its vectors have one length and one HNSW graph, the planner has
its statistics, and dropping it frees its space at once. The number of a document is the id of its
first passage. Passage ids come from one sequence and are never used twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

import psycopg
from psycopg import errors, sql

from indexes.errors import ConfigError, FormatVersionError, IndexLockedError
from indexes.languages import LanguageCounts
from indexes.postgres.connection import Connection, PostgresLocation, first_line
from indexes.protocol import StructureSettings

FORMAT_VERSION = 1
# The oldest release of pgvector.
_OLDEST_VECTOR = (0, 8)
# The key of advisory locks; any constant will do.
KEY = 0x72747276
# Seconds until the server notices that a session has ended.
_GRACE = 0.2
TABLES = ("documents", "passages", "postings", "deleted")

Rows = psycopg.Cursor[tuple[Any, ...]]

_SHARED = (
    "CREATE TABLE retriever.format (version integer NOT NULL)",
    f"INSERT INTO retriever.format VALUES ({FORMAT_VERSION})",  # noqa: S608
    "CREATE SEQUENCE retriever.passage_ids",
    """CREATE TABLE retriever.indexes (
        number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        identity uuid NOT NULL DEFAULT gen_random_uuid(),
        name text COLLATE "C" UNIQUE,
        replaces integer UNIQUE REFERENCES retriever.indexes ON DELETE SET NULL,
        begun_with text,
        settings text NOT NULL,
        seal bytea NOT NULL,
        generation bigint NOT NULL DEFAULT 0,
        dimensions integer,
        documents bigint NOT NULL DEFAULT 0,
        passages bigint NOT NULL DEFAULT 0,
        total_length bigint NOT NULL DEFAULT 0,
        dead bigint NOT NULL DEFAULT 0,
        efforts text
    )""",
    """CREATE TABLE retriever.batches (
        number integer NOT NULL REFERENCES retriever.indexes ON DELETE CASCADE,
        first bigint NOT NULL,
        level smallint NOT NULL,
        passages bigint NOT NULL,
        PRIMARY KEY (number, first)
    )""",
    """CREATE TABLE retriever.fields (
        number integer NOT NULL REFERENCES retriever.indexes ON DELETE CASCADE,
        name text COLLATE "C" NOT NULL,
        PRIMARY KEY (number, name)
    )""",
)
_OF_INDEX = (
    """CREATE TABLE {documents} (
        doc bigint PRIMARY KEY,
        id text COLLATE "C" NOT NULL UNIQUE,
        title text COLLATE "C",
        text text NOT NULL,
        metadata jsonb NOT NULL,
        exact text,
        hash bytea NOT NULL,
        checksum bytea NOT NULL,
        outline text NOT NULL DEFAULT '',
        languages text
    )""",
    "CREATE INDEX ON {documents} USING gin (metadata jsonb_path_ops)",
    """CREATE TABLE {passages} (
        passage bigint PRIMARY KEY,
        doc bigint NOT NULL,
        start integer NOT NULL,
        stop integer NOT NULL,
        length integer NOT NULL,
        embedding vector NOT NULL
    )""",
    "CREATE INDEX ON {passages} (doc)",
    """CREATE TABLE {postings} (
        term bytea NOT NULL,
        first bigint NOT NULL,
        level smallint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (term, first)
    )""",
    "CREATE INDEX ON {postings} (level) WHERE level < 3",
    "CREATE TABLE {deleted} (passage bigint PRIMARY KEY, generation bigint NOT NULL)",
    "CREATE INDEX ON {deleted} (generation)",
)


class Tables:
    """Runs statements over the tables of one index; their names come from its number alone."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self._names = {
            kind: sql.Identifier("retriever", f"{kind}_{number:d}") for kind in (*TABLES, "hnsw")
        }

    def statement(self, text: str, **parts: sql.Composable) -> sql.Composed:
        """Return `text` with the tables' names for ``{documents}`` and so on, and with `parts`."""
        return sql.SQL(text).format(**self._names, **parts)

    def execute(self, text: str, *values: Any, **parts: sql.Composable) -> Rows:
        """Run a statement."""
        return self.connection.execute(self.statement(text, **parts), values, binary=True)

    def rows(self, text: str, *values: Any, **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return self.execute(text, *values, **parts).fetchall()

    def document_columns(self) -> set[str]:
        """Return the columns of the documents; the table stays locked against a drop."""
        description = self.execute("SELECT * FROM {documents} LIMIT 0").description
        return {column.name for column in description or ()}

    def languages(self) -> LanguageCounts:
        """Count the languages of all passages; rows of earlier releases count by documents."""
        column = "languages" if "languages" in self.document_columns() else "NULL::text"
        statement = "SELECT {column}, count(*) FROM {documents} GROUP BY 1"
        return LanguageCounts.of(self.rows(statement, column=sql.SQL(column)))


def has_tables(connection: Connection, location: PostgresLocation) -> bool:
    """Return whether the database holds indexes; FormatVersionError for a newer format."""
    if connection.execute("SELECT to_regclass('retriever.format')").fetchall() == [(None,)]:
        return False
    ((version,),) = connection.execute("SELECT version FROM retriever.format").fetchall()
    if version > FORMAT_VERSION:
        raise FormatVersionError(
            f"{location}: the tables have format {version}, this release reads up to "
            f"{FORMAT_VERSION}: upgrade layer-retriever"
        )
    return True


def create_shared_tables(connection: Connection, location: PostgresLocation) -> None:
    """Create the tables that all indexes share, unless the database has them."""
    if has_tables(connection, location):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (KEY,))
        # Reads a table, after which the session knows what others have created.
        _require_vector(connection, location)
        if has_tables(connection, location):
            return
        if connection.execute("SELECT to_regnamespace('retriever')").fetchall() == [(None,)]:
            # IF NOT EXISTS would need the right to create a schema that an administrator created.
            connection.execute("CREATE SCHEMA retriever")
        for statement in _SHARED:
            connection.execute(statement)


def create_tables(tables: Tables) -> None:
    """Create the tables of an index; the caller is inside a transaction."""
    for statement in _OF_INDEX:
        tables.execute(statement)


def drop_index(tables: Tables) -> None:
    """Drop an index and its tables, after its readers have ended."""
    with tables.connection.transaction():
        # The documents first, as readers lock them.
        for kind in TABLES:
            tables.execute(f"DROP TABLE IF EXISTS {{{kind}}}")
        tables.execute("DELETE FROM retriever.indexes WHERE number = %s", tables.number)


def fix_dimensions(tables: Tables, dimensions: int) -> None:
    """Set the length of the vectors of an empty index; the caller is inside a transaction."""
    change = "ALTER TABLE {passages} ALTER COLUMN embedding "
    tables.execute(f"{change} TYPE vector({dimensions:d})")
    # Vectors in the row itself are scanned several times faster, but must fill the pages.
    size = 4 * dimensions + 64
    in_page = 8100 // size
    tables.execute(f"{change} SET STORAGE {'PLAIN' if in_page * size >= 6000 else 'EXTERNAL'}")
    statement = "UPDATE retriever.indexes SET dimensions = %s WHERE number = %s"
    tables.execute(statement, dimensions, tables.number)


def _require_vector(connection: Connection, location: PostgresLocation) -> None:
    statement = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    if not connection.execute(statement).fetchall():
        try:
            connection.execute("CREATE EXTENSION vector")
        except psycopg.Error as error:
            raise ConfigError(
                f"{location}: the database lacks the extension vector ({first_line(error)}): "
                "install pgvector on the server and let an administrator run CREATE EXTENSION "
                "vector"
            ) from None
    ((version,),) = connection.execute(statement).fetchall()
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_VECTOR:
        raise ConfigError(
            f"{location}: expected pgvector 0.8 or newer, found {version}: update it and run "
            "ALTER EXTENSION vector UPDATE"
        )


_COLUMNS = (
    "number, identity, settings, seal, generation, dimensions, documents, passages, total_length, "
    "dead, efforts, begun_with"
)


@dataclass(frozen=True)
class IndexRow:
    """The description of an index after one commit, a row of the table `indexes`."""

    number: int  # the N in the names of its tables
    identity: UUID  # a replacement has another
    settings_text: str
    seal: bytes
    generation: int
    dimensions: int | None  # None before the first vector
    documents: int
    passages: int
    total_length: int  # number of terms in all passages
    dead: int  # deleted passages whose postings are still stored
    efforts: str | None  # None without a graph
    begun_with: str | None  # identifies an unfinished replacement

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings, JSON values by key."""
        return dict(json.loads(self.settings_text))

    @property
    def structures(self) -> StructureSettings:
        """The settings of the search structure."""
        return StructureSettings(**self.setting("structures", {}))

    @property
    def has_graph(self) -> bool:
        """Whether the index has a graph of the vectors."""
        return self.efforts is not None

    def setting(self, key: str, default: Any = None) -> Any:
        """Return the JSON value of a setting; KeyError if there is none and no default."""
        if key not in self.settings and default is None:
            raise KeyError(key)
        return self.settings.get(key, default)

    @property
    def is_sealed(self) -> bool:
        """Whether the settings equal their checksum."""
        return checksum_of_settings(self.settings_text) == self.seal


def find_index(
    connection: Connection, location: PostgresLocation, replaces: int | None
) -> IndexRow | None:
    """Return the index of that name, or the hidden one that replaces index `replaces`."""
    if replaces is None:
        return read_row(connection, "name = %s", location.index)
    return read_row(connection, "replaces = %s", replaces)


def read_row(connection: Connection, condition: str, value: str | int) -> IndexRow | None:
    """Return the index that meets a condition; `condition` may end with a lock clause."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM retriever.indexes WHERE {condition}",  # noqa: S608
        (value,),
    ).fetchone()
    return None if row is None else IndexRow(*row)


def encode_settings(settings: Mapping[str, Any]) -> str:
    """Return the stored text of settings; equal settings have equal text."""
    return json.dumps(settings, ensure_ascii=False, sort_keys=True)


def checksum_of_settings(text: str) -> bytes:
    """Return a checksum of 16 bytes over the stored settings."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def acquire_index_lock(
    connection: Connection, location: PostgresLocation, number: int, timeout: float, *, alone: bool
) -> None:
    """Lock an index for this session, shared with other writers unless `alone`.

    Raises:
        IndexLockedError: the lock is not free after `timeout` seconds.
    """
    end = time.monotonic() + max(timeout, _GRACE)
    statement = f"SELECT pg_try_advisory_lock{'' if alone else '_shared'}(%s, %s)"
    while not _lock(connection, statement, KEY, number):
        if time.monotonic() >= end:
            who = "a writer holds it" if alone else "`reindex` or --recreate is replacing it"
            raise IndexLockedError(f"{location}: {who}; try again when that has ended")
        time.sleep(0.05)


def run_upkeep(tables: Tables, work: Callable[[Tables], int]) -> int:
    """Run `work` in the only transaction that rewrites postings; 0 if another one does.

    The result is the number that `work` returns.
    """
    # The serialization fails if another one has ended since this one began.
    with suppress(errors.SerializationFailure), tables.connection.transaction():
        tables.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        statement = "SELECT pg_try_advisory_xact_lock(%s, %s)"
        if _lock(tables.connection, statement, KEY + 1, tables.number):
            return work(tables)
    return 0


def drop_retired(connection: Connection) -> None:
    """Drop the indexes that were replaced and have no readers."""
    rows = connection.execute(
        "SELECT number FROM retriever.indexes WHERE name IS NULL AND replaces IS NULL"
    ).fetchall()
    for (number,) in rows:
        with suppress(errors.LockNotAvailable), connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '200ms'")
            drop_index(Tables(connection, number))


def _lock(connection: Connection, statement: str, *numbers: int) -> bool:
    ((locked,),) = connection.execute(statement, numbers).fetchall()
    return bool(locked)
