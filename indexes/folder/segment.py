"""A segment: the vectors and postings of some passages, in files that never change.

SQLite holds the SHA-256 of the manifest, the manifest that of every file. The files, and which
segments are merged, and why, are in docs/index-format.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.postings import Postings
from indexes.bm25.scoring import SearchableSegment
from indexes.checksums import UNGUARDED, BlockGuard
from indexes.files import (
    GrowingArray,
    damaged,
    file_facts,
    fsync_tree,
    is_small,
    map_array,
    present,
    save_array,
    storage_errors,
)
from indexes.folder.checksums import SegmentSums, write_sums
from indexes.folder.connection import SEGMENTS_FOLDER, format_version, refuse_links
from indexes.folder.documents import VALUES_SINCE, read_waiting
from indexes.protocol import Stage, StructureSettings, no_progress
from indexes.vectors.library import FLAT
from indexes.vectors.segment_structure import FLAT_STRUCTURE, SegmentStructure, build_structure

MANIFEST_FILE = "manifest.json"
IDS_FILE = "ids.npy"
VECTORS_FILE = "vectors.npy"
# The number of the segment of passages that wait in the database.
PENDING = 0


class Segment(NamedTuple):
    """A segment, its arrays read-only; check `ids` and `vectors` by their guards before reading."""

    number: int  # names its folder; `PENDING` for waiting passages
    folder: Path  # of its files; the index's for waiting passages
    manifest: str  # its SHA-256, in hexadecimal; empty for waiting passages
    ids: NDArray[np.int64]  # (n,) ascending
    vectors: NDArray[np.float32]  # (n, d)
    postings: Postings
    structure: SegmentStructure
    ids_guard: BlockGuard = UNGUARDED
    vectors_guard: BlockGuard = UNGUARDED

    def all_ids(self) -> NDArray[np.int64]:
        """`ids`, checked."""
        self.ids_guard.check()
        return self.ids

    def ids_at(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """(m,) int64: the ids at (m,) positions, checked."""
        self.ids_guard.check_rows(positions)
        return np.asarray(self.ids[positions])

    def vectors_at(self, positions: NDArray[np.integer]) -> NDArray[np.float32]:
        """(m, d) float32: the vectors at (m,) positions, checked."""
        self.vectors_guard.check_rows(positions)
        return np.asarray(self.vectors[positions])

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last id; -1 twice if there is none."""
        if not len(self.ids):
            return -1, -1
        first, last = self.ids_at(np.array([0, len(self.ids) - 1]))
        return int(first), int(last)

    def positions_of(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of those of some ascending ids that the segment holds, ascending."""
        first, last = self.ends
        inside = passages[slice(*np.searchsorted(passages, [first, last + 1]))]
        if last - first + 1 == len(self.ids):
            # None needs to be read, and opening takes the same time at any size.
            return inside - first
        return np.flatnonzero(contained(self.all_ids(), inside))


def contained(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of `ids` occur in `wanted`; both int64 and ascending. Returns bool of ids' shape."""
    if len(wanted) == 0:
        return np.zeros(len(ids), np.bool_)
    where = np.searchsorted(wanted, ids)
    where[where == len(wanted)] = 0
    return np.asarray(wanted[where] == ids)


def segment_folder(index: Path, number: int) -> Path:
    """The folder of segment `number` in the index folder `index`."""
    return index / SEGMENTS_FOLDER / f"{number:06d}"


def write_segment(
    folder: Path,
    ids: NDArray[np.int64],
    vectors: NDArray[np.float32],
    tokens: Iterable[Sequence[str]],
) -> str:
    """Write a segment's files and flush them to the disk."""
    postings = Postings.build(tokens)
    if not len(ids) == len(vectors) == len(postings):
        raise ValueError(
            f"expected as many vectors and lists of terms as the {len(ids)} passages, "
            f"found {len(vectors)} and {len(postings)}"
        )

    def write(new: Path) -> SegmentStructure:
        save_array(new / IDS_FILE, ids)
        save_array(new / VECTORS_FILE, vectors)
        postings.write(new)
        return FLAT_STRUCTURE

    return make_segment(folder, len(ids), int(vectors.shape[1]), write)


def make_segment(
    folder: Path, passages: int, dimensions: int, write: Callable[[Path], SegmentStructure]
) -> str:
    """Make a segment's folder of what `write` writes into it, and flush it to the disk."""
    with storage_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            structure = write(folder)
            sums = write_sums(folder)
            manifest = {
                "passages": passages,
                "dimensions": dimensions,
                **structure.to_json(),
                **sums,
                "files": {path.name: file_facts(path) for path in sorted(folder.iterdir())},
            }
            content = json.dumps(manifest, indent=1, sort_keys=True).encode()
            (folder / MANIFEST_FILE).write_bytes(content)
            fsync_tree(folder)
            return hashlib.sha256(content).hexdigest()
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def open_segment(index: Path, number: int, manifest_hash: str) -> Segment:
    """Map a committed segment: small files are checked whole, blocks of others when first read."""
    folder = segment_folder(index, number)
    manifest = read_manifest(folder, manifest_hash)
    for name, facts in manifest["files"].items():
        check_file(folder / name, facts)
    passages = manifest["passages"]
    dimensions = manifest["dimensions"]
    sums = SegmentSums(folder, manifest)
    ids = map_array(folder / IDS_FILE, ("<i8",), (passages,))
    vectors = map_array(folder / VECTORS_FILE, ("<f4",), (passages, dimensions))
    structure = None
    if manifest["structure"] != FLAT:
        from indexes.vectors.structure import STRUCTURE_FILE, open_structure

        structure = open_structure(folder / STRUCTURE_FILE, passages, dimensions, sums.guard)
    return Segment(
        number,
        folder,
        manifest_hash,
        ids,
        vectors,
        Postings.open(folder, sums.guard),
        SegmentStructure.recorded(manifest, structure),
        sums.guard(IDS_FILE, ids),
        sums.guard(VECTORS_FILE, vectors),
    )


def remove_unnamed_segments(index: Path, named: Iterable[int]) -> None:
    """Remove all folders in `segments/` except those of the segments `named`."""
    live = {f"{number:06d}" for number in named}
    folder = index / SEGMENTS_FOLDER
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name in live:
                refuse_links(folder, path.name)
            elif path.is_symlink():
                # Not a segment, and not to be followed.
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)


