"""A segment: the vectors and postings of some passages, in files that never change.

::

    segments/000007/
      manifest.json    what is here: counts, dimensions, size and SHA-256 of every other file
      ids.npy          (n,) int64, ascending: the stable id of the passage at each position
      vectors.npy      (n, d) float32: the vectors, separate from any search structure
      structure.faiss  a search structure, see `indexes.vectors.structure`; none where vectors
                       are scanned
      sums.npy         checksums of blocks of the large files, see `indexes.folder.checksums`
      ...              postings, see `indexes.bm25.postings`

SQLite holds the SHA-256 of the manifest, the manifest that of every file: one chain from the
single source of truth down to the last byte. With the `flat` structure FAISS searches
`vectors.npy` itself, so there is no second copy of the vectors.

A segment of an earlier release can hold order.npy, too, which is checked as every file is and not
read.

+ The segments that a commit names, and which of their passages are live.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.postings import Postings
from indexes.bm25.scoring import SearchableSegment
from indexes.errors import DamagedIndexError
from indexes.files import (
    damaged,
    file_facts,
    fsync_tree,
    is_small,
    map_array,
    save_array,
    storage_errors,
)
from indexes.folder.checksums import UNGUARDED, BlockGuard, SegmentSums, write_sums
from indexes.folder.connection import SEGMENTS_FOLDER, refuse_link
from indexes.folder.documents import read_waiting
from indexes.vectors.structure import FLAT_STRUCTURE, SegmentStructure, open_segment_structure

if TYPE_CHECKING:
    from pyroaring import BitMap

MANIFEST_FILE = "manifest.json"
IDS_FILE = "ids.npy"
VECTORS_FILE = "vectors.npy"
# The number of the segment of passages that wait in the database.
PENDING = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment, its arrays read-only: memory-mapped, or of passages that wait in the database.

    Before you read `ids` and `vectors` themselves, check them with their guards.

    Attributes:
        number: the segment's number, which names its folder; `PENDING` for waiting passages.
        folder: where its files are; the index's for waiting passages.
        manifest: the SHA-256 of its manifest, in hexadecimal; empty for waiting passages.
        ids: (n,) int64, ascending.
        vectors: (n, d) float32.
        postings: the BM25 postings of the same n passages.
        structure: how the vectors are searched.
        ids_guard, vectors_guard: check what is read of these.
    """

    number: int
    folder: Path
    manifest: str
    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]
    postings: Postings
    structure: SegmentStructure
    ids_guard: BlockGuard = UNGUARDED
    vectors_guard: BlockGuard = UNGUARDED

    def all_ids(self) -> NDArray[np.int64]:
        """`ids`, checked.

        Raises:
            DamagedIndexError: they were altered.
        """
        self.ids_guard.check_all()
        return self.ids

    def ids_at(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """(m,) int64: the ids at (m,) positions, checked; raises as `all_ids`."""
        self.ids_guard.check_rows(positions)
        return np.asarray(self.ids[positions])

    def vectors_at(self, positions: NDArray[np.integer]) -> NDArray[np.float32]:
        """(m, d) float32: the vectors at (m,) positions, checked; raises as `all_ids`."""
        self.vectors_guard.check_rows(positions)
        return np.asarray(self.vectors[positions])

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last id; -1 twice if there is none."""
        if not len(self.ids):
            return -1, -1
        first, last = self.ids_at(np.array([0, len(self.ids) - 1]))
        return int(first), int(last)

    @property
    def has_no_gaps(self) -> bool:
        """Whether ids follow each other, so that positions can be computed from them."""
        first, last = self.ends
        return last - first + 1 == len(self.ids)

    def positions_of(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of those of some ascending ids that the segment holds, ascending."""
        first, last = self.ends
        inside = passages[slice(*np.searchsorted(passages, [first, last + 1]))]
        if self.has_no_gaps:
            # No id needs to be read, and opening takes the same time at any size.
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


def memory_segment(
    index: Path,
    ids: NDArray[np.int64],
    vectors: NDArray[np.float32],
    tokens: Iterable[Sequence[str]],
) -> Segment:
    """A segment of passages that wait in the database.

    Args:
        index: the index folder.
        ids: (n,) int64, strictly ascending.
        vectors: (n, d) float32, C-contiguous.
        tokens: the terms of each passage.
    """
    return Segment(PENDING, index, "", ids, vectors, Postings.build(tokens), FLAT_STRUCTURE)


def write_segment(
    folder: Path,
    ids: NDArray[np.int64],
    vectors: NDArray[np.float32],
    tokens: Iterable[Sequence[str]],
) -> str:
    """Write a segment's files and flush them to the disk.

    Args:
        folder: must not hold a live segment; what an interrupted write left there is replaced.
        ids: (n,) int64, strictly ascending.
        vectors: (n, d) float32.
        tokens: the terms of each passage, in the order of `ids`.

    Returns:
        The SHA-256 of the manifest, in hexadecimal: what SQLite is to hold.

    Raises:
        StorageError: the disk is full or the folder cannot be written; what was written of the
            segment is removed.
        ValueError: there are not as many vectors and lists of terms as ids.
    """
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
    """Make a segment's folder of what `write` writes into it, and flush it to the disk.

    Args:
        folder: must not hold a live segment; what an interrupted write left there is replaced.
        passages: how many it holds.
        dimensions: of their vectors.
        write: writes the files into the folder that it is given.

    Returns:
        The SHA-256 of the manifest, in hexadecimal: what SQLite is to hold.

    Raises:
        StorageError: the disk is full or the folder cannot be written; what was written of the
            segment is removed.
    """
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
    """Map a committed segment; takes a time that does not depend on its size.

    Files that are small enough to be read are checked whole. Of the others the size is, and each
    block when it is first read.

    Raises:
        DamagedIndexError: a file is missing, has another size than the manifest says, is not
            as it was written, or not of the form expected; the message names it.
    """
    folder = segment_folder(index, number)
    manifest = read_manifest(folder, manifest_hash)
    for name, facts in manifest["files"].items():
        _check_file(folder / name, facts)
    passages, dimensions = manifest["passages"], manifest["dimensions"]
    sums = SegmentSums(folder, manifest)
    ids = map_array(folder / IDS_FILE, ("<i8",), (passages,))
    vectors = map_array(folder / VECTORS_FILE, ("<f4",), (passages, dimensions))
    return Segment(
        number,
        folder,
        manifest_hash,
        ids,
        vectors,
        Postings.open(folder, sums.guard),
        open_segment_structure(folder, manifest, (passages, dimensions), sums.guard),
        sums.guard(IDS_FILE, ids),
        sums.guard(VECTORS_FILE, vectors),
    )


def remove_unnamed_segments(index: Path, named: Iterable[int]) -> None:
    """Remove all folders in `segments/` except those of the segments `named`.

    Raises:
        DamagedIndexError: a link has the name of one of those.
        OSError: something cannot be removed.
    """
    live = {f"{number:06d}" for number in named}
    folder = index / SEGMENTS_FOLDER
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name in live:
                refuse_link(path)
            elif path.is_symlink():
                # Not a segment, and not to be followed.
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)


