"""Search through a FAISS index: FAISS finds candidates, the stored vectors give exact scores.

docs/reference/index-format.md, "Search structures", says how inverted lists and graphs are read
behind a filter.
"""

from __future__ import annotations

import math
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import UNGUARDED, BlockGuard
from indexes.files import damaged, unique
from indexes.vectors.flat import Nearest, exact_scores, rank_nearest, search_flat
from indexes.vectors.library import code_bytes, faiss_reason, load_faiss, unwrap

if TYPE_CHECKING:
    from indexes.passage_mask import PassageMask

# Bytes of an id in an inverted list.
ID_BYTES = 8
# Candidates that are scored exactly for each result, by how much of a vector the codes keep:
# everything, a byte or more of each dimension, or less.
_WHOLE = 1
_BYTES = 2
_COARSE = 10
# Results below which codes that lose something give as many candidates as for this many.
_LEAST_RESULTS = 10
# Behind a filter, coarse codes give this many times as many candidates, and twice as many allowed
# vectors are read.
_MORE_CANDIDATES_OF_COARSE = 4
_MORE_VECTORS_OF_COARSE = 2
# PassageMask vectors that a search behind a filter reads at least: centroids tell little of the
# vectors in lists that are far from the query.
_LEAST_ALLOWED = 512
# Queries whose lists are ranked together; bounds memory, as 4,096 lists can be ranked for each.
_QUERIES_TOGETHER = 32
# Vectors that are scanned in the time that one candidate takes. A graph compares the links of a
# node with the query; any other structure fetches and scores the vector.
_SCANNED_PER_GRAPH_STEP = 64
_SCANNED_PER_CANDIDATE = 16
_GRAPH_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)
_DEFAULT_GRAPH_EFFORT = 128
_OTHER_EFFORTS = (1, 2, 4, 8, 16)
_DEFAULT_OTHER_EFFORT = 4
# Behind a filter, how many times as many candidates as its share asks for, and how many more, so
# that chance rarely leaves too few.
_CANDIDATE_SURPLUS = 1.5
_MORE_CANDIDATES = 32


