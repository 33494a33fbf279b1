"""The value of each passage as a number, for conditions that many values meet.

Uniting hundreds of bitmaps takes longer than reading a number for every passage. So the bitmaps of
a field are decoded once per commit, up to `_CACHE_BYTES`; see `Ranks.of`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from indexes.filters.columns import UNKEPT, unpacked

if TYPE_CHECKING:
    from pyroaring import BitMap

# Values whose bitmaps are united instead.
FEW = 32
_CACHE_BYTES = 128 * 2**20
# A container of a Roaring bitmap covers this many positions; with more than `_ARRAY` of them it is
# a plain bitmap, else an array. The cookie opens the portable form without runs.
_CONTAINER, _ARRAY, _COOKIE = 65_536, 4_096, 12_346


class Ranks:
    """Which of its field's values each passage of a segment has.

    Args:
        numbers: by JSON type and value, a number from 1, in the order of both.
        ranks: (n,) unsigned: the number of each passage's value, 0 where it has none.
    """

    def __init__(self, numbers: dict[tuple[str, Any], int], ranks: NDArray[Any]) -> None:
        self._numbers = numbers
        self._ranks = ranks
        self.nbytes = int(ranks.nbytes)

    @classmethod
    def of(cls, connection: sqlite3.Connection, segment: int, field: int, size: int) -> Ranks:
        """Decode the bitmaps of a field.

        Args:
            connection: inside a transaction.
            segment: number of the segment.
            field: number of the field.
            size: how many passages the segment has.

        Raises:
            ValueError, TypeError: a row was altered.
        """
        (count,) = connection.execute(
            "SELECT count(*) FROM metadata_values WHERE segment = ? AND field = ?", (segment, field)
        ).fetchone()
        ranks = np.zeros(size, np.min_scalar_type(int(count)))
        numbers: dict[tuple[str, Any], int] = {}
        rows = connection.execute(
            "SELECT type, value, passages, checksum FROM metadata_values "
            "WHERE segment = ? AND field = ? AND type <> ? ORDER BY type, value",
            (segment, field, UNKEPT),
        )
        for number, (kind, value, stored, checksum) in enumerate(rows, start=1):
            numbers[kind, value] = number
            ranks[unpacked(segment, field, kind, value, stored, checksum).to_array()] = number
        return cls(numbers, ranks)

    def having(self, values: Iterable[tuple[str, Any]]) -> BitMap:
        """The positions of the passages that have one of some values, (type, value) each."""
        from pyroaring import BitMap

        numbers = np.sort(np.array([self._numbers[value] for value in values], np.int64))
        if not len(numbers):
            return BitMap()
        first, last = int(numbers[0]), int(numbers[-1])
        together = last - first + 1 == len(numbers)
        wanted = np.zeros(len(self._numbers) + 1, np.bool_)
        wanted[numbers] = True
        keys, contents = [], []
        for start in range(0, len(self._ranks), _CONTAINER):
            part = self._ranks[start : start + _CONTAINER]
            # What is below `first` wraps around to large numbers.
            mask = part - part.dtype.type(first) <= last - first if together else wanted[part]
            count = int(np.count_nonzero(mask))
            if count:
                keys.append((start // _CONTAINER, count - 1))
                if count > _ARRAY:
                    bits = np.zeros(_CONTAINER // 8, np.uint8)
                    bits[: -(-len(mask) // 8)] = np.packbits(mask, bitorder="little")
                    contents.append(bits.tobytes())
                else:
                    contents.append(np.flatnonzero(mask).astype("<u2").tobytes())
        # The portable form: github.com/RoaringBitmap/RoaringFormatSpec.
        head = 8 + 8 * len(keys)
        sizes = np.array([len(content) for content in contents], np.int64)
        offsets = head + np.cumsum(sizes) - sizes
        return BitMap.deserialize(
            np.array([_COOKIE, len(keys)], "<u4").tobytes()
            + np.array(keys, "<u2").tobytes()
            + offsets.astype("<u4").tobytes()
            + b"".join(contents)
        )


class RanksCache:
    """The ranks that were read last, of one commit; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: LRUCache[tuple[int, int], Ranks] = LRUCache(
            _CACHE_BYTES, getsizeof=lambda ranks: ranks.nbytes
        )

    def held(self, segment: int, field: int) -> Ranks | None:
        """The ranks of a field, if they were read."""
        with self._lock:
            return self._held.get((segment, field))

    def read(
        self, connection: sqlite3.Connection, segment: int, field: int, size: int
    ) -> Ranks | None:
        """Read the ranks of a field and hold them; None for a segment too large for that.

        Args, Raises:
            See `Ranks.of`.
        """
        # Four bytes are enough for any number of values.
        if 4 * size > _CACHE_BYTES:
            return None
        ranks = Ranks.of(connection, segment, field, size)
        with self._lock:
            self._held[segment, field] = ranks
        return ranks
