"""Ranking the passages of an index folder: each component's best, scored by what the mode has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings
from indexes.bm25.scoring import BM25, CorpusStatistics
from indexes.files.arrays import each_once
from indexes.filters.allowed import Allowed
from indexes.protocol import Candidates, Mode, Query
from indexes.segments.live import LiveSegment
from indexes.vectors.flat import Nearest, exact_scores, nearest_of, rounded
from indexes.vectors.segment_structure import search_vectors


class FolderRanking:
    """Ranks the live passages of some segments; see `indexes.protocol.Ranking`.

    Args:
        segments: all live ones of one commit, in ascending order of their passages' ids.
        statistics: counts over their live passages.
        live: for each segment the passages that are not deleted; None if none was.
        allowed: for each segment the live passages that a filter allows; None without a filter.
        bm25: variant and parameters; None for the defaults.
        recall: of searches in a structure, in (0, 1]; None for the default.
    """

    def __init__(
        self,
        segments: Sequence[LiveSegment],
        statistics: CorpusStatistics,
        live: Sequence[Allowed | None],
        allowed: Sequence[Allowed] | None,
        bm25: BM25Settings | None,
        recall: float | None,
    ) -> None:
        self._segments = segments
        self._bm25 = BM25(segments, bm25, statistics)
        self._filter = allowed
        # A filter never allows a deleted passage.
        self._allowed = live if allowed is None else allowed
        self._recall = recall
        # The place of each segment's first passage among those of all segments, and their number.
        self._firsts = np.cumsum([0, *(len(live.segment.ids) for live in segments)])

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        """The best passages for each query; see `indexes.protocol.Ranking`."""
        if not self._segments:
            return [NO_CANDIDATES] * len(queries)
        if mode == "bm25":
            return [self._by_bm25(query, depth) for query in queries]
        return [
            self._scored(query, nearest, mode, depth)
            for query, nearest in zip(queries, self._nearest(queries, depth), strict=True)
        ]

    def _nearest(self, queries: Sequence[Query], depth: int) -> list[list[NDArray[np.int64]]]:
        """For each query and segment, the positions of the `depth` nearest passages of all."""
        vectors = np.stack([query.vector for query in queries if query.vector is not None])
        found = [
            search_vectors(
                live.segment.structure,
                live.segment.vectors,
                vectors,
                depth,
                allowed,
                self._recall,
                live.segment.vectors_guard,
            )
            for live, allowed in zip(self._segments, self._allowed, strict=True)
        ]
        return [self._best(parts, depth) for parts in zip(*found, strict=True)]

    def _best(self, parts: Sequence[Nearest], depth: int) -> list[NDArray[np.int64]]:
        """Of what was found in each segment the positions of the `depth` best of all segments."""
        # Places ascend as passage ids do.
        placed = [first + part[0] for first, part in zip(self._firsts[:-1], parts, strict=True)]
        places, scores = np.concatenate(placed), np.concatenate([part[1] for part in parts])
        order = np.argsort(places)
        best = np.sort(nearest_of(places[order], scores[order], depth)[0])
        ends = np.searchsorted(best, self._firsts)
        return [
            best[start:stop] - first
            for start, stop, first in zip(ends, ends[1:], self._firsts, strict=False)
        ]

    def _scored(
        self, query: Query, nearest: Sequence[NDArray[np.int64]], mode: Mode, depth: int
    ) -> Candidates:
        """The nearest passages and, in the mode ``hybrid``, BM25's best, scored."""
        terms = self._bm25.query(query.terms if mode == "hybrid" else ())
        matches = terms.search(depth, self._filter)
        vector = np.asarray(query.vector)
        columns: list[tuple[NDArray[Any], ...]] = []
        for index, live in enumerate(self._segments):
            matched = matches.positions[matches.segments == index]
            positions = each_once(np.concatenate([nearest[index], matched]))
            live.segment.vectors_guard.check_rows(positions)
            dense = exact_scores(live.segment.vectors, positions, vector)
            columns.append((live.segment.ids_at(positions), dense, *terms.at(index, positions)))
        ids, dense, bm25, match = (np.concatenate(column) for column in zip(*columns, strict=True))
        complete = sum(map(len, nearest)) < depth
        return Candidates(ids, rounded(dense), bm25, match, complete)

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
