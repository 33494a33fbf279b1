"""Measures of ranked candidates, for many sets of layers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eval.datasets.qa.question_set import Question
from eval.layers.search import COSINE_DECIMALS
from eval.metrics.ranked_gains import descending_keys, rank_columns

RankingName = Literal["map", "mrr", "ndcg@10"]

_CUTOFF = 10


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """One question's pairs, its candidates' gains, and what a perfect ranking would get."""

    pairs: slice
    gains: NDArray[np.float64]
    relevant: int
    ideal: float


class PoolRanking:
    """Mean AP, RR or nDCG@10 over questions; an `eval.layers.search.Objective`.

    Equals `evaluate` on cosines rounded to 1e-10: candidates rank by score (compared
    as 32-bit floats), then by id descending, and judged documents that are not in the pool count.

    Args:
        questions: at least one; the pairs are their pools, one after the other, each in the order
            of `Question.candidates`.
        name: which measure.
    """

    unit = "questions"

    def __init__(self, questions: Sequence[Question], name: RankingName = "map") -> None:
        self.name: str = name
        self.units = len(questions)
        self._measure = _MEASURES[name]
        self._pools = []
        start = 0
        for question in questions:
            pairs = slice(start, start + len(question.candidates))
            # A negative grade marks a document as judged, and gains nothing.
            gains = [max(question.grades.get(one, 0), 0) for one in question.candidates]
            best = sorted((max(grade, 0) for grade in question.grades.values()), reverse=True)
            relevant = sum(grade >= 1 for grade in best)
            ideal = float(_dcg(np.array([best], dtype=np.float64))[0])
            self._pools.append(_Pool(pairs, np.array(gains, np.float64), relevant, ideal))
            start = pairs.stop

    def __call__(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Objective`."""
        means: NDArray[np.float64] = self.per_question(cosines).mean(axis=1)
        return means

    def resampled(
        self, cosines: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """See `Objective`."""
        sums: NDArray[np.float64] = weights @ self.per_question(cosines).T
        sums /= weights.sum(axis=1, keepdims=True)
        return sums

    def per_question(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        """(subsets, pairs) cosines to (subsets, questions) values in [0, 1]."""
        keys = descending_keys(np.round(cosines, COSINE_DECIMALS))
        values = np.empty((len(cosines), self.units))
        for number, pool in enumerate(self._pools):
            # Columns are ids descending: equal scores rank as in trec_eval.
            ranked = pool.gains[rank_columns(keys[:, pool.pairs])]
            values[:, number] = self._measure(ranked, pool)
        return values


def _average_precision(gains: NDArray[np.float64], pool: _Pool) -> NDArray[np.float64]:
    relevant = (gains >= 1).astype(np.float64)
    ranks = np.arange(1, gains.shape[1] + 1)
    total: NDArray[np.float64] = (np.cumsum(relevant, axis=1) * relevant / ranks).sum(axis=1)
    return total / pool.relevant


def _reciprocal_rank(gains: NDArray[np.float64], pool: _Pool) -> NDArray[np.float64]:
    relevant = gains >= 1
    return np.where(relevant.any(axis=1), 1 / (1.0 + relevant.argmax(axis=1)), 0.0)


def _ndcg(gains: NDArray[np.float64], pool: _Pool) -> NDArray[np.float64]:
    return _dcg(gains) / pool.ideal


def _dcg(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    first = gains[:, :_CUTOFF]
    total: NDArray[np.float64] = first @ (1 / np.log2(np.arange(2, first.shape[1] + 2)))
    return total


_MEASURES: dict[RankingName, Callable[[NDArray[np.float64], _Pool], NDArray[np.float64]]] = {
    "map": _average_precision,
    "mrr": _reciprocal_rank,
    "ndcg@10": _ndcg,
}
