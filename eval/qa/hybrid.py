"""Cosine and BM25 fused within pools, with a weight that is given or chosen on dev."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eval.datasets.qa.question_set import QuestionSet
from retriever.search.fusion import FusionSettings, fuse

# The weights of the cosine that are tried.
WEIGHTS = tuple(number / 20 for number in range(21))


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """What is fused, by pair, in the order of `QuestionSet.pairs`.

    Attributes:
        sizes: of the pools.
        dense: (pairs,) cosines.
        bm25: (pairs,) scores.
        matches: (pairs,) whether the passage holds a term of the question.
    """

    sizes: tuple[int, ...]
    dense: NDArray[np.float64]
    bm25: NDArray[np.float64]
    matches: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        questions: QuestionSet,
        dense: NDArray[np.float64],
        lexical: tuple[NDArray[np.float64], NDArray[np.bool_]],
    ) -> Components:
        """Those of the pools of a set."""
        return cls(tuple(len(one.candidates) for one in questions.questions), dense, *lexical)

    def fused(self, settings: FusionSettings) -> NDArray[np.float64]:
        """(pairs,) fused scores; each pool is normalised by itself."""
        found = np.empty(len(self.dense))
        stop = 0
        for size in self.sizes:
            rows = slice(stop, stop := stop + size)
            found[rows] = fuse(self.dense[rows], self.bm25[rows], self.matches[rows], settings)
        return found


def best_weight(quality: Callable[[float], float]) -> float:
    """The weight of the cosine, of `WEIGHTS`, with the best quality; the greatest of equal ones."""
    return max(WEIGHTS, key=lambda weight: (quality(weight), weight))


def fixed_weight(settings: FusionSettings, variant: str) -> FusionSettings:
    """The settings that the text after ``hybrid:`` asks for: ``rrf``, or a weight."""
    if variant == "rrf":
        return replace(settings, method="rrf")
    return replace(settings, method="convex", alpha=float(variant))
