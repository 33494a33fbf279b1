"""Ranking the documents of a snapshot for a query: dense, BM25 or both.

Scores belong to passages; a hit is a document, ranked by its best passage. Candidates are the
best passages of each component; in the hybrid mode every candidate is scored by both before the
two are fused. Higher scores are better everywhere; equal ones are ordered by the document's id.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.scoring import BM25, BM25Settings
from indexes.filters.grammar import Where
from indexes.reader import Snapshot
from indexes.vectors.segment_structure import search_vectors
from retriever.errors import ConfigError
from retriever.search.fusion import FusionSettings, fuse, ranks

Mode = Literal["dense", "bm25", "hybrid"]
MODES: tuple[Mode, ...] = ("hybrid", "dense", "bm25")

# Scores differ in the seventh digit by batch and by kernel; ranking them there would be noise.
_DIGITS = 6
# FAISS's score of a passage it left out, so rounded, can be so many last digits above the least it
# found.
_ROUNDING = 1.5


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How to rank.

    Attributes:
        mode: ``dense`` by cosine, ``bm25``, or ``hybrid``, which fuses the two.
        k: hits wanted, at least 1.
        depth: passages taken from each component as candidates in the mode ``hybrid``, at least
            1; raised to 2 * k, and further where they belong to fewer than `k` documents. The
            other modes give the same whatever it is. With a reranker also how many hits it gets.
        recall: recall@10 of the embedding side against an exact search, above 0, at most 1: each
            segment that has a search structure is searched with the least effort that reached it
            when the structure was built. None for 0.95. Segments without one are searched exactly.
        fusion: how ``hybrid`` combines.
        bm25: variant and parameters of BM25.

    Raises:
        ConfigError: a value that is out of range.
    """

    mode: Mode = "hybrid"
    k: int = 10
    depth: int = 100
    fusion: FusionSettings = field(default_factory=FusionSettings)
    bm25: BM25Settings = field(default_factory=BM25Settings)
    recall: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"mode: expected one of {', '.join(MODES)}, found {self.mode!r}")
        for name, value in (("k", self.k), ("depth", self.depth)):
            if value < 1:
                raise ConfigError(f"{name}: expected 1 or more, found {value}")
        if self.recall is not None and not 0 < self.recall <= 1:
            raise ConfigError(f"recall: expected above 0 and at most 1, found {self.recall:g}")