def read_manifest(folder: Path, manifest_hash: str) -> dict[str, Any]:
    """Read and check a segment's manifest."""
    refuse_links(folder.parent, folder.name)
    path = folder / MANIFEST_FILE
    with present(path):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != manifest_hash:
        raise damaged(path, "not the manifest that index.sqlite names (its SHA-256 differs)")
    manifest: dict[str, Any] = json.loads(content)
    for name in manifest["files"]:
        if name in ("", ".", "..") or "/" in name:
            raise damaged(path, f"expected names of files of its own folder, found {name!r}")
    return manifest


def check_file(path: Path, facts: dict[str, Any], *, whole: bool = False) -> None:
    """Compare a file with its size and, if it is small or `whole` asks for it, its SHA-256."""
    with present(path):
        size = path.stat().st_size
        if size != facts["bytes"]:
            raise damaged(path, f"expected {facts['bytes']} bytes, found {size}")
        if (whole or is_small(size)) and file_facts(path) != facts:
            raise damaged(path, "its SHA-256 is not the one that the manifest names")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSegment(SearchableSegment):
    """A segment as one commit sees it: its files, and which of its passages are not deleted."""

    segment: Segment

    @property
    def is_pending(self) -> bool:
        """Whether its passages wait in the database."""
        return self.segment.number == PENDING

    @property
    def deleted(self) -> int:
        """How many of its passages are deleted."""
        return 0 if self.live is None else int(np.count_nonzero(~self.live))

    def living(self, positions: NDArray[np.integer]) -> NDArray[np.integer]:
        """Those of some positions whose passages are not deleted."""
        return positions if self.live is None else positions[self.live[positions]]


