"""Readers of an index folder: each view is one commit, whatever a writer does meanwhile."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings
from indexes.bm25.scoring import BM25
from indexes.errors import ClosedIndexError, IndexLockedError, StorageError
from indexes.files import damaged_database, readable, set_read_ahead, storage_errors, unique
from indexes.folder.connection import (
    Identity,
    Session,
    check_settings,
    format_version,
    read_settings,
)
from indexes.folder.documents import checked_passages, document_columns, stored_languages
from indexes.folder.lock import recover_replacement, remains
from indexes.folder.segment import PENDING, LiveSegment, contained, live_segments
from indexes.metadata import FieldType, document_checksum
from indexes.platforms import register_at_fork
from indexes.protocol import (
    CONTENT_BYTES,
    Candidates,
    Facets,
    FieldSummary,
    Mode,
    Passage,
    Query,
    StoredDocument,
    Term,
)
from indexes.vectors.flat import exact_scores, rank_nearest, rounded
from indexes.vectors.library import FLAT

if TYPE_CHECKING:
    from cachetools import LRUCache

    from indexes.filters.grammar import Where
    from indexes.folder.facets import Owners
    from indexes.folder.value_ranks import RanksCache
    from indexes.passage_mask import PassageMask


# Held while this process forks. Reentrant: a thread that is interrupted as it leaves a block may
# hold it, and must still be able to close its reader.
_LOCK = threading.RLock()
_READERS: WeakSet[FolderReader] = WeakSet()


class FolderReader:
    """A `Reader` that threads may share, and a child that is forked while no view is open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.exists():
            # Fails if another process is replacing the folder, or it must not be written.
            with suppress(IndexLockedError, OSError):
                recover_replacement(folder)
        self._commit = Commit()
        self._closed = False
        self._open_views = 0
        self._forked_during_view = False
        # Sessions that no view uses.
        self._idle_sessions = [Session(folder)]
        with _LOCK:
            _READERS.add(self)

    def close(self) -> None:
        """Close idle sessions now, the other sessions when their views end."""
        with _LOCK:
            self._closed = True
            self._close_idle()
        self._commit = Commit()

    @contextmanager
    def view(self) -> Iterator[FolderView]:
        with _LOCK:
            if self._closed:
                raise ClosedIndexError(
                    f"{self.folder}: the index object is closed; open another with Index.open"
                )
            if self._forked_during_view:
                raise StorageError(
                    f"{self.folder}: this process was forked during a search, so SQLite cannot "
                    "lock the index; fork before the first search, or start a new process"
                )
            session = self._idle_sessions.pop() if self._idle_sessions else None
            self._open_views += 1
        try:
            if session is None:
                session = Session(self.folder)
            elif not session.locked:
                session.follow()
            with session.commit(self._current_commit) as commit:
                yield FolderView(self.folder, session.connection, commit)
        finally:
            self._return_session(session)

    def _return_session(self, session: Session | None) -> None:
        with _LOCK:
            self._open_views -= 1
            if session is not None:
                self._idle_sessions.append(session)
            if self._closed:
                self._close_idle()

    def _close_idle(self) -> None:
        for session in self._idle_sessions:
            session.connection.close()
        self._idle_sessions = []

    @staticmethod
    def before_fork() -> None:
        """Close idle sessions, and let no thread open others until `after_fork`."""
        # SQLite in the child would take the parent's connections for its own, and lock nothing.
        _LOCK.acquire()
        for reader in _READERS:
            reader._close_idle()

    @staticmethod
    def after_fork(*, in_child: bool) -> None:
        """Allow sessions again; refuse the child of a process that had an open view."""
        for reader in _READERS if in_child else ():
            reader._forked_during_view = reader._forked_during_view or reader._open_views > 0
        _LOCK.release()

    def _current_commit(self, session: Session) -> Commit:
        commit_seal = session.state
        latest = self._commit
        if latest.identity != session.identity:
            latest = Commit(session.identity)
        if latest.state == commit_seal:
            return latest
        opened = {
            (live.segment.number, live.segment.manifest): live.segment for live in latest.segments
        }
        # Copied at once, since other threads add to it. Passages in files keep their documents.
        owners = {key: rows for key, rows in latest.owners.copy().items() if key in opened}
        owners.pop((PENDING, ""), None)
        commit = Commit(
            session.identity,
            commit_seal,
            read_settings(session.connection),
            document_columns(session.connection),
            live_segments(self.folder, session.connection, opened),
            owners,
        )
        for live in commit.segments:
            # Through a structure, a search reads the vectors of its candidates.
            if live.segment.structure.name != FLAT:
                set_read_ahead(live.segment.vectors, False)
        # Not locked: if threads race, a later one opens the segments again.
        last = self._commit
        if last.identity != commit.identity or last.generation <= commit.generation:
            self._commit = commit
        return commit


