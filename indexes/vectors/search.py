"""Searching a FAISS structure: candidates from FAISS, exact scores from the kept vectors.

What comes back keeps the contract of `search_flat`, whatever the type of the structure: a filter
acts before the best are chosen, and wherever the structure may not have found enough, the exact
scan answers.

Inverted lists are read in the order of their centroids; behind a filter until as many allowed
vectors are met as a search without a filter meets. If a filter depends on what vectors
are like, the allowed ones can be far from the query, and centroids say less about which are
nearest. So more lists are read, until twice as many vectors are met each time, and until that
brings no more than one in twenty of the best.

A graph, and any other type, returns more neighbors than wanted, and the filter chooses among
them. The best allowed ones of the nearest C are the best allowed ones of all, if there are enough;
if there are not, the exact scan answers. A filter inside the walk through a graph would give no
such sign, and lose neighbors where the allowed vectors lie far from the query.
"""

from __future__ import annotations

import math
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.files.checksums import UNGUARDED, BlockGuard
from indexes.files.faults import damaged
from indexes.filters.allowed import Allowed
from indexes.vectors.flat import at_least, exact_scores, search_flat
from indexes.vectors.library import COARSE, WHOLE, faiss_reason, load_faiss, oversampling, unwrap
from indexes.vectors.lists import ListGuard, ListMembers, lists_to_read, sizes_of

# How many vectors are scanned in the time that one candidate takes: in a graph, to compare the
# links of a node with the query; elsewhere, to fetch and re-score it.
_SCAN_PER_STEP, _SCAN_PER_CANDIDATE = 64, 16
_QUERY_BLOCK = 32
# Ids of a list that are tested in the time that it takes to fetch and score one vector.
_IDS_PER_VECTOR = 100
# Behind a filter, how many times as many allowed vectors are met by each further reading, and
# which share of the best it may bring when it is the last.
_FARTHER, _LAST = 2, 0.05
# Behind a filter, codes that keep little of a vector give this many times as many candidates.
_MORE_OF_COARSE = 4
_GRAPH_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)
_GRAPH_DEFAULT = 128
_OTHER_EFFORTS = (1, 2, 4, 8, 16)
_OTHER_DEFAULT = 4


class _Lists(NamedTuple):
    """Inverted lists to read.

    Attributes:
        numbers: (q, p) int64, -1 for none.
        nearness: (q, p) float32, of their centroids to the query.
    """

    numbers: NDArray[np.int64]
    nearness: NDArray[np.float32]


