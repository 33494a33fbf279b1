"""Ranking the passages of an index folder: each component's best, scored by what the mode has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings
from indexes.bm25.scoring import BM25, CorpusStatistics
from indexes.bm25.top_k import top_places
from indexes.files.arrays import each_once
from indexes.filters.allowed import Allowed
from indexes.protocol import Candidates, Mode, Query
from indexes.segments.live import LiveSegment
from indexes.vectors.flat import (
    exact_scores,
    is_one_pass,
    nearest_with_ties,
    rounded,
    tie_slack,
)
from indexes.vectors.segment_structure import search_vectors, vectors_at_least

# For each segment, positions of passages.
_Positions = Sequence[NDArray[np.int64]]


class FolderRanking:
    """Ranks the live passages of some segments; see `indexes.protocol.Ranking`.

    Args:
        segments: all live ones of one commit.
        statistics: counts over their live passages.
        live: for each segment the passages that are not deleted; None if none was.
        allowed: for each segment the live passages that a filter allows; None without a filter.
        bm25: variant and parameters; None for the defaults.
        recall: of searches in a structure, in (0, 1]; None for the default.
        documents_of: gives the user's id of the document of each passage.
    """

    def __init__(
        self,
        segments: Sequence[LiveSegment],
        statistics: CorpusStatistics,
        live: Sequence[Allowed | None],
        allowed: Sequence[Allowed] | None,
        bm25: BM25Settings | None,
        recall: float | None,
        documents_of: Callable[[Sequence[int]], dict[int, str]],
    ) -> None:
        self._segments = segments
        self._bm25 = BM25(segments, bm25, statistics)
        self._filter = allowed
        # A filter never allows a deleted passage.
        self._allowed = live if allowed is None else allowed
        self._recall = recall
        self._documents_of = documents_of

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        """The best passages for each query; see `indexes.protocol.Ranking`."""
        if not self._segments:
            return [NO_CANDIDATES] * len(queries)
        if mode == "bm25":
            return [self._by_bm25(query, depth) for query in queries]
        settled = self._in_one_pass(queries, mode, depth)
        nearest = self._nearest(queries, mode, depth) if settled is None else settled
        return [
            self._scored(query, positions, mode, depth, settled=settled is not None)
            for query, positions in zip(queries, nearest, strict=True)
        ]

    def settled(self, query: Query, depth: int, score: float) -> Candidates:
        """Those of a query of mode ``dense`` with equal scores; see `indexes.protocol.Ranking`."""
        return self._scored(query, self._tied(query, depth, score), "dense", depth, settled=True)

    def _nearest(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[_Positions]:
        """For each query, the positions of the `depth` nearest passages of all segments."""
        vectors = np.stack([query.vector for query in queries if query.vector is not None])
        found = [
            search_vectors(
                live.segment.structure,
                live.segment.vectors,
                vectors,
                # One more, to see whether it equals the last.
                depth + (mode == "hybrid"),
                allowed,
                self._recall,
                live.segment.vectors_guard,
            )
            for live, allowed in zip(self._segments, self._allowed, strict=True)
        ]
        nearest: list[_Positions] = []
        for row, query in enumerate(queries):
            scores = np.concatenate([part[row][1] for part in found])
            if len(scores) <= depth:
                nearest.append([part[row][0] for part in found])
                continue
            least, next_least = np.partition(scores, (-depth, -depth - 1))[[-depth, -depth - 1]]
            if mode == "hybrid" and least - next_least <= tie_slack(float(least)):
                tied = self._tied(query, depth, float(least))
                nearest.append(self._first(tied, self._exact(query, tied), depth))
            else:
                nearest.append([part[row][0][part[row][1] >= least] for part in found])
        return nearest

    def _tied(self, query: Query, depth: int, score: float) -> _Positions:
        """For each segment, the `depth` best passages, equal scores by their documents' ids.

        Args:
            query: with its vector.
            depth: at least 1.
            score: no passage below it is among the best of all segments.
        """
        assert query.vector is not None
        return [
            _best_of_ties(
                live,
                query.vector,
                vectors_at_least(
                    live.segment.structure,
                    live.segment.vectors,
                    query.vector,
                    score - tie_slack(score),
                    depth,
                    allowed,
                    self._recall,
                    live.segment.vectors_guard,
                ),
                depth,
            )
            for live, allowed in zip(self._segments, self._allowed, strict=True)
        ]

    def _first(
        self, positions: _Positions, scores: Sequence[NDArray[np.float64]], depth: int
    ) -> _Positions:
        """The `depth` best of some passages of all segments, equal scores by their documents' ids.

        Args:
            positions: of the passages of each segment.
            scores: of the same.
            depth: at least 1.
        """
        ends = np.cumsum([0, *map(len, positions)])
        if ends[-1] <= depth:
            return positions
        every = np.concatenate(scores)
        least = np.partition(every, -depth)[-depth]
        kept, tied = every > least, np.flatnonzero(every == least)
        ids = np.concatenate(
            [
                live.segment.ids_at(some)
                for live, some in zip(self._segments, positions, strict=True)
            ]
        )[tied]
        documents = self._documents_of(ids.tolist())
        order = sorted(range(len(tied)), key=lambda i: (documents[int(ids[i])], ids[i]))
        kept[tied[order[: depth - int(kept.sum())]]] = True
        return [
            some[kept[start:stop]]
            for some, start, stop in zip(positions, ends, ends[1:], strict=False)
        ]

    def _exact(self, query: Query, positions: _Positions) -> list[NDArray[np.float64]]:
        """The scores of passages of each segment."""
        vector = np.asarray(query.vector)
        return [
            rounded(exact_scores(live.segment.vectors, some, vector))
            for live, some in zip(self._segments, positions, strict=True)
        ]

    def _in_one_pass(
        self, queries: Sequence[Query], mode: Mode, depth: int
    ) -> list[_Positions] | None:
        """As `_tied`, for one query where every segment is scanned; None elsewhere."""
        segments = list(zip(self._segments, self._allowed, strict=True))
        if (
            mode != "dense"
            or len(queries) > 1
            or not all(
                live.segment.structure.structure is None
                and is_one_pass(live.segment.vectors, allowed)
                for live, allowed in segments
            )
        ):
            return None
        vector = np.asarray(queries[0].vector)
        return [
            [
                _best_of_ties(
                    live,
                    vector,
                    nearest_with_ties(
                        live.segment.vectors, vector, depth, allowed, live.segment.vectors_guard
                    ),
                    depth,
                )
                for live, allowed in segments
            ]
        ]

    def _scored(
        self, query: Query, nearest: _Positions, mode: Mode, depth: int, *, settled: bool
    ) -> Candidates:
        """The nearest passages and, in the mode ``hybrid``, BM25's best, scored.

        Args:
            query: with what the mode reads.
            nearest: the positions of its nearest passages.
            mode: ``dense`` or ``hybrid``.
            depth: how many they are, where there are as many.
            settled: whether every passage that may equal one of them was looked at.
        """
        terms = self._bm25.query(query.terms if mode == "hybrid" else ())
        matches = terms.search(depth, self._filter)
        segments = range(len(self._segments))
        matched = self._first(
            [matches.positions[matches.segments == index] for index in segments],
            [matches.scores[matches.segments == index] for index in segments],
            depth,
        )
        vector = np.asarray(query.vector)
        columns: list[tuple[NDArray[Any], ...]] = []
        for index, live in enumerate(self._segments):
            positions = each_once(np.concatenate([nearest[index], matched[index]]))
            live.segment.vectors_guard.check_rows(positions)
            dense = exact_scores(live.segment.vectors, positions, vector)
            columns.append((live.segment.ids_at(positions), dense, *terms.at(index, positions)))
        ids, dense, bm25, match = (np.concatenate(column) for column in zip(*columns, strict=True))
        dense = rounded(dense)
        complete = sum(map(len, nearest)) < depth
        floor = -np.inf
        if mode == "dense" and not complete and not settled:
            floor = float(dense.min()) + tie_slack(float(dense.min()))
        return Candidates(ids, dense, bm25, match, complete, floor)

    def _by_bm25(self, query: Query, depth: int) -> Candidates:
        matches = self._bm25.query(query.terms).search(depth, self._filter)
        ids = np.empty(len(matches.scores), np.int64)
        for index, live in enumerate(self._segments):
            here = matches.segments == index
            ids[here] = live.segment.ids_at(matches.positions[here])
        everyone, none = np.ones(len(ids), np.bool_), np.zeros(len(ids))
        return Candidates(ids, none, matches.scores, everyone, len(ids) < depth)


NO_CANDIDATES = Candidates(
    np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, np.bool_), complete=True
)


def _best_of_ties(
    live: LiveSegment, vector: NDArray[np.float32], positions: NDArray[np.int64], depth: int
) -> NDArray[np.int64]:
    """(m,) int64, ascending: the `depth` best of some positions, equal scores by order."""
    segment = live.segment
    if len(positions) <= depth:
        return positions
    segment.vectors_guard.check_rows(positions)
    scores = rounded(exact_scores(segment.vectors, positions, vector))
    order = None
    if segment.order is not None:
        segment.order_guard.check_rows(positions)
        order = segment.order[positions]
    return np.sort(positions[top_places(scores, depth, order)])
