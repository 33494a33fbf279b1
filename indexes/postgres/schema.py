"""The tables of all indexes of a database, as numbered migrations, and those of each index.

In the schema ``retriever``:

==============  ====================================================================================
format          the number of the last migration
indexes         a row for each index: its name (none while it is to replace another), its settings
                with a checksum, its generation, and the counts that BM25 needs
batches         for each index, the groups of passages whose postings lie together
fields          for each index, the top-level fields of metadata
documents_N     of index N: id, title, text, metadata, a hash of title and text, a checksum
passages_N      passage id, document, characters, number of terms, vector
postings_N      blocks of postings, see `indexes.postgres.postings`
deleted_N       deleted passages whose postings are still there
==============  ====================================================================================

Each index has tables of its own: its vectors have one length and one HNSW graph, its statistics
are the planner's, and dropping it gives the space back at once. A document's number is that of its
first passage; passage ids come from one sequence and are never used twice.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from indexes.errors import ConfigError, FormatVersionError
from indexes.postgres.connection import Connection
from indexes.postgres.location import Location

FORMAT_VERSION = 1
_LEAST_VECTOR = (0, 8)
KEY = 0x72747276  # of advisory locks; any constant will do
_TABLES = ("documents", "passages", "postings", "deleted")

_MIGRATIONS = {
    1: (
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
}
_OF_INDEX = (
    """CREATE TABLE {documents} (
        doc bigint PRIMARY KEY,
        id text COLLATE "C" NOT NULL UNIQUE,
        title text COLLATE "C",
        text text NOT NULL,
        metadata jsonb NOT NULL,
        exact text,
        hash bytea NOT NULL,
        checksum bytea NOT NULL
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
    """Writes statements over the tables of one index; their names come from its number alone."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._names = {
            kind: sql.Identifier("retriever", f"{kind}_{number:d}") for kind in (*_TABLES, "hnsw")
        }

    def name(self, kind: str) -> sql.Identifier:
        """The qualified name of one table, or of the graph, ``hnsw``."""
        return self._names[kind]

    def statement(self, text: str, **parts: sql.Composable) -> sql.Composed:
        """`text` with ``{documents}`` and so on, and with further parts, in place."""
        return sql.SQL(text).format(**self._names, **parts)


def format_of(connection: Connection) -> int:
    """The number of the last migration; 0 where there is none."""
    if connection.execute("SELECT to_regclass('retriever.format')").fetchall() == [(None,)]:
        return 0
    rows = connection.execute("SELECT version FROM retriever.format").fetchall()
    return int(rows[0][0]) if rows else 0


def check_format(connection: Connection, location: Location) -> bool:
    """Whether the database holds indexes.

    Raises:
        FormatVersionError: a newer release has changed the tables.
    """
    found = format_of(connection)
    if found > FORMAT_VERSION:
        raise FormatVersionError(
            f"{location}: the tables have format {found}, this release reads up to "
            f"{FORMAT_VERSION}: upgrade layer-retriever"
        )
    return found > 0


def prepare(connection: Connection, location: Location) -> None:
    """Make the tables that all indexes share, or bring them to the newest format.

    Raises:
        FormatVersionError: a newer release has changed them.
        ConfigError: pgvector is missing or too old.
    """
    if check_format(connection, location) and format_of(connection) == FORMAT_VERSION:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (KEY,))
        _require_vector(connection, location)
        found = format_of(connection)
        if connection.execute("SELECT to_regnamespace('retriever')").fetchall() == [(None,)]:
            # IF NOT EXISTS would need the right to create one where an administrator has.
            connection.execute("CREATE SCHEMA retriever")
        connection.execute("CREATE TABLE IF NOT EXISTS retriever.format (version integer NOT NULL)")
        for number, statements in _MIGRATIONS.items():
            for statement in statements if number > found else ():
                connection.execute(statement)
        connection.execute("DELETE FROM retriever.format")
        connection.execute("INSERT INTO retriever.format VALUES (%s)", (FORMAT_VERSION,))


def create_tables(connection: Connection, number: int) -> None:
    """Make the tables of an index; the caller is inside a transaction."""
    tables = Tables(number)
    for statement in _OF_INDEX:
        connection.execute(tables.statement(statement))


def drop_index(connection: Connection, number: int) -> None:
    """Drop an index and its tables, which waits for its readers."""
    tables = Tables(number)
    with connection.transaction():
        # A reader locks the documents first.
        for kind in _TABLES:
            connection.execute(
                tables.statement("DROP TABLE IF EXISTS {table}", table=tables.name(kind))
            )
        connection.execute("DELETE FROM retriever.indexes WHERE number = %s", (number,))


def fix_dimensions(connection: Connection, number: int, dimensions: int) -> None:
    """Give the vectors of an empty index their length; the caller is inside a transaction."""
    tables = Tables(number)
    connection.execute(
        tables.statement(
            "ALTER TABLE {passages} ALTER COLUMN embedding TYPE vector({d})",
            d=sql.Literal(dimensions),
        )
    )
    # Vectors in the row itself are scanned several times faster; pages should be full, though.
    size = 4 * dimensions + 64
    in_page = 8100 // size
    storage = "PLAIN" if in_page * size >= 6000 else "EXTERNAL"
    connection.execute(
        tables.statement(f"ALTER TABLE {{passages}} ALTER COLUMN embedding SET STORAGE {storage}")
    )
    connection.execute(
        "UPDATE retriever.indexes SET dimensions = %s WHERE number = %s", (dimensions, number)
    )


def _require_vector(connection: Connection, location: Location) -> None:
    asked = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    rows = connection.execute(asked).fetchall()
    if not rows:
        try:
            connection.execute("CREATE EXTENSION vector")
        except psycopg.Error as error:
            reason = (error.diag.message_primary or str(error)).splitlines()[0]
            raise ConfigError(
                f"{location}: the database lacks the extension vector ({reason}): install "
                "pgvector on the server and let an administrator run CREATE EXTENSION vector"
            ) from None
        rows = connection.execute(asked).fetchall()
    version = str(rows[0][0])
    if tuple(map(int, version.split(".")[:2])) < _LEAST_VECTOR:
        raise ConfigError(
            f"{location}: expected pgvector 0.8 or newer, found {version}: update it and run "
            "ALTER EXTENSION vector UPDATE"
        )
