"""Ranking the documents of an index for a query: dense, BM25 or both.

Scores belong to passages; a hit is a document, ranked by its best passage. Candidates are the
best passages of each component; in the hybrid mode every candidate is scored by both before the
two are fused. Higher scores are better everywhere; equal ones are ordered by the document's id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes import (
    BM25,
    LiveSegment,
    View,
    Where,
    exact_scores,
    is_one_pass,
    nearest_with_ties,
    rounded,
    search_vectors,
    tie_slack,
    top_places,
    vectors_at_least,
)
from retriever.search.fusion import fuse, ranks
from retriever.search.settings import SearchSettings


@dataclass(frozen=True, slots=True)
class Query:
    """A query in the form that each component reads.

    Attributes:
        terms: from the index's analyzer; not read by the mode ``dense``.
        vector: (d,) float32 of length 1; not read by the mode ``bm25``.
    """

    terms: Sequence[str] = ()
    vector: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found, with the passage that scored best.

    Attributes:
        rank: 1 for the best.
        score: what the hit is ranked by; higher is better. Mode ``dense``: a cosine in [-1, 1],
            or an inner product if the encoder does not normalize. Mode ``bm25``: the BM25 score.
            Mode ``hybrid``: in [0, 1] for ``convex`` with ``min-max``, any number with
            ``z-score``, in (0, 2 / (rrf_k + 1)] for ``rrf``. With a reranker: its score.
        id: the document's id.
        title: the document's title; None if it has none.
        passage: the text of the best passage.
        start, stop: character offsets of the passage in the document's text.
        metadata: the document's metadata.
        dense: the dense score of the passage; None in mode ``bm25``.
        dense_rank: its rank by that score among the candidate passages; equal scores share the
            best rank.
        bm25: the BM25 score of the passage, 0 if it holds no query term; None in mode ``dense``.
        bm25_rank: likewise; None if the passage holds no query term.
        passage_number: the passage's stable number in the index.
        first_rank: the rank before reranking; None without a reranker.
    """

    rank: int
    score: float
    id: str
    title: str | None
    passage: str
    start: int
    stop: int
    metadata: dict[str, Any]
    dense: float | None
    dense_rank: int | None
    bm25: float | None
    bm25_rank: int | None
    passage_number: int
    first_rank: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values, without `passage_number`; `first_rank` only where there is one."""
        return {
            "rank": self.rank,
            "score": self.score,
            "id": self.id,
            "title": self.title,
            "passage": self.passage,
            "start": self.start,
            "stop": self.stop,
            "dense": self.dense,
            "dense_rank": self.dense_rank,
            "bm25": self.bm25,
            "bm25_rank": self.bm25_rank,
            **({} if self.first_rank is None else {"first_rank": self.first_rank}),
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPassages:
    """The candidates of a query with both component scores, in no particular order.

    Attributes:
        documents: (n,) the id of each passage's document.
        dense: (n,) float64 cosines, or inner products where the encoder does not normalize.
        bm25: (n,) float64, 0 where `matches` is False.
        matches: (n,) bool, whether the passage holds a query term.
    """

    documents: tuple[str, ...]
    dense: NDArray[np.float64]
    bm25: NDArray[np.float64]
    matches: NDArray[np.bool_]

    @classmethod
    def none(cls) -> ScoredPassages:
        """Those of an empty index."""
        return cls((), np.zeros(0), np.zeros(0), np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Passages with their scores, in no particular order.

    Attributes:
        passages: (n,) int64 stable ids.
        scores: (n,) what they are ranked by.
        complete: whether every passage that can be ranked is a candidate.
        floor: a passage that is no candidate scores no more than this; -inf where every passage
            that ranks above a candidate is one, too.
    """

    passages: NDArray[np.int64]
    scores: NDArray[np.float64]
    dense: NDArray[np.float64]
    bm25: NDArray[np.float64]
    matches: NDArray[np.bool_]
    complete: bool
    floor: float


# For each segment, positions of passages.
_Positions = Sequence[NDArray[np.int64]]


