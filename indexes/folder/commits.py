"""Steps of a commit: changes of tables, each inside a transaction of the writer."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from indexes.bm25.merging import merged_positions
from indexes.folder import documents as rows
from indexes.folder import metadata_values
from indexes.folder.connection import read_settings, write_setting
from indexes.folder.segment import LiveSegment
from indexes.metadata import metadata_json
from indexes.protocol import NewDocument


def change_documents(
    connection: sqlite3.Connection, documents: Sequence[NewDocument], passage: int
) -> int:
    """Add or replace documents, their passages numbered from `passage`; return the next number."""
    deleted = rows.delete_documents(connection, [document.id for document in documents])
    for document in documents:
        doc = rows.insert_document(connection, document, passage)
        connection.execute("INSERT OR IGNORE INTO touched VALUES (?)", (doc,))
        passage += len(document.spans)
    languages = Counter(chain.from_iterable(document.languages for document in documents))
    rows.change_languages(connection, added=languages.items(), deleted=deleted.languages)
    return passage


def replace_metadata(
    connection: sqlite3.Connection, metadata: Mapping[str, Mapping[str, Any]]
) -> list[rows.MetadataChange]:
    """Replace the metadata of documents by id; return the changes of stored documents."""
    encoded = {id_: metadata_json(value) for id_, value in metadata.items()}
    return [
        change
        for id_, value in encoded.items()
        if (change := rows.replace_metadata(connection, id_, value)) is not None
    ]


def replace_segments(
    connection: sqlite3.Connection,
    segments: Sequence[LiveSegment],
    number: int,
    passages: int,
    manifest: str | None,
) -> None:
    """Replace segments by segment `number` with its SHA-256 `manifest`; by none if it is None."""
    replaced = [live.segment.number for live in segments]
    connection.executemany(
        "DELETE FROM segments WHERE segment = ?", [(old_number,) for old_number in replaced]
    )
    connection.executemany(
        "DELETE FROM tombstones WHERE passage BETWEEN ? AND ?",
        [live.segment.ends for live in segments if live.deleted],
    )
    if manifest is not None:
        name_segment(connection, number, passages, manifest)
        sources = dict(zip(replaced, merged_positions(segments), strict=True))
        metadata_values.merge_values(connection, number, sources)
    metadata_values.drop_values(connection, replaced)


def name_segment(connection: sqlite3.Connection, number: int, passages: int, manifest: str) -> None:
    """Make a segment part of the index."""
    connection.execute("INSERT INTO segments VALUES (?, ?, ?)", (number, passages, manifest))
    write_setting(connection, "next_segment", number + 1)


def bump_generation(connection: sqlite3.Connection) -> None:
    """Count a commit, which every reader notices."""
    generation = int(read_settings(connection, "generation")["generation"])
    write_setting(connection, "generation", generation + 1)
