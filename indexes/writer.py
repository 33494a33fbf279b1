"""Changing an index: one writer, segments written beside the live ones, SQLite as commit point.

A change is visible when its SQLite transaction has committed and not before. A crash earlier
leaves at most a segment folder that nothing names; the next writer removes it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files.atomic import storage_errors
from indexes.filters.column_rows import ColumnRows
from indexes.filters.columns import LIMITS, Limits
from indexes.filters.grammar import Where
from indexes.segments.live import LiveSegment, live_segments
from indexes.segments.merge import merge_segments
from indexes.segments.segment import remove_unnamed_segments, segment_folder, write_segment
from indexes.store.connection import (
    create_database,
    is_index,
    open_writer,
    transaction,
)
from indexes.store.documents import (
    NewDocument,
    bury,
    insert_document,
    metadata_json,
    replace_metadata,
)
from indexes.store.lock import WriterLock
from indexes.store.migrations import upgrade
from indexes.store.replacement import recover_replacement
from indexes.store.settings import read_setting, write_setting
from indexes.vectors.segment_structure import StructureSettings


@dataclass(frozen=True, slots=True)
class StoredHead:
    """What the writer needs to know of a stored document to tell whether it changed."""

    hash: bytes
    metadata: str


class Writer:
    """The one writer of an index folder; use it as a context manager.

    Args:
        folder: the index folder.
        create: settings (JSON values) to create the index with if there is none yet; with None
            the index must exist.
        columns: which metadata is kept as columns.

    An index of an earlier format is brought up to this one (`indexes.store.migrations`).

    Raises on entry:
        IndexLockedError, NotAnIndexError, FormatVersionError, StorageError, DamagedIndexError
    """

    def __init__(
        self, folder: Path, create: Mapping[str, Any] | None = None, columns: Limits = LIMITS
    ) -> None:
        self.folder = folder
        self._limits = columns
        self._create = create
        self._stack = ExitStack()
        self._connection: sqlite3.Connection
        self._columns: ColumnRows

    def __enter__(self) -> Writer:
        with ExitStack() as stack:
            recover_replacement(self.folder)
            if self._create is not None:
                with storage_errors(self.folder):
                    self.folder.mkdir(parents=True, exist_ok=True)
            if self.folder.is_dir() and (self._create is not None or is_index(self.folder)):
                stack.enter_context(WriterLock(self.folder))
            if self._create is not None and not is_index(self.folder):
                create_database(self.folder, self._create)
            self._connection = open_writer(self.folder)
            stack.callback(self._connection.close)
            upgrade(self._connection, self.folder, self._limits)
            self._columns = ColumnRows(self._connection, self.folder, self._limits)
            with storage_errors(self.folder):
                self._remove_orphans()
            self._connection.execute(
                "CREATE TEMP TABLE touched (doc INTEGER PRIMARY KEY) WITHOUT ROWID"
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def setting(self, key: str) -> Any:
        """The JSON value of a setting; KeyError if there is none."""
        return read_setting(self._connection, key)

    def set(self, key: str, value: Any) -> None:
        """Store a setting (a JSON value)."""
        with storage_errors(self.folder), transaction(self._connection):
            write_setting(self._connection, key, value)

    def heads(self, ids: Sequence[str]) -> dict[str, StoredHead]:
        """The stored hash and metadata of those of `ids` that the index holds."""
        rows = self._connection.execute(
            "SELECT id, hash, metadata FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return {row[0]: StoredHead(row[1], row[2]) for row in rows}

    def touch(self, ids: Sequence[str]) -> None:
        """Remember that these stored documents belong to the run; see `delete_untouched`."""
        self._connection.execute(
            "INSERT OR IGNORE INTO touched SELECT doc FROM documents "
            "WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Add or replace documents in one step: all of them are visible afterwards, or none.

        Args:
            documents: with distinct ids.
            vectors: (n, d) float32, one row a passage, documents in order.
            tokens: the terms of each of the n passages.
            metadata: new metadata of stored documents whose text has not changed, by id; ids that
                the index does not hold are passed over.

        Raises:
            StorageError: the disk is full or cannot be written; the index is as before.
            ValueError: vectors or tokens are not as many as the passages, or metadata is no JSON.
        """
        first = int(self.setting("next_passage"))
        number = int(self.setting("next_segment"))
        passages = sum(len(document.spans) for document in documents)
        if len(vectors) != passages:
            raise ValueError(f"expected vectors of {passages} passages, found {len(vectors)}")
        manifest_hash = None
        if passages:
            ids = np.arange(first, first + passages, dtype=np.int64)
            folder = segment_folder(self.folder, number)
            manifest_hash = write_segment(folder, ids, vectors, tokens)
        with storage_errors(self.folder), transaction(self._connection):
            bury(self._connection, [document.id for document in documents])
            passage = first
            changes = []
            for document in documents:
                doc, new = insert_document(self._connection, document, passage)
                self._connection.execute("INSERT OR IGNORE INTO touched VALUES (?)", (doc,))
                passage += len(document.spans)
                changes.append(new)
            for id_, value in (metadata or {}).items():
                change = replace_metadata(self._connection, id_, metadata_json(value))
                if change is not None:
                    changes.append(change)
            self._columns.update(changes)
            if manifest_hash is not None:
                self._name_segment(number, passages, manifest_hash)
            write_setting(self._connection, "next_passage", passage)
            self._bump_generation()

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents at once; returns those of `ids` that were there, in ascending order."""
        with storage_errors(self.folder), transaction(self._connection):
            found = sorted(self.heads(ids))
            bury(self._connection, found)
            self._bump_generation()
        return found

    def delete_where(self, where: Where) -> list[str]:
        """Delete the documents that match a filter; returns their ids in ascending order."""
        with storage_errors(self.folder), transaction(self._connection):
            rows = self._connection.execute(
                # The filter's SQL holds no value and no name: both are bound.
                f"SELECT d.id FROM documents AS d WHERE {where.sql} ORDER BY d.id",  # noqa: S608
                where.parameters,
            )
            found = [row[0] for row in rows]
            bury(self._connection, found)
            self._bump_generation()
        return found

    def delete_untouched(self) -> list[str]:
        """Delete every document that `touch` and `commit` have not seen since the writer opened."""
        with storage_errors(self.folder), transaction(self._connection):
            rows = self._connection.execute(
                "SELECT id FROM documents WHERE doc NOT IN (SELECT doc FROM touched) ORDER BY id"
            )
            found = [row[0] for row in rows]
            bury(self._connection, found)
            self._bump_generation()
        return found

    @property
    def structures(self) -> StructureSettings:
        """Which search structure merged segments get."""
        # An index of an earlier release has no such setting.
        found = read_setting(self._connection, "structures", {})
        return StructureSettings.from_json(found)

    def segments(self) -> tuple[LiveSegment, ...]:
        """The live segments, oldest passages first.

        Raises:
            DamagedIndexError: a file of a segment is not as it was written.
        """
        with storage_errors(self.folder):
            return live_segments(self.folder, self._connection)

    def replace(
        self, live: Sequence[LiveSegment], structures: StructureSettings | None = None
    ) -> None:
        """Put one segment of their live passages, or none, in the place of neighbouring ones.

        Answers stay the same; readers of an earlier commit go on with what they have open.

        Args:
            live: the segments.
            structures: which search structure this and later merged segments get; None as before.

        Raises:
            DamagedIndexError: a file of a segment is not as it was written.
            StorageError: the disk is full or cannot be written; the index is as before.
            ConfigError, MissingExtraError: see `indexes.vectors.segment_structure.build_structure`.
        """
        number = int(self.setting("next_segment"))
        gone = [one.segment.ids[~one.alive] for one in live if one.alive is not None]
        made = None
        if any(one.dead < len(one.segment.ids) for one in live):
            made = merge_segments(
                segment_folder(self.folder, number), live, structures or self.structures
            )
        with storage_errors(self.folder):
            with transaction(self._connection):
                self._connection.executemany(
                    "DELETE FROM segments WHERE segment = ?",
                    [(one.segment.number,) for one in live],
                )
                self._connection.executemany(
                    "DELETE FROM tombstones WHERE passage = ?",
                    [(passage,) for passages in gone for passage in passages.tolist()],
                )
                self._columns.drop_unused()
                if made is not None:
                    self._name_segment(number, *made)
                if structures is not None:
                    write_setting(self._connection, "structures", structures.to_json())
                self._bump_generation()
            self._remove_orphans()

    def vacuum(self) -> None:
        """Make the columns of metadata anew, and give the space of deleted rows back to the system.

        Raises:
            StorageError: the disk is full: for a while a second copy of the database is needed.
            DamagedIndexError: a document's metadata is no JSON object.
        """
        with storage_errors(self.folder):
            with transaction(self._connection):
                self._columns.rebuild()
                # Readers remember the codes of a commit.
                self._bump_generation()
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _name_segment(self, number: int, passages: int, manifest_hash: str) -> None:
        self._connection.execute(
            "INSERT INTO segments VALUES (?, ?, ?)", (number, passages, manifest_hash)
        )
        write_setting(self._connection, "next_segment", number + 1)

    def _bump_generation(self) -> None:
        write_setting(self._connection, "generation", int(self.setting("generation")) + 1)

    def _remove_orphans(self) -> None:
        rows = self._connection.execute("SELECT segment FROM segments")
        remove_unnamed_segments(self.folder, [number for (number,) in rows])