register_at_fork(
    FolderReader.before_fork,
    partial(FolderReader.after_fork, in_child=False),
    partial(FolderReader.after_fork, in_child=True),
)

# Filters whose passages are kept in memory, a few bits a passage each.
_FILTERS = 8
# Passages whose documents were compared with their checksums; see docs/design/remembered.md.
_VERIFIED = 65_536


@dataclass
class Commit:
    """State that all views of one commit share; threads may read it at the same time.

    Attributes:
        state: see `Session`.
        settings: key to JSON text.
        columns: columns of `documents`; earlier formats have fewer.
        owners: first passage of each passage's document, by segment, where it was needed.
        verified: ids of passages whose documents were found unaltered.
    """

    identity: Identity = ()
    state: str = ""
    settings: dict[str, str] = field(default_factory=lambda: {"generation": "-1"})
    columns: str = ""
    segments: tuple[LiveSegment, ...] = ()
    owners: Owners = field(default_factory=dict)
    verified: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.generation = int(self.settings["generation"])
        # BM25 with the default settings; its statistics serve other settings too.
        self.bm25 = BM25(self.segments)
        # Number of passages before each segment, and in all.
        self.firsts = np.cumsum([0, *(len(live.segment.ids) for live in self.segments)])
        # Live passages of each segment; None if no passage is deleted.
        self.live: list[PassageMask | None] = [None] * len(self.segments)
        if any(segment.live is not None for segment in self.segments):
            from indexes.passage_mask import PassageMask

            self.live = [
                None if segment.live is None else PassageMask(segment.live)
                for segment in self.segments
            ]

    @cached_property
    def allowed(self) -> LRUCache[str, list[PassageMask]]:
        """Text of a filter to the passages that it allows, by segment."""
        from cachetools import LRUCache

        return LRUCache(_FILTERS)

    @cached_property
    def ranks(self) -> RanksCache:
        """Values of passages, for filters that many values meet."""
        from indexes.folder.value_ranks import RanksCache

        return RanksCache()


