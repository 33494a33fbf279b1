"""The value of each passage as a number, for conditions that many values meet.

Uniting hundreds of bitmaps takes longer than reading a number for every passage. So the bitmaps of
a field are decoded once per commit, up to `_CACHE_BYTES`; see `Ranks.of`.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from indexes.filters.allowed import CONTAINER, Bits, bits_between, no_bits, put_mask
from indexes.filters.columns import UNKEPT, unpacked

# Values whose bitmaps are united instead.
FEW = 32
_CACHE_BYTES = 128 * 2**20
# What a value takes in the table of values, about.
_VALUE_BYTES = 100


class Ranks:
    """Which of its field's values each passage of a segment has.

    Args:
        values: has a table `f0` of each value's `type`, `value` and `number`, from 1, in the
            order of type and value. Conditions are evaluated on it, away from the bitmaps.
        ranks: (n,) unsigned: the number of each passage's value, 0 where it has none.
    """

    def __init__(self, values: sqlite3.Connection, ranks: NDArray[Any]) -> None:
        self._values = values
        weakref.finalize(self, values.close)
        self._ranks = ranks
        (self._count,) = values.execute("SELECT count(*) FROM f0").fetchone()
        self._lock = threading.Lock()
        self.nbytes = int(ranks.nbytes) + _VALUE_BYTES * int(self._count)

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
        values = sqlite3.connect(":memory:", check_same_thread=False)
        values.execute("CREATE TABLE f0 (type TEXT, value, number INTEGER)")
        rows = connection.execute(
            "SELECT type, value, passages, checksum FROM metadata_values "
            "WHERE segment = ? AND field = ? AND type <> ? ORDER BY type, value",
            (segment, field, UNKEPT),
        )
        for number, (kind, value, stored, checksum) in enumerate(rows, start=1):
            values.execute("INSERT INTO f0 VALUES (?, ?, ?)", (kind, value, number))
            ranks[unpacked(segment, field, kind, value, stored, checksum).to_array()] = number
        values.commit()
        return cls(values, ranks)

    def numbers(self, condition: str, parameters: Sequence[Any]) -> NDArray[np.int64]:
        """(m,) int64, ascending: the numbers of the values that meet a condition.

        Args:
            condition: SQL over `f0`, without user text.
            parameters: the values of its `?` marks.
        """
        count, first, last = self._select(
            "count(*), min(number), max(number)", condition, parameters
        )[0]
        if not count:
            return np.empty(0, np.int64)
        # A range of values is not read one by one.
        if last - first + 1 == count:
            return np.arange(first, last + 1)
        rows = self._select("number", condition, parameters)
        return np.sort(np.fromiter((number for (number,) in rows), np.int64, len(rows)))

    def values(self, condition: str, parameters: Sequence[Any]) -> list[tuple[str, Any, int]]:
        """The values that meet a condition: type, value and number, by number.

        Args:
            condition: as for `numbers`.
            parameters: as for `numbers`.
        """
        return sorted(
            self._select("type, value, number", condition, parameters), key=lambda row: row[2]
        )

    def _select(self, columns: str, condition: str, parameters: Sequence[Any]) -> list[Any]:
        with self._lock:
            return self._values.execute(
                # The filter's SQL holds no value and no name: both are bound.
                f"SELECT {columns} FROM f0 WHERE {condition}",  # noqa: S608
                parameters,
            ).fetchall()

    def counts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(values + 1,) int64: how many of some positions have each value, by its number.

        Number 0 counts those without a value.
        """
        return np.bincount(self._ranks[positions], minlength=self._count + 1)

    def having(self, numbers: NDArray[np.int64]) -> Bits:
        """The passages whose value has one of some numbers.

        Args:
            numbers: (m,) ascending.

        Returns:
            As `no_bits` makes them, a bit for each of the n passages.
        """
        if not len(numbers):
            return no_bits(len(self._ranks))
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):
            return bits_between(self._ranks, first, last)
        bits = no_bits(len(self._ranks))
        wanted = np.zeros(self._count + 1, np.bool_)
        wanted[numbers] = True
        # In parts that stay in the processor's cache.
        for start in range(0, len(self._ranks), CONTAINER):
            put_mask(bits, start, wanted[self._ranks[start : start + CONTAINER]])
        return bits


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
