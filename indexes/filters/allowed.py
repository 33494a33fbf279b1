"""The passages of a segment that a search may return, in the forms that searches need."""

from __future__ import annotations

from collections.abc import Iterable
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


class Allowed:
    """Some of the n passages of a segment.

    Args:
        positions: from 0 to n - 1; not changed afterwards.
        size: n.
    """

    def __init__(self, positions: BitMap, size: int) -> None:
        self._bitmap = positions
        self._size = size
        self.count = len(positions)

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> Allowed:
        """Those where an (n,) mask is true."""
        from pyroaring import BitMap

        return cls(BitMap(np.flatnonzero(mask).astype(np.uint32)), len(mask))

    def __len__(self) -> int:
        """How many passages the segment has."""
        return self._size

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """(count,) int64, ascending."""
        return np.asarray(self._bitmap.to_array(), np.int64)

    @cached_property
    def bits(self) -> NDArray[np.uint8]:
        """(⌈n / 8⌉ or more,) uint8: a bit for each passage, the lowest first, as FAISS takes it."""
        return packed_bits(self._bitmap, self._size)

    def at(self, positions: NDArray[np.integer]) -> NDArray[np.bool_]:
        """(m,) bool: which of (m,) positions below n are allowed."""
        if compiled is None:
            return bits_at(self.bits, positions)
        mask = np.empty(len(positions), np.bool_)
        wanted = np.ascontiguousarray(positions)
        compiled.bits_at(self.bits, wanted, wanted.itemsize, mask)
        return mask


def bits_at(bits: NDArray[np.uint8], positions: NDArray[np.integer]) -> NDArray[np.bool_]:
    """(m,) bool: which of (m,) positions have their bit set, the lowest bit of a byte first."""
    shifts = (positions & 7).astype(np.uint8)
    return np.asarray((bits[positions >> 3] >> shifts) & 1, np.bool_)


def packed_bits(bitmap: BitMap, size: int) -> NDArray[np.uint8]:
    """A Roaring bitmap as plain bits, the lowest of a byte first.

    Read from the portable serialization (github.com/RoaringBitmap/RoaringFormatSpec), whose
    large containers are such bits already.

    Args:
        bitmap: of values below `size`.
        size: n.

    Returns:
        (⌈n / 8⌉ or more,) uint8.
    """
    bits = np.zeros(-(-size // CONTAINER) * _CONTAINER_BYTES, np.uint8)
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
        part = bits[key * _CONTAINER_BYTES : (key + 1) * _CONTAINER_BYTES]
        if runs:
            count = int(data[at : at + 2].view("<u2")[0])
            pairs = data[at + 2 : at + 2 + 4 * count].view("<u2").reshape(count, 2)
            mask = np.zeros(CONTAINER, np.bool_)
            for first, more in pairs.tolist():
                mask[first : first + more + 1] = True
            part[:] = np.packbits(mask, bitorder="little")
            at += 2 + 4 * count
        elif less_one + 1 > _ARRAY:
            part[:] = data[at : at + _CONTAINER_BYTES]
            at += _CONTAINER_BYTES
        else:
            mask = np.zeros(CONTAINER, np.bool_)
            mask[data[at : at + 2 * (less_one + 1)].view("<u2")] = True
            part[:] = np.packbits(mask, bitorder="little")
            at += 2 * (less_one + 1)
    return bits


def bitmap_of(masks: Iterable[NDArray[np.bool_]]) -> BitMap:
    """Masks as a Roaring bitmap: the other way round than `packed_bits`.

    Args:
        masks: of the first `CONTAINER` values, the next ones, and so on.
    """
    from pyroaring import BitMap

    keys: list[tuple[int, int]] = []
    contents: list[bytes] = []
    for key, mask in enumerate(masks):
        count = int(np.count_nonzero(mask))
        if count > _ARRAY:
            bits = np.zeros(_CONTAINER_BYTES, np.uint8)
            packed = np.packbits(mask, bitorder="little")
            bits[: len(packed)] = packed
            contents.append(bits.tobytes())
        elif count:
            contents.append(np.flatnonzero(mask).astype("<u2").tobytes())
        if count:
            keys.append((key, count - 1))
    sizes = np.array([len(content) for content in contents], np.int64)
    offsets = 8 + 8 * len(keys) + np.cumsum(sizes) - sizes
    return BitMap.deserialize(
        np.array([_WITHOUT_RUNS, len(keys)], "<u4").tobytes()
        + np.array(keys, "<u2").tobytes()
        + offsets.astype("<u4").tobytes()
        + b"".join(contents)
    )
