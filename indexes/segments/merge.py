"""Several segments as one, without the deleted passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from indexes.bm25.merge import merge_postings
from indexes.files.arrays import GrowingArray, map_array
from indexes.files.atomic import save_array
from indexes.segments.live import LiveSegment
from indexes.segments.segment import IDS_FILE, VECTORS_FILE, make_segment
from indexes.vectors.segment_structure import SegmentStructure, StructureSettings, build_structure

# Vectors copied at once.
_ROWS = 65536


def merge_segments(
    folder: Path, live: Sequence[LiveSegment], structures: StructureSettings
) -> tuple[int, str]:
    """Write a segment of the live passages of others and flush it to the disk.

    Args:
        folder: see `indexes.segments.segment.make_segment`.
        live: neighbours in the order of their passages' ids, not all of them wholly deleted.
        structures: which search structure the new segment gets.

    Returns:
        How many passages it holds, and the SHA-256 of its manifest.

    Raises:
        DamagedIndexError: a file of a segment is not as it was written.
        StorageError: the disk is full or cannot be written.
        ConfigError, MissingExtraError: see `indexes.vectors.segment_structure.build_structure`.
    """
    segments, alive = [one.segment for one in live], [one.alive for one in live]
    kept = [
        segment.all_ids() if mask is None else segment.all_ids()[mask]
        for segment, mask in zip(segments, alive, strict=True)
    ]
    ids = np.concatenate(kept)
    dimensions = segments[0].vectors.shape[1]

    def write(new: Path) -> SegmentStructure:
        save_array(new / IDS_FILE, ids)
        with GrowingArray(new / VECTORS_FILE, np.dtype("<f4"), (dimensions,)) as vectors:
            for segment, mask in zip(segments, alive, strict=True):
                for start in range(0, len(segment.ids), _ROWS):
                    rows = slice(start, start + _ROWS)
                    segment.vectors_guard.check_range(rows.start, rows.stop)
                    part = segment.vectors[rows]
                    vectors.append(part if mask is None else part[mask[rows]])
        merge_postings([segment.postings for segment in segments], alive, new)
        shape = (len(ids), dimensions)
        return build_structure(new, map_array(new / VECTORS_FILE, ("<f4",), shape), structures)

    return len(ids), make_segment(folder, len(ids), dimensions, write)
