"""Checksums of blocks of large arrays, compared when a block is first read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files import damaged, unique

BLOCK = 4096

_WORD = 8

# Blocks summed in one step: neighbors, and scattered ones, which are copied.
_STRETCH = 16_384

_APART = 1024

# The whole file is checked once rows touch more than one in this many of its blocks.
_SCAN_PER_BLOCK = 4


def count_blocks(size: int) -> int:
    """The number of blocks of a file of `size` bytes."""
    return -(-size // BLOCK)


def block_sums(content: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The sum of each block."""
    blocks = count_blocks(len(content))
    whole = len(content) // BLOCK
    sums = np.empty(blocks, np.uint64)
    words = content[: whole * BLOCK].view("<u8").reshape(whole, BLOCK // _WORD)
    sums[:whole] = words.sum(axis=1, dtype=np.uint64)
    if whole < blocks:
        last = np.zeros(BLOCK, np.uint8)
        last[: len(content) - whole * BLOCK] = content[whole * BLOCK :]
        sums[whole] = last.view("<u8").sum(dtype=np.uint64)
    return sums


def file_sums(path: Path) -> NDArray[np.uint64]:
    """The checksums of a file: of the array of an .npy file, of the whole of any other."""
    parts = [np.empty(0, np.uint64)]
    with path.open("rb") as file:
        if path.suffix == ".npy":
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
        while chunk := file.read(_APART * BLOCK):
            parts.append(block_sums(np.frombuffer(chunk, np.uint8)))
    return np.concatenate(parts)


class BlockGuard:
    """Compares blocks of one array with their checksums, each once; threads may share it."""

    def __init__(
        self,
        path: Path,
        array: NDArray[Any],
        sums: NDArray[np.uint64],
        check_sums: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._content = array.reshape(-1).view(np.uint8)
        self._sums = sums
        self._check_sums = check_sums
        self._rows = len(array)
        self._row_bytes = len(self._content) // max(1, self._rows)
        aligned = self._row_bytes and BLOCK % self._row_bytes == 0
        # The number of blocks that a row can span.
        self._span = 1 if aligned else max(0, self._row_bytes - 2) // BLOCK + 2
        # The same bytes twice: Python finds the first of a few, NumPy those of an array.
        self._seen = bytearray(len(sums))
        self._flags = np.frombuffer(self._seen, np.bool_)
        self._left = len(sums)
        self._counting = threading.Lock()
        self.complete = self._left == 0

    def check(self, start: int = 0, stop: int | None = None) -> None:
        """Compare the blocks of the rows from `start` to before `stop`, by default of all."""
        if self.complete:
            return
        start = max(start, 0)
        stop = self._rows if stop is None else min(stop, self._rows)
        if start >= stop:
            return
        first = start * self._row_bytes // BLOCK
        end = (stop * self._row_bytes - 1) // BLOCK + 1
        while (first := self._seen.find(0, first, end)) >= 0:
            stretch = slice(first, min(first + _STRETCH, end))
            content = self._content[stretch.start * BLOCK : stretch.stop * BLOCK]
            self._compare(stretch, block_sums(content))

    def check_rows(self, rows: NDArray[np.integer]) -> None:
        """Compare the blocks of these rows, 0 or more, in any order."""
        if self.complete or not len(rows):
            return
        if _SCAN_PER_BLOCK * len(rows) * self._span >= len(self._sums):
            self.check()
            return
        begin = rows.astype(np.int64) * self._row_bytes
        blocks = begin // BLOCK
        if self._span > 1:
            last = (begin + self._row_bytes - 1) // BLOCK
            apart = blocks[:, np.newaxis] + np.arange(self._span)
            blocks = np.minimum(apart, last[:, np.newaxis]).reshape(-1)
        pending = unique(blocks[~self._flags[blocks]])
        whole = len(self._content) // BLOCK
        words = self._content[: whole * BLOCK].view("<u8").reshape(whole, BLOCK // _WORD)
        for place in range(0, len(pending), _APART):
            blocks_to_check = pending[place : place + _APART]
            if blocks_to_check[-1] == whole:
                blocks_to_check = blocks_to_check[:-1]
                self._compare(slice(whole, whole + 1), block_sums(self._content[whole * BLOCK :]))
            self._compare(blocks_to_check, words[blocks_to_check].sum(axis=1, dtype=np.uint64))

    def _compare(self, blocks: slice | NDArray[np.int64], sums: NDArray[np.uint64]) -> None:
        if (sums != self._sums[blocks]).any():
            self._check_sums()
            raise damaged(self._path, "its content was altered (a checksum differs)")
        # Two threads may compare the same block; it must count once.
        with self._counting:
            self._left -= int(np.count_nonzero(~self._flags[blocks]))
            self._flags[blocks] = True
            self.complete = self._left == 0


# For an array that was checked whole when it was opened, or that has no checksums.
UNGUARDED = BlockGuard(Path(), np.empty(0, np.uint8), np.empty(0, np.uint64))


def unguarded(name: str, array: NDArray[Any]) -> BlockGuard:
    """`UNGUARDED`, whatever the file; in the place of `SegmentSums.guard`."""
    del name, array
    return UNGUARDED