def read_manifest(folder: Path, manifest_hash: str) -> dict[str, Any]:
    """Read and check a segment's manifest.

    Raises:
        DamagedIndexError: it is missing or is not the one that SQLite names, or the folder is a
            link.
    """
    refuse_link(folder)
    path = folder / MANIFEST_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _missing(path) from None
    if hashlib.sha256(content).hexdigest() != manifest_hash:
        raise DamagedIndexError(
            f"{path}: not the manifest that index.sqlite names (its SHA-256 differs); "
            "restore the folder from a backup or index again with --recreate"
        )
    manifest: dict[str, Any] = json.loads(content)
    for name in manifest["files"]:
        if name in ("", ".", "..") or "/" in name:
            raise DamagedIndexError(
                f"{path}: expected names of files of its own folder, found {name!r}; restore the "
                "folder from a backup or index again with --recreate"
            )
    return manifest


def _check_file(path: Path, facts: dict[str, Any]) -> None:
    try:
        size = path.stat().st_size
        if size != facts["bytes"]:
            raise damaged(path, f"expected {facts['bytes']} bytes, found {size}")
        if is_small(size) and file_facts(path) != facts:
            raise damaged(path, "its SHA-256 is not the one that the manifest names")
    except FileNotFoundError:
        raise _missing(path) from None


def _missing(path: Path) -> DamagedIndexError:
    return damaged(path, "the file is missing")


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