class Engine:
    """Ranks queries against one view of an index.

    Args:
        view: valid for as long as the engine is used.
        settings: how to rank.
        where: only documents that match are ranked; None ranks all.
    """

    def __init__(self, view: View, settings: SearchSettings, where: Where | None = None) -> None:
        self._view = view
        self._settings = settings
        self._bm25 = BM25(view.segments, settings.bm25, view.statistics)
        self._filter = None if where is None else view.allowed(where)
        # A filter never allows a deleted passage.
        self._allowed = view.live if self._filter is None else self._filter

    def search(self, queries: Sequence[Query]) -> list[list[Hit]]:
        """The best `k` documents of each query, fewer if fewer can be ranked.

        Modes ``dense`` and ``hybrid`` can rank every document; ``bm25`` only those that hold a
        query term.
        """
        found: list[list[Hit]] = [[] for _ in queries]
        for i, candidates, chosen in self._ranked(queries):
            found[i] = self._hits(candidates, chosen)
        return found

    def candidates(self, queries: Sequence[Query]) -> list[ScoredPassages]:
        """What the mode ``hybrid`` fuses for each query: passages with both component scores.

        They do not depend on how they are fused. The best `k` documents by `fuse` of these scores,
        each by its best passage, equal ones by id, are the hits of `search`.
        """
        found = [ScoredPassages.none() for _ in queries]
        for i, candidates, _ in self._ranked(queries):
            passages = candidates.passages.tolist()
            documents = self._view.documents_of(passages)
            found[i] = ScoredPassages(
                tuple(documents[one][1] for one in passages),
                candidates.dense,
                candidates.bm25,
                candidates.matches,
            )
        return found

    def _ranked(self, queries: Sequence[Query]) -> Iterator[tuple[int, _Candidates, list[int]]]:
        """The number of each query, its candidates, and the places of those that are hits."""
        depth = 2 * self._settings.k
        if self._settings.mode == "hybrid":
            depth = max(depth, self._settings.depth)
        open_queries = list(range(len(queries)))
        while open_queries and self._view.segments:
            asked = [queries[i] for i in open_queries]
            settled = self._in_one_pass(asked, depth)
            nearest = self._nearest(asked, depth) if settled is None else settled
            deeper = []
            for i, positions in zip(open_queries, nearest, strict=True):
                ranked = self._rank(queries[i], positions, depth, settled=settled is not None)
                if ranked is None:
                    deeper.append(i)
                else:
                    yield i, *ranked
            open_queries = deeper
            # The best passages belong to fewer than `k` documents.
            depth *= 4

    def _rank(
        self, query: Query, nearest: _Positions, depth: int, *, settled: bool
    ) -> tuple[_Candidates, list[int]] | None:
        """The candidates of a query and the hits among them; None if more are needed.

        Args:
            query: with what the mode reads.
            nearest: the positions of its nearest passages.
            depth: how many they are, where there are as many.
            settled: whether every passage that may equal one of them was looked at.
        """
        k = self._settings.k
        found = self._candidates(query, nearest, depth)
        chosen = self._best_of_documents(found)
        if not settled and len(chosen) >= k and found.scores[chosen[k - 1]] <= found.floor:
            # Passages that are not candidates can have the same score.
            tied = self._tied(query, depth, float(found.scores[chosen[k - 1]]))
            found = self._candidates(query, tied, depth)
            chosen = self._best_of_documents(found)
        if len(chosen) < k and not found.complete:
            return None
        return found, chosen[:k]

    def _nearest(self, queries: Sequence[Query], depth: int) -> list[_Positions]:
        """For each query, the positions of the `depth` nearest passages of all segments."""
        segments = self._view.segments
        if self._settings.mode == "bm25":
            return [[np.empty(0, np.int64) for _ in segments] for _ in queries]
        vectors = np.stack([query.vector for query in queries if query.vector is not None])
        found = [
            search_vectors(
                live.segment.structure,
                live.segment.vectors,
                vectors,
                depth,
                allowed,
                self._settings.recall,
                live.segment.vectors_guard,
            )
            for live, allowed in zip(segments, self._allowed, strict=True)
        ]
        nearest: list[_Positions] = []
        for row, query in enumerate(queries):
            scores = np.concatenate([part[row][1] for part in found])
            if len(scores) < depth:
                nearest.append([part[row][0] for part in found])
                continue
            least, next_least = np.partition(scores, (-depth, 1 - depth))[[-depth, 1 - depth]]
            if self._settings.mode == "hybrid" and next_least - least <= tie_slack(float(least)):
                nearest.append(self._tied(query, depth, float(least)))
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
            self._best_of_ties(
                live,
                query.vector,
                vectors_at_least(
                    live.segment.structure,
                    live.segment.vectors,
                    query.vector,
                    score - tie_slack(score),
                    depth,
                    allowed,
                    self._settings.recall,
                    live.segment.vectors_guard,
                ),
                depth,
            )
            for live, allowed in zip(self._view.segments, self._allowed, strict=True)
        ]

    def _in_one_pass(self, queries: Sequence[Query], depth: int) -> list[_Positions] | None:
        """As `_tied`, for one query where every segment is scanned; None elsewhere."""
        segments = list(zip(self._view.segments, self._allowed, strict=True))
        if (
            self._settings.mode != "dense"
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
                self._best_of_ties(
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

    def _best_of_ties(
        self,
        live: LiveSegment,
        vector: NDArray[np.float32],
        positions: NDArray[np.int64],
        depth: int,
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

    def _candidates(self, query: Query, nearest: _Positions, depth: int) -> _Candidates:
        mode = self._settings.mode
        if mode == "bm25":
            return self._bm25_candidates(query, depth)
        terms = self._bm25.query(query.terms if mode == "hybrid" else ())
        matches = terms.search(depth, self._filter)
        vector = np.asarray(query.vector)
        columns: list[tuple[NDArray[Any], ...]] = []
        for index, live in enumerate(self._view.segments):
            matched = matches.positions[matches.segments == index]
            positions = np.union1d(nearest[index], matched)
            live.segment.vectors_guard.check_rows(positions)
            dense = exact_scores(live.segment.vectors, positions, vector)
            columns.append((live.segment.ids_at(positions), dense, *terms.at(index, positions)))
        ids, dense, bm25, match = (np.concatenate(column) for column in zip(*columns, strict=True))
        dense = rounded(dense)
        complete = sum(map(len, nearest)) < depth
        if mode == "dense":
            floor = -np.inf if complete else float(dense.min()) + tie_slack(float(dense.min()))
            return _Candidates(ids, dense, dense, bm25, match, complete, floor)
        scores = fuse(dense, bm25, match, self._settings.fusion)
        return _Candidates(ids, scores, dense, bm25, match, complete, -np.inf)

    def _bm25_candidates(self, query: Query, depth: int) -> _Candidates:
        matches = self._bm25.query(query.terms).search(depth, self._filter)
        ids = np.empty(len(matches.scores), np.int64)
        for index, live in enumerate(self._view.segments):
            here = matches.segments == index
            ids[here] = live.segment.ids_at(matches.positions[here])
        everyone, none = np.ones(len(ids), np.bool_), np.zeros(len(ids))
        scores = matches.scores
        return _Candidates(ids, scores, none, scores, everyone, len(ids) < depth, -np.inf)

    def _best_of_documents(self, found: _Candidates) -> list[int]:
        """The place of the best candidate of each document, best first."""
        documents = self._view.documents_of(found.passages.tolist())
        order = sorted(
            range(len(found.passages)),
            key=lambda i: (
                -found.scores[i],
                documents[int(found.passages[i])][1],
                found.passages[i],
            ),
        )
        best: dict[int, int] = {}
        for i in order:
            best.setdefault(documents[int(found.passages[i])][0], i)
        return list(best.values())

    def _hits(self, found: _Candidates, chosen: Sequence[int]) -> list[Hit]:
        mode = self._settings.mode
        everyone = np.ones(len(found.passages), np.bool_)
        dense_ranks = ranks(found.dense, everyone)
        bm25_ranks = ranks(found.bm25, found.matches)
        stored = self._view.passages([int(found.passages[i]) for i in chosen])
        hits = []
        for rank, i in enumerate(chosen, start=1):
            passage = stored[int(found.passages[i])]
            hits.append(
                Hit(
                    rank=rank,
                    score=float(found.scores[i]),
                    id=passage.id,
                    title=passage.title,
                    passage=passage.text[passage.start : passage.stop],
                    start=passage.start,
                    stop=passage.stop,
                    metadata=passage.metadata,
                    dense=None if mode == "bm25" else float(found.dense[i]),
                    dense_rank=None if mode == "bm25" else int(dense_ranks[i]),
                    bm25=None if mode == "dense" else float(found.bm25[i]),
                    bm25_rank=int(bm25_ranks[i]) or None if mode != "dense" else None,
                    passage_number=int(found.passages[i]),
                )
            )
        return hits
