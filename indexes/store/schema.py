"""The tables of an index.

======================  ============================================================
documents               one row a document: the user's id, title, text, metadata (a JSON
                        object), a hash of title and text, and a
                        checksum over the row and its passages
passages                one row a passage: its stable int64 id and which characters of its
                        document it covers
segments                the live segments, each with the SHA-256 of its manifest
tombstones              ids of passages that a live segment still holds but that are deleted
settings                JSON values: encoder, analyser, counters, generation; a checksum over all
fields                  since format 2, one row a top-level metadata field: whether it is kept as a
                        column of codes
field_values            since format 2, one row a distinct value of such a field: its code, a JSON
                        object that holds the field alone, and the JSON type and value that
                        SQLite's `json_each` gives of it; code 0 is {}, 'null' and NULL
field_codes             since format 2, one row a field and 16,384 passage ids: the codes of their
                        documents' values, and a checksum
======================  ============================================================

What the last three say the documents say, too; see `indexes.columns`.
"""

from __future__ import annotations

# The format version from which on an index has them.
COLUMNS_SINCE = 2
COLUMN_TABLES = (
    "CREATE TABLE fields (field TEXT PRIMARY KEY, kept INTEGER NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE field_values (
        field TEXT,
        code INTEGER,
        metadata TEXT NOT NULL,
        type TEXT NOT NULL,
        value,
        PRIMARY KEY (field, code)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE field_codes (
        field TEXT NOT NULL,
        chunk INTEGER NOT NULL,
        codes BLOB NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (field, chunk)
    )
    """,
)
TABLES = (
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE documents (
        doc INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        title TEXT,
        text TEXT NOT NULL,
        metadata TEXT NOT NULL,
        hash BLOB NOT NULL,
        checksum BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE passages (
        passage INTEGER PRIMARY KEY,
        doc INTEGER NOT NULL REFERENCES documents (doc) ON DELETE CASCADE,
        start INTEGER NOT NULL,
        stop INTEGER NOT NULL
    )
    """,
    "CREATE INDEX passages_by_document ON passages (doc)",
    """
    CREATE TABLE segments (
        segment INTEGER PRIMARY KEY,
        passages INTEGER NOT NULL,
        manifest TEXT NOT NULL
    )
    """,
    "CREATE TABLE tombstones (passage INTEGER PRIMARY KEY)",
    *COLUMN_TABLES,
)
