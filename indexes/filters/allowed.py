"""Which passages of a segment a search may return, as bits, and the values of passages."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from cachetools import LRUCache, cachedmethod
from numpy.typing import NDArray

from indexes.filters.columns import UNKEPT, stored_values


class Allowed:
    """Those of the n passages of a segment where an (n,) mask is true."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        packed = np.packbits(mask, bitorder="little")
        # In whole words of 64 bits.
        self.bits = np.zeros(8 * -(-len(mask) // 64), np.uint8)
        self.bits[: len(packed)] = packed
        self._size = len(mask)
        self.count = int(np.bitwise_count(self.bits.view(np.uint64)).sum())

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
        shifts = (positions & 7).astype(np.uint8)
        return np.asarray((self.bits[positions >> 3] >> shifts) & 1, np.bool_)


_CACHE_BYTES = 128 * 2**20
# What a value takes in the table of values, about.
_VALUE_BYTES = 100


class Ranks:
    """Which of its field's values each passage of a segment has, as a number.

    Reading these numbers takes less time than uniting hundreds of bitmaps.
    """

    def __init__(self, connection: sqlite3.Connection, segment: int, field: int, size: int) -> None:
        (self._count,) = connection.execute(
            "SELECT count(*) FROM metadata_values WHERE segment = ? AND field = ? AND type <> ?",
            (segment, field, UNKEPT),
        ).fetchone()
        self._ranks = np.zeros(size, np.min_scalar_type(int(self._count)))
        self._values = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._values.close)
        self._lock = threading.Lock()
        self._values.execute("CREATE TABLE f0 (type TEXT, value, number INTEGER)")
        held = stored_values(connection, segment, field, "type <> ? ORDER BY type, value", UNKEPT)
        for number, (kind, value, positions) in enumerate(held, start=1):
            self._values.execute("INSERT INTO f0 VALUES (?, ?, ?)", (kind, value, number))
            self._ranks[positions] = number
        self._values.commit()
        self.nbytes = int(self._ranks.nbytes) + _VALUE_BYTES * int(self._count)

    def values(self) -> list[tuple[str, Any]]:
        """(type, value) of all values, by number from 1 on."""
        return self._select("type, value", "1 ORDER BY number")

    def having(self, condition: str, parameters: Sequence[Any]) -> NDArray[np.bool_]:
        """(n,) bool: the passages that have a value that meets a condition over `f0`."""
        ((count, first, last),) = self._select(
            "count(*), min(number), max(number)", condition, parameters
        )
        if not count:
            return np.zeros(len(self._ranks), np.bool_)
        # A range of values is not read one by one.
        if last - first + 1 == count:
            return np.asarray((self._ranks >= first) & (self._ranks <= last))
        wanted = np.zeros(self._count + 1, np.bool_)
        wanted[[number for (number,) in self._select("number", condition, parameters)]] = True
        return np.asarray(wanted[self._ranks])

    def counts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(values + 1,) int64: how many positions have each value, by number; 0 is for no value."""
        return np.bincount(self._ranks[positions], minlength=self._count + 1)

    def _select(self, columns: str, condition: str, parameters: Sequence[Any] = ()) -> list[Any]:
        # The filter's SQL holds no value and no name: both are bound.
        statement = f"SELECT {columns} FROM f0 WHERE {condition}"  # noqa: S608
        with self._lock:
            return self._values.execute(statement, parameters).fetchall()


class RanksCache:
    """The ranks that were read last, of one commit; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: LRUCache[tuple[int, int], Ranks] = LRUCache(
            _CACHE_BYTES, getsizeof=lambda ranks: ranks.nbytes
        )

    @cachedmethod(
        attrgetter("_held"),
        key=lambda _, connection, segment, field, size: (segment, field),
        lock=attrgetter("_lock"),
    )
    def of(self, connection: sqlite3.Connection, segment: int, field: int, size: int) -> Ranks:
        """The ranks of a field; of a segment that is too large to be remembered, read each time."""
        return Ranks(connection, segment, field, size)
