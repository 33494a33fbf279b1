"""One consistent view of an index for readers, whatever a writer does meanwhile."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.scoring import CorpusStatistics
from indexes.errors import DamagedIndexError, StorageError
from indexes.files.atomic import damaged_database, readable, storage_errors
from indexes.files.recent import Recent
from indexes.filters.allowed import Allowed
from indexes.filters.applying import Column, matching
from indexes.filters.grammar import Where
from indexes.segments.live import LiveSegment, contained, live_segments
from indexes.segments.segment import Segment
from indexes.store.connection import DATABASE_FILE, format_version, open_reader, transaction
from indexes.store.documents import document_checksum
from indexes.store.settings import check_settings, read_setting

T = TypeVar("T")

# Filters that are kept, with what was judged by them: up to a few bytes a passage each.
_FILTERS = 8
# Fields whose columns are kept, two bytes a passage id each.
_FIELDS = 8
# Passages remembered whose documents were found to be as they were written.
_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class Passage:
    """A stored passage with its document.

    Attributes:
        passage: the stable passage id.
        id: the document's id as the user gave it.
        start, stop: character offsets of the passage in `text`, the document's whole text.
    """

    passage: int
    id: str
    title: str | None
    text: str
    metadata: dict[str, Any]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document with its passages.

    Attributes:
        id: as the user gave it.
        text: the whole text, of a truncated document too.
        passages: (passage id, start, stop) of each, ascending; the offsets count characters.
    """

    id: str
    title: str | None
    text: str
    metadata: dict[str, Any]
    passages: list[tuple[int, int, int]]


