"""Searching a FAISS structure: candidates from FAISS, exact scores from the kept vectors.

How inverted lists and graphs are read behind a filter is in docs/index-format.md, under "Search
structures".
"""

from __future__ import annotations

import math
import threading
import warnings
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from indexes.files import damaged, unique
from indexes.folder.checksums import UNGUARDED, BlockGuard
from indexes.vectors.flat import Nearest, exact_scores, nearest_of, search_flat
from indexes.vectors.library import code_bytes, faiss_reason, load_faiss, unwrap

if TYPE_CHECKING:
    from indexes.filters.columns import Allowed

ID_BYTES = 8


def sizes_of(core: Any) -> NDArray[np.int64]:
    """(lists,) int64: how many vectors each inverted list of a FAISS index holds."""
    inverted = core.invlists
    return np.array([inverted.list_size(number) for number in range(core.nlist)], np.int64)


# Candidates re-scored for each result, by how much of a vector the codes keep.
WHOLE = 1
BYTES = 2
COARSE = 10


class Searcher(ABC):
    """A FAISS index over the vectors of one segment, ready to be searched by several threads."""

    efforts: tuple[int, ...]
    default_effort: int

    def __init__(self, index: Any, path: Path) -> None:
        self._owner = index  # of what the core points to
        self._path = path
        self._transforms, self._core = unwrap(index)
        self.n = int(index.ntotal)
        self.d = int(index.d)
        kept = code_bytes(self._core)
        is_reduced = any(transform.d_out < transform.d_in for transform in self._transforms)
        if is_reduced or kept < self.d:
            self._oversampling = COARSE
        else:
            self._oversampling = WHOLE if kept >= 4 * self.d else BYTES

    def search(
        self,
        vectors: NDArray[np.float32],
        queries: NDArray[np.float32],
        k: int,
        allowed: Allowed | None = None,
        effort: int | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> list[Nearest]:
        """About the `k` vectors of largest inner product for each query."""
        if queries.ndim != 2 or queries.shape[1] != self.d:
            raise ValueError(f"expected queries of shape (q, {self.d}), found {queries.shape}")
        queries = np.ascontiguousarray(queries, np.float32)
        if not len(queries):
            return []
        try:
            candidates = self._candidates(queries, k, allowed, effort or self.default_effort)
        except RuntimeError as error:
            candidates = None
            warnings.warn(
                f"{self._path}: FAISS cannot search this type of structure "
                f"({faiss_reason(error)}); all vectors are scanned instead, which is slower",
                stacklevel=2,
            )
        if candidates is None:
            return search_flat(vectors, queries, k, allowed, guard)
        for positions in candidates:
            guard.check_rows(positions)
        found = [
            nearest_of(positions, exact_scores(vectors, positions, query), k)
            for query, positions in zip(queries, candidates, strict=True)
        ]
        # They may be all allowed ones, which only the exact scan can confirm.
        short = [i for i, (ids, _) in enumerate(found) if len(ids) < min(k, len(vectors))]
        if short:
            exact = search_flat(vectors, queries[short], k, allowed, guard)
            for i, answer in zip(short, exact, strict=True):
                found[i] = answer
        return found

    @abstractmethod
    def _candidates(
        self, queries: NDArray[np.float32], k: int, allowed: Allowed | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        """Candidates for the `k` best of each query; None where the exact scan is to answer.

        None for a query are too few as well. RuntimeError if the type of structure cannot do it.
        """

    def _candidates_wanted(self, k: int) -> int:
        """How many candidates to ask for."""
        return self._oversampling * (k if self._oversampling == WHOLE else max(k, 10))

    def _transformed(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """(q, d) queries as the core takes them, C-contiguous."""
        for transform in self._transforms:
            queries = transform.apply(queries)
        return np.ascontiguousarray(queries)

    def _positions(self, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions that FAISS returned, ascending, each once, without -1."""
        positions = unique(row[row != -1])
        if len(positions) and (positions[0] < 0 or positions[-1] >= self.n):
            raise damaged(self._path, "it holds a passage that its segment does not have")
        return positions


class ListMembers:
    """Which vectors each list holds."""

    def __init__(self, members: NDArray[np.int32], sizes: NDArray[np.int64]) -> None:
        self._members = members
        self._sizes = sizes
        self._stops = np.cumsum(sizes)
        # By filter, (lists,) int64: how many allowed vectors each list holds, -1 where unknown.
        self._held: WeakKeyDictionary[Allowed, NDArray[np.int64]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def held(self, allowed: Allowed, lists: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many allowed vectors each list holds, counted when it is first reached."""
        with self._lock:
            held = self._held.get(allowed)
            if held is None:
                held = self._held[allowed] = np.full(len(self._sizes), -1, np.int64)
        new = unique(lists[lists >= 0])
        new = new[held[new] < 0]
        if len(new):
            sizes = self._sizes[new]
            stops = self._stops[new]
            # The places of the members of all these lists, one list after the other.
            ends = np.cumsum(sizes)
            places = np.repeat(stops - ends, sizes) + np.arange(ends[-1])
            before = np.append(0, np.cumsum(allowed.at(self._members[places])))
            held[new] = before[ends] - before[ends - sizes]
        return np.where(lists >= 0, held[lists], 0)


class ListGuard:
    """Checks inverted lists at the end of a structure's file, each before it is first read."""

    def __init__(
        self, guard: BlockGuard, sizes: NDArray[np.int64], code_bytes: int, start: int
    ) -> None:
        self._guard = guard
        # FAISS writes the codes of the first list, its ids, those of the second list, and so on.
        self._starts = start + np.cumsum(np.append(0, sizes * (code_bytes + ID_BYTES)))
        self._ids = self._starts[:-1] + sizes * code_bytes
        self._seen = sizes == 0

    @property
    def end(self) -> int:
        """Where the last list ends."""
        return int(self._starts[-1])

    def check(self, lists: NDArray[np.int64]) -> None:
        """Check these lists, of any shape; -1 is skipped."""
        if self._guard.complete:
            return
        wanted = lists[lists >= 0]
        for number in unique(wanted[~self._seen[wanted]]).tolist():
            self._guard.check(int(self._starts[number]), int(self._starts[number + 1]))
            self._seen[number] = True

    def check_ids(self) -> None:
        """Check the ids of all lists."""
        for start, stop in zip(self._ids.tolist(), self._starts[1:].tolist(), strict=True):
            self._guard.check(start, stop)


_QUERY_BLOCK = 32
# Ids of a list that are tested in the time that it takes to fetch and score one vector, and how
# often as many vectors as the first reading meets are met in the end, about.
_IDS_PER_VECTOR = 25
_READINGS = 2.5
# Behind a filter: allowed vectors that the first reading meets at least; how many of the best
# judge a reading; and which share of them the last reading may have brought.
_FIRST_READING = 512
_JUDGING = 100
_LAST_READING_SHARE = 0.25
# Behind a filter, codes that keep little of a vector give this many times as many candidates.
_MORE_OF_COARSE = 4


class _Ranked(NamedTuple):
    """Inverted lists, the nearest first, and what they hold; (q, p) each."""

    numbers: NDArray[np.int64]  # -1 for none
    nearness: NDArray[np.float32]  # of their centroids to the query
    held: NDArray[np.int64]  # allowed vectors in each
    met: NDArray[np.int64]  # allowed vectors in each and those before it


class ListSearcher(Searcher):
    """Finds candidates in inverted lists; an effort is a number of lists to read (nprobe)."""

    def __init__(self, index: Any, path: Path, guard: ListGuard | None) -> None:
        super().__init__(index, path)
        self._guard = guard
        self._lists = int(self._core.nlist)
        powers = (2**exponent for exponent in range(self._lists.bit_length()))
        self.efforts = (*(power for power in powers if power < self._lists), self._lists)
        self.default_effort = min(self._lists, math.ceil(2 * math.sqrt(self._lists)))

    def _candidates(
        self, queries: NDArray[np.float32], k: int, allowed: Allowed | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        wanted = self._candidates_wanted(k)
        if allowed is not None and self._oversampling == COARSE:
            wanted *= _MORE_OF_COARSE
        # How many vectors a search without a filter meets, and in how many lists.
        met = max(math.ceil(min(effort, self._lists) * self.n / self._lists), 2 * wanted)
        probes = min(self._lists, max(effort, math.ceil(met * self._lists / self.n)))
        if self._prefers_scan(wanted, met, allowed):
            return None
        turned = self._transformed(queries)
        found: list[NDArray[np.int64]] = []
        if allowed is None and self._guard is None:
            parameters = load_faiss().SearchParametersIVF(nprobe=probes)
            rows = self._core.search(turned, wanted, params=parameters)[1]
            found.extend(self._positions(row) for row in rows)
        else:
            for start in range(0, len(turned), _QUERY_BLOCK):
                block = turned[start : start + _QUERY_BLOCK]
                if allowed is None:
                    nearness, order = self._core.quantizer.search(block, probes)
                    rows = self._read(block, wanted, order, nearness)[0]
                else:
                    rows = self._read_behind(block, wanted, allowed, probes)
                found.extend(self._positions(row) for row in rows)
        if allowed is None:
            # Of the lists near to many equal vectors, one holds all of them and others nothing.
            short = [i for i, positions in enumerate(found) if len(positions) < k]
            more = self._candidates(queries[short], k, None, 4 * probes) if short else None
            for i, positions in zip(short, more or (), strict=False):
                found[i] = positions
        elif not all(allowed.at(positions).all() for positions in found):
            raise RuntimeError("this type ignores filters")
        return found

    def _prefers_scan(self, wanted: int, met: int, allowed: Allowed | None) -> bool:
        """Whether scanning all allowed vectors is cheaper than reading lists."""
        n = self.n
        if allowed is None:
            return n <= met
        # Among n vectors, an allowed one costs n / count ids.
        ids = _READINGS * _first_reading(wanted) * n / allowed.count if allowed.count else 0
        return allowed.count <= max(met, ids / _IDS_PER_VECTOR)

    def _read_behind(
        self, queries: NDArray[np.float32], wanted: int, allowed: Allowed, probes: int
    ) -> NDArray[np.int64]:
        """(q, wanted) int64, best first, -1 if there are fewer."""
        # Were nearness of centroids no sign of nearness of vectors, half of the best would come
        # from the last reading, which goes as far as all before it.
        kept = max(wanted, _JUDGING)
        positions = np.full((len(queries), kept), -1, np.int64)
        scores = np.full((len(queries), kept), -np.inf, np.float32)
        # Of codes that keep little of a vector, a reading says less.
        probes = min(self._lists, 2 * probes if self._oversampling == COARSE else probes)
        ranked = self._ranked(queries, allowed, 2 * _first_reading(wanted), 2 * probes)
        start = np.zeros(len(queries), np.int64)
        reach = start.copy()
        target = np.maximum(ranked.met[:, probes - 1] // 2, _first_reading(wanted))
        reading = np.arange(len(queries))
        while len(reading):
            target = np.minimum(target, allowed.count)
            if (ranked.met[reading, -1] < target[reading]).any():
                ranked = self._ranked(queries, allowed, int(target[reading].max()), 0)
            met = ranked.met[reading]
            before = (met < target[reading][:, None]).sum(axis=1)
            # A graph of centroids may not find all lists.
            reach[reading] = np.minimum(1 + before, met.shape[1])
            places = np.arange(met.shape[1])
            read = (places >= start[reading, None]) & (places < reach[reading, None])
            read &= ranked.held[reading] > 0
            columns = np.flatnonzero(read.any(axis=0))
            part = slice(columns[0], columns[-1] + 1) if len(columns) else slice(0)
            # FAISS skips lists whose number is -1.
            numbers = np.where(read[:, part], ranked.numbers[reading][:, part], -1)
            nearness = np.ascontiguousarray(ranked.nearness[reading][:, part])
            new = self._read(queries[reading], kept, numbers, nearness, allowed)
            both = np.concatenate([positions[reading], new[0]], axis=1)
            both_scores = np.concatenate([scores[reading], new[1]], axis=1)
            order = np.argsort(-both_scores, axis=1, kind="stable")[:, :kept]
            rows = np.arange(len(order))[:, None]
            positions[reading] = both[rows, order]
            scores[reading] = both_scores[rows, order]
            target[reading] = 2 * met[rows[:, 0], reach[reading] - 1]
            start[reading] = reach[reading]
            judges = positions[reading] >= 0
            brought = ((order >= kept) & judges).sum(axis=1)
            ended = (reach[reading] == self._lists) | (target[reading] == 2 * allowed.count)
            reading = reading[~ended & (brought > _LAST_READING_SHARE * judges.sum(axis=1))]
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
                return _Ranked(order, nearness, held, before)
            ranked = min(self._lists, 2 * ranked)

    def _read(
        self,
        queries: NDArray[np.float32],
        wanted: int,
        numbers: NDArray[np.int64],
        nearness: NDArray[np.float32],
        allowed: Allowed | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(q, wanted) int64 and float32: the best in these lists and their scores by codes."""
        if self._guard is not None:
            self._guard.check(numbers)
        faiss = load_faiss()
        scores = np.full((len(queries), wanted), -np.inf, np.float32)
        positions = np.full((len(queries), wanted), -1, np.int64)
        if not numbers.shape[1]:
            return positions, scores
        selector = None
        if allowed is not None:
            selector = faiss.IDSelectorBitmap(allowed.bits[: -(-self.n // 8)])
        queries = np.ascontiguousarray(queries)
        # The Python form of this method takes no list numbers.
        self._core.search_preassigned_c(
            len(queries),
            faiss.swig_ptr(queries),
            wanted,
            *map(faiss.swig_ptr, (numbers, nearness, scores, positions)),
            False,
            faiss.SearchParametersIVF(sel=selector, nprobe=numbers.shape[1]),
        )
        scores[positions < 0] = -np.inf
        return positions, scores

    @cached_property
    def _members(self) -> ListMembers:
        """Which positions each list holds."""
        faiss = load_faiss()
        if self._guard is not None:
            self._guard.check_ids()
        inverted = self._core.invlists
        parts = [
            self._positions(faiss.rev_swig_ptr(inverted.get_ids(number), size)).astype(np.int32)
            if size
            else np.empty(0, np.int32)
            for number, size in enumerate(sizes_of(self._core).tolist())
        ]
        members = np.concatenate(parts)
        if len(members) != self.n or (np.bincount(members) != 1).any():
            # Only a type that stores equal vectors once omits some.
            raise RuntimeError("not every position is in one list")
        return ListMembers(members, np.array([len(part) for part in parts], np.int64))


def _first_reading(wanted: int) -> int:
    """How many allowed vectors the first reading meets at least."""
    return max(_FIRST_READING, 2 * wanted)


# How many vectors are scanned in the time that one candidate takes: in a graph, to compare the
# links of a node with the query; elsewhere, to fetch and re-score it.
_SCAN_PER_STEP = 64
_SCAN_PER_CANDIDATE = 16
_GRAPH_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)
_GRAPH_DEFAULT = 128
_OTHER_EFFORTS = (1, 2, 4, 8, 16)
_OTHER_DEFAULT = 4


class NeighborSearcher(Searcher):
    """Finds candidates by their number; a filter chooses among more than wanted.

    An effort is efSearch of a graph; for any other type, a multiple of the candidates re-scored.
    """

    def __init__(self, index: Any, path: Path) -> None:
        super().__init__(index, path)
        self._graph = isinstance(self._core, load_faiss().IndexHNSW)
        self.efforts = _GRAPH_EFFORTS if self._graph else _OTHER_EFFORTS
        self.default_effort = _GRAPH_DEFAULT if self._graph else _OTHER_DEFAULT

    def _candidates(
        self, queries: NDArray[np.float32], k: int, allowed: Allowed | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        n = self.n
        permitted = n if allowed is None else allowed.count
        if permitted == n:
            allowed = None
        if not permitted:
            return None
        wanted = self._candidates_wanted(k)
        if not self._graph:
            # The effort was measured without a filter.
            wanted *= effort if allowed is None else max(effort, self.default_effort)
        asked = wanted if allowed is None else math.ceil(1.5 * wanted * n / permitted) + 32
        if permitted <= asked * (_SCAN_PER_STEP if self._graph else _SCAN_PER_CANDIDATE):
            return None
        parameters = None
        if self._graph:
            parameters = load_faiss().SearchParametersHNSW(efSearch=max(effort, asked))
        turned = self._transformed(queries)
        rows = self._core.search(turned, asked, params=parameters)[1]
        found = [self._positions(row) for row in rows]
        if allowed is None:
            return found
        chosen = [positions[allowed.at(positions)] for positions in found]
        # If they may not be the best, return none, so that the exact scan answers.
        return [positions if len(positions) >= wanted else positions[:0] for positions in chosen]


def open_searcher(index: Any, path: Path, guard: ListGuard | None) -> Searcher:
    """The searcher of a FAISS index whose inverted lists, if it has any, `guard` checks."""
    if isinstance(unwrap(index)[1], load_faiss().IndexIVF):
        return ListSearcher(index, path, guard)
    return NeighborSearcher(index, path)
