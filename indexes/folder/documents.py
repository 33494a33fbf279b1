"""The tables of an index, as numbered migrations, and their rows as a writer changes them.

What they hold is in docs/reference/index-format.md. Functions that write are called inside a
transaction.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.files import storage_errors
from indexes.folder.connection import (
    APPLICATION_ID,
    CORPUS_VIEW,
    FORMAT_VERSION,
    connect,
    format_version,
    read_settings,
    refuse_remains,
    require_vacant,
    transaction,
    write_setting,
)
from indexes.metadata import document_checksum, metadata_json
from indexes.protocol import LANGUAGES, NewDocument, StoredDocument, StoredVersion

if TYPE_CHECKING:
    from indexes.languages import LanguageCounts

# First formats with values of metadata by segment, with outlines, and with languages.
VALUES_SINCE = 3

_OUTLINES_SINCE = 4

_LANGUAGES_SINCE = 5


def create_database(folder: Path, settings: Mapping[str, Any]) -> None:
    """Create the database of a new index with `settings` (JSON values), in one transaction."""
    require_vacant(folder)
    with storage_errors(folder):
        refuse_remains(folder)
        with closing(connect(folder, "rwc")) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            with transaction(connection):
                _migrate(connection, 0)
                counters = {"generation": 0, "next_passage": 1, "next_segment": 1}
                for key, value in {**counters, **settings}.items():
                    write_setting(connection, key, value)
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")


def upgrade(connection: sqlite3.Connection, folder: Path, fill: Callable[[], None]) -> None:
    """Bring an index to the newest format in one transaction; `fill` fills tables of format 3."""
    version = format_version(connection)
    if version != FORMAT_VERSION:
        with storage_errors(folder), transaction(connection):
            _migrate(connection, version)
            if version < VALUES_SINCE:
                fill()


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    """Run the migrations above format `found`."""
    for number, statements in _MIGRATIONS.items():
        for statement in statements if number > version else ():
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")


# Format to the statements that bring an index to it from the format before.
_MIGRATIONS = {
    1: (
        "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE documents (doc INTEGER PRIMARY KEY, id TEXT NOT NULL, title TEXT, "
        "text TEXT NOT NULL, metadata TEXT NOT NULL, hash BLOB NOT NULL, checksum BLOB NOT NULL)",
        "CREATE UNIQUE INDEX idx_documents_id ON documents (id)",
        "CREATE TABLE passages (passage INTEGER PRIMARY KEY, "
        "doc INTEGER NOT NULL REFERENCES documents (doc) ON DELETE CASCADE, "
        "start INTEGER NOT NULL, stop INTEGER NOT NULL)",
        "CREATE INDEX passages_by_document ON passages (doc)",
        "CREATE TABLE segments (segment INTEGER PRIMARY KEY, passages INTEGER NOT NULL, "
        "manifest TEXT NOT NULL)",
        "CREATE TABLE tombstones (passage INTEGER PRIMARY KEY)",
    ),
    3: (
        *(f"DROP TABLE IF EXISTS {table}" for table in ("fields", "field_values", "field_codes")),
        "CREATE TABLE pending ("
        "passage INTEGER PRIMARY KEY REFERENCES passages (passage) ON DELETE CASCADE, "
        "vector BLOB NOT NULL, terms TEXT NOT NULL, checksum BLOB NOT NULL)",
        "CREATE TABLE fields (field INTEGER PRIMARY KEY, name TEXT NOT NULL)",
        "CREATE UNIQUE INDEX idx_fields_name ON fields (name)",
        "CREATE TABLE metadata_values (segment INTEGER, field INTEGER, type TEXT, value, "
        "passages NOT NULL, checksum INTEGER NOT NULL, "
        "PRIMARY KEY (segment, field, type, value)) WITHOUT ROWID",
        f'CREATE VIEW "corpus" AS {CORPUS_VIEW}',
    ),
    4: (
        "ALTER TABLE documents ADD COLUMN outline TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX documents_by_hash ON documents (hash)",
    ),
    # NULL where an earlier release stored the passage.
    5: ("ALTER TABLE passages ADD COLUMN languages TEXT",),
}


def document_columns(connection: sqlite3.Connection) -> str:
    """Return the columns of `documents` for `checked_passages`; early formats lack the outline."""
    outline = "outline" if format_version(connection) >= _OUTLINES_SINCE else "''"
    return f"doc, id, title, text, metadata, hash, {outline}, checksum"


def checked_passages(
    connection: sqlite3.Connection, row: Sequence[Any]
) -> list[tuple[int, int, int]]:
    """Return (passage id, start, stop) of each passage of a row, ascending.

    Raises:
        ValueError: the document was altered.
    """
    passages = connection.execute(
        "SELECT passage, start, stop FROM passages WHERE doc = ? ORDER BY passage", (row[0],)
    ).fetchall()
    if row[7] != document_checksum(passages, *row[1:7]):
        raise ValueError(f"the document {row[1]!r} was altered")
    return passages


def insert_document(connection: sqlite3.Connection, document: NewDocument, passage: int) -> int:
    """Store a document, its passages numbered from `passage` on; returns its row's number."""
    passages = [(passage + i, *span) for i, span in enumerate(document.spans)]
    row = (
        document.id,
        document.title,
        document.text,
        metadata_json(document.metadata),
        document.hash,
        document.outline,
    )
    cursor = connection.execute(
        "INSERT INTO documents (id, title, text, metadata, hash, outline, checksum) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*row, document_checksum(passages, *row)),
    )
    doc = cursor.lastrowid
    assert doc is not None
    languages = document.languages or [""] * len(passages)
    connection.executemany(
        "INSERT INTO passages VALUES (?, ?, ?, ?, ?)",
        [(id_, doc, *span, own) for (id_, *span), own in zip(passages, languages, strict=True)],
    )
    return doc