class Snapshot:
    """A view that stays the same for as long as its `Reader.snapshot` block lasts.

    Attributes:
        generation: increases by one with every commit.
        segments: the live segments in ascending order of their numbers.
        statistics: counts over live passages, for BM25.
        living: for each segment the passages that are not deleted; None where none was.
    """

    def __init__(
        self,
        folder: Path,
        connection: sqlite3.Connection,
        generation: int,
        segments: tuple[LiveSegment, ...],
    ) -> None:
        self._folder = folder
        self._connection = connection
        self.generation = generation
        self.segments = segments
        self.statistics = CorpusStatistics.of(segments)
        self.living = [None if one.alive is None else Allowed.of(one.alive) for one in segments]
        self._allowed: Recent[tuple[object, ...], list[Allowed]] = Recent(_FILTERS)
        self._columns: Recent[str, Column] = Recent(_FIELDS)
        self._sealed: set[int] = set()

    def allowed(self, where: Where) -> list[Allowed]:
        """For each segment: the live passages that belong to documents that match.

        Those of the last filters are remembered, with what was judged by them.

        Raises:
            DamagedIndexError: what a filter reads is not as it was written.
        """
        # 1, 1.0 and True are equal, but not to a filter.
        key = (where.sql, where.parameters, *map(type, where.parameters))
        return self._allowed.get(
            key,
            lambda: matching(self._connection, self._folder, self.segments, where, self._columns),
        )

    def documents_of(self, passages: Sequence[int]) -> dict[int, tuple[int, str]]:
        """For each passage id: its document's number and the user's id of that document.

        Raises:
            DamagedIndexError: no document has one of these passages.
        """
        rows = self._connection.execute(
            "SELECT p.passage, p.doc, d.id FROM passages AS p JOIN documents AS d ON d.doc = p.doc "
            "WHERE p.passage IN (SELECT value FROM json_each(?))",
            (json.dumps(list(passages)),),
        )
        return _complete(self._folder, passages, {row[0]: (row[1], row[2]) for row in rows})

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        """The stored passages with these ids.

        Raises:
            DamagedIndexError: no document has one of these passages, or the document is not as it
                was written.
        """
        rows = self._connection.execute(
            "SELECT p.passage, p.start, p.stop, d.doc, d.id, d.title, d.text, d.metadata, d.hash, "
            "d.checksum FROM passages AS p JOIN documents AS d ON d.doc = p.doc "
            "WHERE p.passage IN (SELECT value FROM json_each(?))",
            (json.dumps(list(passages)),),
        )
        found = {}
        with readable(self._folder):
            for passage, start, stop, *document in rows:
                _, id_, title, text, metadata, *_ = document
                if passage not in self._sealed:
                    if (passage, start, stop) not in self._sealed_passages(*document):
                        raise ValueError(f"passage {passage} belongs to another document")
                    if len(self._sealed) >= _REMEMBERED:
                        self._sealed.clear()
                    self._sealed.add(passage)
                found[passage] = Passage(
                    passage, id_, title, text, json.loads(metadata), start, stop
                )
        return _complete(self._folder, passages, found)

    def vectors(self, passages: Sequence[int]) -> NDArray[np.float32]:
        """(passages, d) float32: their stored vectors, in the order asked for.

        Raises:
            DamagedIndexError: no segment has one of these passages, or one of its files is not as
                it was written.
        """
        wanted = np.array(passages, np.int64)
        found = np.zeros(len(wanted), np.bool_)
        vectors: NDArray[np.float32] | None = None
        for live in self.segments:
            if vectors is None:
                width = live.segment.vectors.shape[1]
                vectors = np.zeros((len(wanted), width), np.float32)
            ids = live.segment.all_ids()
            here = contained(wanted, ids)
            vectors[here] = live.segment.vectors_at(np.searchsorted(ids, wanted[here]))
            found |= here
        if vectors is None or not found.all():
            lost = int(wanted[~found][0]) if len(wanted) else 0
            raise damaged_database(self._folder, f"passage {lost} has no vector")
        return vectors

    def documents(self) -> Iterator[StoredDocument]:
        """Every document, as a stream in ascending order of ids (by code point).

        Raises:
            DamagedIndexError: a document is not as it was written.
        """
        with storage_errors(self._folder):
            rows = self._connection.execute(
                "SELECT doc, id, title, text, metadata, hash, checksum FROM documents ORDER BY id"
            )
            for document in rows:
                with readable(self._folder):
                    passages = self._sealed_passages(*document)
                    _, id_, title, text, metadata, *_ = document
                    stored = StoredDocument(id_, title, text, json.loads(metadata), passages)
                yield stored

    def _sealed_passages(
        self,
        doc: int,
        id_: str,
        title: str | None,
        text: str,
        metadata: str,
        content_hash: bytes,
        checksum: bytes,
    ) -> list[tuple[int, int, int]]:
        """(passage id, start, stop) of each passage of a document's row, ascending.

        Raises:
            ValueError, TypeError, AttributeError: the document's checksum is another.
        """
        passages = self._connection.execute(
            "SELECT passage, start, stop FROM passages WHERE doc = ? ORDER BY passage", (doc,)
        ).fetchall()
        if document_checksum(id_, title, text, metadata, content_hash, passages) != checksum:
            raise ValueError(f"the document {id_!r} was altered")
        return passages

    @property
    def format_version(self) -> int:
        """The format of the index."""
        return format_version(self._connection)

    def count_documents(self) -> int:
        """How many documents the snapshot holds."""
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The stored hash of title and text of those of `ids` that the snapshot holds."""
        rows = self._connection.execute(
            "SELECT id, hash FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return dict(rows)

    def count_tombstones(self) -> int:
        """How many deleted passages the segments still hold."""
        return int(self._connection.execute("SELECT count(*) FROM tombstones").fetchone()[0])

    def check_settings(self) -> None:
        """Check that the settings are as they were written.

        Raises:
            DamagedIndexError: one was altered.
        """
        check_settings(self._connection, self._folder)

    def setting(self, key: str, default: Any = None) -> Any:
        """The JSON value of a setting; KeyError if there is none and no default."""
        return read_setting(self._connection, key, default)


class Reader:
    """Reads one index folder; sees every commit made before each `snapshot` block.

    Attributes:
        openings: how often an index was opened; grows when the folder was replaced by another.

    Raises:
        NotAnIndexError, FormatVersionError, DamagedIndexError
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._connection, self._opened = _connect(folder)
        self.openings = 1
        self._segments: dict[tuple[int, str], Segment] = {}
        self._snapshot: Snapshot | None = None

    def close(self) -> None:
        """Release the database and the mapped files."""
        self._connection.close()
        self._segments.clear()
        self._snapshot = None

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """One consistent view of the latest commit, valid inside the `with` block.

        Raises:
            DamagedIndexError: a file of the index is missing or altered.
        """
        with storage_errors(self.folder):
            self._follow_replacement()
            with ExitStack() as stack:
                yield self._pin(stack)

    def _pin(self, stack: ExitStack) -> Snapshot:
        """Begin a read transaction that ends with `stack`, and return what it sees."""
        while True:
            with ExitStack() as attempt:
                attempt.enter_context(transaction(self._connection, "DEFERRED"))
                try:
                    with readable(self.folder):
                        snapshot = self._current()
                except DamagedIndexError:
                    seen = self._generation()
                    attempt.close()
                    # A writer may have replaced the whole folder, or merged segments and removed
                    # them, while their files were opened.
                    if not self._replaced() and self._generation() == seen:
                        raise
                else:
                    stack.enter_context(attempt.pop_all())
                    return snapshot
            self._follow_replacement()

    def _current(self) -> Snapshot:
        generation = self._generation()
        if self._snapshot is None or self._snapshot.generation != generation:
            live = live_segments(self.folder, self._connection, self._segments)
            self._segments = {
                (one.segment.number, one.segment.manifest): one.segment for one in live
            }
            self._snapshot = Snapshot(self.folder, self._connection, generation, live)
        return self._snapshot

    def _generation(self) -> int:
        with readable(self.folder):
            return int(read_setting(self._connection, "generation"))

    def _replaced(self) -> bool:
        return self._opened != identity(self.folder)

    def _follow_replacement(self) -> None:
        if self._replaced():
            # Where nothing can be opened now, the old connection stays for the next attempt.
            connection, opened = _connect(self.folder)
            self.close()
            self._connection, self._opened = connection, opened
            self.openings += 1


def _connect(folder: Path) -> tuple[sqlite3.Connection, tuple[int, int] | None]:
    """A connection, and which file it is to."""
    while True:
        before = identity(folder)
        try:
            connection = open_reader(folder)
        except (DamagedIndexError, StorageError):
            # SQLite calls it an error of the disk where its log goes while it opens the file.
            if before == identity(folder):
                raise
            continue
        if before == identity(folder):
            return connection, before
        connection.close()


def _complete(folder: Path, wanted: Sequence[int], found: dict[int, T]) -> dict[int, T]:
    for passage in wanted:
        if passage not in found:
            raise damaged_database(folder, f"passage {passage} belongs to no document")
    return found


def identity(folder: Path) -> tuple[int, int] | None:
    """Which file is `index.sqlite` now; changes when the folder is replaced."""
    try:
        status = os.stat(folder / DATABASE_FILE)
    except OSError:
        return None
    return status.st_dev, status.st_ino
