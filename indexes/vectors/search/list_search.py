"""Candidates from inverted lists, read in the order of their centroids.

Without a filter, as many lists are read as the effort says. Behind a filter, lists are read until
enough *allowed* vectors are met, and what was found tells whether to read on: how many allowed
vectors have to be met depends on how the filter relates to what vectors are like. The first
reading meets half of what the lists of a search without a filter hold of the allowed vectors, or
`_FIRST` where that is more; each further one goes twice as far as the one before. It was far
enough if no more than a quarter of the hundred best allowed vectors met so far came from its last
reading: were nearness of centroids no sign of nearness of vectors, half of them would, and the
nearer the allowed vectors are found to the front, the fewer.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.filters.allowed import Allowed
from indexes.vectors.library import load_faiss
from indexes.vectors.search.lists import ListGuard, ListMembers, lists_to_read, sizes_of
from indexes.vectors.unwrapped import COARSE, WHOLE, Unwrapped

_QUERY_BLOCK = 32
# Ids of a list that are tested in the time that it takes to fetch and score one vector, and how
# often as many vectors as the first reading meets are met in the end, about.
_IDS_PER_VECTOR, _READINGS = 25, 2.5
# Behind a filter: allowed vectors that the first reading meets at least; how many of the best
# judge a reading; and which share of them the last reading may have brought.
_FIRST, _JUDGES, _LAST = 512, 100, 0.25
# Behind a filter, codes that keep little of a vector give this many times as many candidates.
_MORE_OF_COARSE = 4


class _Lists(NamedTuple):
    """Inverted lists to read.

    Attributes:
        numbers: (q, p) int64, -1 for none.
        nearness: (q, p) float32, of their centroids to the query.
    """

    numbers: NDArray[np.int64]
    nearness: NDArray[np.float32]


class _Ranked(NamedTuple):
    """Lists, the nearest first, and what they hold.

    Attributes:
        lists: their numbers and nearness.
        held: (q, p) int64: allowed vectors in each.
        met: (q, p) int64: allowed vectors in each and those before it.
    """

    lists: _Lists
    held: NDArray[np.int64]
    met: NDArray[np.int64]


class ListSearch:
    """Finds candidates in inverted lists.

    Attributes:
        efforts: numbers of lists to read (nprobe) worth trying, ascending.
        default_effort: the effort where none is given.

    Args:
        index: its core is a FAISS `IndexIVF`.
        guard: checks lists before they are read; None if nothing is left to check.
    """

    def __init__(self, index: Unwrapped, guard: ListGuard | None) -> None:
        self._index, self._core, self._guard = index, index.core, guard
        self._lists = int(self._core.nlist)
        powers = (2**exponent for exponent in range(self._lists.bit_length()))
        self.efforts = (*(power for power in powers if power < self._lists), self._lists)
        self.default_effort = min(self._lists, math.ceil(2 * math.sqrt(self._lists)))

    def candidates(
        self, queries: NDArray[np.float32], k: int, allowed: Allowed | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        """Candidates for the `k` best of each query.

        Args:
            queries: (q, d) float32.
            k: at least 1.
            allowed: some of the vectors, or None for all.
            effort: at least 1.

        Returns:
            For each query allowed positions, ascending, or too few of them; None if the exact
            scan is cheaper.

        Raises:
            RuntimeError: FAISS cannot do it with this type.
            DamagedIndexError: a list was altered.
        """
        wanted = self._wanted(k, allowed)
        met, probes = self._met(wanted, effort)
        if self._prefers_scan(wanted, met, allowed):
            return None
        turned = self._index.transformed(queries)
        found: list[NDArray[np.int64]] = []
        if allowed is None and self._guard is None:
            parameters = load_faiss().SearchParametersIVF(nprobe=probes)
            rows = self._core.search(turned, wanted, params=parameters)[1]
            found.extend(self._index.positions(row) for row in rows)
        else:
            for start in range(0, len(turned), _QUERY_BLOCK):
                block = turned[start : start + _QUERY_BLOCK]
                if allowed is None:
                    nearness, order = self._core.quantizer.search(block, probes)
                    rows = self._read(block, wanted, _Lists(order, nearness))[0]
                else:
                    rows = self._read_behind(block, wanted, allowed, probes)
                found.extend(self._index.positions(row) for row in rows)
        if allowed is None:
            # Of the lists near to many equal vectors, one holds all of them and others nothing.
            short = [i for i, positions in enumerate(found) if len(positions) < k]
            more = self.candidates(queries[short], k, None, 4 * probes) if short else None
            for i, positions in zip(short, more or (), strict=False):
                found[i] = positions
        elif not all(allowed.at(positions).all() for positions in found):
            raise RuntimeError("this type ignores filters")
        return found

    def _wanted(self, k: int, allowed: Allowed | None) -> int:
        """How many candidates to ask for."""
        oversampling = self._index.oversampling
        wanted = oversampling * (k if oversampling == WHOLE else max(k, 10))
        if allowed is not None and oversampling == COARSE:
            wanted *= _MORE_OF_COARSE
        return wanted

    def _met(self, wanted: int, effort: int) -> tuple[int, int]:
        """How many vectors a search without a filter meets, and in how many lists."""
        n, lists = self._index.n, self._lists
        met = max(math.ceil(min(effort, lists) * n / lists), 2 * wanted)
        return met, min(lists, max(effort, math.ceil(met * lists / n)))

    def _prefers_scan(self, wanted: int, met: int, allowed: Allowed | None) -> bool:
        """Whether scanning all allowed vectors is cheaper than reading lists."""
        n = self._index.n
        if allowed is None:
            return n <= met
        # Among n vectors, an allowed one costs n / count ids.
        ids = _READINGS * _first(wanted) * n / allowed.count if allowed.count else 0
        return allowed.count <= max(met, ids / _IDS_PER_VECTOR)

    def _read_behind(
        self, queries: NDArray[np.float32], wanted: int, allowed: Allowed, probes: int
    ) -> NDArray[np.int64]:
        """(q, wanted) int64, best first, -1 if there are fewer; see the start of this module.

        Args:
            queries: (q, d) float32, transformed.
            wanted: how many to find.
            allowed: some of the vectors.
            probes: how many lists a search without a filter reads.
        """
        kept = max(wanted, _JUDGES)
        positions = np.full((len(queries), kept), -1, np.int64)
        scores = np.full((len(queries), kept), -np.inf, np.float32)
        # Of codes that keep little of a vector, a reading says less.
        probes = min(self._lists, 2 * probes if self._index.oversampling == COARSE else probes)
        ranked = self._ranked(queries, allowed, 2 * _first(wanted), 2 * probes)
        start = np.zeros(len(queries), np.int64)
        reach = start.copy()
        target = np.maximum(ranked.met[:, probes - 1] // 2, _first(wanted))
        reading = np.arange(len(queries))
        while len(reading):
            target = np.minimum(target, allowed.count)
            if (ranked.met[reading, -1] < target[reading]).any():
                ranked = self._ranked(queries, allowed, int(target[reading].max()), 0)
            met = ranked.met[reading]
            before = (met < target[reading][:, None]).sum(axis=1)
            # A graph of centroids may not find all lists.
            reach[reading] = np.minimum(1 + before, met.shape[1])
            read = lists_to_read(ranked.held[reading], start[reading], reach[reading])
            lists = _Lists(ranked.lists.numbers[reading], ranked.lists.nearness[reading])
            new = self._read(queries[reading], kept, _chosen(lists, read), allowed)
            both = np.concatenate([positions[reading], new[0]], axis=1)
            both_scores = np.concatenate([scores[reading], new[1]], axis=1)
            order = np.argsort(-both_scores, axis=1, kind="stable")[:, :kept]
            rows = np.arange(len(order))[:, None]
            positions[reading], scores[reading] = both[rows, order], both_scores[rows, order]
            target[reading] = 2 * met[rows[:, 0], reach[reading] - 1]
            start[reading] = reach[reading]
            judges = positions[reading] >= 0
            brought = ((order >= kept) & judges).sum(axis=1)
            ended = (reach[reading] == self._lists) | (target[reading] == 2 * allowed.count)
            reading = reading[~ended & (brought > _LAST * judges.sum(axis=1))]
        return positions[:, :wanted]

    def _ranked(
        self, queries: NDArray[np.float32], allowed: Allowed, met: int, least: int
    ) -> _Ranked:
        """`least` lists or more that hold `met` allowed vectors or more, or all lists."""
        # Ranking all lists takes longer than reading those that are usually needed.
        likely = math.ceil(met * self._lists / allowed.count) + 8
        ranked = min(self._lists, max(least, likely))
        while True:
            nearness, order = self._core.quantizer.search(queries, ranked)
            held = self._members.held(allowed, order)
            before = np.cumsum(held, axis=1)
            if ranked == self._lists or bool((before[:, -1] >= met).all()):
                return _Ranked(_Lists(order, nearness), held, before)
            ranked = min(self._lists, 2 * ranked)

    def _read(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        lists: _Lists,
        allowed: Allowed | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(q, wanted) int64 and float32: the best in these lists and their scores by codes."""
        if self._guard is not None:
            self._guard.check(lists.numbers)
        faiss = load_faiss()
        scores = np.full((len(queries), wanted), -np.inf, np.float32)
        positions = np.full((len(queries), wanted), -1, np.int64)
        if not lists.numbers.shape[1]:
            return positions, scores
        queries = np.ascontiguousarray(queries)
        # The Python form of this method takes no list numbers.
        self._core.search_preassigned_c(
            len(queries),
            faiss.swig_ptr(queries),
            wanted,
            faiss.swig_ptr(lists.numbers),
            faiss.swig_ptr(lists.nearness),
            faiss.swig_ptr(scores),
            faiss.swig_ptr(positions),
            False,
            self._parameters(lists, allowed),
        )
        scores[positions < 0] = -np.inf
        return positions, scores

    def _parameters(self, lists: _Lists, allowed: Allowed | None) -> Any:
        faiss = load_faiss()
        selector = None
        if allowed is not None:
            selector = faiss.IDSelectorBitmap(allowed.bits[: -(-self._index.n // 8)])
        return faiss.SearchParametersIVF(sel=selector, nprobe=lists.numbers.shape[1])

    @cached_property
    def _members(self) -> ListMembers:
        """Which positions each list holds."""
        faiss = load_faiss()
        if self._guard is not None:
            self._guard.check_ids()
        inverted = self._core.invlists
        parts = [
            self._index.positions(faiss.rev_swig_ptr(inverted.get_ids(number), size)).astype(
                np.int32
            )
            if size
            else np.empty(0, np.int32)
            for number, size in enumerate(sizes_of(self._core).tolist())
        ]
        members = np.concatenate(parts)
        if len(members) != self._index.n or (np.bincount(members) != 1).any():
            # Only a type that stores equal vectors once omits some.
            raise RuntimeError("not every position is in one list")
        return ListMembers(members, np.array([len(part) for part in parts], np.int64))


def _first(wanted: int) -> int:
    """How many allowed vectors the first reading meets at least."""
    return max(_FIRST, 2 * wanted)


def _chosen(lists: _Lists, read: NDArray[np.bool_]) -> _Lists:
    """The lists to read, in their order; FAISS skips those whose number is -1."""
    columns = np.flatnonzero(read.any(axis=0))
    part = slice(columns[0], columns[-1] + 1) if len(columns) else slice(0)
    return _Lists(
        np.where(read[:, part], lists.numbers[:, part], -1),
        np.ascontiguousarray(lists.nearness[:, part]),
    )
