"""The exhaustive layer search of BERT-LC (Hosseini et al. 2023), exact and without vectors.

Every set of hidden states gets the value of an objective over pairs of texts: a correlation with
gold scores (`eval.metrics.correlation`) or a measure of ranked candidates (`eval.layers.ranking`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eval.layers.cosines import SubsetCosines
from eval.layers.fused import FusedPairs
from eval.layers.grams import PairGrams
from eval.layers.subsets import LayerSubsets

_OBJECTIVE_DECIMALS = 12
_THREADS = min(os.cpu_count() or 1, 8)
_TABLE_BYTES = 8 * 2**20
# Fits into the cache of a core, including sorted keys and ranks.
_RANKED_AT_ONCE = 2**15


class Objective(Protocol):
    """A value for each set of layers, from its cosines.

    Attributes:
        name: spearman, pearson, or the canonical name of a measure, such as AP.
        unit: what is correlated or averaged over: "pairs" or "questions".
        units: their number.
    """

    name: str
    unit: str
    units: int

    def __call__(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        """(subsets, pairs) cosines to (subsets,) values, higher is better; may write over them."""
        ...

    def resampled(
        self, cosines: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The values over resampled units.

        Args:
            cosines: (subsets, pairs).
            weights: (resamples, units), how often each unit is drawn; rows sum to `units`.

        Returns:
            (resamples, subsets) float64.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Pairs of texts and the objective over them.

    Attributes:
        grams: what cosines are computed from; vectors where products between layers do not suffice.
        objective: over the cosines.
    """

    grams: PairGrams | FusedPairs
    objective: Objective

    def values(self, masks: NDArray[np.int64]) -> NDArray[np.float64]:
        """(subsets,) the objective under a few sets of layers, given as bit masks."""
        return self.objective(self.grams.cosines(masks))


def subset_values(
    task: Task,
    subsets: LayerSubsets,
    done: Callable[[int], object] = lambda subsets: None,
    *,
    table_bytes: int = _TABLE_BYTES,
    threads: int = _THREADS,
) -> NDArray[np.float64]:
    """The objective of every set of layers.

    Args:
        task: the pairs and the objective.
        subsets: the sets.
        done: called with the number of sets after each block, in the caller's thread.
        table_bytes: size of a block. Memory in addition to the task and the values is about twice
            as much, and the same again for each thread.
        threads: number of blocks that are computed at a time.

    Returns:
        (subsets,) float64, in the order of `subsets`.
    """
    if isinstance(task.grams, FusedPairs):
        found = []
        for mask in subsets.masks:
            found.append(task.values(np.array([mask])))
            done(1)
        return np.concatenate(found)
    cosines = SubsetCosines(task.grams, subsets, table_bytes)
    rows = max(1, _RANKED_AT_ONCE // task.grams.pairs)
    values = np.empty(len(subsets))

    def fill(number: int) -> int:
        positions, block = cosines.block(number)
        for start in range(0, len(block), rows):
            part = slice(start, start + rows)
            values[positions[part]] = task.objective(block[part])
        return len(block)

    pool = ThreadPoolExecutor(threads)
    try:
        for finished in pool.map(fill, range(len(cosines))):
            done(finished)
    finally:
        pool.shutdown(cancel_futures=True)
    return values


def best_first(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Positions of the `count` best sets: by value, then fewer layers, then smaller bit mask.

    Values are rounded to 12 decimals first, so that the order of a summation does not decide.
    """
    # Ties keep the order of `LayerSubsets`, because the sort is stable.
    order = np.argsort(-comparable(values), kind="stable")
    return order[:count].astype(np.int64)


def comparable(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values without the rounding noise of float64."""
    return np.round(values, _OBJECTIVE_DECIMALS)
