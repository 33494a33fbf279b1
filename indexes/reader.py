"""One consistent view of an index for readers, whatever a writer does meanwhile."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from indexes.bm25.scoring import CorpusStatistics
from indexes.errors import ClosedIndexError, DamagedIndexError, StorageError
from indexes.files.faults import damaged_database, readable, storage_errors
from indexes.filters.allowed import Allowed
from indexes.filters.applying import allowed_passages, unknown_fields
from indexes.filters.grammar import Where
from indexes.filters.ranks import RanksCache
from indexes.segments.live import LiveSegment, live_segments
from indexes.segments.segment import Segment, contained
from indexes.store.connection import DATABASE_FILE, format_version, open_reader, transaction
from indexes.store.documents import document_checksum
from indexes.store.replacement import recover_for_reading
from indexes.store.settings import check_settings, read_setting

T = TypeVar("T")

# Filters whose passages are kept in memory, a few bits a passage each.
_FILTERS = 8
# Passages remembered whose documents were found unaltered.
_REMEMBERED = 65_536

# Which file `index.sqlite` is: device and inode.
Identity = tuple[int, int]


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


@dataclass
class _Commit:
    """What all views of one commit share; threads may read it side by side.

    Attributes:
        identity: of the database that it was read from.
        generation: increases by one with every commit.
        segments: the live segments in ascending order of their passages' ids.
        allowed: by filter, the passages that it allows.
        ranks: the values of passages, for filters that many values meet.
        verified: ids of passages whose documents were found unaltered.
    """

    identity: Identity | None
    generation: int
    segments: tuple[LiveSegment, ...]
    allowed: LRUCache[tuple[object, ...], list[Allowed]] = field(
        default_factory=lambda: LRUCache(_FILTERS)
    )
    ranks: RanksCache = field(default_factory=RanksCache)
    verified: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def statistics(self) -> CorpusStatistics:
        """Counts over live passages, for BM25."""
        return CorpusStatistics.of(self.segments)

    @cached_property
    def live(self) -> list[Allowed | None]:
        """For each segment the passages that are not deleted; None if none was."""
        from pyroaring import BitMap

        return [
            Allowed(BitMap(range(len(one.segment.ids))) - one.deleted, len(one.segment.ids))
            if one.deleted
            else None
            for one in self.segments
        ]


class View:
    """What a reader sees; stays the same for as long as its `Reader.view` block lasts.

    It serves the thread that opened it.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, commit: _Commit) -> None:
        self._folder = folder
        self._connection = connection
        self._commit = commit

    @property
    def identity(self) -> Identity | None:
        """Which index this is; changes when the folder is replaced by another index."""
        return self._commit.identity

    @property
    def generation(self) -> int:
        """Increases by one with every commit."""
        return self._commit.generation

    @property
    def segments(self) -> tuple[LiveSegment, ...]:
        """The live segments in ascending order of their passages' ids."""
        return self._commit.segments

    @property
    def statistics(self) -> CorpusStatistics:
        """Counts over live passages, for BM25."""
        return self._commit.statistics

    @property
    def live(self) -> list[Allowed | None]:
        """For each segment the passages that are not deleted; None if none was."""
        return self._commit.live

    def allowed(self, where: Where) -> list[Allowed]:
        """For each segment: the live passages that belong to documents that match.

        Those of the last filters are remembered.

        Raises:
            DamagedIndexError: what a filter reads was altered.
        """
        # 1, 1.0 and True are equal, but not to a filter.
        key = (where.sql, where.parameters, *map(type, where.parameters))
        with self._commit.lock:
            found = self._commit.allowed.get(key)
        if found is None:
            found = allowed_passages(
                self._connection, self._folder, self.segments, where, self._commit.ranks
            )
            with self._commit.lock:
                self._commit.allowed[key] = found
        return found

    def unknown_fields(self, where: Where) -> dict[str, list[str]]:
        """The fields of a filter that no document has had; see `indexes.filters.applying`."""
        return unknown_fields(self._connection, where)

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
        verified = self._commit.verified
        with readable(self._folder):
            for passage, start, stop, *document in rows:
                _, id_, title, text, metadata, *_ = document
                if passage not in verified:
                    if (passage, start, stop) not in self._passages_of(*document):
                        raise ValueError(f"passage {passage} belongs to another document")
                    if len(verified) >= _REMEMBERED:
                        verified.clear()
                    verified.add(passage)
                found[passage] = Passage(
                    passage, id_, title, text, json.loads(metadata), start, stop
                )
        return _complete(self._folder, passages, found)

    def vectors(self, passages: Sequence[int]) -> NDArray[np.float32]:
        """(passages, d) float32: their stored vectors, in the given order.

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

    def document(self, id_: str) -> StoredDocument | None:
        """One document, or None if the index has none with that id.

        Raises:
            DamagedIndexError: the document was altered.
        """
        return next(self._documents("WHERE id = ?", id_), None)

    def documents(self) -> Iterator[StoredDocument]:
        """Every document, as a stream in ascending order of ids (by code point).

        Raises:
            DamagedIndexError: a document was altered.
        """
        return self._documents("ORDER BY id")

    def _documents(self, which: str, *parameters: str) -> Iterator[StoredDocument]:
        with storage_errors(self._folder):
            rows = self._connection.execute(
                "SELECT doc, id, title, text, metadata, hash, checksum "  # noqa: S608
                f"FROM documents {which}",
                parameters,
            )
            for document in rows:
                with readable(self._folder):
                    passages = self._passages_of(*document)
                    _, id_, title, text, metadata, *_ = document
                    stored = StoredDocument(id_, title, text, json.loads(metadata), passages)
                yield stored

    def _passages_of(
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
        """How many documents the index holds."""
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The stored hash of title and text of those of `ids` that the index holds."""
        rows = self._connection.execute(
            "SELECT id, hash FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return dict(rows)

    def count_tombstones(self) -> int:
        """How many deleted passages the segments still hold."""
        return int(self._connection.execute("SELECT count(*) FROM tombstones").fetchone()[0])

    def has_document(self, id_: str) -> bool:
        """Whether the index holds a document with that id."""
        found = self._connection.execute("SELECT 1 FROM documents WHERE id = ?", (id_,))
        return found.fetchone() is not None

    def check_settings(self) -> None:
        """Check that the settings are unaltered.

        Raises:
            DamagedIndexError: one was altered.
        """
        check_settings(self._connection, self._folder)

    def setting(self, key: str, default: Any = None) -> Any:
        """The JSON value of a setting; KeyError if there is none and no default."""
        return read_setting(self._connection, key, default)


@dataclass(slots=True)
class _Session:
    """A connection, and which file it is to."""

    connection: sqlite3.Connection
    identity: Identity | None


_READERS: WeakSet[Reader] = WeakSet()


class Reader:
    """Reads one index folder; sees every commit made before each `view` block.

    Threads may share it: each view has a connection of its own, taken from a pool. A child that
    is forked opens its own connections, provided that no view was open at the fork.

    Raises:
        NotAnIndexError, FormatVersionError, DamagedIndexError
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._closed = False
        # Whether a view was open when this process was forked.
        self._torn = False
        self._views = 0
        self._idle: list[_Session] = []
        self._commit: _Commit | None = None
        recover_for_reading(folder)
        self._idle.append(_connect(folder))
        _READERS.add(self)

    def close(self) -> None:
        """Release the database and the mapped files."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            self._commit = None
        for session in idle:
            session.connection.close()

    def before_fork(self) -> None:
        """Close what is idle, and keep others from opening more until `after_fork`.

        SQLite in the child would take the parent's open connections for its own, and lock nothing.
        """
        self._lock.acquire()
        for session in self._idle:
            session.connection.close()
        self._idle = []

    def after_fork(self, *, in_child: bool) -> None:
        """Open connections again when they are needed."""
        if in_child:
            self._torn = self._torn or self._views > 0
        self._lock.release()

    @contextmanager
    def view(self) -> Iterator[View]:
        """One consistent view of the latest commit, valid inside the `with` block.

        Raises:
            ClosedIndexError: the reader is closed.
            DamagedIndexError: a file of the index is missing or altered.
            StorageError: the process was forked while a view was open.
        """
        with storage_errors(self.folder):
            session = self._borrow()
            try:
                with ExitStack() as stack:
                    yield self._pin(session, stack)
            finally:
                self._give_back(session)

    def _borrow(self) -> _Session:
        with self._lock:
            if self._closed:
                raise ClosedIndexError(
                    f"{self.folder}: the index object is closed; open another with Index.open"
                )
            if self._torn:
                raise StorageError(
                    f"{self.folder}: this process was forked while a search was running, so that "
                    "SQLite cannot lock the index; fork when none is running, or start a new "
                    "process instead of forking"
                )
            session = self._idle.pop() if self._idle else None
            self._views += 1
        try:
            return _connect(self.folder) if session is None else self._followed(session)
        except BaseException:
            self._give_back(session)
            raise

    def _give_back(self, session: _Session | None) -> None:
        with self._lock:
            self._views -= 1
            if session is None:
                return
            if not self._closed:
                self._idle.append(session)
                return
        session.connection.close()

    def _followed(self, session: _Session) -> _Session:
        """The session, to the folder that has the name now."""
        if session.identity != identity(self.folder):
            # Where nothing can be opened now, the old connection stays for the next attempt.
            fresh = _connect(self.folder)
            session.connection.close()
            session.connection, session.identity = fresh.connection, fresh.identity
        return session

    def _pin(self, session: _Session, stack: ExitStack) -> View:
        """Begin a read transaction that ends with `stack`, and return what it sees."""
        while True:
            with ExitStack() as attempt:
                attempt.enter_context(transaction(session.connection, "DEFERRED"))
                try:
                    with readable(self.folder):
                        commit = self._current(session)
                except DamagedIndexError:
                    seen = self._generation(session)
                    attempt.close()
                    # A writer may have replaced the whole folder, or merged segments and removed
                    # them, while their files were opened.
                    same = session.identity == identity(self.folder)
                    if same and self._generation(session) == seen:
                        raise
                else:
                    stack.enter_context(attempt.pop_all())
                    return View(self.folder, session.connection, commit)
            self._followed(session)

    def _current(self, session: _Session) -> _Commit:
        generation = self._generation(session)
        known = self._commit
        if known is not None and (known.identity, known.generation) == (
            session.identity,
            generation,
        ):
            return known
        opened: dict[tuple[int, str], Segment] = {}
        if known is not None and known.identity == session.identity:
            opened = {
                (one.segment.number, one.segment.manifest): one.segment for one in known.segments
            }
        commit = _Commit(
            session.identity,
            generation,
            live_segments(self.folder, session.connection, opened),
        )
        with self._lock:
            latest = self._commit
            if (
                latest is None
                or latest.identity != commit.identity
                or (latest.generation < generation)
            ):
                self._commit = commit
        return commit

    def _generation(self, session: _Session) -> int:
        with readable(self.folder):
            return int(read_setting(session.connection, "generation"))


class _Forking:
    """What happens to the readers of a process when it forks."""

    def __init__(self) -> None:
        self._readers: list[Reader] = []

    def before(self) -> None:
        self._readers = list(_READERS)
        for reader in self._readers:
            reader.before_fork()

    def after(self, *, in_child: bool) -> None:
        for reader in self._readers:
            reader.after_fork(in_child=in_child)
        self._readers = []


_FORKING = _Forking()
# Not on Windows.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_FORKING.before,
        after_in_parent=partial(_FORKING.after, in_child=False),
        after_in_child=partial(_FORKING.after, in_child=True),
    )


def _connect(folder: Path) -> _Session:
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
            return _Session(connection, before)
        connection.close()


def _complete(folder: Path, wanted: Sequence[int], found: dict[int, T]) -> dict[int, T]:
    for passage in wanted:
        if passage not in found:
            raise damaged_database(folder, f"passage {passage} belongs to no document")
    return found


def identity(folder: Path) -> Identity | None:
    """Which file is `index.sqlite` now; changes when the folder is replaced."""
    try:
        status = os.stat(folder / DATABASE_FILE)
    except OSError:
        return None
    return status.st_dev, status.st_ino
