"""The segments that a commit names, and which of their passages are live."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.scoring import SearchableSegment
from indexes.segments.segment import PENDING, Segment, memory_segment, open_segment

if TYPE_CHECKING:
    from pyroaring import BitMap

# How SQLite names a segment: its number and the SHA-256 of its manifest.
Named = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSegment(SearchableSegment):
    """A segment as one commit sees it: its files, and which of its passages are not deleted.

    Attributes:
        segment: the files.
        deleted: the positions of deleted passages; an empty tuple if there are none, since
            importing the library of bitmaps takes half of what opening an index does.
    """

    segment: Segment
    deleted: BitMap | tuple[()]

    @property
    def is_pending(self) -> bool:
        """Whether its passages wait in the database."""
        return self.segment.number == PENDING

    def without_deleted(self, positions: BitMap) -> BitMap:
        """Those of some positions whose passages are not deleted."""
        return positions - self.deleted if self.deleted else positions


def live_segments(
    folder: Path, connection: sqlite3.Connection, opened: Mapping[Named, Segment] | None = None
) -> tuple[LiveSegment, ...]:
    """The live segments in ascending order of the ids of their passages.

    Passages that wait in the database come last, as a segment in memory.

    Args:
        folder: of the index.
        connection: inside a transaction, or of the one writer.
        opened: segments that need not be opened again.

    Raises:
        DamagedIndexError: a file of a segment is missing or altered.
        ValueError, TypeError: a waiting passage was altered.
    """
    named = connection.execute("SELECT segment, manifest FROM segments").fetchall()
    tombstones = np.fromiter(
        (row[0] for row in connection.execute("SELECT passage FROM tombstones ORDER BY passage")),
        np.int64,
    )
    segments = [(opened or {}).get(one) or open_segment(folder, *one) for one in named]
    # A merged segment has a higher number than newer passages may have.
    segments.sort(key=lambda segment: segment.ends[0])
    live = [_live(segment, tombstones) for segment in segments]
    waiting = read_waiting(connection) if _has_pending(connection) else None
    if waiting is not None:
        segment = memory_segment(folder, waiting.ids, waiting.vectors, waiting.terms)
        live.append(_live(segment, tombstones[:0]))
    return tuple(live)


def add_pending(
    connection: sqlite3.Connection,
    ids: Sequence[int],
    vectors: NDArray[np.float32],
    tokens: Sequence[Sequence[str]],
) -> None:
    """Let passages wait in the database; the caller is inside a transaction.

    Args:
        connection: of the writer.
        ids: n passage ids.
        vectors: (n, d) float32.
        tokens: the terms of each passage.
    """
    rows = []
    for passage, vector, terms in zip(ids, vectors, tokens, strict=True):
        blob, text = vector.astype("<f4").tobytes(), json.dumps(list(terms))
        rows.append((passage, blob, text, _checksum(passage, blob, text)))
    connection.executemany("INSERT INTO pending VALUES (?, ?, ?, ?)", rows)


def count_pending(connection: sqlite3.Connection) -> int:
    """How many passages wait in the database."""
    return int(connection.execute("SELECT count(*) FROM pending").fetchone()[0])


@dataclass(frozen=True, slots=True)
class Waiting:
    """Passages that wait in the database, ids ascending.

    Attributes:
        ids: (n,) int64.
        vectors: (n, d) float32, C-contiguous.
        terms: of each passage.
    """

    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]
    terms: list[list[str]]


def read_waiting(connection: sqlite3.Connection, replaced: Collection[str] = ()) -> Waiting | None:
    """The passages that wait in the database; None if there are none.

    Args:
        connection: inside a transaction, or of the one writer.
        replaced: ids of documents to leave out.

    Raises:
        ValueError, TypeError: one was altered.
    """
    rows = connection.execute(
        "SELECT w.passage, w.vector, w.terms, w.checksum, d.id FROM pending AS w "
        "CROSS JOIN passages AS p ON p.passage = w.passage "
        "CROSS JOIN documents AS d ON d.doc = p.doc "
        "ORDER BY w.passage"
    ).fetchall()
    for passage, vector, terms, checksum, _ in rows:
        if _checksum(passage, vector, terms) != checksum:
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


def _has_pending(connection: sqlite3.Connection) -> bool:
    """Whether the format of the index has the table."""
    return bool(
        connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'pending'"
        ).fetchone()[0]
    )


def _checksum(passage: int, vector: bytes, terms: str) -> bytes:
    sealed = b"%d %d " % (passage, len(vector)) + vector + terms.encode()
    return hashlib.blake2b(sealed, digest_size=16).digest()


def _live(segment: Segment, tombstones: NDArray[np.int64]) -> LiveSegment:
    dead = segment.positions_of(tombstones)
    mask = None
    deleted: BitMap | tuple[()] = ()
    if len(dead):
        from pyroaring import BitMap

        deleted = BitMap(dead.astype(np.uint32))
        mask = np.ones(len(segment.ids), np.bool_)
        mask[dead] = False
        mask.flags.writeable = False
        # The statistics of the corpus leave out these lengths.
        segment.postings.check_lengths(dead)
    return LiveSegment(postings=segment.postings, live=mask, segment=segment, deleted=deleted)