class MetadataChange(NamedTuple):
    """The metadata of one document before and after."""

    passages: Sequence[int]  # of the document, by id or by position
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def replace_metadata(connection: sqlite3.Connection, id_: str, after: str) -> MetadataChange | None:
    """Give a stored document other metadata (a JSON object); None for an id that is not stored."""
    row = connection.execute(
        "SELECT doc, title, text, metadata, hash, outline FROM documents WHERE id = ?", (id_,)
    ).fetchone()
    if row is None:
        return None
    doc, title, text, before, content_hash, outline = row
    passages = connection.execute(
        "SELECT passage, start, stop FROM passages WHERE doc = ? ORDER BY passage", (doc,)
    ).fetchall()
    checksum = document_checksum(passages, id_, title, text, after, content_hash, outline)
    connection.execute(
        "UPDATE documents SET metadata = ?, checksum = ? WHERE doc = ?", (after, checksum, doc)
    )
    ids = [passage for passage, *_ in passages]
    return MetadataChange(ids, json.loads(before), json.loads(after))


def document_versions(
    connection: sqlite3.Connection, ids: Sequence[str]
) -> dict[str, StoredVersion]:
    """The stored hash and metadata of those of `ids` that the index holds."""
    rows = connection.execute(
        "SELECT id, hash, metadata FROM documents WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return {row[0]: StoredVersion(row[1], row[2]) for row in rows}


class Deleted(NamedTuple):
    """Documents that were deleted."""

    documents: int
    # Of their passages, as `change_languages` takes them.
    languages: list[tuple[str | None, int]]


def delete_documents(connection: sqlite3.Connection, ids: Iterable[str]) -> Deleted:
    """Delete documents by id; see `delete_selected`."""
    # No id holds NUL, at which SQLite's JSON functions would end it.
    ids_json = json.dumps([id_ for id_ in ids if "\0" not in id_])
    query = "SELECT doc FROM documents WHERE id IN (SELECT value FROM json_each(?))"
    return delete_selected(connection, query, (ids_json,))


def delete_selected(
    connection: sqlite3.Connection, query: str, parameters: Sequence[Any] = ()
) -> Deleted:
    """Delete documents whose row numbers a query gives, in bounded memory.

    Passages that wait in `pending` go with their documents; those of segments leave tombstones.
    `change_languages` is left to the caller.
    """
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS deleting (doc INTEGER PRIMARY KEY)")
    connection.execute(f"INSERT OR IGNORE INTO temp.deleting {query}", parameters)
    connection.execute(
        "INSERT INTO tombstones SELECT p.passage FROM temp.deleting AS x "
        "CROSS JOIN passages AS p ON p.doc = x.doc "
        "WHERE NOT EXISTS (SELECT 1 FROM pending AS w WHERE w.passage = p.passage)"
    )
    languages = connection.execute(
        "SELECT p.languages, count(*) FROM temp.deleting AS x "
        "CROSS JOIN passages AS p ON p.doc = x.doc GROUP BY p.languages"
    ).fetchall()
    cursor = connection.execute(
        "DELETE FROM documents WHERE doc IN (SELECT doc FROM temp.deleting)"
    )
    connection.execute("DELETE FROM temp.deleting")
    return Deleted(cursor.rowcount, languages)


def read_languages(connection: sqlite3.Connection) -> Any:
    """Return the setting `LANGUAGES`."""
    return json.loads(read_settings(connection, LANGUAGES).get(LANGUAGES, "{}"))


def stored_languages(connection: sqlite3.Connection) -> LanguageCounts:
    """Count the languages of all passages, in an index of any format."""
    from indexes.languages import LanguageCounts

    column = "languages" if format_version(connection) >= _LANGUAGES_SINCE else "NULL"
    rows = connection.execute(f"SELECT {column}, count(*) FROM passages GROUP BY 1")  # noqa: S608
    return LanguageCounts.of(rows)


def change_languages(
    connection: sqlite3.Connection,
    *,
    added: Iterable[tuple[str | None, int]] = (),
    deleted: Iterable[tuple[str | None, int]] = (),
) -> None:
    """Keep the setting `LANGUAGES` in step with passages that were added and deleted."""
    from indexes.languages import changed_counts

    before = read_languages(connection)
    counts = changed_counts(before, added, deleted, partial(stored_languages, connection))
    if counts != before:
        write_setting(connection, LANGUAGES, counts)


def set_languages(
    connection: sqlite3.Connection, document: StoredDocument, languages: Sequence[str]
) -> None:
    """Store the languages of each passage of a document."""
    passages = [passage for passage, _, _ in document.passages]
    connection.executemany(
        "UPDATE passages SET languages = ? WHERE passage = ?",
        zip(languages, passages, strict=True),
    )


def recount_languages(connection: sqlite3.Connection) -> None:
    """Count the stored languages of all passages again."""
    write_setting(connection, LANGUAGES, stored_languages(connection).counted)


def stored_metadata(
    connection: sqlite3.Connection, first: int, last: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(passage id, metadata of its document) of stored passages `first` to `last`, ascending."""
    rows = connection.execute(
        "SELECT p.passage, d.metadata FROM passages AS p "
        "CROSS JOIN documents AS d ON d.doc = p.doc WHERE p.passage BETWEEN ? AND ? "
        "ORDER BY p.passage",
        (first, last),
    )
    for passage, metadata in rows:
        yield passage, json.loads(metadata)


class Waiting(NamedTuple):
    """Passages that wait in the database."""

    ids: NDArray[np.int64]  # (n,) ascending
    vectors: NDArray[np.float32]  # (n, d), C-contiguous
    terms: list[list[str]]  # of each passage


def add_pending(
    connection: sqlite3.Connection,
    ids: Sequence[int],
    vectors: NDArray[np.float32],
    tokens: Sequence[Sequence[str]],
) -> None:
    """Let n passages wait in the database, with (n, d) vectors and the terms of each."""
    rows = []
    for passage, vector, terms in zip(ids, vectors, tokens, strict=True):
        blob = vector.astype("<f4").tobytes()
        text = json.dumps(list(terms))
        rows.append((passage, blob, text, _pending_checksum(passage, blob, text)))
    connection.executemany("INSERT INTO pending VALUES (?, ?, ?, ?)", rows)


def count_pending(connection: sqlite3.Connection) -> int:
    """Return the number of passages that wait in the database."""
    return int(connection.execute("SELECT count(*) FROM pending").fetchone()[0])


def read_waiting(connection: sqlite3.Connection, replaced: Collection[str] = ()) -> Waiting | None:
    """Return the waiting passages, without passages of the `replaced` documents."""
    rows = connection.execute(
        "SELECT w.passage, w.vector, w.terms, w.checksum, d.id FROM pending AS w "
        "CROSS JOIN passages AS p ON p.passage = w.passage "
        "CROSS JOIN documents AS d ON d.doc = p.doc "
        "ORDER BY w.passage"
    ).fetchall()
    for passage, vector, terms, checksum, _ in rows:
        if _pending_checksum(passage, vector, terms) != checksum:
            raise ValueError(f"the waiting passage {passage} was altered")
    rows = [row for row in rows if row[4] not in replaced]
    if not rows:
        return None
    vectors = np.frombuffer(b"".join(row[1] for row in rows), "<f4").reshape(len(rows), -1)
    return Waiting(
        np.array([row[0] for row in rows], np.int64),
        np.ascontiguousarray(vectors, np.float32),
        [json.loads(row[2]) for row in rows],
    )


def _pending_checksum(passage: int, vector: bytes, terms: str) -> bytes:
    sealed = b"%d %d " % (passage, len(vector)) + vector + terms.encode()
    return hashlib.blake2b(sealed, digest_size=16).digest()


def write_partial_vectors(
    connection: sqlite3.Connection, digests: Sequence[bytes], vectors: NDArray[np.float32]
) -> None:
    """Store (digests, d) vectors of encoded texts, by the digest of the text."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS unfinished (digest BLOB PRIMARY KEY, vector BLOB NOT NULL, "
        "checksum BLOB NOT NULL) WITHOUT ROWID"
    )
    rows = []
    for digest, vector in zip(digests, vectors, strict=True):
        blob = vector.astype("<f4").tobytes()
        rows.append((digest, blob, _vector_checksum(digest, blob)))
    connection.executemany("INSERT OR REPLACE INTO unfinished VALUES (?, ?, ?)", rows)


def read_partial_vectors(
    connection: sqlite3.Connection, digests: Sequence[bytes]
) -> dict[bytes, NDArray[np.float32]]:
    """Return stored vectors by digest; an altered vector counts as missing."""
    vectors: dict[bytes, NDArray[np.float32]] = {}
    exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'unfinished'"
    if connection.execute(exists).fetchone() is None:
        return vectors
    for digest in digests:
        row = connection.execute(
            "SELECT vector, checksum FROM unfinished WHERE digest = ?", (digest,)
        ).fetchone()
        if row is not None and row[1] == _vector_checksum(digest, row[0]):
            vectors[digest] = np.frombuffer(row[0], "<f4").astype(np.float32)
    return vectors


def _vector_checksum(digest: bytes, vector: bytes) -> bytes:
    return hashlib.blake2b(digest + vector, digest_size=16).digest()