class Searcher(ABC):
    """A FAISS index over the vectors of one segment; threads may share it."""

    efforts: tuple[int, ...]
    default_effort: int

    def __init__(self, index: Any, path: Path) -> None:
        # The index owns what the core points to.
        self._owner = index
        self._path = path
        self._transforms, self._core = unwrap(index)
        self.n = int(index.ntotal)
        self.d = int(index.d)
        code_size = code_bytes(self._core)
        is_reduced = any(transform.d_out < transform.d_in for transform in self._transforms)
        if is_reduced or code_size < self.d:
            self._oversampling = _COARSE
        elif code_size < 4 * self.d:
            self._oversampling = _BYTES
        else:
            self._oversampling = _WHOLE

    def search(
        self,
        vectors: NDArray[np.float32],
        queries: NDArray[np.float32],
        k: int,
        mask: PassageMask | None = None,
        effort: int | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> list[Nearest]:
        """Find for each query about the `k` vectors of largest inner product.

        Args:
            vectors: (n, d), those that the index was built from.
            queries: (q, d).
            k: number of results; fewer if the mask allows fewer.
            mask: the vectors that may be found; None for all.
            effort: one of `efforts`, or any positive number; None for `default_effort`.
            guard: compares what is read of the vectors with its checksums.
        """
        if queries.ndim != 2 or queries.shape[1] != self.d:
            raise ValueError(f"expected queries of shape (q, {self.d}), found {queries.shape}")
        queries = np.ascontiguousarray(queries, np.float32)
        if not len(queries):
            return []
        try:
            candidates = self._find_candidates(queries, k, mask, effort or self.default_effort)
        except RuntimeError as error:
            candidates = None
            warnings.warn(
                f"{self._path}: FAISS cannot search this type of structure "
                f"({faiss_reason(error)}); all vectors are scanned instead, which is slower",
                stacklevel=2,
            )
        if candidates is None:
            return search_flat(vectors, queries, k, mask, guard)
        for positions in candidates:
            guard.check_rows(positions)
        nearest = [
            rank_nearest(positions, exact_scores(vectors, positions, query), k)
            for query, positions in zip(queries, candidates, strict=True)
        ]
        # Too few may be all that there are, which only the exact search can tell.
        incomplete = [i for i, (ids, _) in enumerate(nearest) if len(ids) < min(k, len(vectors))]
        if incomplete:
            exact = search_flat(vectors, queries[incomplete], k, mask, guard)
            for i, replacement in zip(incomplete, exact, strict=True):
                nearest[i] = replacement
        return nearest

    @abstractmethod
    def _find_candidates(
        self, queries: NDArray[np.float32], k: int, mask: PassageMask | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        """Find positions for each query, among them about the `k` best.

        Fewer than `k` make the search of a query exact; None makes every search exact.

        Raises:
            RuntimeError: this type of structure cannot be searched.
        """

    def _candidate_count(self, k: int) -> int:
        """Return how many candidates to ask FAISS for."""
        if self._oversampling == _WHOLE:
            return k
        return self._oversampling * max(k, _LEAST_RESULTS)

    def _transform(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply to (q, d) queries the transforms before the core; C-contiguous."""
        for transform in self._transforms:
            queries = transform.apply(queries)
        return np.ascontiguousarray(queries)

    def _check_positions(self, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions that FAISS found, ascending, each once, without -1."""
        positions = unique(row[row != -1])
        if len(positions) and (positions[0] < 0 or positions[-1] >= self.n):
            raise damaged(self._path, "it holds a passage that its segment does not have")
        return positions


class ListSearcher(Searcher):
    """Finds candidates in inverted lists; an effort is a number of lists to read (nprobe)."""

    def __init__(self, index: Any, path: Path, guard: ListGuard | None) -> None:
        super().__init__(index, path)
        self._guard = guard
        self._lists = int(self._core.nlist)
        powers = (2**exponent for exponent in range(self._lists.bit_length()))
        self.efforts = (*(power for power in powers if power < self._lists), self._lists)
        self.default_effort = min(self._lists, math.ceil(2 * math.sqrt(self._lists)))

    def _find_candidates(
        self, queries: NDArray[np.float32], k: int, mask: PassageMask | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        count = self._candidate_count(k)
        if mask is not None and self._oversampling == _COARSE:
            count *= _MORE_CANDIDATES_OF_COARSE
        # Vectors that a search without a filter reads, and the lists that hold about as many.
        reach = max(math.ceil(min(effort, self._lists) * self.n / self._lists), 2 * count)
        probes = min(self._lists, max(effort, math.ceil(reach * self._lists / self.n)))
        if mask is None and self.n <= reach:
            return None
        if mask is not None and mask.count <= max(reach, 2 * _LEAST_ALLOWED):
            return None
        transformed = self._transform(queries)
        if mask is None:
            return self._find_unfiltered(transformed, k, count, probes)
        candidates: list[NDArray[np.int64]] = []
        for start in range(0, len(transformed), _QUERIES_TOGETHER):
            block = transformed[start : start + _QUERIES_TOGETHER]
            rows = self._read_filtered(block, count, mask, reach, probes)
            candidates.extend(self._check_positions(row) for row in rows)
        if not all(mask.at(positions).all() for positions in candidates):
            raise RuntimeError("this type ignores filters")
        return candidates

    def _find_unfiltered(
        self, queries: NDArray[np.float32], k: int, count: int, probes: int
    ) -> list[NDArray[np.int64]]:
        """Return up to `count` positions for each query, from its `probes` nearest lists."""
        candidates: list[NDArray[np.int64]] = []
        if self._guard is None:
            parameters = load_faiss().SearchParametersIVF(nprobe=probes)
            rows = self._core.search(queries, count, params=parameters)[1]
            candidates.extend(self._check_positions(row) for row in rows)
        else:
            for start in range(0, len(queries), _QUERIES_TOGETHER):
                block = queries[start : start + _QUERIES_TOGETHER]
                nearness, numbers = self._core.quantizer.search(block, probes)
                rows = self._read_lists(block, count, numbers, nearness)
                candidates.extend(self._check_positions(row) for row in rows)
        # One of the lists near many equal vectors holds all of them, and the others none.
        incomplete = [i for i, positions in enumerate(candidates) if len(positions) < k]
        if incomplete and probes < self._lists:
            wider = min(4 * probes, self._lists)
            more = self._find_unfiltered(queries[incomplete], k, count, wider)
            for i, positions in zip(incomplete, more, strict=True):
                candidates[i] = positions
        return candidates

    def _read_filtered(
        self,
        queries: NDArray[np.float32],
        count: int,
        mask: PassageMask,
        reach: int,
        probes: int,
    ) -> NDArray[np.int64]:
        """Return (q, count) allowed positions; -1 where there are fewer.

        Lists are read, the nearest first, until they hold the geometric mean of the vectors that a
        search without a filter reads and those of them that the filter would allow.
        """
        target = math.ceil(reach * math.sqrt(mask.count / self.n))
        if self._oversampling == _COARSE:
            target *= _MORE_VECTORS_OF_COARSE
        target = min(max(target, _LEAST_ALLOWED, 2 * count), mask.count)
        ranked = self._rank_lists(queries, mask, target, probes)
        is_before_target = ranked.allowed_before < target
        is_read = is_before_target & (ranked.allowed > 0)
        width = int(is_before_target.sum(axis=1).max())
        # FAISS skips lists whose number is -1.
        numbers = np.where(is_read, ranked.numbers, -1)[:, :width]
        return self._read_lists(queries, count, numbers, ranked.nearness[:, :width], mask)

    def _rank_lists(
        self, queries: NDArray[np.float32], mask: PassageMask, target: int, least: int
    ) -> _RankedLists:
        """Rank for each query the lists that hold `target` allowed vectors, or all lists."""
        # Ranking all lists takes longer than reading those that are usually needed.
        likely = math.ceil(target * self._lists / mask.count)
        count = min(self._lists, max(least, likely))
        while True:
            nearness, numbers = self._core.quantizer.search(queries, count)
            allowed = self._members.count_allowed(mask, numbers)
            up_to = np.cumsum(allowed, axis=1)
            if count == self._lists or bool((up_to[:, -1] >= target).all()):
                return _RankedLists(numbers, nearness, allowed, up_to - allowed)
            count = min(self._lists, 2 * count)

    def _read_lists(
        self,
        queries: NDArray[np.float32],
        count: int,
        numbers: NDArray[np.int64],
        nearness: NDArray[np.float32],
        mask: PassageMask | None = None,
    ) -> NDArray[np.int64]:
        """Return (q, count) positions, the best by their codes in these lists first, or -1."""
        if self._guard is not None:
            self._guard.check(numbers)
        faiss = load_faiss()
        scores = np.full((len(queries), count), -np.inf, np.float32)
        positions = np.full((len(queries), count), -1, np.int64)
        if not numbers.shape[1]:
            return positions
        selector = None
        if mask is not None:
            selector = faiss.IDSelectorBitmap(mask.bits[: -(-self.n // 8)])
        arrays = [np.ascontiguousarray(array) for array in (queries, numbers, nearness)]
        queries_pointer, *list_pointers = map(faiss.swig_ptr, arrays)
        # The Python form of this method takes no list numbers.
        self._core.search_preassigned_c(
            len(queries),
            queries_pointer,
            count,
            *list_pointers,
            faiss.swig_ptr(scores),
            faiss.swig_ptr(positions),
            False,
            faiss.SearchParametersIVF(sel=selector, nprobe=numbers.shape[1]),
        )
        return positions

    @cached_property
    def _members(self) -> ListMembers:
        """The positions in each list."""
        faiss = load_faiss()
        if self._guard is not None:
            self._guard.check_ids()
        inverted = self._core.invlists
        lists = [
            self._check_positions(faiss.rev_swig_ptr(inverted.get_ids(number), size))
            if size
            else np.empty(0, np.int64)
            for number, size in enumerate(list_sizes(self._core).tolist())
        ]
        members = ListMembers(lists)
        if not members.is_partition(self.n):
            # Only a type that stores equal vectors once omits some.
            raise RuntimeError("not every position is in one list")
        return members


class _RankedLists(NamedTuple):
    """The inverted lists nearest to each query, the nearest first; (q, lists) each."""

    numbers: NDArray[np.int64]  # -1 for no list
    nearness: NDArray[np.float32]  # inner product of centroid and query
    allowed: NDArray[np.int64]  # number of allowed vectors in the list
    allowed_before: NDArray[np.int64]  # number of allowed vectors in the lists before it


class ListMembers:
    """The positions in each inverted list, for counting those that a filter allows."""

    def __init__(self, lists: Sequence[NDArray[np.integer]]) -> None:
        # int32 holds positions of up to two billion passages.
        self._members = np.concatenate(lists).astype(np.int32)
        self._sizes = np.array([len(members) for members in lists], np.int64)
        self._stops = np.cumsum(self._sizes)
        # For each mask (lists,) the allowed vectors in each list; -1 where not yet counted.
        self._counts: WeakKeyDictionary[PassageMask, NDArray[np.int64]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def is_partition(self, n: int) -> bool:
        """Return whether each position from 0 to n - 1 is in exactly one list."""
        return len(self._members) == n and bool((np.bincount(self._members) == 1).all())

    def count_allowed(self, mask: PassageMask, lists: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the allowed vectors in lists given by number; 0 for the number -1."""
        with self._lock:
            counts = self._counts.get(mask)
            if counts is None:
                counts = self._counts[mask] = np.full(len(self._sizes), -1, np.int64)
        uncounted = unique(lists[lists >= 0])
        uncounted = uncounted[counts[uncounted] < 0]
        if len(uncounted):
            sizes = self._sizes[uncounted]
            stops = self._stops[uncounted]
            # Where the members of these lists are, one list after the other.
            ends = np.cumsum(sizes)
            places = np.repeat(stops - ends, sizes) + np.arange(ends[-1])
            allowed_before = np.append(0, np.cumsum(mask.at(self._members[places])))
            counts[uncounted] = allowed_before[ends] - allowed_before[ends - sizes]
        return np.where(lists >= 0, counts[lists], 0)


class ListGuard:
    """Compares inverted lists at the end of a structure's file with checksums before use."""

    def __init__(
        self, guard: BlockGuard, sizes: NDArray[np.int64], code_bytes: int, start: int
    ) -> None:
        self._guard = guard
        # FAISS writes the codes of the first list, its ids, the codes of the second, and so on.
        self._starts = start + np.cumsum(np.append(0, sizes * (code_bytes + ID_BYTES)))
        self._id_starts = self._starts[:-1] + sizes * code_bytes
        self._is_checked = sizes == 0

    @property
    def end(self) -> int:
        """The offset behind the last list."""
        return int(self._starts[-1])

    def check(self, lists: NDArray[np.int64]) -> None:
        """Check lists given by number, in an array of any shape; -1 is skipped."""
        if self._guard.complete:
            return
        numbers = lists[lists >= 0]
        for number in unique(numbers[~self._is_checked[numbers]]).tolist():
            self._guard.check(int(self._starts[number]), int(self._starts[number + 1]))
            self._is_checked[number] = True

    def check_ids(self) -> None:
        """Check the ids of all lists."""
        for start, stop in zip(self._id_starts.tolist(), self._starts[1:].tolist(), strict=True):
            self._guard.check(start, stop)


class NeighborSearcher(Searcher):
    """Finds candidates by their number; a filter chooses among more of them.

    An effort is efSearch of a graph; for any other type, a multiple of the candidates that are
    scored exactly.
    """

    def __init__(self, index: Any, path: Path) -> None:
        super().__init__(index, path)
        self._is_graph = isinstance(self._core, load_faiss().IndexHNSW)
        self.efforts = _GRAPH_EFFORTS if self._is_graph else _OTHER_EFFORTS
        self.default_effort = _DEFAULT_GRAPH_EFFORT if self._is_graph else _DEFAULT_OTHER_EFFORT

    def _find_candidates(
        self, queries: NDArray[np.float32], k: int, mask: PassageMask | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        n = self.n
        allowed_count = n if mask is None else mask.count
        if allowed_count == n:
            mask = None
        if not allowed_count:
            return None
        count = self._candidate_count(k)
        if not self._is_graph:
            # The effort was measured without a filter.
            count *= effort if mask is None else max(effort, self.default_effort)
        unfiltered_count = count
        if mask is not None:
            unfiltered_count = math.ceil(_CANDIDATE_SURPLUS * count * n / allowed_count)
            unfiltered_count += _MORE_CANDIDATES
        step = _SCANNED_PER_GRAPH_STEP if self._is_graph else _SCANNED_PER_CANDIDATE
        if allowed_count <= unfiltered_count * step:
            return None
        parameters = None
        if self._is_graph:
            parameters = load_faiss().SearchParametersHNSW(efSearch=max(effort, unfiltered_count))
        transformed = self._transform(queries)
        rows = self._core.search(transformed, unfiltered_count, params=parameters)[1]
        candidates = [self._check_positions(row) for row in rows]
        if mask is None:
            return candidates
        allowed = [positions[mask.at(positions)] for positions in candidates]
        # If the best may be missing, none makes the search exact.
        return [positions if len(positions) >= count else positions[:0] for positions in allowed]


def open_searcher(index: Any, path: Path, guard: ListGuard | None) -> Searcher:
    """Make the searcher of a FAISS index; `guard` checks its inverted lists, if it has any."""
    if isinstance(unwrap(index)[1], load_faiss().IndexIVF):
        return ListSearcher(index, path, guard)
    return NeighborSearcher(index, path)


def list_sizes(core: Any) -> NDArray[np.int64]:
    """Return (lists,) the number of vectors in each inverted list of a FAISS index."""
    inverted = core.invlists
    return np.array([inverted.list_size(number) for number in range(core.nlist)], np.int64)
