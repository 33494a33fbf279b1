"""The passages of a segment that a search may return, in the forms that searches need."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexes.compiled import compiled

if TYPE_CHECKING:
    from pyroaring import BitMap

# A container of a Roaring bitmap covers this many positions, as a bitmap in this many bytes.
CONTAINER, _CONTAINER_BYTES = 65_536, 8_192
_WITH_RUNS, _WITHOUT_RUNS = 12_347, 12_346
# An array container has no more values than this.
_ARRAY = 4_096
# Fewer positions than this share are set one by one.
_FEW_SHARE = 1 / 512

Bits = NDArray[np.uint8]


class Allowed:
    """Some of the n passages of a segment.

    Args:
        bits: as `no_bits` makes them, a bit for each passage; not changed afterwards.
        size: n.
    """

    def __init__(self, bits: Bits, size: int) -> None:
        self.bits = bits
        self._size = size
        self.count = int(np.bitwise_count(bits.view(np.uint64)).sum())

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> Allowed:
        """Those where an (n,) mask is true."""
        bits = no_bits(len(mask))
        put_mask(bits, 0, mask)
        return cls(bits, len(mask))

    def __len__(self) -> int:
        """How many passages the segment has."""
        return self._size

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """(count,) int64, ascending."""
        filled = np.flatnonzero(self.bits)
        places = np.flatnonzero(np.unpackbits(self.bits[filled], bitorder="little"))
        return np.asarray(8 * filled[places >> 3] + (places & 7), np.int64)

    def at(self, positions: NDArray[np.integer]) -> NDArray[np.bool_]:
        """(m,) bool: which of (m,) positions below n are allowed."""
        if compiled is None:
            return bits_at(self.bits, positions)
        mask = np.empty(len(positions), np.bool_)
        wanted = np.ascontiguousarray(positions)
        compiled.bits_at(self.bits, wanted, wanted.itemsize, mask)
        return mask

    def counts(
        self, positions: NDArray[np.int32], starts: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """(r,) int64: how many of (m,) positions are allowed, from each of (r,) starts to its stop.

        Args:
            positions: below n.
            starts: places in `positions`, from 0 to m.
            stops: likewise.
        """
        if compiled is None:
            ranges = zip(starts.tolist(), stops.tolist(), strict=True)
            counted = (np.count_nonzero(self.at(positions[a:b])) for a, b in ranges)
            return np.fromiter(counted, np.int64, len(starts))
        found = np.empty(len(starts), np.int64)
        compiled.counts_at(self.bits, positions, starts, stops, found)
        return found


def bits_at(bits: Bits, positions: NDArray[np.integer]) -> NDArray[np.bool_]:
    """(m,) bool: which of (m,) positions have their bit set, the lowest bit of a byte first."""
    shifts = (positions & 7).astype(np.uint8)
    return np.asarray((bits[positions >> 3] >> shifts) & 1, np.bool_)


def no_bits(size: int) -> Bits:
    """(⌈n / 8⌉ or more,) uint8 zeros: a bit for each of n positions, the lowest of a byte first.

    As FAISS takes it. There are whole containers of Roaring bitmaps, and so whole words of 64 bits.
    """
    return np.zeros(-(-size // CONTAINER) * _CONTAINER_BYTES, np.uint8)


def put_mask(bits: Bits, start: int, mask: NDArray[np.bool_]) -> None:
    """Replace the bits from a position on, a multiple of 8, by a mask."""
    packed = np.packbits(mask, bitorder="little")
    bits[start >> 3 : (start >> 3) + len(packed)] = packed


def bits_between(numbers: NDArray[np.unsignedinteger], first: int, last: int) -> Bits:
    """The bits of the positions at which a number is from `first` to `last`.

    Args:
        numbers: (n,) of one, two or four bytes each.
        first: at least 0.
        last: at least `first`, and within the type of the numbers.
    """
    bits = no_bits(len(numbers))
    if compiled is not None:
        compiled.bits_between(numbers, numbers.itemsize, first, last, bits)
        return bits
    # In parts that stay in the processor's cache.
    for start in range(0, len(numbers), CONTAINER):
        # What is below `first` wraps around to large numbers.
        above = numbers[start : start + CONTAINER] - numbers.dtype.type(first)
        put_mask(bits, start, above <= last - first)
    return bits


def bits_of(positions: NDArray[np.integer], size: int) -> Bits:
    """The bits of (m,) positions below n."""
    bits = no_bits(size)
    if len(positions) < size * _FEW_SHARE:
        places = np.asarray(positions, np.int64)
        np.bitwise_or.at(bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))
    else:
        mask = np.zeros(size, np.bool_)
        mask[positions] = True
        put_mask(bits, 0, mask)
    return bits


def complement(bits: Bits, size: int) -> Bits:
    """The bits of all other positions below n."""
    others = ~bits
    others[-(-size // 8) :] = 0
    if size % 8:
        others[size // 8] &= (1 << size % 8) - 1
    return others


def packed_bits(bitmap: BitMap, size: int) -> Bits:
    """The bits of a Roaring bitmap.

    Many are read from the portable serialization (github.com/RoaringBitmap/RoaringFormatSpec),
    whose large containers are such bits already.

    Args:
        bitmap: of values below `size`.
        size: n.
    """
    if len(bitmap) < size * _FEW_SHARE:
        return bits_of(np.asarray(bitmap.to_array(), np.int64), size)
    bits = no_bits(size)
    data = np.frombuffer(bitmap.serialize(), np.uint8)
    cookie = int(data[:4].view("<u4")[0])
    if cookie & 0xFFFF == _WITH_RUNS:
        number = (cookie >> 16) + 1
        start = 4 + (number + 7) // 8
        has_runs = np.unpackbits(data[4:start], bitorder="little")
    else:
        number = int(data[4:8].view("<u4")[0])
        start = 8
        has_runs = np.zeros(number, np.uint8)
    keys = data[start : start + 4 * number].view("<u2").reshape(number, 2).astype(np.int64)
    at = start + 4 * number
    if cookie == _WITHOUT_RUNS or number >= 4:
        # Offsets, which follow from the sizes of the containers too.
        at += 4 * number
    for (key, less_one), runs in zip(keys.tolist(), has_runs.tolist(), strict=False):
        first = key * CONTAINER
        if not runs and less_one + 1 > _ARRAY:
            bits[first >> 3 : (first >> 3) + _CONTAINER_BYTES] = data[at : at + _CONTAINER_BYTES]
            at += _CONTAINER_BYTES
            continue
        mask = np.zeros(CONTAINER, np.bool_)
        if runs:
            count = int(data[at : at + 2].view("<u2")[0])
            pairs = data[at + 2 : at + 2 + 4 * count].view("<u2").reshape(count, 2)
            for start, more in pairs.tolist():
                mask[start : start + more + 1] = True
            at += 2 + 4 * count
        else:
            mask[data[at : at + 2 * (less_one + 1)].view("<u2")] = True
            at += 2 * (less_one + 1)
        put_mask(bits, first, mask)
    return bits
