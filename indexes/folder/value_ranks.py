"""Ranks: the values of a metadata field in a segment as numbers, read faster than many bitmaps."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import LRUCache, cachedmethod
from numpy.typing import NDArray

if TYPE_CHECKING:
    pass
from indexes.folder.metadata_values import stored_values
from indexes.metadata import UNKEPT

_CACHE_BYTES = 128 * 2**20

# What a value takes in the table of values, about.
_VALUE_BYTES = 100


class Ranks:
    """Which of its field's values each passage has, as numbers: read faster than many bitmaps."""

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
        rows = stored_values(connection, segment, field, "type <> ? ORDER BY type, value", UNKEPT)
        for number, (kind, value, positions) in enumerate(rows, start=1):
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
        is_selected = np.zeros(self._count + 1, np.bool_)
        is_selected[[number for (number,) in self._select("number", condition, parameters)]] = True
        return np.asarray(is_selected[self._ranks])

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
        self._ranks: LRUCache[tuple[int, int], Ranks] = LRUCache(
            _CACHE_BYTES, getsizeof=lambda ranks: ranks.nbytes
        )

    @cachedmethod(
        attrgetter("_ranks"),
        key=lambda _, connection, segment, field, size: (segment, field),
        lock=attrgetter("_lock"),
    )
    def of(self, connection: sqlite3.Connection, segment: int, field: int, size: int) -> Ranks:
        """The ranks of a field; of a segment that is too large to be remembered, read each time."""
        return Ranks(connection, segment, field, size)
