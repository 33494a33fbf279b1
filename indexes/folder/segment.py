"""Segments: vectors and postings of passages, in files that never change.

SQLite holds the SHA-256 of the manifest, the manifest that of every file. The files, and which
segments are merged, and why, are in docs/reference/index-format.md.
"""

from __future__ import annotations

import hashlib
import json
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
from indexes.platforms import remove_tree
from indexes.vectors.library import FLAT
from indexes.vectors.segment_structure import FLAT_STRUCTURE, SegmentStructure

MANIFEST_FILE = "manifest.json"
IDS_FILE = "ids.npy"
VECTORS_FILE = "vectors.npy"
# The number of the segment of passages that wait in the database.
PENDING = 0


class Segment(NamedTuple):
    """A segment with read-only arrays; `ids` and `vectors` are read through their guards."""

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
        """Return `ids`, checked."""
        self.ids_guard.check()
        return self.ids

    def ids_at(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return (m,) int64 ids at (m,) positions, checked."""
        self.ids_guard.check_rows(positions)
        return np.asarray(self.ids[positions])

    def vectors_at(self, positions: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return (m, d) float32 vectors at (m,) positions, checked."""
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
        """Return the ascending positions of ascending ids, without ids of other segments."""
        first, last = self.ends
        inside = passages[slice(*np.searchsorted(passages, [first, last + 1]))]
        if last - first + 1 == len(self.ids):
            # Ids without gaps need not be read: opening takes the same time at any size.
            return inside - first
        return np.flatnonzero(contained(self.all_ids(), inside))


def contained(ids: NDArray[np.int64], members: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of `ids` occur in `members`, bool; both are int64 and ascending."""
    if len(members) == 0:
        return np.zeros(len(ids), np.bool_)
    places = np.searchsorted(members, ids)
    places[places == len(members)] = 0
    return np.asarray(members[places] == ids)


def segment_folder(index: Path, number: int) -> Path:
    """Return the folder of segment `number` in the index folder `index`."""
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
    """Make the folder of a segment with the files that `write` writes; flush it to the disk."""
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
    """Map a committed segment: small files are checked now, blocks of others when first read."""
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


def remove_unnamed_segments(index: Path, segments: Iterable[int]) -> bool:
    """Remove all folders in `segments/` except those of these segments.

    Return whether all are removed: Windows keeps files that a program has mapped, which the next
    writer removes.
    """
    is_complete = True
    live = {f"{number:06d}" for number in segments}
    folder = index / SEGMENTS_FOLDER
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name in live:
                refuse_links(folder, path.name)
            elif path.is_symlink():
                # A link is never followed.
                path.unlink()
            elif path.is_dir():
                is_complete = remove_tree(path) and is_complete
    return is_complete


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
    """Compare the size of a file and, if it is small or `whole` is true, its SHA-256."""
    with present(path):
        size = path.stat().st_size
        if size != facts["bytes"]:
            raise damaged(path, f"expected {facts['bytes']} bytes, found {size}")
        if (whole or is_small(size)) and file_facts(path) != facts:
            raise damaged(path, "its SHA-256 differs from the manifest")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSegment(SearchableSegment):
    """A segment as one commit sees it: its files, and which passages are live."""

    segment: Segment

    @property
    def is_pending(self) -> bool:
        """Whether its passages wait in the database."""
        return self.segment.number == PENDING

    @property
    def deleted(self) -> int:
        """Number of deleted passages."""
        return 0 if self.live is None else int(np.count_nonzero(~self.live))

    def living(self, positions: NDArray[np.integer]) -> NDArray[np.integer]:
        """Return the positions whose passages are live."""
        return positions if self.live is None else positions[self.live[positions]]


def live_segments(
    folder: Path,
    connection: sqlite3.Connection,
    opened: Mapping[tuple[int, str], Segment] | None = None,  # by number and hash of the manifest
) -> tuple[LiveSegment, ...]:
    """Return the live segments by ascending passage ids; waiting passages are the last one."""
    rows = connection.execute("SELECT segment, manifest FROM segments").fetchall()
    tombstones = np.fromiter(
        (row[0] for row in connection.execute("SELECT passage FROM tombstones ORDER BY passage")),
        np.int64,
    )
    segments = [(opened or {}).get(row) or open_segment(folder, *row) for row in rows]
    # A merged segment has a higher number than newer passages may have.
    segments.sort(key=lambda segment: segment.ends[0])
    live = [
        LiveSegment(
            postings=segment.postings,
            live=_live_mask(segment, tombstones) if len(tombstones) else None,
            segment=segment,
        )
        for segment in segments
    ]
    if format_version(connection) >= VALUES_SINCE and (waiting := read_waiting(connection)):
        ids = waiting.ids
        vectors = waiting.vectors
        postings = Postings.build(waiting.terms)
        pending = Segment(PENDING, folder, "", ids, vectors, postings, FLAT_STRUCTURE)
        live.append(LiveSegment(postings=postings, segment=pending))
    return tuple(live)


def _live_mask(segment: Segment, tombstones: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Return the mask of live passages; None if no passage is deleted."""
    dead = segment.positions_of(tombstones)
    if not len(dead):
        return None
    mask = np.ones(len(segment.ids), np.bool_)
    mask[dead] = False
    mask.flags.writeable = False
    # The statistics of the corpus leave out these lengths.
    segment.postings.check_lengths(dead)
    return mask
