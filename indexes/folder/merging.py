"""Merging: which segments are merged, when, and how.

The rules, with their reasons, are in docs/reference/index-format.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from indexes.files import GrowingArray, map_array, save_array
from indexes.folder.segment import IDS_FILE, VECTORS_FILE, LiveSegment, make_segment
from indexes.protocol import Stage, StructureSettings, no_progress
from indexes.vectors.choice import Choice
from indexes.vectors.library import FLAT
from indexes.vectors.segment_structure import SegmentStructure, build_structure, buildable_choice

# Segments of one tier that are merged together; the size of a tier relative to the one below.
FACTOR = 8
# Most passages of a segment of the lowest tier.
FLOOR = 1024
# Share of deleted passages from which on a segment is written again.
_DELETED_SHARE = 0.5

# Fixed cost of a segment for a query, in scanned passages.
SEGMENT_COST = 2000
# A structure over n passages compares this many times √n with a query, centroids included.
STRUCTURE_READS = 12
# A merge for faster queries reads at most this many passages for each new passage.
GROWTH = 4
# It saves at least this share of the cost of a query.
_MIN_SAVED_SHARE = 0.25
# Vectors copied together in a merge.
_ROWS_AT_ONCE = 65536


def tier(passages: int) -> int:
    """Return the tier of a segment with this number of passages, from 0."""
    number = 0
    while passages > FLOOR * FACTOR**number:
        number += 1
    return number


def next_merge(sizes: Sequence[int], deleted_counts: Sequence[int]) -> range | None:
    """Return the span of segments to merge next, None if there is none."""
    for place, (size, deleted) in enumerate(zip(sizes, deleted_counts, strict=True)):
        if deleted and deleted >= _DELETED_SHARE * size:
            return range(place, place + 1)
    tiers = [tier(size) for size in sizes]
    for newer in range(len(tiers) - 1, 0, -1):
        if tiers[newer - 1] < tiers[newer]:
            oldest = newer - 1
            while oldest and tiers[oldest - 1] < tiers[newer]:
                oldest -= 1
            return range(oldest, newer + 1)
    # Tiers now never rise, so equal tiers are neighbors.
    for first, tier_number in enumerate(tiers):
        if tiers[first : first + FACTOR] == [tier_number] * FACTOR:
            return range(first, first + FACTOR)
    return None


class SegmentCost(NamedTuple):
    """Number of live passages of a segment, and whether all its vectors are scanned."""

    passages: int
    scanned: bool


def query_cost(segment: SegmentCost) -> float:
    """Estimate the cost of a segment for a query, in scanned passages."""
    passages = segment.passages
    return SEGMENT_COST + (
        passages if segment.scanned else min(passages, STRUCTURE_READS * math.sqrt(passages))
    )


def faster_merge(
    costs: Sequence[SegmentCost], added: int, is_scanned: Callable[[int], bool]
) -> range | None:
    """Return the span of the merge that makes queries fastest and is worth its cost, or None.

    The rules are in docs/reference/index-format.md. For a merged segment that is scanned, passages
    outside the largest segment count as new.
    """
    whole = sum(map(query_cost, costs))
    best = None
    cost = (1 - _MIN_SAVED_SHARE) * whole
    read = math.inf
    for start in range(len(costs)):
        for stop in range(start + 1, len(costs) + 1):
            span = costs[start:stop]
            passages = sum(segment.passages for segment in span)
            unbuilt = sum(segment.passages for segment in span if segment.scanned)
            if passages > GROWTH * max(added, unbuilt):
                continue
            scanned = is_scanned(passages)
            outside = passages - max(segment.passages for segment in span)
            if scanned and (stop == start + 1 or passages > GROWTH * max(added, outside)):
                continue
            merged = query_cost(SegmentCost(passages, scanned)) if passages else 0.0
            after = whole - sum(map(query_cost, span)) + merged
            if (after, passages) <= (cost, read):
                best = range(start, stop)
                cost = after
                read = passages
    return best


def find_faster_merge(
    segments: Sequence[LiveSegment], added: int, structures: StructureSettings
) -> Sequence[LiveSegment]:
    """Return the segments to merge for faster queries after `added` passages; empty if none."""

    def is_scanned(passages: int) -> bool:
        dimensions = segments[0].segment.vectors.shape[1]
        return buildable_choice(structures, passages, dimensions).name == FLAT

    costs = [
        SegmentCost(count_live_passages([live]), live.segment.structure.structure is None)
        for live in segments
    ]
    span = faster_merge(costs, added, is_scanned)
    return segments[span.start : span.stop] if span else ()


def merge_segments(
    folder: Path,
    segments: Sequence[LiveSegment],
    structures: StructureSettings,
    stage: Stage = no_progress,
) -> str:
    """Write a segment of the live passages of other segments, and flush it to the disk."""
    ids = np.concatenate([segment.of_live(segment.segment.all_ids()) for segment in segments])
    dimensions = segments[0].segment.vectors.shape[1]

    def write(new: Path) -> SegmentStructure:
        from indexes.bm25.merging import merge_postings

        save_array(new / IDS_FILE, ids)
        with GrowingArray(new / VECTORS_FILE, np.dtype("<f4"), (dimensions,)) as vectors:
            for segment in segments:
                for start in range(0, len(segment.segment.ids), _ROWS_AT_ONCE):
                    rows = slice(start, start + _ROWS_AT_ONCE)
                    segment.segment.vectors_guard.check(rows.start, rows.stop)
                    part = segment.segment.vectors[rows]
                    vectors.append(part if segment.live is None else part[segment.live[rows]])
        merge_postings(segments, new)
        stored = map_array(new / VECTORS_FILE, ("<f4",), (len(ids), dimensions))
        return build_structure(new, stored, structures, stage)

    return make_segment(folder, len(ids), dimensions, write)


def count_live_passages(segments: Sequence[LiveSegment]) -> int:
    """Count the live passages of segments."""
    return sum(len(segment.segment.ids) - segment.deleted for segment in segments)


def structure_choice(segments: Sequence[LiveSegment], structures: StructureSettings) -> Choice:
    """Return the structure for the live passages of these segments together."""
    dimensions = segments[0].segment.vectors.shape[1] if segments else 1
    return buildable_choice(structures, count_live_passages(segments), dimensions)
