"""Changing an index: one writer, segments written beside the live ones, SQLite as commit point.

A change is visible when its SQLite transaction has committed and not before. A crash earlier
leaves at most a segment folder that nothing names; the next writer removes it.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes.errors import StorageError
from indexes.files import readable, storage_errors
from indexes.filters.grammar import Where
from indexes.folder import documents as rows
from indexes.folder import metadata_values
from indexes.folder.commits import (
    bump_generation,
    change_documents,
    name_segment,
    replace_metadata,
    replace_segments,
)
from indexes.folder.connection import (
    BUSY_SECONDS,
    close_writer,
    is_index,
    open_writer,
    read_settings,
    transaction,
    write_setting,
)
from indexes.folder.filtering import allowed_passages
from indexes.folder.lock import recover_replacement, writer_lock
from indexes.folder.merging import (
    count_live_passages,
    find_faster_merge,
    merge_segments,
    next_merge,
    structure_choice,
)
from indexes.folder.segment import (
    LiveSegment,
    live_segments,
    remove_unnamed_segments,
    segment_folder,
    write_segment,
)
from indexes.folder.value_ranks import RanksCache
from indexes.protocol import (
    NewDocument,
    Stage,
    StoredDocument,
    StoredVersion,
    StructureSettings,
    no_progress,
)
from indexes.vectors.choice import Choice
from indexes.vectors.library import FLAT

LOG = logging.getLogger(__name__)
# Most passages that wait in the database: readers load them after each commit in about 10 ms.
PENDING_LIMIT = 512

_DELETE_UNUSED_FIELDS = "DELETE FROM fields WHERE field NOT IN (SELECT field FROM metadata_values)"


class FolderWriter:
    """The only `Writer` of an index folder, a context manager; it upgrades the format."""

    def __init__(
        self,
        folder: Path,
        create: Mapping[str, Any] | None = None,
        *,
        lock_timeout: float = 0.0,
        pending_limit: int | None = None,
    ) -> None:
        self.folder = folder
        self._create = create
        self._lock_timeout = lock_timeout
        self._pending_limit = PENDING_LIMIT if pending_limit is None else pending_limit
        self._stack = ExitStack()
        self._connection: sqlite3.Connection

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            recover_replacement(self.folder)
            if self._create is not None:
                with storage_errors(self.folder):
                    self.folder.mkdir(parents=True, exist_ok=True)
            if self.folder.is_dir() and (self._create is not None or is_index(self.folder)):
                stack.enter_context(writer_lock(self.folder, self._lock_timeout))
            if self._create is not None and not is_index(self.folder):
                rows.create_database(self.folder, self._create)
            self._connection = open_writer(self.folder)
            stack.callback(close_writer, self._connection, self.folder)
            rows.upgrade(self._connection, self.folder, self._rebuild_values)
            with storage_errors(self.folder):
                self._remove_orphans()
            self._connection.execute(
                "CREATE TEMP TABLE touched (doc INTEGER PRIMARY KEY) WITHOUT ROWID"
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def setting(self, key: str, default: Any = None) -> Any:
        settings = read_settings(self._connection, key)
        return default if default is not None and not settings else json.loads(settings[key])

    def record(self, key: str, value: Any) -> None:
        with storage_errors(self.folder), transaction(self._connection):
            write_setting(self._connection, key, value)

    def stored_versions(self, ids: Sequence[str]) -> dict[str, StoredVersion]:
        return rows.document_versions(self._connection, ids)

    def mark_seen(self, ids: Sequence[str]) -> None:
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
    ) -> bool:
        """Add or replace documents in one commit; return whether a segment was written."""
        passages = sum(len(document.spans) for document in documents)
        if len(vectors) != passages:
            raise ValueError(f"expected vectors of {passages} passages, found {len(vectors)}")
        waits = passages + rows.count_pending(self._connection) < self._pending_limit
        self._commit(documents, vectors, list(tokens), metadata or {}, waits=waits)
        return not waits

    def flush(self) -> None:
        """Write the passages that wait in the database into a segment."""
        if rows.count_pending(self._connection):
            self._commit([], np.empty((0, 0), np.float32), [], {}, waits=False)

    def store_partial_vectors(self, digests: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        with storage_errors(self.folder), transaction(self._connection):
            rows.write_partial_vectors(self._connection, digests, vectors)

    def partial_vectors(self, digests: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        with storage_errors(self.folder), readable(self.folder):
            return rows.read_partial_vectors(self._connection, digests)

    def delete_partial_vectors(self) -> None:
        with storage_errors(self.folder), transaction(self._connection):
            self._connection.execute("DROP TABLE IF EXISTS unfinished")

    def delete(self, ids: Iterable[str]) -> int:
        with storage_errors(self.folder), transaction(self._connection):
            deleted = rows.delete_documents(self._connection, ids)
            rows.change_languages(self._connection, deleted=deleted.languages)
            bump_generation(self._connection)
        return deleted.documents

    def delete_where(self, where: Where) -> int:
        with storage_errors(self.folder):
            segments = live_segments(self.folder, self._connection)
            allowed = allowed_passages(self._connection, self.folder, segments, where, RanksCache())
        ids = [
            segment.segment.ids_at(mask.positions)
            for segment, mask in zip(segments, allowed, strict=True)
        ]
        passages = json.dumps([passage for part in ids for passage in part.tolist()])
        query = "SELECT doc FROM passages WHERE passage IN (SELECT value FROM json_each(?))"
        return self._delete(query, [passages])

    def delete_unseen(self) -> int:
        return self._delete("SELECT doc FROM documents WHERE doc NOT IN (SELECT doc FROM touched)")

    def count_seen(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM touched").fetchone()[0])

    def merge(self, stage: Stage = no_progress) -> int:
        """Merge segments as `next_merge` says; return how many were read."""
        merged = 0
        while True:
            segments = self.segments()
            sizes = [len(segment.segment.ids) for segment in segments]
            deleted_counts = [segment.deleted for segment in segments]
            span = next_merge(sizes, deleted_counts)
            if span is None:
                return merged
            self.replace(segments[span.start : span.stop], stage=stage)
            merged += len(span)

    def optimize_after_run(self, added: int, stage: Stage = no_progress) -> int:
        """Merge at the end of a run if `faster_merge` finds a merge; return how many were read."""
        if not find_faster_merge(self.segments(), added, self.structures):
            return 0
        self.flush()
        segments = find_faster_merge(self.segments(), added, self.structures)
        if segments:
            self.replace(segments, stage=stage)
        return len(segments)

    def rebuild(self, structures: StructureSettings, stage: Stage = no_progress) -> int:
        """Merge all segments into one with another search structure, which later merges keep."""
        # Refuses an impossible structure before anything is written.
        structure_choice(self.segments(), structures)
        self.flush()
        live = self.segments()
        self.replace(live, structures, stage)
        return len(live)

    def are_languages_counted(self) -> bool:
        with storage_errors(self.folder), readable(self.folder):
            stored = rows.stored_languages(self._connection)
            return not stored.uncounted and stored.counted == rows.read_languages(self._connection)

    def count_languages(self, documents: Iterable[tuple[StoredDocument, Sequence[str]]]) -> None:
        with storage_errors(self.folder), transaction(self._connection):
            for document, languages in documents:
                rows.set_languages(self._connection, document, languages)
            rows.recount_languages(self._connection)
            bump_generation(self._connection)

    def compact(self, stage: Stage = no_progress, *, erase: bool = False) -> int:
        """Merge all segments, drop deleted passages, repair values, and free disk space.

        With `erase`, no file of the folder holds a byte of a deleted document afterwards.
        """
        self._repair_values()
        if erase:
            self.delete_partial_vectors()
        self.flush()
        live = self.segments()
        is_needed = len(live) > 1 or any(segment.deleted for segment in live)
        if not is_needed and live and not live[0].segment.structure.reasons:
            is_needed = structure_choice(live, self.structures).name != FLAT
        if is_needed:
            self.replace(live, stage=stage)
        merged = len(live) if is_needed else 0
        # Windows keeps files that are mapped, by this process too.
        del live
        with storage_errors(self.folder):
            if erase:
                if not self._remove_orphans():
                    raise _erasure_error(self.folder, "has files open that Windows keeps")
                self._connection.execute(_DELETE_UNUSED_FIELDS)
            # Needs space for a second copy of the database.
            self._connection.execute("VACUUM")
            # Deleted content stays in the log until no reader needs it.
            kind = "TRUNCATE" if erase else "PASSIVE"
            (busy, *_) = self._connection.execute(f"PRAGMA wal_checkpoint({kind})").fetchone()
        if erase and busy:
            raise _erasure_error(self.folder, f"reads for longer than {BUSY_SECONDS} s")
        return merged

    @property
    def structures(self) -> StructureSettings:
        """Search structure of merged segments."""
        # An index of an earlier release has no such setting.
        return StructureSettings(**self.setting("structures", {}))

    def segments(self) -> tuple[LiveSegment, ...]:
        """Return the live segments, oldest passages first, without waiting passages."""
        with storage_errors(self.folder), readable(self.folder):
            live = live_segments(self.folder, self._connection)
        return tuple(segment for segment in live if not segment.is_pending)

    def replace(
        self,
        live: Sequence[LiveSegment],
        structures: StructureSettings | None = None,
        stage: Stage = no_progress,
    ) -> None:
        """Replace neighboring segments by one of their live passages, or by none."""
        number = int(self.setting("next_segment"))
        choice = structure_choice(live, structures or self.structures)
        passages = count_live_passages(live)
        if choice.name != FLAT:
            _log_build(self.folder, passages, choice)
        manifest = None
        if passages:
            folder = segment_folder(self.folder, number)
            manifest = merge_segments(folder, live, structures or self.structures, stage)
        with storage_errors(self.folder), readable(self.folder):
            with transaction(self._connection):
                replace_segments(self._connection, live, number, passages, manifest)
                if structures is not None:
                    write_setting(self._connection, "structures", asdict(structures))
                bump_generation(self._connection)
            self._remove_orphans()

    def _commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        terms: list[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]],
        *,
        waits: bool,
    ) -> None:
        """Commit documents that wait in the database, or a segment with all waiting passages."""
        first = int(self.setting("next_passage"))
        number = int(self.setting("next_segment"))
        ids = np.arange(first, first + len(vectors), dtype=np.int64)
        manifest = None
        if not waits:
            replaced = {document.id for document in documents}
            with storage_errors(self.folder), readable(self.folder):
                waiting = rows.read_waiting(self._connection, replaced)
            if waiting is not None:
                ids = np.concatenate([waiting.ids, ids])
                new = vectors if len(vectors) else waiting.vectors[:0]
                vectors = np.concatenate([waiting.vectors, new])
                terms = [*waiting.terms, *terms]
            if len(ids):
                folder = segment_folder(self.folder, number)
                manifest = write_segment(folder, ids, vectors, terms)
        with storage_errors(self.folder), transaction(self._connection):
            next_passage = change_documents(self._connection, documents, first)
            changes = replace_metadata(self._connection, metadata)
            with readable(self.folder):
                if changes:
                    segments = [live.segment for live in self.segments()]
                    metadata_values.apply_changes(self._connection, segments, changes)
            write_setting(self._connection, "next_passage", next_passage)
            if waits:
                rows.add_pending(self._connection, ids.tolist(), vectors, terms)
                names = {name for document in documents for name in document.metadata}
                metadata_values.register_fields(self._connection, names)
            else:
                self._connection.execute("DELETE FROM pending")
            if manifest is not None:
                name_segment(self._connection, number, len(ids), manifest)
                with readable(self.folder):
                    metadata_values.write_stored_values(self._connection, number, ids)
            bump_generation(self._connection)

    def _repair_values(self) -> None:
        """Read the values of metadata from the documents again if a stored row was altered."""
        with storage_errors(self.folder), readable(self.folder):
            if not metadata_values.are_sound(self._connection):
                with transaction(self._connection):
                    self._connection.execute("DELETE FROM metadata_values")
                    self._rebuild_values()
                    bump_generation(self._connection)

    def _rebuild_values(self) -> None:
        with readable(self.folder):
            segments = [live.segment for live in self.segments()]
            metadata_values.rebuild_values(self._connection, segments)

    def _delete(self, query: str, parameters: Sequence[Any] = ()) -> int:
        with storage_errors(self.folder), transaction(self._connection):
            deleted = rows.delete_selected(self._connection, query, parameters)
            rows.change_languages(self._connection, deleted=deleted.languages)
            bump_generation(self._connection)
        return deleted.documents

    def _remove_orphans(self) -> bool:
        segment_rows = self._connection.execute("SELECT segment FROM segments")
        return remove_unnamed_segments(self.folder, [number for (number,) in segment_rows])


def _erasure_error(folder: Path, reason: str) -> StorageError:
    return StorageError(
        f"{folder}: another program {reason}, so the bytes of deleted documents are still in the "
        "index; close that program and run the same command again"
    )


def _log_build(folder: Path, passages: int, choice: Choice) -> None:
    LOG.info(
        "%s: merging %s passages and building their search structure (%s), which takes up "
        "to %s of memory",
        folder,
        f"{passages:,}",
        choice.name,
        choice.build_size,
    )
