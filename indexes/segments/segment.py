"""A segment: the vectors and postings of some passages, in files that never change.

::

    segments/000007/
      manifest.json    what is here: counts, dimensions, size and SHA-256 of every other file
      ids.npy          (n,) int64, ascending: the stable id of the passage at each position
      vectors.npy      (n, d) float32: the vectors, apart from any search structure
      structure.faiss  a search structure, see `structure`; none where they are scanned
      sums.npy         what blocks of the large files add up to, see `indexes.files.segment_sums`
      ...              postings, see `indexes.bm25.postings`

SQLite holds the SHA-256 of the manifest, the manifest that of every file: one chain from the
single source of truth down to the last byte. With the `flat` structure FAISS searches
`vectors.npy` itself, where it lies, so there is no second copy of the vectors.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.postings import Postings
from indexes.errors import DamagedIndexError
from indexes.files.arrays import damaged, file_facts, is_small, map_array
from indexes.files.atomic import fsync_tree, save_array, storage_errors
from indexes.files.checksums import UNGUARDED, BlockGuard
from indexes.files.segment_sums import SegmentSums, write_sums
from indexes.store.connection import SEGMENTS_FOLDER
from indexes.vectors.segment_structure import (
    FLAT_STRUCTURE,
    SegmentStructure,
    open_segment_structure,
)

MANIFEST_FILE = "manifest.json"
IDS_FILE = "ids.npy"
VECTORS_FILE = "vectors.npy"


@dataclass(frozen=True, slots=True)
class Segment:
    """One committed segment, its arrays memory-mapped read-only.

    What is read of `ids` and `vectors` themselves is to be checked before by their guards.

    Attributes:
        number: the segment's number, which names its folder.
        folder: where its files are.
        manifest: the SHA-256 of its manifest, in hexadecimal.
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
            DamagedIndexError: they are not as they were written.
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


def segment_folder(index: Path, number: int) -> Path:
    """The folder of segment `number` in the index folder `index`."""
    return index / SEGMENTS_FOLDER / f"{number:06d}"


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
            f"expected as many vectors and lists of terms as the {len(ids)} passages, found "
            f"{len(vectors)} and {len(postings)}"
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
    """Remove what else than the folders of the segments `named` lies in `segments/`, files apart.

    Raises:
        OSError: something cannot be removed.
    """
    live = {f"{number:06d}" for number in named}
    folder = index / SEGMENTS_FOLDER
    if folder.is_dir():
        for path in folder.iterdir():
            if path.is_symlink():
                # Nobody's segment, and not ours to follow.
                path.unlink()
            elif path.name not in live and path.is_dir():
                shutil.rmtree(path)


def read_manifest(folder: Path, manifest_hash: str) -> dict[str, Any]:
    """Read and check a segment's manifest.

    Raises:
        DamagedIndexError: it is missing or is not the one that SQLite names.
    """
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
    return DamagedIndexError(
        f"{path}: the file is missing; restore it from a backup or index again with --recreate"
    )