class Searcher:
    """A FAISS index over the vectors of one segment, ready to be searched by several threads.

    Attributes:
        efforts: the search efforts worth trying, ascending: numbers of lists read (nprobe) for
            inverted lists, lengths of the list of candidates (efSearch) for a graph, multiples of
            the candidates re-scored for any other type.
        default_effort: the effort where none is given.

    Args:
        index: a trained FAISS index of n vectors of d dimensions, by inner product.
        path: the file that it was read from, for errors.
        list_guard: checks inverted lists before they are read; None for other types, and where
            nothing is left to check.
    """

    def __init__(self, index: Any, path: Path, list_guard: ListGuard | None = None) -> None:
        self._index = index  # owns what the core points to
        self._path = path
        self._list_guard = list_guard
        self._transforms, self._core = unwrap(index)
        self._oversampling = oversampling(index.d, self._transforms, self._core)
        self._warned = False
        faiss = load_faiss()
        self._has_lists = isinstance(self._core, faiss.IndexIVF)
        self._graph = isinstance(self._core, faiss.IndexHNSW)
        self.efforts: tuple[int, ...] = _OTHER_EFFORTS
        self.default_effort = _OTHER_DEFAULT
        if self._has_lists:
            lists = int(self._core.nlist)
            powers = (2**exponent for exponent in range(lists.bit_length()))
            self.efforts = (*(power for power in powers if power < lists), lists)
            self.default_effort = min(lists, math.ceil(2 * math.sqrt(lists)))
        elif self._graph:
            self.efforts, self.default_effort = _GRAPH_EFFORTS, _GRAPH_DEFAULT

    def search(
        self,
        vectors: NDArray[np.float32],
        queries: NDArray[np.float32],
        k: int,
        allowed: Allowed | None = None,
        effort: int | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """About the `k` vectors of largest inner product for each query.

        Args:
            vectors: (n, d) float32, C-contiguous: the vectors that the structure was built from.
            queries: (q, d) float32.
            k: at least 1; may exceed n.
            allowed: some of them, or None for all; only these can be returned.
            effort: at least 1, see `efforts`; None for `default_effort`.
            guard: checks what is read of the vectors.

        Returns:
            For each query (positions int64, scores float32), exactly min(k, allowed) entries
            (fewer only if vectors or queries hold NaN). Each score is the inner product with
            the kept vector. Higher scores first; among equal scores of candidates the lower
            position first.

        Raises:
            DamagedIndexError: what is read was altered, or the structure holds a
                position that does not exist.
            MissingExtraError: FAISS is not installed.
            ValueError: shapes that do not fit, or an effort below 1.
        """
        queries = self._checked(vectors, queries, effort)
        if not len(queries):
            return []
        candidates = self._candidates(
            queries, self._wanted(k, allowed), allowed, effort or self.default_effort
        )
        if candidates is None:
            return search_flat(vectors, queries, k, allowed, guard)
        for positions in candidates:
            guard.check_rows(positions)
        found = [
            _rescored(vectors, query, positions, k)
            for query, positions in zip(queries, candidates, strict=True)
        ]
        # They may be all allowed ones, which only the exact scan can confirm.
        short = [i for i, (ids, _) in enumerate(found) if len(ids) < min(k, len(vectors))]
        if short:
            exact = search_flat(vectors, queries[short], k, allowed, guard)
            for i, answer in zip(short, exact, strict=True):
                found[i] = answer
        return found

    def at_least(
        self,
        vectors: NDArray[np.float32],
        query: NDArray[np.float32],
        floor: float,
        k: int,
        allowed: Allowed | None = None,
        effort: int | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> NDArray[np.int64]:
        """The positions that a search for `k` meets and that score `floor` or more, about.

        Vectors equal to one that `search` finds are all among them.

        Args:
            vectors: as of `search`.
            query: (d,) float32.
            floor: the score.
            k: at least 1.
            allowed: as of `search`.
            effort: as of `search`.
            guard: as of `search`.

        Returns:
            (m,) int64, ascending; some may score less.

        Raises:
            What `search` raises.
        """
        queries = self._checked(vectors, query[None], effort)
        if self._has_lists:
            try:
                found = self._lists_at_least(
                    vectors,
                    queries,
                    floor,
                    self._wanted(k, allowed),
                    allowed,
                    effort or self.default_effort,
                )
            except RuntimeError as error:
                self._warn(error)
                found = None
            if found is not None:
                return found
        return at_least(vectors, query, floor, allowed, guard)

    def _checked(
        self, vectors: NDArray[np.float32], queries: NDArray[np.float32], effort: int | None
    ) -> NDArray[np.float32]:
        n, d = self._index.ntotal, self._index.d
        if vectors.shape != (n, d):
            raise ValueError(f"expected vectors of shape {(n, d)}, found {vectors.shape}")
        if queries.ndim != 2 or queries.shape[1] != d:
            raise ValueError(f"expected queries of shape (q, {d}), found {queries.shape}")
        if effort is not None and effort < 1:
            raise ValueError(f"expected an effort of at least 1, found {effort}")
        return np.ascontiguousarray(queries, np.float32)

    def _wanted(self, k: int, allowed: Allowed | None) -> int:
        """How many candidates to ask for."""
        wanted = self._oversampling * (k if self._oversampling == WHOLE else max(k, 10))
        if allowed is not None and self._has_lists and self._oversampling == COARSE:
            wanted *= _MORE_OF_COARSE
        return wanted

    def _candidates(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        allowed: Allowed | None,
        effort: int,
    ) -> list[NDArray[np.int64]] | None:
        """For each query, allowed positions, ascending: about the `wanted` nearest, or too few.

        None if the exact scan is cheaper, or the type cannot do it.
        """
        try:
            if self._has_lists:
                return self._from_lists(queries, wanted, allowed, effort)
            return self._from_neighbors(queries, wanted, allowed, effort)
        except RuntimeError as error:
            self._warn(error)
            return None

    def _warn(self, error: RuntimeError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self._path}: FAISS cannot search this type of structure "
                f"({faiss_reason(error)}); all vectors are scanned instead, which is slower",
                stacklevel=2,
            )

    def _from_lists(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        allowed: Allowed | None,
        effort: int,
    ) -> list[NDArray[np.int64]] | None:
        met, probes = self._met(wanted, effort)
        if self._prefers_scan(met, allowed):
            return None
        turned = self._transformed(queries)
        if allowed is None and self._list_guard is None:
            parameters = load_faiss().SearchParametersIVF(nprobe=probes)
            rows = self._core.search(turned, wanted, params=parameters)[1]
            return [self._positions(row) for row in rows]
        found: list[NDArray[np.int64]] = []
        for start in range(0, len(turned), _QUERY_BLOCK):
            block = turned[start : start + _QUERY_BLOCK]
            if allowed is None:
                nearness, order = self._core.quantizer.search(block, probes)
                rows = self._read_lists(block, wanted, _Lists(order, nearness))[0]
            else:
                rows = self._read_behind(block, wanted, allowed, met)
            found.extend(self._positions(row) for row in rows)
        if allowed is not None and not all(allowed.at(positions).all() for positions in found):
            raise RuntimeError("this type ignores filters")
        return found

    def _read_behind(
        self, queries: NDArray[np.float32], wanted: int, allowed: Allowed, met: int
    ) -> NDArray[np.int64]:
        """(q, wanted) int64: the best allowed vectors, -1 if there are fewer.

        Args:
            queries: transformed.
            wanted: how many to find.
            allowed: some of the vectors.
            met: how many of them to meet at first.
        """
        positions = np.full((len(queries), wanted), -1, np.int64)
        scores = np.full((len(queries), wanted), -np.inf, np.float32)
        best = max(1, wanted // self._oversampling)
        reading = np.arange(len(queries))
        start, stop = 0, met
        lists = ranked = None
        while len(reading):
            if lists is None or ranked is None or (ranked[1][reading, -1] < stop).any():
                lists, ranked = self._ranked(queries, allowed, stop)
            held, before = ranked
            read = lists_to_read(before[reading], held[reading], start, stop)
            chosen = _chosen(_Lists(lists.numbers[reading], lists.nearness[reading]), read)
            new, new_scores = self._read_lists(queries[reading], wanted, chosen, allowed)
            both = np.concatenate([positions[reading], new], axis=1)
            all_scores = np.concatenate([scores[reading], new_scores], axis=1)
            order = np.argsort(-all_scores, axis=1, kind="stable")[:, :wanted]
            positions[reading] = np.take_along_axis(both, order, 1)
            scores[reading] = np.take_along_axis(all_scores, order, 1)
            brought = (order[:, :best] >= wanted).sum(axis=1)
            exhausted = before[reading, -1] < stop
            settled = (brought <= _LAST * best) if start else np.zeros(len(reading), np.bool_)
            reading = reading[~(settled | exhausted)]
            start, stop = stop, math.ceil(_FARTHER * stop)
        return positions

    def _ranked(
        self, queries: NDArray[np.float32], allowed: Allowed, met: int
    ) -> tuple[_Lists, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Lists that hold `met` allowed vectors or more, or all lists, the nearest first.

        Returns:
            The lists; how many allowed vectors each holds, and each and those before it.
        """
        lists = int(self._core.nlist)
        # Ranking all lists takes longer than reading those that are usually needed.
        ranked = min(lists, math.ceil(2 * met * lists / allowed.count) + 8)
        while True:
            nearness, order = self._core.quantizer.search(queries, ranked)
            held = self._members.held(allowed, order)
            before = np.cumsum(held, axis=1)
            if ranked == lists or bool((before[:, -1] >= met).all()):
                return _Lists(order, nearness), (held, before)
            ranked = min(lists, 2 * ranked)

    def _lists_at_least(
        self,
        vectors: NDArray[np.float32],
        queries: NDArray[np.float32],
        floor: float,
        wanted: int,
        allowed: Allowed | None,
        effort: int,
    ) -> NDArray[np.int64] | None:
        """See `at_least`, for one query; None if the exact scan is cheaper."""
        met, probes = self._met(wanted, effort)
        if self._prefers_scan(met, allowed):
            return None
        turned = self._transformed(queries)
        if allowed is None:
            nearness, order = self._core.quantizer.search(turned, probes)
            lists = _Lists(order, nearness)
        else:
            lists, (held, before) = self._ranked(turned, allowed, met)
            lists = _chosen(lists, lists_to_read(before, held, 0, met))
        rows, scores = self._read_lists(turned, wanted, lists, allowed)
        found = rows[0] >= 0
        positions, by_codes = rows[0][found], scores[0][found]
        tied = exact_scores(vectors, positions, queries[0]) >= floor
        if not tied.any():
            return self._positions(rows[0])
        # Equal vectors have equal codes, and so equal scores by them.
        least = float(by_codes[tied].min())
        radius = least - 1e-6 * max(1.0, abs(least))
        faiss = load_faiss()
        equal = faiss.RangeSearchResult(1)
        # The method's Python form takes no parameters.
        self._core.range_search_preassigned_c(
            1,
            faiss.swig_ptr(turned),
            radius,
            faiss.swig_ptr(lists.numbers),
            faiss.swig_ptr(lists.nearness),
            equal,
            False,
            self._parameters(lists, allowed),
        )
        count = int(faiss.rev_swig_ptr(equal.lims, 2)[1])
        labels = faiss.rev_swig_ptr(equal.labels, count).copy() if count else rows[0][:0]
        return self._positions(np.concatenate([labels, rows[0]]))

    def _prefers_scan(self, met: int, allowed: Allowed | None) -> bool:
        """Whether scanning all allowed vectors is cheaper than reading lists."""
        n = int(self._index.ntotal)
        if allowed is None:
            return n <= met
        return allowed.count <= met or _IDS_PER_VECTOR * allowed.count**2 <= met * n

    def _met(self, wanted: int, effort: int) -> tuple[int, int]:
        """How many vectors a search without a filter meets, and in how many lists."""
        n, lists = int(self._index.ntotal), int(self._core.nlist)
        met = max(math.ceil(min(effort, lists) * n / lists), 2 * wanted)
        return met, min(lists, max(effort, math.ceil(met * lists / n)))

    def _read_lists(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        lists: _Lists,
        allowed: Allowed | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(q, wanted) int64 and float32: the best in these lists and their scores by codes."""
        if self._list_guard is not None:
            self._list_guard.check(lists.numbers)
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
            selector = faiss.IDSelectorBitmap(allowed.bits[: -(-int(self._index.ntotal) // 8)])
        return faiss.SearchParametersIVF(sel=selector, nprobe=lists.numbers.shape[1])

    def _from_neighbors(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        allowed: Allowed | None,
        effort: int,
    ) -> list[NDArray[np.int64]] | None:
        n = self._index.ntotal
        permitted = n if allowed is None else allowed.count
        if permitted == n:
            allowed = None
        if not permitted:
            return None
        if not self._graph:
            # The effort was measured without a filter.
            wanted *= effort if allowed is None else max(effort, self.default_effort)
        asked = wanted if allowed is None else math.ceil(1.5 * wanted * n / permitted) + 32
        if permitted <= asked * (_SCAN_PER_STEP if self._graph else _SCAN_PER_CANDIDATE):
            return None
        parameters = None
        if self._graph:
            parameters = load_faiss().SearchParametersHNSW(efSearch=max(effort, asked))
        rows = self._core.search(self._transformed(queries), asked, params=parameters)[1]
        found = [self._positions(row) for row in rows]
        if allowed is None:
            return found
        chosen = [positions[allowed.at(positions)] for positions in found]
        # If they may not be the best, return none, so that the exact scan answers.
        return [positions if len(positions) >= wanted else positions[:0] for positions in chosen]

    def _transformed(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        for transform in self._transforms:
            queries = transform.apply(queries)
        return np.ascontiguousarray(queries)

    def _positions(self, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions that FAISS returned, ascending, each once, without -1."""
        positions = np.unique(row[row != -1])
        if len(positions) and (positions[0] < 0 or positions[-1] >= self._index.ntotal):
            raise damaged(self._path, "it holds a passage that its segment does not have")
        return positions

    @cached_property
    def _members(self) -> ListMembers:
        """Which positions each list holds."""
        faiss = load_faiss()
        if self._list_guard is not None:
            self._list_guard.check_ids()
        inverted = self._core.invlists
        parts = [
            self._positions(faiss.rev_swig_ptr(inverted.get_ids(number), size)).astype(np.int32)
            if size
            else np.empty(0, np.int32)
            for number, size in enumerate(sizes_of(self._core).tolist())
        ]
        members = np.concatenate(parts)
        if len(members) != self._index.ntotal or (np.bincount(members) != 1).any():
            # Only a type that stores equal vectors once omits some.
            raise RuntimeError("not every position is in one list")
        return ListMembers(members, np.array([len(part) for part in parts], np.int64))


def _chosen(lists: _Lists, read: NDArray[np.bool_]) -> _Lists:
    """The lists to read first, in their order; -1 fills what is left of a row."""
    first = np.argsort(~read, axis=1, kind="stable")[:, : int(read.sum(axis=1).max(initial=0))]
    numbers = np.take_along_axis(lists.numbers, first, 1)
    kept = np.take_along_axis(read, first, 1)
    return _Lists(
        np.ascontiguousarray(np.where(kept, numbers, -1)),
        np.ascontiguousarray(np.take_along_axis(lists.nearness, first, 1)),
    )


def _rescored(
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    positions: NDArray[np.int64],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    scores = exact_scores(vectors, positions, query).astype(np.float32)
    # The exact scan returns nothing whose score is not a number.
    positions, scores = positions[~np.isnan(scores)], scores[~np.isnan(scores)]
    best = np.argsort(-scores, kind="stable")[:k]
    return positions[best], scores[best]
