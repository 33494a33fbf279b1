"""The rows of documents and passages, as a writer changes them inside its transactions."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

_METADATA = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
)
# Ids handed to SQLite in one statement.
_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document ready to be committed.

    Attributes:
        id: the user's id; an existing document with it is replaced.
        metadata: JSON object.
        hash: of title and text; equal hashes need no new encoding.
        spans: (start, stop) character offsets into `text`, one pair per passage, at least one.
    """

    id: str
    title: str | None
    text: str
    metadata: Mapping[str, Any]
    hash: bytes
    spans: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class StoredHead:
    """The hash and the metadata of a stored document, which show whether it has changed."""

    hash: bytes
    metadata: str


@dataclass(frozen=True, slots=True)
class ReplacedMetadata:
    """The metadata of a stored document, before and after a change, and its passages' ids."""

    passages: Sequence[int]
    before: dict[str, Any]
    after: Mapping[str, Any]


def metadata_json(metadata: Any) -> str:
    """Metadata as it is stored: equal objects have equal text.

    Raises:
        TypeError, ValueError: a value that JSON does not have, such as NaN.
    """
    return _METADATA.encode(metadata)


def document_checksum(
    id_: str,
    title: str | None,
    text: str,
    metadata: str,
    content_hash: bytes,
    passages: Sequence[tuple[int, int, int]],
) -> bytes:
    """16 bytes over everything that SQLite holds of a document.

    Args:
        id_: the user's id.
        title: or None.
        text: the whole text.
        metadata: as stored, a JSON object.
        content_hash: changes with title or text.
        passages: (passage id, start, stop), ascending.
    """
    # JSON keeps the parts separate, so that nothing can move from one into another unseen.
    sealed = json.dumps([id_, title, text, metadata, content_hash.hex(), passages])
    return hashlib.blake2b(sealed.encode(), digest_size=16).digest()


def insert_document(connection: sqlite3.Connection, document: NewDocument, passage: int) -> int:
    """Store a document, its passages numbered from `passage` on; returns its row's number."""
    passages = [(passage + i, *span) for i, span in enumerate(document.spans)]
    row = (
        document.id,
        document.title,
        document.text,
        metadata_json(document.metadata),
        document.hash,
    )
    cursor = connection.execute(
        "INSERT INTO documents (id, title, text, metadata, hash, checksum) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (*row, document_checksum(*row, passages)),
    )
    doc = cursor.lastrowid
    assert doc is not None
    connection.executemany(
        "INSERT INTO passages VALUES (?, ?, ?, ?)",
        [(id_, doc, start, stop) for id_, start, stop in passages],
    )
    return doc


def replace_metadata(
    connection: sqlite3.Connection, id_: str, after: str
) -> ReplacedMetadata | None:
    """Give a stored document other metadata (a JSON object); None for an id that is not stored.

    Raises:
        ValueError, TypeError: its stored metadata is not JSON.
    """
    row = connection.execute(
        "SELECT doc, title, text, metadata, hash FROM documents WHERE id = ?", (id_,)
    ).fetchone()
    if row is None:
        return None
    doc, title, text, before, content_hash = row
    passages = connection.execute(
        "SELECT passage, start, stop FROM passages WHERE doc = ? ORDER BY passage", (doc,)
    ).fetchall()
    checksum = document_checksum(id_, title, text, after, content_hash, passages)
    connection.execute(
        "UPDATE documents SET metadata = ?, checksum = ? WHERE doc = ?", (after, checksum, doc)
    )
    return ReplacedMetadata(
        [passage for passage, *_ in passages], json.loads(before), json.loads(after)
    )


def document_heads(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, StoredHead]:
    """The stored hash and metadata of those of `ids` that the index holds."""
    rows = connection.execute(
        "SELECT id, hash, metadata FROM documents WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return {row[0]: StoredHead(row[1], row[2]) for row in rows}


def delete_documents(connection: sqlite3.Connection, ids: Iterable[str]) -> int:
    """Delete documents by id; returns how many there were. See `delete_selected`."""
    # No id holds NUL, at which SQLite's JSON functions would end it.
    rest = (id_ for id_ in ids if "\0" not in id_)
    deleted = 0
    while batch := list(islice(rest, _BATCH)):
        chosen = "SELECT doc FROM documents WHERE id IN (SELECT value FROM json_each(?))"
        deleted += delete_selected(connection, chosen, (json.dumps(batch),))
    return deleted


def delete_selected(
    connection: sqlite3.Connection, chosen: str, parameters: Sequence[Any] = ()
) -> int:
    """Delete the documents whose row numbers a query gives; the caller is in a transaction.

    Passages that wait in `pending` go with their documents; those of segments leave tombstones.
    Memory does not grow with the number of documents.

    Args:
        connection: of the writer.
        chosen: SQL without user text.
        parameters: the values of its `?` marks.

    Returns:
        The number of documents deleted.
    """
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS deleting (doc INTEGER PRIMARY KEY)")
    connection.execute(f"INSERT OR IGNORE INTO temp.deleting {chosen}", parameters)
    connection.execute(
        "INSERT INTO tombstones SELECT p.passage FROM temp.deleting AS x "
        "CROSS JOIN passages AS p ON p.doc = x.doc "
        "WHERE NOT EXISTS (SELECT 1 FROM pending AS w WHERE w.passage = p.passage)"
    )
    cursor = connection.execute(
        "DELETE FROM documents WHERE doc IN (SELECT doc FROM temp.deleting)"
    )
    connection.execute("DELETE FROM temp.deleting")
    return cursor.rowcount


def stored_metadata(
    connection: sqlite3.Connection, first: int, last: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(passage id, metadata of its document) of stored passages `first` to `last`, ascending.

    Raises:
        ValueError, TypeError: metadata is not JSON.
    """
    rows = connection.execute(
        "SELECT p.passage, d.metadata FROM passages AS p "
        "CROSS JOIN documents AS d ON d.doc = p.doc WHERE p.passage BETWEEN ? AND ? "
        "ORDER BY p.passage",
        (first, last),
    )
    for passage, metadata in rows:
        yield passage, json.loads(metadata)
