"""Which segments to merge, and when: few segments, and little written for each passage added.

Segments have tiers by size: tier 0 holds up to `FLOOR` passages, each further one `FACTOR` times as
many. Two rules keep n passages in fewer than FACTOR segments of each of log(n) tiers:

1. From old to new, tiers never rise: segments that are smaller than a newer one are merged with it.
2. `FACTOR` neighbors of one tier are merged, which makes one of a higher tier (or, in tier 0, a
   larger one of it).

So a passage is written once in each tier that it comes through, and once more where a large segment
comes after small ones. Merged segments are neighbors: ids stay in ascending order.

A segment of which half the passages or more are deleted is rewritten without them.

Few segments are not yet fast queries: three segments that are scanned can hold 200,000 passages. At
the end of a run that adds documents, `faster_merge` therefore looks for one more merge, by what a
query costs (`query_cost`). What that merge may read is bounded by what is new, so that a small
addition to a large index never rewrites the index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.postings import merge_postings
from indexes.files import GrowingArray, map_array, save_array
from indexes.folder.segment import IDS_FILE, VECTORS_FILE, LiveSegment, make_segment
from indexes.protocol import Stage, StructureSettings, no_progress
from indexes.vectors.structure import SegmentStructure, build_structure

FACTOR = 8
FLOOR = 1024
_DEAD_SHARE = 0.5

# What a segment costs a query apart from its size, in scanned passages; and how many passages a
# structure over n of them compares with a query, centroids included, in units of √n.
SEGMENT_COST = 2000
STRUCTURE_READS = 12
# A merge for faster queries reads at most this many passages for each new one, and saves at least
# this share of a query's cost.
GROWTH = 4
_SAVED = 0.25
# Vectors copied at once.
_ROWS = 65536


def tier(passages: int) -> int:
    """The tier of a segment with this number of passages, 0 or more."""
    found = 0
    while passages > FLOOR * FACTOR**found:
        found += 1
    return found


def next_merge(sizes: Sequence[int], dead: Sequence[int]) -> range | None:
    """The segments to merge next, None when all is well.

    Args:
        sizes: passages of each segment, deleted ones included, the oldest segment first.
        dead: how many of them are deleted.

    Returns:
        Neighboring places in `sizes`; a single one is rewritten without its deleted
        passages. Called again after each merge, it ends.
    """
    for place, (size, gone) in enumerate(zip(sizes, dead, strict=True)):
        if gone and gone >= _DEAD_SHARE * size:
            return range(place, place + 1)
    tiers = [tier(size) for size in sizes]
    for newer in range(len(tiers) - 1, 0, -1):
        if tiers[newer - 1] < tiers[newer]:
            oldest = newer - 1
            while oldest and tiers[oldest - 1] < tiers[newer]:
                oldest -= 1
            return range(oldest, newer + 1)
    # Tiers fall from here on: equal ones are neighbors.
    for first, found in enumerate(tiers):
        if tiers[first : first + FACTOR] == [found] * FACTOR:
            return range(first, first + FACTOR)
    return None


class Part(NamedTuple):
    """A segment as a query sees it: its live passages, and whether all their vectors are scanned.

    That is for want of a search structure.
    """

    passages: int
    scanned: bool


def query_cost(part: Part) -> float:
    """An estimate of what a segment costs a query, in scanned passages.

    >>> query_cost(Part(150_000, scanned=True)), round(query_cost(Part(150_000, scanned=False)))
    (152000, 6648)
    """
    read = part.passages
    return SEGMENT_COST + (read if part.scanned else min(read, STRUCTURE_READS * math.sqrt(read)))


def faster_merge(
    parts: Sequence[Part], added: int, is_scanned: Callable[[int], bool]
) -> range | None:
    """The merge that makes queries fastest, of those worth their cost.

    It saves a quarter of a query's cost or more, and reads at most `GROWTH` times as many passages
    as are new: those that the run added or, if they are more, those that get a structure for the
    first time. If the merged segment is scanned, the second number is that of all passages outside
    the largest segment. So a passage is charged with `GROWTH` reads when it is added, and again
    when it gets its first structure or joins a larger scanned segment; and what an interrupted run
    left undone is still due in the next one.

    Args:
        parts: the segments, the oldest first.
        added: how many passages the run added.
        is_scanned: whether a merged segment of this number of passages is scanned.

    Returns:
        Neighboring places in `parts`, a single one to give it a structure; None if nothing is
        worth it. Of equal merges, the one that reads least.
    """
    whole = sum(map(query_cost, parts))
    best, cost, read = None, (1 - _SAVED) * whole, math.inf
    for start in range(len(parts)):
        for stop in range(start + 1, len(parts) + 1):
            chosen = parts[start:stop]
            passages = sum(part.passages for part in chosen)
            unbuilt = sum(part.passages for part in chosen if part.scanned)
            if passages > GROWTH * max(added, unbuilt):
                continue
            scanned = is_scanned(passages)
            outside = passages - max(part.passages for part in chosen)
            if scanned and (stop == start + 1 or passages > GROWTH * max(added, outside)):
                continue
            merged = query_cost(Part(passages, scanned)) if passages else 0.0
            after = whole - sum(map(query_cost, chosen)) + merged
            if (after, passages) <= (cost, read):
                best, cost, read = range(start, stop), after, passages
    return best


class Merged(NamedTuple):
    """A segment that was merged from others.

    Attributes:
        passages: how many it holds.
        manifest: the SHA-256 of its manifest, in hexadecimal.
        positions: for each old segment, (n,) int64: the new position of each of its passages, -1
            for a deleted one.
    """

    passages: int
    manifest: str
    positions: list[NDArray[np.int64]]


def merge_segments(
    folder: Path,
    live: Sequence[LiveSegment],
    structures: StructureSettings,
    stage: Stage = no_progress,
) -> Merged:
    """Write a segment of the live passages of others and flush it to the disk.

    Args:
        folder: see `make_segment`.
        live: neighbors in the order of their passages' ids, not all of them wholly deleted.
        structures: which search structure the new segment gets.
        stage: receives the progress of the search structure.

    Raises:
        DamagedIndexError: a file of a segment was altered.
        StorageError: the disk is full or cannot be written.
        ConfigError, MissingExtraError: see `build_structure`.
    """
    segments, masks = [one.segment for one in live], [one.live for one in live]
    ids = np.concatenate(
        [
            segment.all_ids() if mask is None else segment.all_ids()[mask]
            for segment, mask in zip(segments, masks, strict=True)
        ]
    )
    dimensions = segments[0].vectors.shape[1]

    def write(new: Path) -> SegmentStructure:
        save_array(new / IDS_FILE, ids)
        with GrowingArray(new / VECTORS_FILE, np.dtype("<f4"), (dimensions,)) as vectors:
            for segment, mask in zip(segments, masks, strict=True):
                for start in range(0, len(segment.ids), _ROWS):
                    rows = slice(start, start + _ROWS)
                    segment.vectors_guard.check_range(rows.start, rows.stop)
                    part = segment.vectors[rows]
                    vectors.append(part if mask is None else part[mask[rows]])
        merge_postings([segment.postings for segment in segments], masks, new)
        shape = (len(ids), dimensions)
        stored = map_array(new / VECTORS_FILE, ("<f4",), shape)
        return build_structure(new, stored, structures, stage)

    manifest = make_segment(folder, len(ids), dimensions, write)
    return Merged(len(ids), manifest, _positions(live))


def _positions(live: Sequence[LiveSegment]) -> list[NDArray[np.int64]]:
    first, positions = 0, []
    for one in live:
        kept = np.ones(len(one.segment.ids), np.bool_) if one.live is None else one.live
        positions.append(np.where(kept, first - 1 + np.cumsum(kept), -1))
        first += int(np.count_nonzero(kept))
    return positions
