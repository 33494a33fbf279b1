"""Ranking in Milvus: candidates from its search, exact scores from what the rows hold.

Dense candidates are scored again from their vectors as the folder does it, and more of them are
asked for until no other passage can equal the last that counts.

BM25 candidates come from an inner product of sparse vectors: the passage's holds the saturated
frequency w of each term under the default settings and the mean length of the time it was written,
the query's the idf. For the weight w' under any settings and today's mean, w' <= bound * w holds
for every frequency and length, and so for sums over terms: a passage whose product is p scores no
more than bound * p. Candidates are scored exactly from their counts, and more are asked for until
the last that counts scores more than bound * p of all that were not. So the hits are those of the
folder.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings, idf, weights
from indexes.milvus.collections import INDEXED, PASSAGE, TERMS, dimension_of
from indexes.milvus.connection import MOST_RESULTS, Row
from indexes.milvus.facts import number_of
from indexes.protocol import Candidates, Mode, Query
from indexes.vectors.flat import exact_scores, rounded, tie_slack

if TYPE_CHECKING:
    from indexes.milvus.view import MilvusView

# Products are sums of single-precision numbers.
_ROUNDING = 1 + 1e-4
# Rows of a scan that are scored together.
_SCORED = 4096
_GRID = 256
_EFFORTS = {"HNSW": "ef", "DISKANN": "search_list"}
_LEAST_EFFORT = 100


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a query that some passage holds.

    Attributes:
        factors: the idf of each times its repetitions in the query, in the query's order.
    """

    factors: dict[str, float]
    settings: BM25Settings
    mean_length: float

    def scores(self, rows: Sequence[Row]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(n,) the BM25 scores of passages, and whether each holds a term."""
        scores, matches = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
        if not self.factors or not rows:
            return scores, matches
        lengths = np.array([row["length"] for row in rows], np.uint32)
        counts = [json.loads(row["counts"]) for row in rows]
        for term, factor in self.factors.items():
            frequencies = np.array([held.get(term, 0) for held in counts], np.uint32)
            holds = frequencies > 0
            if holds.any():
                weight = weights(
                    self.settings, frequencies[holds], lengths[holds], self.mean_length
                )
                scores[holds] += factor * weight
                matches |= holds
        return scores, matches


class MilvusRanking:
    """Ranks the passages of a view that a filter allows; see `indexes.protocol.Ranking`.

    Args:
        view: of one commit.
        settings: of BM25.
        where: an expression that selects the allowed rows among those that count.
        kind: Milvus's name of the index of the vectors.
    """

    def __init__(self, view: MilvusView, settings: BM25Settings, where: str, kind: str) -> None:
        self._view = view
        self._settings = settings
        self._where = where
        self._effort = _EFFORTS.get(kind)

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        """The best passages for each query; see `indexes.protocol.Ranking`."""
        return [self._of(query, mode, depth) for query in queries]

    def _of(self, query: Query, mode: Mode, depth: int) -> Candidates:
        if not self._view.passage_count:
            none = np.zeros(0)
            return Candidates(np.zeros(0, np.int64), none, none, np.zeros(0, np.bool_), True)
        fields = [*PASSAGE, *(TERMS if mode != "dense" else ()), *["vector"] * (mode != "bm25")]
        terms = self._terms(query.terms if mode != "dense" else ())
        found: dict[int, Row] = {}
        complete = True
        if mode != "bm25":
            rows, complete = self._nearest(np.asarray(query.vector), depth, fields)
            found |= {row["passage"]: row for row in rows}
        if mode != "dense":
            rows, all_matches = self._best_matches(terms, depth, fields)
            found |= {row["passage"]: row for row in rows}
            complete = complete if mode == "hybrid" else all_matches
        rows = [found[passage] for passage in sorted(found)]
        self._view.remember(rows)
        bm25, matches = terms.scores(rows)
        dense = np.zeros(len(rows))
        if mode != "bm25":
            dense = _dense_scores(rows, np.asarray(query.vector))
        passages = np.array([row["passage"] for row in rows], np.int64)
        return Candidates(passages, dense, bm25, matches, complete)

    def _nearest(
        self, vector: NDArray[np.float32], depth: int, fields: Sequence[str]
    ) -> tuple[list[Row], bool]:
        """The `depth` nearest passages, and whether there are no more."""
        limit = min(depth + max(depth // 4, 16), MOST_RESULTS)
        view = self._view
        while depth < MOST_RESULTS:
            # Of an index that is no scan: how many passages it looks at.
            parameters = {self._effort: max(_LEAST_EFFORT, 2 * limit)} if self._effort else {}
            rows = view.search("vector", vector, limit, self._where, fields, parameters)
            best = _best(rows, _dense_scores(rows, vector), depth)
            if len(rows) < limit:
                if not self._effort or len(rows) >= view.count(self._where):
                    return best, len(best) < depth
                break
            least = best[-1]["distance"]
            slack = tie_slack(max(abs(rows[0]["distance"]), abs(least)))
            if len(best) == depth and rows[-1]["distance"] < least - slack:
                return best, False
            if limit == MOST_RESULTS:
                break
            limit = min(4 * limit, MOST_RESULTS)
        rows = self._scan(
            self._where, depth, fields, lambda rows: (_dense_scores(rows, vector), None)
        )
        return rows, len(rows) < depth

    def _best_matches(
        self, terms: Terms, depth: int, fields: Sequence[str]
    ) -> tuple[list[Row], bool]:
        """The `depth` best passages that hold a term, and whether there are no more."""
        if not terms.factors:
            return [], True
        positive = {term: factor for term, factor in terms.factors.items() if factor > 0}
        bound = self._view.bound(terms.settings) * _ROUNDING
        limit = min(depth + max(depth // 4, 16), MOST_RESULTS)
        while positive and self._view.has_sparse and depth < MOST_RESULTS:
            # Where terms share a dimension, the largest factor is enough for all of them.
            product: dict[int, float] = {}
            for term, factor in positive.items():
                place = dimension_of(term)
                product[place] = max(product.get(place, 0.0), factor)
            rows = self._view.search("sparse", product, limit, self._where, fields)
            others = bound * rows[-1]["distance"] if len(rows) == limit else 0.0
            scores, matches = terms.scores(rows)
            best = _best(rows, scores, depth, matches)
            if len(rows) < limit and len(positive) == len(terms.factors):
                return best, len(best) < depth
            if len(_best(rows, scores, depth, scores > others)) == depth:
                return best, False
            if len(rows) < limit or limit == MOST_RESULTS:
                break
            limit = min(4 * limit, MOST_RESULTS)
        held = sorted(map(number_of, terms.factors))
        where = f"{self._where} and array_contains_any(terms, {held})"
        rows = self._scan(where, depth, fields, terms.scores)
        return rows, len(rows) < depth

    def _scan(
        self,
        where: str,
        depth: int,
        fields: Sequence[str],
        scored: Callable[[list[Row]], tuple[NDArray[np.float64], NDArray[np.bool_] | None]],
    ) -> list[Row]:
        """The best of all passages that an expression selects, read one after another."""
        best: list[Row] = []
        new: list[Row] = []
        for row in self._view.stream(where, fields):
            new.append(row)
            if len(new) == _SCORED + depth:
                scores, matches = scored(best + new)
                best, new = _best(best + new, scores, depth, matches), []
        scores, matches = scored(best + new)
        return _best(best + new, scores, depth, matches)

    def _terms(self, given: Iterable[str]) -> Terms:
        """The terms of a query that some passage holds, with their factors."""
        repetitions = Counter(given)
        df = self._view.document_frequencies(repetitions)
        factors = {}
        for term, times in repetitions.items():
            if df[term]:
                value = idf(self._settings.variant, df[term], self._view.passage_count)
                if value < 0:
                    value = self._settings.epsilon * self._view.mean_idf()
                factors[term] = times * value
        return Terms(factors, self._settings, self._view.mean_length)


def _dense_scores(rows: Sequence[Row], vector: NDArray[np.float32]) -> NDArray[np.float64]:
    if not rows:
        return np.zeros(0)
    vectors = np.array([row["vector"] for row in rows], np.float32)
    return rounded(exact_scores(vectors, np.arange(len(rows)), vector))


def _best(
    rows: Sequence[Row],
    scores: NDArray[np.float64],
    depth: int,
    matches: NDArray[np.bool_] | None = None,
) -> list[Row]:
    """The `depth` rows of highest score, equal ones by the number of the passage."""
    places = range(len(rows)) if matches is None else np.flatnonzero(matches).tolist()
    # A passage is there twice while a writer rewrites its row.
    distinct = {rows[i]["passage"]: i for i in places}.values()
    ordered = sorted(distinct, key=lambda i: (-scores[i], rows[i]["passage"]))
    return [rows[i] for i in ordered[:depth]]


def bound_of(
    settings: BM25Settings, mean_length: float, means: tuple[float, float], longest: int
) -> float:
    """The largest quotient of a weight under some settings and its value in a sparse vector.

    A weight depends on u = 1 / frequency and v = length / frequency, and falls as either grows;
    1 <= v <= longest * u and u <= 1 make a triangle. For variants whose weight is one linear
    function of u and v divided by another, the quotient is greatest in a corner of it. For the
    others it is cut into cells, and each is bounded by the weight in one corner of the cell over
    that in the opposite one.

    Args:
        settings: any variant and parameters.
        mean_length: with which the weight is computed.
        means: the least and the greatest with which sparse vectors were.
        longest: no passage is longer.
    """
    size = float(max(longest, 1))
    if settings.variant in ("lucene", "robertson", "atire", "okapi"):
        u, v = np.array([1.0, 1.0, 1 / size]), np.array([1.0, size, 1.0])
        low, high = (u, v), (u, v)
    else:
        steps = np.geomspace(1.0, size, _GRID)
        u, v = np.meshgrid(1 / steps[::-1], steps, indexing="ij")
        inside = u[1:, 1:] * size * _ROUNDING >= v[:-1, :-1]
        low = u[:-1, :-1][inside], v[:-1, :-1][inside]
        high = u[1:, 1:][inside], v[1:, 1:][inside]
    above = _weights(settings, *low, mean_length)
    return max(float((above / _weights(INDEXED, *high, mean)).max()) for mean in {*means})


def _weights(
    settings: BM25Settings, u: NDArray[np.float64], v: NDArray[np.float64], mean_length: float
) -> NDArray[np.float64]:
    frequencies: Any = 1 / u
    lengths: Any = v / u
    return weights(settings, frequencies, lengths, mean_length)
