"""Several segments as one, without the deleted passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.merge import merge_postings
from indexes.files.arrays import GrowingArray, map_array, save_array
from indexes.progress import Stage, no_progress
from indexes.segments.live import LiveSegment
from indexes.segments.segment import IDS_FILE, VECTORS_FILE, make_segment
from indexes.vectors.choice import StructureSettings
from indexes.vectors.segment_structure import SegmentStructure, build_structure

# Vectors copied at once.
_ROWS = 65536


@dataclass(frozen=True, slots=True)
class Merged:
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
        folder: see `indexes.segments.segment.make_segment`.
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
