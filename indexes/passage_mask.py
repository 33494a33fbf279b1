"""A set of the passages of a segment, as a bit mask."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray


class PassageMask:
    """The passages of a segment for which an (n,) mask is true."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        packed = np.packbits(mask, bitorder="little")
        # Padded to whole words of 64 bits.
        self.bits = np.zeros(8 * -(-len(mask) // 64), np.uint8)
        self.bits[: len(packed)] = packed
        self._size = len(mask)
        self.count = int(np.bitwise_count(self.bits.view(np.uint64)).sum())

    def __len__(self) -> int:
        """Return the number of passages in the segment."""
        return self._size

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """Positions of the passages in the mask: (count,) int64, ascending."""
        nonzero_bytes = np.flatnonzero(self.bits)
        bit_positions = np.flatnonzero(np.unpackbits(self.bits[nonzero_bytes], bitorder="little"))
        return np.asarray(8 * nonzero_bytes[bit_positions >> 3] + (bit_positions & 7), np.int64)

    def at(self, positions: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return, as (m,) bool, whether each of (m,) positions below n is in the mask."""
        shifts = (positions & 7).astype(np.uint8)
        return np.asarray((self.bits[positions >> 3] >> shifts) & 1, np.bool_)
