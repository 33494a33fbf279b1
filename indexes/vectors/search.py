"""Searching a FAISS structure: candidates from FAISS, exact scores from the kept vectors.

What comes back is held to the contract of `search_flat`, whatever the type of the
structure: a filter acts before the choice of the best, and wherever the structure cannot be sure
to have found enough, the exact scan answers.

Inverted lists are read in the order of their centroids, those without an allowed vector left out,
until enough allowed vectors were met: what was measured behind filters that leave as much, and
where nothing was, or the filter is uneven, as many as a search without a filter meets. Where they
lie apart from the query (see `indexes.vectors.lists`), four times as many as that are read, and no
fewer than with the default effort.

A graph, and any other type, is asked for more neighbours than wanted, and the filter chooses among
them. The best allowed ones of the nearest C are the best allowed ones of all, if there are enough;
if there are not, the exact scan answers. A filter inside the walk through a graph gives no such
sign, and loses neighbours without one where the allowed vectors lie apart from the query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files.arrays import damaged
from indexes.files.checksums import UNGUARDED, BlockGuard
from indexes.filters.allowed import Allowed
from indexes.vectors.flat import search_flat
from indexes.vectors.library import COARSE, WHOLE, load_faiss, oversampling, unwrap
from indexes.vectors.list_guard import ListGuard, sizes_of
from indexes.vectors.lists import Evenness, ListMembers, lists_behind, lists_to_read, to_meet

# So many vectors are scanned for what one candidate costs: in a graph, to compare the links of a
# node with the query; elsewhere, to fetch and re-score it.
_SCAN_PER_STEP, _SCAN_PER_CANDIDATE = 64, 16
_QUERY_BLOCK = 32
# Where allowed vectors lie apart from the query, so many times as many are read.
_FARTHER = 4
# Ids of a list that are judged in the time that it takes to fetch and score a vector from anywhere.
_IDS_PER_VECTOR = 100
# So many times as many lists are ranked as would hold enough if all were equal.
_ENOUGH = 1.25
# Behind a filter, codes that keep little of a vector give so many times as many candidates.
_MORE_OF_COARSE = 4
_GRAPH_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)
_GRAPH_DEFAULT = 128
_OTHER_EFFORTS = (1, 2, 4, 8, 16)
_OTHER_DEFAULT = 4


class Searcher:
    """A FAISS index over the vectors of one segment, ready to be searched.

    Attributes:
        efforts: the search efforts worth trying, ascending: numbers of lists read (nprobe) for
            inverted lists, lengths of the list of candidates (efSearch) for a graph, multiples of
            the candidates re-scored for any other type.
        default_effort: what is used where none is given.
        has_lists: whether it is of inverted lists.

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
        faiss = load_faiss()
        self.has_lists = isinstance(self._core, faiss.IndexIVF)
        self._graph = isinstance(self._core, faiss.IndexHNSW)
        self.efforts: tuple[int, ...] = _OTHER_EFFORTS
        self.default_effort = _OTHER_DEFAULT
        if self.has_lists:
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
        behind: Sequence[tuple[float, int]] = (),
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """About the `k` vectors of largest inner product for each query.

        Args:
            vectors: (n, d) float32, C-contiguous: the vectors that the structure was built from.
            queries: (q, d) float32.
            k: at least 1; may exceed n.
            allowed: some of them, or None for all; only these can be returned.
            effort: at least 1, see `efforts`; None for `default_effort`.
            guard: checks what is read of the vectors.
            behind: for inverted lists, the efforts behind filters that are drawn evenly: (share,
                effort), see `indexes.vectors.lists.lists_behind`.

        Returns:
            For each query (positions int64, scores float32), exactly min(k, allowed) entries
            (fewer only where vectors or queries hold NaN). Each score is the inner product with
            the kept vector. Higher scores first; among equal scores of candidates the lower
            position first.

        Raises:
            DamagedIndexError: what is read is not as it was written, or the structure holds a
                position that does not exist.
            MissingExtraError: FAISS is not installed.
            ValueError: shapes that do not fit, or an effort below 1.
        """
        queries = self._checked(vectors, queries, effort)
        if not len(queries):
            return []
        wanted = self._oversampling * (k if self._oversampling == WHOLE else max(k, 10))
        candidates = self._candidates(
            queries, wanted, allowed, effort or self.default_effort, behind
        )
        if candidates is None:
            return search_flat(vectors, queries, k, allowed, guard)
        for positions in candidates:
            guard.check_rows(positions)
        found = [
            _rescored(vectors, query, positions, k)
            for query, positions in zip(queries, candidates, strict=True)
        ]
        # They may be all that are allowed, which the exact scan tells.
        short = [i for i, (ids, _) in enumerate(found) if len(ids) < min(k, len(vectors))]
        if short:
            exact = search_flat(vectors, queries[short], k, allowed, guard)
            for i, answer in zip(short, exact, strict=True):
                found[i] = answer
        return found

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

    def _candidates(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        allowed: Allowed | None,
        effort: int,
        behind: Sequence[tuple[float, int]],
    ) -> list[NDArray[np.int64]] | None:
        """For each query, allowed positions, ascending: about the `wanted` nearest, or too few.

        None where the exact scan is cheaper, or the type cannot do it.
        """
        try:
            if self.has_lists:
                return self._from_lists(queries, wanted, allowed, effort, behind)
            return self._from_neighbours(queries, wanted, allowed, effort)
        except RuntimeError:  # FAISS: this type takes no such parameters
            return None

    def _from_lists(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        allowed: Allowed | None,
        effort: int,
        behind: Sequence[tuple[float, int]],
    ) -> list[NDArray[np.int64]] | None:
        n = int(self._index.ntotal)
        met, probes = self._met(wanted, effort)
        if n <= met:
            return None
        turned = np.ascontiguousarray(self._transformed(queries))
        if allowed is not None:
            return self._from_lists_behind(turned, wanted, allowed, effort, behind)
        faiss = load_faiss()
        if self._list_guard is None:
            parameters = faiss.SearchParametersIVF(nprobe=probes)
            rows = self._core.search(turned, wanted, params=parameters)[1]
        else:
            nearness, order = self._core.quantizer.search(turned, probes)
            rows = self._read_lists(faiss, turned, wanted, order, nearness)
        return [self._positions(row) for row in rows]

    def _met(self, wanted: int, effort: int) -> tuple[int, int]:
        """How many vectors a search without a filter meets, and in how many lists."""
        n, lists = int(self._index.ntotal), int(self._core.nlist)
        met = max(math.ceil(min(effort, lists) * n / lists), 2 * wanted)
        return met, min(lists, max(effort, math.ceil(met * lists / n)))

    def _from_lists_behind(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        allowed: Allowed,
        effort: int,
        behind: Sequence[tuple[float, int]],
    ) -> list[NDArray[np.int64]] | None:
        """As `_from_lists`, of queries that are transformed, behind a filter."""
        n, lists = int(self._index.ntotal), int(self._core.nlist)
        if self._oversampling == COARSE:
            wanted *= _MORE_OF_COARSE

        def to_meet_of(permitted: float) -> int:
            """How many of so many evenly drawn ones to meet."""
            needed = lists_behind(permitted / n, min(effort, lists), behind)
            return max(math.ceil(permitted * needed / lists), 2 * wanted)

        def too_few(permitted: float, met: int) -> bool:
            """Whether they are sooner scanned than that many of them found in lists."""
            return permitted <= met or _IDS_PER_VECTOR * permitted**2 <= met * n

        if not allowed.at_most or too_few(allowed.at_most, to_meet_of(allowed.at_most)):
            return None
        known = self._members.filtered(allowed)
        permitted = known.share * n
        met, probes = self._met(wanted, effort)
        farther = max(_FARTHER * met, math.ceil(self.default_effort * n / lists))
        if permitted and known.evenness is Evenness.EVEN:
            met = to_meet_of(permitted)
        if too_few(permitted, met):
            return None
        faiss = load_faiss()
        found: list[NDArray[np.int64]] = []
        for start in range(0, len(queries), _QUERY_BLOCK):
            block = queries[start : start + _QUERY_BLOCK]
            # To rank them all takes longer than to read those that are needed as a rule.
            ranked = min(lists, math.ceil(_ENOUGH * met * lists / permitted) + probes)
            while True:
                nearness, order = self._core.quantizer.search(block, ranked)
                known.judge(allowed, order)
                enough = to_meet(known, self._members.sizes, order, probes, met, farther)
                read, suffices = lists_to_read(known.held, order, enough)
                if suffices or ranked == lists:
                    break
                ranked = min(lists, 2 * ranked)
            # The lists to read come first, in their order; -1 fills what is left of a row.
            first = np.argsort(~read, axis=1, kind="stable")[:, : int(read.sum(axis=1).max())]
            chosen = np.where(
                np.take_along_axis(read, first, 1), np.take_along_axis(order, first, 1), -1
            )
            near = np.take_along_axis(nearness, first, 1)
            selector = faiss.IDSelectorBitmap(known.bitmap)
            rows = self._read_lists(faiss, block, wanted, chosen, near, selector)
            found.extend(self._positions(row) for row in rows)
        # A type that ignores the filter would give other positions too.
        return found if all(allowed.at(positions).all() for positions in found) else None

    def _read_lists(
        self,
        faiss: Any,
        queries: NDArray[np.float32],
        wanted: int,
        lists: NDArray[np.int64],
        nearness: NDArray[np.float32],
        selector: Any = None,
    ) -> NDArray[np.int64]:
        """(q, wanted) int64: the best in these lists, (q, p) int64, -1 for none."""
        if self._list_guard is not None:
            self._list_guard.check(lists)
        lists, nearness = np.ascontiguousarray(lists), np.ascontiguousarray(nearness)
        scores = np.empty((len(queries), wanted), np.float32)
        positions = np.full((len(queries), wanted), -1, np.int64)
        # The method's Python form takes neither parameters nor a number of lists of one's own.
        self._core.search_preassigned_c(
            len(queries),
            faiss.swig_ptr(queries),
            wanted,
            faiss.swig_ptr(lists),
            faiss.swig_ptr(nearness),
            faiss.swig_ptr(scores),
            faiss.swig_ptr(positions),
            False,
            faiss.SearchParametersIVF(sel=selector, nprobe=lists.shape[1]),
        )
        return positions

    def _from_neighbours(
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
        # Where they may not be the best, none are given, so that the exact scan answers.
        return [positions if len(positions) >= wanted else positions[:0] for positions in chosen]

    def _transformed(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        for transform in self._transforms:
            queries = transform.apply(queries)
        return queries

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
            # Only a type that stores equal vectors once leaves some out; it takes no filter.
            raise RuntimeError("not every position is in one list")
        return ListMembers(members, np.array([len(part) for part in parts], np.int64))


def _rescored(
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    positions: NDArray[np.int64],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    scores = (vectors[positions].astype(np.float64) @ query.astype(np.float64)).astype(np.float32)
    # The exact scan returns nothing whose score is not a number.
    positions, scores = positions[~np.isnan(scores)], scores[~np.isnan(scores)]
    best = np.argsort(-scores, kind="stable")[:k]
    return positions[best], scores[best]
