"""Scores of candidates: pure functions on arrays, from both components to the best passages.

Both component scores are known for every candidate, so no score is ever missing. A candidate that
shares no term with the query has BM25 score 0 and no BM25 rank.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import neg
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from retriever.search.settings import FusionSettings

if TYPE_CHECKING:
    from indexes import Mode

Scores = NDArray[np.float64]
_Document = TypeVar("_Document", bound=Hashable)


class ComponentScores(NamedTuple):
    """Both component scores of the candidates of several queries, query after query.

    Attributes:
        sizes: (queries,) number of candidates of each query.
        dense: (candidates,) cosines, or inner products where the encoder does not normalize.
        bm25: (candidates,) BM25 scores; 0 where `matches` is False.
        matches: (candidates,) whether the candidate shares a term with its query.
    """

    sizes: Sequence[int]
    dense: Scores
    bm25: Scores
    matches: NDArray[np.bool_]

    def fused(self, settings: FusionSettings) -> Scores:
        """Return (candidates,) fused scores; each query is normalized separately."""
        scores = np.empty(len(self.dense))
        stop = 0
        for size in self.sizes:
            rows = slice(stop, stop + size)
            scores[rows] = fuse(self.dense[rows], self.bm25[rows], self.matches[rows], settings)
            stop += size
        return scores

    def ranking_scores(self, mode: Mode, settings: FusionSettings) -> Scores:
        """Return (candidates,) scores that `mode` ranks by; see the function of this name."""
        if mode == "hybrid":
            return self.fused(settings)
        return ranking_scores(mode, self.dense, self.bm25, self.matches, settings)


def ranking_scores(
    mode: Mode,
    dense: Scores,
    bm25: Scores,
    matches: NDArray[np.bool_],
    settings: FusionSettings,
) -> Scores:
    """Return (n,) scores that a mode ranks the candidates of one query by.

    The mode ``bm25`` ranks only candidates that match: the others have -inf.
    """
    if mode == "hybrid":
        return fuse(dense, bm25, matches, settings)
    return dense if mode == "dense" else np.where(matches, bm25, -np.inf)


def fuse(
    dense: Scores, bm25: Scores, matches: NDArray[np.bool_], settings: FusionSettings
) -> Scores:
    """Return one score per candidate of a query, (n,), from its two component scores.

    Args:
        dense: (n,) dense scores.
        bm25: (n,) BM25 scores; 0 where `matches` is False.
        matches: (n,) whether the candidate shares a term with the query.
        settings: how to combine them.

    Returns:
        Scores in [0, 1] for ``convex`` with ``min-max``, any numbers with ``z-score``, in
        (0, 2 / (rrf_k + 1)] for ``rrf``.
    """
    if settings.method == "rrf":
        by_dense = settings.rrf_k + ranks(dense)
        by_bm25 = settings.rrf_k + ranks(bm25, matches)
        return 1 / by_dense + np.where(matches, 1 / by_bm25, 0.0)
    normalize = min_max if settings.normalization == "min-max" else z_score
    return settings.weight * normalize(dense) + (1 - settings.weight) * normalize(bm25)


def best_passages(
    scores: Sequence[float], documents: Sequence[_Document], passages: Sequence[int]
) -> dict[_Document, int]:
    """Return the position of the best passage of each document, best document first.

    Equal scores are ordered by document, then by passage number, both ascending.

    Args:
        scores: (n,) scores of passages; higher is better.
        documents: (n,) the document of each passage: an id, or a number that orders as ids do.
        passages: (n,) passage numbers.
    """
    best = dict[_Document, int]()
    rows: Iterable[tuple[Any, ...]] = zip(
        map(neg, scores), documents, passages, range(len(scores)), strict=True
    )
    for _, document, _, position in sorted(rows):
        best.setdefault(document, position)
    return best


def ranks(scores: Scores, ranked: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the rank of each score among those marked in `ranked`; None ranks all.

    The highest score has rank 1, equal scores share the best of their ranks, and unranked scores
    have 0.
    """
    ordered = np.array(scores if ranked is None else scores[ranked])
    ordered.sort()
    positions = len(ordered) + 1 - ordered.searchsorted(scores, side="right")
    return positions if ranked is None else np.where(ranked, positions, 0)


def min_max(scores: Scores) -> Scores:
    """Map scores to [0, 1]; if all are equal, to 1 if they are positive, else to 0."""
    if len(scores) == 0:
        return scores
    low = scores.min()
    high = scores.max()
    if high == low:
        return np.full(len(scores), float(high > 0))
    return np.asarray((scores - low) / (high - low), np.float64)


def z_score(scores: Scores) -> Scores:
    """Subtract the mean and divide by the population standard deviation; 0 if all are equal."""
    if len(scores) == 0:
        return scores
    deviation = scores.std()
    if deviation == 0:
        return np.zeros(len(scores))
    return np.asarray((scores - scores.mean()) / deviation, np.float64)