@dataclass(frozen=True, slots=True)
class Query:
    """A query in the form that each component reads.

    Attributes:
        terms: from the index's analyser; not read by the mode ``dense``.
        vector: (d,) float32 of length 1; not read by the mode ``bm25``.
    """

    terms: Sequence[str] = ()
    vector: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found, with the passage that scored best.

    Attributes:
        rank: 1 for the best.
        score: what the hit is ranked by: a cosine in [-1, 1] (dense; an inner product where the
            encoder does not normalise), a BM25 score, or a fused score; see
            `retriever.search.fusion.fuse` for its range.
        id, title, metadata: the document's.
        passage: text of the best passage; start, stop: where it lies in the document's text.
        dense: that score of the passage; None in mode ``bm25``.
        dense_rank: its rank by it among all candidate passages, equal ones sharing the best.
        bm25: BM25 score of the passage, 0 if it holds no query term; None in mode ``dense``.
        bm25_rank: likewise; None if the passage holds no query term.
        passage_number: the passage's stable number in the index.
        first_rank: the rank before a reranker; None where none was used.
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
        floor: no passage that is not a candidate scores more than this; -inf in the mode
            ``hybrid``, which ranks its candidates and nothing else.
    """

    passages: NDArray[np.int64]
    scores: NDArray[np.float64]
    dense: NDArray[np.float64]
    bm25: NDArray[np.float64]
    matches: NDArray[np.bool_]
    complete: bool
    floor: float


class Engine:
    """Ranks queries against one snapshot.

    Args:
        snapshot: valid for as long as the engine is used.
        settings: how to rank.
        where: only documents that match are ranked; None ranks all.
    """

    def __init__(
        self, snapshot: Snapshot, settings: SearchSettings, where: Where | None = None
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._bm25 = BM25(snapshot.segments, settings.bm25, snapshot.statistics)
        self._filter = None if where is None else snapshot.allowed(where)
        # A filter allows no deleted passage.
        self._allowed = snapshot.living if self._filter is None else self._filter

    def search(self, queries: Sequence[Query]) -> list[list[Hit]]:
        """The best `k` documents of each query, fewer where fewer can be ranked.

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
            documents = self._snapshot.documents_of([int(one) for one in candidates.passages])
            found[i] = ScoredPassages(
                tuple(documents[int(one)][1] for one in candidates.passages),
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
        while open_queries and self._snapshot.segments:
            dense = self._dense([queries[i] for i in open_queries], depth)
            deeper = []
            for i, positions in zip(open_queries, dense, strict=True):
                candidates = self._candidates(queries[i], positions, depth)
                chosen = self._rank(candidates)
                if chosen is None:
                    deeper.append(i)
                else:
                    yield i, candidates, chosen
            open_queries = deeper
            depth *= 4

    def _dense(self, queries: Sequence[Query], depth: int) -> list[list[NDArray[np.int64]]]:
        """For each query and segment, the positions of the `depth` nearest passages overall."""
        segments = self._snapshot.segments
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
        nearest = []
        for row in range(len(queries)):
            scores = np.concatenate([part[row][1] for part in found])
            threshold = -np.inf
            if len(scores) > depth:
                threshold = np.partition(scores, len(scores) - depth)[len(scores) - depth]
            nearest.append([part[row][0][part[row][1] >= threshold] for part in found])
        return nearest

    def _candidates(
        self, query: Query, nearest: Sequence[NDArray[np.int64]], depth: int
    ) -> _Candidates:
        mode = self._settings.mode
        if mode == "bm25":
            return self._bm25_candidates(query, depth)
        terms = self._bm25.query(query.terms if mode == "hybrid" else ())
        matches = terms.search(depth, self._filter)
        columns: list[tuple[NDArray[Any], ...]] = []
        for index, live in enumerate(self._snapshot.segments):
            matched = matches.positions[matches.segments == index]
            positions = np.union1d(nearest[index], matched)
            # In float64, so that equal vectors get equal scores wherever they lie.
            chosen = live.segment.vectors_at(positions).astype(np.float64)
            dense = chosen @ np.asarray(query.vector, np.float64)
            columns.append((live.segment.ids_at(positions), dense, *terms.at(index, positions)))
        ids, dense, bm25, match = (np.concatenate(column) for column in zip(*columns, strict=True))
        decimals = _decimals(dense)
        dense = np.round(dense, decimals)
        complete = sum(map(len, nearest)) < depth
        if mode == "dense":
            floor = -np.inf if complete else float(dense.min()) + _ROUNDING * 10.0**-decimals
            return _Candidates(ids, dense, dense, bm25, match, complete, floor)
        scores = fuse(dense, bm25, match, self._settings.fusion)
        return _Candidates(ids, scores, dense, bm25, match, complete, -np.inf)

    def _bm25_candidates(self, query: Query, depth: int) -> _Candidates:
        matches = self._bm25.query(query.terms).search(depth, self._filter)
        ids = np.empty(len(matches.scores), np.int64)
        for index, live in enumerate(self._snapshot.segments):
            here = matches.segments == index
            ids[here] = live.segment.ids_at(matches.positions[here])
        complete = len(ids) < depth
        floor = -np.inf if complete else float(matches.scores[-1])
        everyone = np.ones(len(ids), np.bool_)
        none = np.zeros(len(ids))
        return _Candidates(ids, matches.scores, none, matches.scores, everyone, complete, floor)

    def _rank(self, found: _Candidates) -> list[int] | None:
        """The places of the hits, or None where more candidates are needed to be sure of them."""
        k = self._settings.k
        documents = self._snapshot.documents_of([int(passage) for passage in found.passages])
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
        chosen = list(best.values())[:k]
        if not found.complete and (len(chosen) < k or found.scores[chosen[-1]] <= found.floor):
            return None
        return chosen

    def _hits(self, found: _Candidates, chosen: Sequence[int]) -> list[Hit]:
        mode = self._settings.mode
        everyone = np.ones(len(found.passages), np.bool_)
        dense_ranks = ranks(found.dense, everyone)
        bm25_ranks = ranks(found.bm25, found.matches)
        stored = self._snapshot.passages([int(found.passages[i]) for i in chosen])
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


def _decimals(scores: NDArray[np.float64]) -> int:
    """How many decimals of scores mean something: six for cosines, fewer for larger numbers."""
    largest = float(np.abs(scores).max(initial=1.0))
    return _DIGITS - math.ceil(math.log10(largest) - 1e-6)
