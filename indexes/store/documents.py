"""What each document's row is sealed with, so that an altered one is found.

The rows of documents in SQLite, as a writer changes them inside its transactions.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
        content_hash: what tells whether title or text changed.
        passages: (passage id, start, stop), ascending.
    """
    # JSON keeps the parts apart, so that nothing can move from one into another unseen.
    sealed = json.dumps([id_, title, text, metadata, content_hash.hex(), passages])
    return hashlib.blake2b(sealed.encode(), digest_size=16).digest()


_METADATA = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
)


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document ready to be committed.

    Attributes:
        id: the user's id; an existing document with it is replaced.
        metadata: JSON object.
        hash: of title and text; equal hashes need no new encoding.
        spans: (start, stop) character offsets into `text`, one pair a passage, at least one.
    """

    id: str
    title: str | None
    text: str
    metadata: Mapping[str, Any]
    hash: bytes
    spans: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """What a document's metadata was and is.

    Attributes:
        passages: ids of all its passages, or of some of them.
        before, after: JSON objects as `metadata_json` writes them; before is {} for a new one.
    """

    passages: Sequence[int]
    before: str
    after: str


def insert_document(
    connection: sqlite3.Connection, document: NewDocument, passage: int
) -> tuple[int, MetadataChange]:
    """Store a document, its passages numbered from `passage` on.

    Returns:
        Its row's number, and the metadata that it brings.
    """
    passages = [(passage + i, *span) for i, span in enumerate(document.spans)]
    metadata = metadata_json(document.metadata)
    row = (document.id, document.title, document.text, metadata, document.hash)
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
    return doc, MetadataChange([id_ for id_, *_ in passages], "{}", metadata)


def replace_metadata(
    connection: sqlite3.Connection, id_: str, metadata: str
) -> MetadataChange | None:
    """Give a stored document other metadata; None for an id that is not stored."""
    row = connection.execute(
        "SELECT doc, title, text, metadata, hash FROM documents WHERE id = ?", (id_,)
    ).fetchone()
    if row is None:
        return None
    doc, title, text, before, content_hash = row
    passages = connection.execute(
        "SELECT passage, start, stop FROM passages WHERE doc = ? ORDER BY passage", (doc,)
    ).fetchall()
    checksum = document_checksum(id_, title, text, metadata, content_hash, passages)
    connection.execute(
        "UPDATE documents SET metadata = ?, checksum = ? WHERE doc = ?",
        (metadata, checksum, doc),
    )
    return MetadataChange([passage for passage, *_ in passages], before, metadata)


def bury(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    """Delete documents, and leave a tombstone for each of their passages."""
    wanted = (json.dumps(list(ids)),)
    chosen = "SELECT doc FROM documents WHERE id IN (SELECT value FROM json_each(?))"
    connection.execute(
        f"INSERT INTO tombstones SELECT passage FROM passages WHERE doc IN ({chosen})",  # noqa: S608
        wanted,
    )
    connection.execute(f"DELETE FROM documents WHERE doc IN ({chosen})", wanted)  # noqa: S608


def metadata_json(metadata: Mapping[str, Any]) -> str:
    """Metadata as it is stored: equal objects have equal text.

    Raises:
        TypeError, ValueError: a value that JSON does not have, such as NaN.
    """
    return _METADATA.encode(metadata)
