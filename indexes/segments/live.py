"""The segments that a commit names, and which of their passages are not deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.scoring import SearchableSegment
from indexes.segments.segment import Segment, open_segment

# Which segment, as SQLite names it: its number and the SHA-256 of its manifest.
Named = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSegment(SearchableSegment):
    """A segment as one commit sees it: its files, and which of its passages are not deleted."""

    segment: Segment

    @property
    def dead(self) -> int:
        """How many of its passages are deleted."""
        return 0 if self.alive is None else int(np.count_nonzero(~self.alive))


def live_segments(
    folder: Path, connection: sqlite3.Connection, opened: Mapping[Named, Segment] | None = None
) -> tuple[LiveSegment, ...]:
    """The live segments in ascending order of the ids of their passages.

    Args:
        folder: of the index.
        connection: inside a transaction, or of the one writer.
        opened: segments that need not be opened again.

    Raises:
        DamagedIndexError: a file of a segment is missing or altered.
    """
    named = connection.execute("SELECT segment, manifest FROM segments").fetchall()
    tombstones = np.fromiter(
        (row[0] for row in connection.execute("SELECT passage FROM tombstones ORDER BY passage")),
        np.int64,
    )
    segments = [(opened or {}).get(one) or open_segment(folder, *one) for one in named]
    # A merged segment has a higher number than newer passages may have.
    segments.sort(key=lambda segment: ends(segment)[0])
    return tuple(_live(segment, tombstones) for segment in segments)


def contained(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of `ids` occur in `wanted`; both int64 and ascending. Returns bool of ids' shape."""
    if len(wanted) == 0:
        return np.zeros(len(ids), np.bool_)
    where = np.searchsorted(wanted, ids)
    where[where == len(wanted)] = 0
    return np.asarray(wanted[where] == ids)


def _live(segment: Segment, tombstones: NDArray[np.int64]) -> LiveSegment:
    first, last = ends(segment)
    low, high = np.searchsorted(tombstones, [first, last + 1])
    alive = None
    if low < high:
        dead = _positions(segment, tombstones[low:high])
        alive = np.ones(len(segment.ids), np.bool_)
        alive[dead] = False
        # So that it can be remembered by whoever searches with it.
        alive.flags.writeable = False
        # The statistics of the corpus leave out these lengths.
        segment.postings.check_lengths(dead)
    return LiveSegment(postings=segment.postings, alive=alive, segment=segment)


def _positions(segment: Segment, passages: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions of those of some ascending passages that a segment holds, ascending."""
    if has_no_gaps(segment):
        # No id needs to be read, and opening takes the same time at any size.
        return passages - ends(segment)[0]
    return np.flatnonzero(contained(segment.all_ids(), passages))


def has_no_gaps(segment: Segment) -> bool:
    """Whether the ids of a segment follow each other, so that positions are told from them."""
    first, last = ends(segment)
    return last - first + 1 == len(segment.ids)


def ends(segment: Segment) -> tuple[int, int]:
    """The first and the last id of a segment; -1 twice where it is empty."""
    if not len(segment.ids):
        return -1, -1
    first, last = segment.ids_at(np.array([0, len(segment.ids) - 1]))
    return int(first), int(last)