class FolderView:
    """A `View`, valid in its thread while the block of `FolderReader.view` lasts."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, commit: Commit) -> None:
        self._folder = folder
        self._connection = connection
        self.commit = commit
        self.identity = commit.identity
        self.generation = commit.generation
        self.segments = commit.segments
        self.passage_count = commit.bm25.statistics.passages
        self.document_frequencies = commit.bm25.document_frequencies

    def ranking(
        self,
        bm25: BM25Settings | None = None,
        where: Where | None = None,
        recall: float | None = None,
    ) -> FolderRanking:
        scored = self.commit.bm25
        if bm25 is not None and bm25 != scored.settings:
            scored = BM25(self.segments, bm25, scored.statistics)
        allowed = None if where is None else self.allowed(where)
        return FolderRanking(self.commit, scored, allowed, recall)

    def allowed(self, where: Where) -> list[PassageMask]:
        """Return the live passages of matching documents, by segment; some filters are cached."""
        with self.commit.lock:
            masks = self.commit.allowed.get(where.text)
        if masks is None:
            from indexes.folder.filtering import allowed_passages

            masks = allowed_passages(
                self._connection, self._folder, self.segments, where, self.commit.ranks
            )
            with self.commit.lock:
                self.commit.allowed[where.text] = masks
        return masks

    def terms_beginning(self, prefix: str, limit: int) -> list[str]:
        return self.commit.bm25.terms_beginning(prefix, limit)

    def unknown_fields(self, names: Iterable[str]) -> dict[str, list[str]]:
        from indexes.folder.filtering import unknown_fields

        return unknown_fields(self._connection, names)

    def has_type(self, name: str, types: Collection[FieldType]) -> bool:
        from indexes.folder.facets import has_type

        return has_type(self._connection, self._folder, self.segments, name, types)

    def facets(
        self, names: Sequence[str], where: Where | None, terms: Sequence[Term] | None, limit: int
    ) -> Facets:
        from indexes.filters.facets import counted_facet
        from indexes.folder.facets import counted_documents, values_in

        commit = self.commit
        matching = None
        fields = {}
        if terms is not None:
            matching = commit.bm25.query(terms).matching()
        queried = matching is not None
        allowed = commit.live if where is None else self.allowed(where)
        with readable(self._folder):
            counts_by_segment = counted_documents(
                self._connection, self.segments, allowed, matching, commit.owners
            )
            for name in names:
                values = (
                    value
                    for counts in counts_by_segment
                    for value in values_in(self._connection, counts, name, commit.ranks)
                )
                fields[name] = counted_facet(name, values, limit, queried=queried)
        matches = sum(len(counts.matches) for counts in counts_by_segment) if queried else None
        return Facets(sum(len(counts.documents) for counts in counts_by_segment), matches, fields)

    def fields(self) -> list[FieldSummary]:
        from indexes.folder.facets import field_summaries

        return field_summaries(self._connection, self._folder, self.segments)

    def documents_of(self, passages: Sequence[int]) -> dict[int, str]:
        return dict(self._passage_rows("passage, id", passages))

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        rows = self._passage_rows(f"passage, start, stop, {self.commit.columns}", passages)
        verified = self.commit.verified
        with readable(self._folder):
            for row in rows:
                if row[0] not in verified:
                    self._verify(*row)
            # Parsed together, which takes a third of the time.
            metadata = json.loads(f"[{','.join([row[7] for row in rows])}]")
            return {
                passage: Passage(passage, id_, title, text, values, start, stop, outline)
                for (passage, start, stop, _, id_, title, text, _, _, outline, _), values in zip(
                    rows, metadata, strict=True
                )
            }

    def _verify(self, passage: int, start: int, stop: int, *document: Any) -> None:
        """Compare the document of a passage with its checksum; raise ValueError if it differs."""
        verified = self.commit.verified
        spans = [(passage, start, stop)]
        # Most documents have one passage.
        is_whole = stop - start == len(document[3])
        if not is_whole or document[7] != document_checksum(spans, *document[1:7]):
            spans = checked_passages(self._connection, document)
        if (passage, start, stop) not in spans:
            raise ValueError(f"passage {passage} belongs to another document")
        if len(verified) >= _VERIFIED:
            verified.clear()
        verified.update([number for number, _, _ in spans])

    def _passage_rows(self, columns: str, passages: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return columns of each passage and its document, the passage id first."""
        rows = self._connection.execute(
            f"SELECT {columns} FROM (SELECT value FROM json_each(?)) "  # noqa: S608
            "CROSS JOIN passages ON passage = value CROSS JOIN documents USING (doc)",
            (json.dumps(list(passages)),),
        ).fetchall()
        if len(rows) < len(passages):
            missing = min(set(passages).difference(row[0] for row in rows))
            raise damaged_database(self._folder, f"passage {missing} belongs to no document")
        return rows

    def vectors(self, passages: Sequence[int]) -> NDArray[np.float32]:
        ids = np.array(passages, np.int64)
        has_vector = np.zeros(len(ids), np.bool_)
        width = self.segments[0].segment.vectors.shape[1] if self.segments else 0
        vectors = np.zeros((len(ids), width), np.float32)
        for live in self.segments:
            segment_ids = live.segment.all_ids()
            in_segment = contained(ids, segment_ids)
            vectors[in_segment] = live.segment.vectors_at(
                np.searchsorted(segment_ids, ids[in_segment])
            )
            has_vector |= in_segment
        if not has_vector.all():
            raise damaged_database(self._folder, f"passage {ids[~has_vector][0]} has no vector")
        return vectors

    def document(self, id_: str) -> StoredDocument | None:
        return next(self._documents("WHERE id = ?", id_), None)

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        if where is None:
            return self._documents("ORDER BY id")
        parts = zip(self.segments, self.allowed(where), strict=True)
        passages = [live.segment.ids[mask.positions].tolist() for live, mask in parts]
        return self._documents(
            "WHERE doc IN (SELECT p.doc FROM json_each(?) AS w CROSS JOIN passages AS p "
            "ON p.passage = w.value) ORDER BY id",
            json.dumps([*chain(*passages)]),
        )

    def _documents(self, which: str, *parameters: str) -> Iterator[StoredDocument]:
        with storage_errors(self._folder):
            rows = self._connection.execute(
                f"SELECT {self.commit.columns} FROM documents {which}",  # noqa: S608
                parameters,
            )
            for document in rows:
                with readable(self._folder):
                    passages = checked_passages(self._connection, document)
                    _, id_, title, text, metadata, _, outline, _ = document
                    stored = StoredDocument(
                        id_, title, text, json.loads(metadata), passages, outline
                    )
                yield stored

    def count_documents(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def count_copies(self) -> int:
        distinct = "SELECT count(*) FROM (SELECT 1 FROM documents GROUP BY substr(hash, 1, ?))"
        row = self._connection.execute(distinct, (CONTENT_BYTES,)).fetchone()
        return self.count_documents() - int(row[0])

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        rows = self._connection.execute(
            "SELECT id, hash FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return dict(rows)

    def describe(self) -> dict[str, Any]:
        (deleted,) = self._connection.execute("SELECT count(*) FROM tombstones").fetchone()
        return {
            "folder": str(self._folder.absolute()),
            "format_version": format_version(self._connection),
            "generation": self.generation,
            "deleted_passages": deleted,
            "uncounted_passages": stored_languages(self._connection).uncounted,
            "waiting_passages": sum(
                len(live.postings) for live in self.segments if live.is_pending
            ),
            "segments": [
                {
                    "segment": live.segment.number,
                    "passages": len(live.segment.ids),
                    **live.segment.structure.to_json(),
                    "bytes": size_on_disk(live.segment.folder),
                }
                for live in self.segments
                if not live.is_pending
            ],
            "mean_passage_terms": round(self.commit.bm25.statistics.mean_length, 3),
            "bytes": size_on_disk(self._folder),
            "remains": {str(path): remedy for path, remedy in remains(self._folder).items()},
        }

    def check_settings(self) -> None:
        check_settings(self.commit.settings, self._folder)

    def setting(self, key: str, default: Any = None) -> Any:
        settings = self.commit.settings
        return default if default is not None and key not in settings else json.loads(settings[key])


def size_on_disk(folder: Path) -> int:
    """Sum the bytes of all files below `folder`."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # A temporary file, or a replaced folder, may have been removed meanwhile.
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


@dataclass(eq=False)
class FolderRanking:
    """A `Ranking` of the live passages of one commit, or of those that a filter allows."""

    commit: Commit
    bm25: BM25
    allowed: list[PassageMask] | None
    recall: float | None

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        if not self.commit.segments:
            return [NO_CANDIDATES] * len(queries)
        if mode == "bm25":
            return [self._bm25_candidates(query, depth) for query in queries]
        return [
            self._score_candidates(query, nearest, mode, depth)
            for query, nearest in zip(queries, self._nearest_positions(queries, depth), strict=True)
        ]

    def _nearest_positions(
        self, queries: Sequence[Query], depth: int
    ) -> list[list[NDArray[np.int64]]]:
        """Return, for each query and segment, the positions of the `depth` nearest passages."""
        vectors = np.stack([query.vector for query in queries if query.vector is not None])
        # A filter never allows a deleted passage.
        masks = self.commit.live if self.allowed is None else self.allowed
        nearest_by_segment = []
        for live, allowed in zip(self.commit.segments, masks, strict=True):
            segment_vectors = live.segment.vectors
            guard = live.segment.vectors_guard
            structure = live.segment.structure
            nearest_by_segment.append(
                structure.search(segment_vectors, vectors, depth, allowed, self.recall, guard)
            )
        # Places count passages over all segments, and ascend with passage ids.
        firsts = self.commit.firsts
        nearest = []
        for parts in zip(*nearest_by_segment, strict=True):
            placed = [first + part[0] for first, part in zip(firsts[:-1], parts, strict=True)]
            places = np.concatenate(placed)
            scores = np.concatenate([part[1] for part in parts])
            order = np.argsort(places)
            best = np.sort(rank_nearest(places[order], scores[order], depth)[0])
            ends = np.searchsorted(best, firsts)
            spans = zip(ends, ends[1:], firsts, strict=False)
            nearest.append([best[start:stop] - first for start, stop, first in spans])
        return nearest

    def _score_candidates(
        self, query: Query, nearest: Sequence[NDArray[np.int64]], mode: Mode, depth: int
    ) -> Candidates:
        """Score the nearest passages and, in the mode ``hybrid``, the best of BM25."""
        terms = self.bm25.query(query.terms if mode == "hybrid" else ())
        matches = terms.search(depth, self.allowed)
        vector = np.asarray(query.vector)
        columns: list[tuple[NDArray[Any], ...]] = []
        for index, live in enumerate(self.commit.segments):
            matched = matches.positions[matches.segments == index]
            positions = unique(np.concatenate([nearest[index], matched]))
            live.segment.vectors_guard.check_rows(positions)
            dense = exact_scores(live.segment.vectors, positions, vector)
            columns.append((live.segment.ids_at(positions), dense, *terms.at(index, positions)))
        ids, dense, bm25, match = (np.concatenate(column) for column in zip(*columns, strict=True))
        complete = sum(map(len, nearest)) < depth
        return Candidates(ids, rounded(dense), bm25, match, complete)

    def _bm25_candidates(self, query: Query, depth: int) -> Candidates:
        matches = self.bm25.query(query.terms).search(depth, self.allowed)
        ids = np.concatenate(
            [
                live.segment.ids_at(matches.positions[matches.segments == index])
                for index, live in enumerate(self.commit.segments)
            ]
        )
        all_match = np.ones(len(ids), np.bool_)
        no_scores = np.zeros(len(ids))
        return Candidates(ids, no_scores, matches.scores, all_match, len(ids) < depth)


NO_CANDIDATES = Candidates(
    np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, np.bool_), complete=True
)