def live_segments(
    folder: Path,
    connection: sqlite3.Connection,
    opened: Mapping[tuple[int, str], Segment] | None = None,  # by number and hash of the manifest
) -> tuple[LiveSegment, ...]:
    """The live segments in ascending order of passage ids; last, in memory, passages that wait."""
    named = connection.execute("SELECT segment, manifest FROM segments").fetchall()
    tombstones = np.fromiter(
        (row[0] for row in connection.execute("SELECT passage FROM tombstones ORDER BY passage")),
        np.int64,
    )
    segments = [(opened or {}).get(one) or open_segment(folder, *one) for one in named]
    # A merged segment has a higher number than newer passages may have.
    segments.sort(key=lambda segment: segment.ends[0])
    live = [
        LiveSegment(
            postings=one.postings,
            live=_living(one, tombstones) if len(tombstones) else None,
            segment=one,
        )
        for one in segments
    ]
    if format_version(connection) >= VALUES_SINCE and (waiting := read_waiting(connection)):
        ids = waiting.ids
        vectors = waiting.vectors
        postings = Postings.build(waiting.terms)
        segment = Segment(PENDING, folder, "", ids, vectors, postings, FLAT_STRUCTURE)
        live.append(LiveSegment(postings=postings, segment=segment))
    return tuple(live)


def _living(segment: Segment, tombstones: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Which passages are not deleted; None if none of them is."""
    dead = segment.positions_of(tombstones)
    if not len(dead):
        return None
    mask = np.ones(len(segment.ids), np.bool_)
    mask[dead] = False
    mask.flags.writeable = False
    # The statistics of the corpus leave out these lengths.
    segment.postings.check_lengths(dead)
    return mask


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
    """The segments to merge next, None when all is well."""
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
    """The live passages of a segment, and whether all its vectors are scanned."""

    passages: int
    scanned: bool


def query_cost(part: Part) -> float:
    """An estimate of what a segment costs a query, in scanned passages."""
    read = part.passages
    return SEGMENT_COST + (read if part.scanned else min(read, STRUCTURE_READS * math.sqrt(read)))


def faster_merge(
    parts: Sequence[Part], added: int, is_scanned: Callable[[int], bool]
) -> range | None:
    """The merge that makes queries fastest, of those worth their cost; see docs/index-format.md.

    New passages of a merged segment that is scanned are those outside its largest part, too.
    """
    whole = sum(map(query_cost, parts))
    best = None
    cost = (1 - _SAVED) * whole
    read = math.inf
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
                best = range(start, stop)
                cost = after
                read = passages
    return best


def merge_segments(
    folder: Path,
    live: Sequence[LiveSegment],
    structures: StructureSettings,
    stage: Stage = no_progress,
) -> str:
    """Write a segment of the live passages of others and flush it to the disk."""
    ids = np.concatenate([one.of_live(one.segment.all_ids()) for one in live])
    dimensions = live[0].segment.vectors.shape[1]

    def write(new: Path) -> SegmentStructure:
        from indexes.bm25.merging import merge_postings

        save_array(new / IDS_FILE, ids)
        with GrowingArray(new / VECTORS_FILE, np.dtype("<f4"), (dimensions,)) as vectors:
            for one in live:
                for start in range(0, len(one.segment.ids), _ROWS):
                    rows = slice(start, start + _ROWS)
                    one.segment.vectors_guard.check(rows.start, rows.stop)
                    part = one.segment.vectors[rows]
                    vectors.append(part if one.live is None else part[one.live[rows]])
        merge_postings(live, new)
        stored = map_array(new / VECTORS_FILE, ("<f4",), (len(ids), dimensions))
        return build_structure(new, stored, structures, stage)

    return make_segment(folder, len(ids), dimensions, write)
