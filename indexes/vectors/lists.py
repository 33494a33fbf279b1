"""Which inverted lists a filtered search reads.

A search without a filter reads the lists whose centroids are nearest to the query, and so meets a
number of vectors. A filtered one that reads on until it has met as many allowed ones finds more
than it does, and so fewer will do, which is measured when a structure is built. Where a filter has
to do with where vectors lie, the allowed ones may lie apart from the query; the centroids say less
then of which of them are the nearest, and more must be read.

Of a large segment, what a filter is like is found out from a sample, and what a list holds when it
is first reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.contributions import counts_of
from indexes.filters.allowed import Allowed

# Beyond so many standard deviations it is not chance.
_CHANCE = 5
# What chi-squared for each list is from which on the allowed vectors may lie apart.
_UNEVEN = 1.5
# Vectors for each list that a filter is judged by.
_SAMPLED = 32


class Evenness(Enum):
    """What the shares of allowed vectors in lists say of a filter.

    Attributes:
        EVEN: they differ as by chance.
        UNEVEN: they differ more.
        APART: so much that the allowed vectors may lie apart from a query.
    """

    EVEN = auto()
    UNEVEN = auto()
    APART = auto()


class ListMembers:
    """Which vectors each list holds.

    Attributes:
        sizes: (lists,) int64: how many.

    Args:
        members: (n,) int32: every position once, those of the first list first, and so on.
        sizes: (lists,) int64.
        sampled: positions for each list to judge a filter by.
    """

    def __init__(
        self, members: NDArray[np.int32], sizes: NDArray[np.int64], sampled: int = _SAMPLED
    ) -> None:
        self.sizes = sizes
        self._members = members
        self._ends = np.cumsum(sizes)
        self._sampled = sampled * len(sizes)
        self._filters: WeakKeyDictionary[Allowed, ListFilter] = WeakKeyDictionary()

    def of(self, lists: NDArray[np.int64]) -> NDArray[np.int32]:
        """(m,) int32: the positions in (l,) lists, one list after the other."""
        stops = self._ends[lists]
        starts = stops - self.sizes[lists]
        parts = [
            self._members[start:stop]
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        return np.concatenate([self._members[:0], *parts])

    @cached_property
    def list_of(self) -> NDArray[np.int32]:
        """(n,) int32: the list of each position."""
        found = np.empty(len(self._members), np.int32)
        found[self._members] = np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)
        return found

    @cached_property
    def sample(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """(m,) int32 positions drawn evenly, or all, ascending, and (m,) int64 the list of each."""
        n = len(self._members)
        places = np.arange(n)
        if self._sampled < n:
            chance = np.random.default_rng(0)
            places = chance.choice(n, self._sampled, replace=False, shuffle=False)
        positions = self._members[places]
        # Ascending, they are judged several times as quickly.
        order = np.argsort(positions)
        return positions[order], np.searchsorted(self._ends, places[order], side="right")

    @cached_property
    def sample_sizes(self) -> NDArray[np.int64]:
        """(lists,) int64: how many of the sample each list holds."""
        return np.bincount(self.sample[1], minlength=len(self.sizes))

    def filtered(self, allowed: Allowed) -> ListFilter:
        """What is known of the lists behind a filter; remembered for as long as the filter is."""
        found = self._filters.get(allowed)
        if found is None:
            found = self._filters[allowed] = ListFilter(self, allowed)
        return found


class ListFilter:
    """The lists behind a filter: all known where it leaves few, else each when it is first reached.

    Attributes:
        held: (lists,) int64: how many allowed vectors each list holds; -1 where it is not known.
        bitmap: (n / 8,) uint8: FAISS's form of what is allowed in the lists judged so far.
        share: of allowed vectors in all, from 0 to 1; of those sampled where they are not few.
        evenness: see `evenness_of`; likewise.
    """

    def __init__(self, members: ListMembers, allowed: Allowed) -> None:
        self._members = members
        self.bitmap = np.zeros(-(-len(allowed) // 8), np.uint8)
        number = len(members.sizes)
        if allowed.is_few:
            self.held = np.bincount(members.list_of[allowed.positions], minlength=number)
            self.share = allowed.count / max(1, len(allowed))
            self.evenness = evenness_of(self.held, members.sizes)
            self._mark(allowed.positions)
        else:
            self.held = np.full(number, -1, np.int64)
            positions, lists = members.sample
            chosen = allowed.at(positions)
            self.share = np.count_nonzero(chosen) / max(1, len(chosen))
            held = np.bincount(lists[chosen], minlength=number)
            self.evenness = evenness_of(held, members.sample_sizes)

    def judge(self, allowed: Allowed, lists: NDArray[np.int64]) -> None:
        """Find out what some lists hold, of any shape; -1 is passed over.

        Args:
            allowed: the same as at first, which this object does not keep.
            lists: their numbers.
        """
        wanted = lists[lists >= 0]
        new = np.unique(wanted[self.held[wanted] < 0])
        if not len(new):
            return
        positions = self._members.of(new)
        chosen = allowed.at(positions)
        self.held[new] = counts_of(chosen, self._members.sizes[new])
        self._mark(positions[chosen])

    def _mark(self, positions: NDArray[np.integer]) -> None:
        bits = np.left_shift(1, positions & 7).astype(np.uint8)
        np.bitwise_or.at(self.bitmap, positions >> 3, bits)


def evenness_of(held: NDArray[np.int64], sizes: NDArray[np.int64]) -> Evenness:
    """How much lists differ in their shares of allowed vectors, by chi-squared for each list.

    Of a filter that is drawn evenly it is about 1, with the standard deviation that binomial
    numbers of allowed vectors give.

    Args:
        held: (lists,) allowed vectors in each list.
        sizes: (lists,) all vectors in each, or those sampled.
    """
    held, sizes = held[sizes > 0], sizes[sizes > 0]
    share = held.sum() / max(1, sizes.sum())
    variance = share * (1 - share)
    if not variance:
        return Evenness.EVEN
    found = ((held - share * sizes) ** 2 / sizes).mean() / variance
    # The fourth moment of a binomial number gives the variance of its square.
    single = 2 + (1 - 6 * variance) / (sizes * variance)
    chance = 1 + _CHANCE * np.sqrt(np.maximum(single, 0).mean() / len(sizes))
    if found <= chance:
        return Evenness.EVEN
    return Evenness.APART if found > _UNEVEN else Evenness.UNEVEN


def lists_behind(share: float, effort: int, behind: Sequence[tuple[float, int]]) -> float:
    """How many lists a search needs to read behind a filter that is drawn evenly.

    Between two shares the logarithms are interpolated. Below the least share, as many allowed
    vectors are to be met as there.

    Args:
        share: that the filter leaves, above 0, at most 1.
        effort: how many lists without a filter.
        behind: (share, lists) where it was measured, shares below 1.
    """
    shares, efforts = np.array(sorted([(1.0, effort), *behind])).T
    least = float(shares[0])
    logarithm = np.interp(np.log(max(share, least)), np.log(shares), np.log(efforts))
    return float(np.exp(logarithm)) * max(1.0, least / share)


def to_meet(
    lists: ListFilter,
    sizes: NDArray[np.int64],
    order: NDArray[np.int64],
    probes: int,
    met: int,
    farther: int,
) -> NDArray[np.int64]:
    """How many allowed vectors to meet for each query.

    Args:
        lists: those in `order` are judged.
        sizes: (lists,) all vectors in each.
        order: (q, p) int64: list numbers, the nearest centroid first; -1 for none.
        probes: how many of them a search without a filter reads, at most p.
        met: how many, as a rule.
        farther: the same where they lie apart from the query: where lists are, and the first
            `probes` of them do not hold more than half-way from the share to all.

    Returns:
        (q,) int64.
    """
    enough = np.full(len(order), met)
    if lists.evenness is Evenness.APART:
        first = order[:, :probes]
        near = np.where(first >= 0, sizes[first], 0).sum(axis=1)
        held = np.where(first >= 0, lists.held[first], 0).sum(axis=1)
        enough[held <= near * (1 + lists.share) / 2] = farther
    return enough


def lists_to_read(
    held: NDArray[np.int64], order: NDArray[np.int64], enough: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], bool]:
    """Which lists to read for each query.

    Args:
        held: (lists,) allowed vectors in each list; 0 or more in those of `order`.
        order: (q, p) int64: list numbers, the nearest centroid first; -1 for none.
        enough: (q,) how many allowed vectors to meet.

    Returns:
        (q, p) bool, in the order of `order`: lists that hold allowed vectors, as many of the first
        as it takes, or all; and whether they hold enough for every query.
    """
    counts = np.where(order >= 0, held[order], 0)
    met = np.cumsum(counts, axis=1)
    read = (counts > 0) & (met - counts < enough[:, None])
    return read, bool((met[:, -1] >= enough).all())
