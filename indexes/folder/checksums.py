"""Checksums of blocks of large files, compared when a block is first read.

The format of ``sums.npy``, and what sums can miss, is in docs/reference/index-format.md. A segment
of small files has none, and neither has one from a release before the checksums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import UNGUARDED, BlockGuard, count_blocks, file_sums
from indexes.files import damaged, file_facts, is_small, map_array, save_array

SUMS_FILE = "sums.npy"

_KEY = "sums"


def write_sums(folder: Path) -> dict[str, Any]:
    """Write the sums of the large files of a new segment's folder; not flushed to the disk."""
    sums = {
        path.name: file_sums(path)
        for path in sorted(folder.iterdir())
        if not is_small(path.stat().st_size)
    }
    if sums:
        save_array(folder / SUMS_FILE, np.concatenate(list(sums.values())))
    return {_KEY: {name: len(values) for name, values in sums.items()}}


class SegmentSums:
    """The sums of an opened segment."""

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
        """The guard that checks a file as it is read; `UNGUARDED` for one that has no sums."""
        sums = self._sums.get(name)
        if sums is None:
            return UNGUARDED
        if (blocks := count_blocks(array.nbytes)) != len(sums):
            raise damaged(
                self._folder / SUMS_FILE, f"expected {blocks} sums of {name}, found {len(sums)}"
            )
        return BlockGuard(self._folder / name, array, sums, self._check_own_file)

    def problems(self) -> Iterator[str]:
        """One line for each file whose recomputed sums differ."""
        for name, sums in self._sums.items():
            path = self._folder / name
            if not np.array_equal(file_sums(path), sums):
                yield f"{path}: the sums of its blocks are not those in {SUMS_FILE}"

    def _check_own_file(self) -> None:
        """If a checksum differs, the checksum itself may have been altered."""
        path = self._folder / SUMS_FILE
        # A merge may have removed the file meanwhile.
        with suppress(FileNotFoundError):
            if file_facts(path) != self._facts:
                raise damaged(path, "its SHA-256 differs from the manifest")
