"""Which inverted lists a filtered search reads.

A search without a filter reads the lists whose centroids are nearest to the query, and so meets a
number of vectors. A filtered one reads on until it has met as many allowed ones. That is enough
where the filter has nothing to do with where vectors lie. Where it has, the allowed vectors may lie
apart from the query; the centroids say less then of which of them are the nearest, and more must be
read.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexes.compiled import compiled

# Chi-squared for each list: about 1 for a filter drawn evenly.
_UNEVEN = 2.0
# To pick one allowed vector out of so many takes no longer than to pass all of them.
_FEW = 16


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known of a mask.

    Attributes:
        held: (lists,) int64: how many allowed vectors each list holds.
        bitmap: (n / 8,) uint8: FAISS's form of the mask.
        uneven: whether it is, see `is_uneven`.
    """

    held: NDArray[np.int64]
    bitmap: NDArray[np.uint8]
    uneven: bool


class ListMembers:
    """Which list holds each vector.

    Attributes:
        sizes: (lists,) int64: how many vectors each list holds.

    Args:
        list_of: (n,) int32: the list of each position.
        lists: how many there are.
    """

    def __init__(self, list_of: NDArray[np.int32], lists: int) -> None:
        self._list_of = np.ascontiguousarray(list_of, np.int32)
        self.sizes = np.bincount(list_of, minlength=lists)
        self._last: tuple[weakref.ref[NDArray[np.bool_]], Prepared] | None = None

    def prepared(self, allowed: NDArray[np.bool_]) -> Prepared:
        """What a search needs to know of a mask.

        Remembered for the last mask, if nobody can write to it.

        Args:
            allowed: (n,) bool.
        """
        if self._last is not None and self._last[0]() is allowed:
            return self._last[1]
        held = self._count(allowed)
        bitmap = np.packbits(allowed, bitorder="little")
        prepared = Prepared(held, bitmap, is_uneven(held, self.sizes))
        if not allowed.flags.writeable:
            self._last = weakref.ref(allowed), prepared
        return prepared

    def _count(self, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
        lists = len(self.sizes)
        if compiled is None or _FEW * np.count_nonzero(allowed) <= len(allowed):
            return np.bincount(self._list_of[allowed], minlength=lists)
        held = np.zeros(lists, np.int64)
        compiled.count(self._list_of, np.ascontiguousarray(allowed), held)
        return held


def is_uneven(held: NDArray[np.int64], sizes: NDArray[np.int64]) -> bool:
    """Whether the lists differ more in their shares of allowed vectors than by chance.

    Args:
        held: (lists,) allowed vectors in each list.
        sizes: (lists,) all vectors in each.
    """
    share = held.sum() / max(1, sizes.sum())
    spread = ((held - share * sizes) ** 2 / np.maximum(sizes, 1)).sum()
    return bool(spread > _UNEVEN * len(held) * share * (1 - share))


def lists_to_read(
    held: NDArray[np.int64],
    sizes: NDArray[np.int64],
    uneven: bool,
    order: NDArray[np.int64],
    probes: int,
    met: int,
    farther: int,
) -> NDArray[np.bool_]:
    """Which lists to read for each query.

    Args:
        held: (lists,) allowed vectors in each list.
        sizes: (lists,) all vectors in each.
        uneven: whether the filter is, see `is_uneven`.
        order: (q, lists) int64: list numbers, the nearest centroid first; -1 for none.
        probes: how many of them a search without a filter reads.
        met: how many allowed vectors to meet.
        farther: the same where they lie apart from the query: where the filter is uneven, and the
            first `probes` lists do not hold more of them than half-way from their share to all.

    Returns:
        (q, lists) bool, in the order of `order`: lists that hold allowed vectors, as many of the
        first as it takes.
    """
    counts = np.where(order >= 0, held[order], 0)
    enough = np.full((len(order), 1), met)
    if uneven:
        share = held.sum() / max(1, sizes.sum())
        near = np.where(order >= 0, sizes[order], 0)[:, :probes].sum(axis=1)
        apart = counts[:, :probes].sum(axis=1) <= near * (1 + share) / 2
        enough[apart] = farther
    return (counts > 0) & (np.cumsum(counts, axis=1) - counts < enough)
