"""The inverted lists of a structure: what each holds, which to read, and their checksums.

A search without a filter reads the lists whose centroids are nearest to the query, and so meets
some number of vectors. A filtered search reads until it has met as many *allowed* vectors,
wherever they are, and on until reading farther finds more: see `ListSearch`.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from indexes.files.arrays import each_once
from indexes.files.checksums import BlockGuard
from indexes.filters.allowed import Allowed

ID_BYTES = 8


def sizes_of(core: Any) -> NDArray[np.int64]:
    """(lists,) int64: how many vectors each inverted list of a FAISS index holds."""
    inverted = core.invlists
    return np.array([inverted.list_size(number) for number in range(core.nlist)], np.int64)


class ListMembers:
    """Which vectors each list holds.

    Args:
        members: (n,) int32: every position once, those of the first list first, and so on.
        sizes: (lists,) int64: how many each list holds.
    """

    def __init__(self, members: NDArray[np.int32], sizes: NDArray[np.int64]) -> None:
        self._members = members
        self._sizes = sizes
        self._stops = np.cumsum(sizes)
        # By filter, (lists,) int64: how many allowed vectors each list holds, -1 where unknown.
        self._held: WeakKeyDictionary[Allowed, NDArray[np.int64]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def held(self, allowed: Allowed, lists: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many allowed vectors lists hold.

        Counted when a list is first reached behind a filter, and remembered for as long as the
        filter lives.

        Args:
            allowed: some of the n vectors.
            lists: their numbers, of any shape; -1 for none.

        Returns:
            int64 of the shape of `lists`; 0 for none.
        """
        with self._lock:
            held = self._held.get(allowed)
            if held is None:
                held = self._held[allowed] = np.full(len(self._sizes), -1, np.int64)
        new = each_once(lists[lists >= 0])
        new = new[held[new] < 0]
        if len(new):
            stops = self._stops[new]
            held[new] = allowed.counts(self._members, stops - self._sizes[new], stops)
        return np.where(lists >= 0, held[lists], 0)


def lists_to_read(
    held: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which lists a reading takes.

    Args:
        held: (q, p) int64: allowed vectors in each list, the nearest centroid first.
        start: (q,) int64: how many lists were read before.
        stop: (q,) int64: how many are read afterwards.

    Returns:
        (q, p) bool; lists without an allowed vector are left out.
    """
    places = np.arange(held.shape[1])
    return np.asarray((held > 0) & (places >= start[:, None]) & (places < stop[:, None]))


class ListGuard:
    """Checks inverted lists at the end of a structure's file, each before it is first read.

    FAISS writes the codes of the first list, its ids, those of the second list, and so on.

    Args:
        guard: of the bytes of the file.
        sizes: (lists,) int64: how many vectors each list holds.
        code_bytes: of each vector.
        start: where the first list begins.
    """

    def __init__(
        self, guard: BlockGuard, sizes: NDArray[np.int64], code_bytes: int, start: int
    ) -> None:
        self._guard = guard
        self._starts = start + np.cumsum(np.append(0, sizes * (code_bytes + ID_BYTES)))
        self._ids = self._starts[:-1] + sizes * code_bytes
        self._seen = sizes == 0

    @property
    def end(self) -> int:
        """Where the last list ends."""
        return int(self._starts[-1])

    def check(self, lists: NDArray[np.int64]) -> None:
        """Check these lists, of any shape; -1 is skipped.

        Raises:
            DamagedIndexError: one was altered.
        """
        if self._guard.complete:
            return
        wanted = lists[lists >= 0]
        for number in each_once(wanted[~self._seen[wanted]]).tolist():
            self._guard.check_range(int(self._starts[number]), int(self._starts[number + 1]))
            self._seen[number] = True

    def check_ids(self) -> None:
        """Check the ids of all lists; raises as `check`."""
        stops = self._starts[1:]
        filled = self._ids < stops
        self._guard.check_ranges(self._ids[filled], stops[filled])
