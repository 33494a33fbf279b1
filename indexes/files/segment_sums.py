"""The sums of the files of a segment that are too large to be read when it is opened.

One file, ``sums.npy``, uint64: the sums of one file after those of another, in the order of their
names. The manifest says how many blocks each has. A segment of small files has no such file, and
neither has one that a release before the sums has written: `verify` alone checks that one whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files.arrays import damaged, file_facts, is_small, map_array
from indexes.files.atomic import save_array
from indexes.files.checksums import UNGUARDED, BlockGuard, count_blocks, file_sums

SUMS_FILE = "sums.npy"
_KEY = "sums"


def write_sums(folder: Path) -> dict[str, Any]:
    """Write the sums of the large files of a new segment's folder; not flushed to the disk.

    Returns:
        What the manifest is to hold of them.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    sums = {
        path.name: file_sums(path)
        for path in sorted(folder.iterdir())
        if not is_small(path.stat().st_size)
    }
    if sums:
        save_array(folder / SUMS_FILE, np.concatenate(list(sums.values())))
    return {_KEY: {name: len(values) for name, values in sums.items()}}


class SegmentSums:
    """The sums of an opened segment.

    Args:
        folder: of the segment.
        manifest: checked.

    Raises:
        DamagedIndexError: the file of the sums is missing or of another form.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self._folder = folder
        self._facts = manifest["files"].get(SUMS_FILE)
        self._sums: dict[str, NDArray[np.uint64]] = {}
        blocks: dict[str, int] = manifest.get(_KEY, {})
        if blocks:
            array = map_array(folder / SUMS_FILE, ("<u8",), (sum(blocks.values()),))
            names = sorted(blocks)
            ends = np.cumsum([blocks[name] for name in names])
            self._sums = dict(zip(names, np.split(array, ends[:-1]), strict=True))

    def guard(self, name: str, array: NDArray[Any]) -> BlockGuard:
        """What checks a file as it is read; `UNGUARDED` for one that has no sums.

        Args:
            name: of the file.
            array: what an .npy file holds; of any other file its bytes, uint8.

        Raises:
            DamagedIndexError: there are not as many sums as the array has blocks.
        """
        sums = self._sums.get(name)
        if sums is None:
            return UNGUARDED
        if (blocks := count_blocks(array.nbytes)) != len(sums):
            raise damaged(
                self._folder / SUMS_FILE, f"expected {blocks} sums of {name}, found {len(sums)}"
            )
        return BlockGuard(self._folder / name, array, sums, self._vouch)

    def problems(self) -> Iterator[str]:
        """One line for each file whose sums, computed anew, are others."""
        for name, sums in self._sums.items():
            path = self._folder / name
            if not np.array_equal(file_sums(path), sums):
                yield f"{path}: the sums of its blocks are not those in {SUMS_FILE}"

    def _vouch(self) -> None:
        """A sum that differs can be the one that was altered."""
        path = self._folder / SUMS_FILE
        # A merge may have removed the file meanwhile.
        with suppress(FileNotFoundError):
            if file_facts(path) != self._facts:
                raise damaged(path, "its SHA-256 is not the one that the manifest names")
