"""Measures of ranked candidates, for many sets of layers at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question
from eval.metrics.correlation import RANKED_DECIMALS
from eval.metrics.measures import PoolMeasures


class PoolRanking:
    """The mean of a measure over questions; an `eval.layers.search.Objective`.

    Equal to `evaluate` on cosines that are rounded as `eval qa` rounds them.

    Args:
        pools: at least one; the pairs are their candidates, pool after pool.
        name: of the measure, see `eval.metrics.measures`.

    Raises:
        BadInputError: there is no pool.
        ConfigError: the measure is unknown.
    """

    unit = "questions"

    def __init__(self, pools: Sequence[Question], name: str = "AP") -> None:
        self._measures = PoolMeasures(pools, [name])
        (self.name,) = self._measures.names
        self.units = len(pools)

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
        return self._measures(np.round(cosines, RANKED_DECIMALS))[self.name]
