"""The exhaustive layer search of BERT-LC (Hosseini et al. 2023).

The search over means of layers is exact and needs no vectors. A maximum over layers, or a head
after the mean, is no function of the products between layers: each set costs a pass over all texts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question
from eval.layers.subsets import LayerSubsets, Masks, PairGrams, SubsetCosines
from eval.metrics.correlation import RANKED_DECIMALS, Correlation, cosines
from eval.metrics.measures import PoolMeasures
from eval.progress import Done, ignore
from eval.settings import Loading
from retriever.encoders.settings import EncoderSettings

Vectors = NDArray[np.float32]
Floats = NDArray[np.float64]

_OBJECTIVE_DECIMALS = 12
_THREADS = min(os.cpu_count() or 1, 8)
_TABLE_BYTES = 8 * 2**20
# Fits into the cache of a core, including sorted keys and ranks.
_RANKED_AT_ONCE = 2**15


@dataclass(frozen=True, slots=True, eq=False)
class LayerFusion:
    """The ``mean`` or ``max`` of each component over layers, then a head, if there is one."""

    over: Literal["mean", "max"] = "mean"
    head: Callable[[Vectors], Vectors] | None = None

    @property
    def is_linear(self) -> bool:
        """Whether the result is a plain mean."""
        return self.over == "mean" and self.head is None

    def __call__(self, layers: Vectors) -> Vectors:
        """(texts, layers, width) to (texts, dimensions)."""
        fused: Vectors = layers.max(axis=1) if self.over == "max" else layers.mean(axis=1)
        return fused if self.head is None else self.head(fused)


def layer_fusion(asked: EncoderSettings, loading: Loading) -> LayerFusion:
    """What an encoder makes of a set of layers; ConfigError if it lacks a head asked for."""
    head = None
    if asked.head:
        # Its layers do not matter: a head takes the vector that they became.
        head = loading.load(replace(asked, layers=None, fusion=None, pooling=None)).project
    return LayerFusion("max" if asked.fusion == "max" else "mean", head)


@dataclass(frozen=True, slots=True, eq=False)
class FusedPairs:
    """Pairs of texts with the vectors of all layers; the methods are those of `PairGrams`."""

    # (texts, hidden states, width), each text once, and (2, pairs) its rows.
    vectors: Vectors
    rows: NDArray[np.int64]
    fusion: LayerFusion

    @property
    def pairs(self) -> int:
        """Number of pairs of texts."""
        return int(self.rows.shape[1])

    def take(self, pairs: NDArray[np.int64]) -> FusedPairs:
        """The pairs at these positions, in this order, and only their texts."""
        texts, rows = np.unique(self.rows[:, pairs], return_inverse=True)
        return replace(self, vectors=self.vectors[texts], rows=rows.reshape(2, -1))

    def cosines(self, masks: Masks) -> Floats:
        """(subsets, pairs) cosines under each set."""
        held = masks[:, None] >> np.arange(self.vectors.shape[1]) & 1
        found = np.empty((len(masks), self.pairs))
        for number, chosen in enumerate(held.astype(bool)):
            fused = self.fusion(self.vectors[:, chosen])
            found[number] = cosines(fused[self.rows[0]], fused[self.rows[1]])
        return found


class PoolObjective:
    """The mean of a measure over questions, as `eval qa` has it; used like a `Correlation`."""

    unit = "questions"

    def __init__(self, pools: Sequence[Question], name: str = "AP") -> None:
        self._measures = PoolMeasures(pools, [name])
        (self.name,) = self._measures.names
        self.units = len(pools)

    def __call__(self, cosines: Floats) -> Floats:
        """(subsets, pairs) cosines to (subsets,) means in [0, 1]."""
        means: Floats = self.per_question(cosines).mean(axis=1)
        return means

    def resampled(self, cosines: Floats, weights: Floats) -> Floats:
        """(resamples, subsets) means over the questions drawn; weights: (resamples, questions)."""
        sums: Floats = weights @ self.per_question(cosines).T
        sums /= weights.sum(axis=1, keepdims=True)
        return sums

    def per_question(self, cosines: Floats) -> Floats:
        """(subsets, pairs) cosines to (subsets, questions) values in [0, 1]."""
        return self._measures(np.round(cosines, RANKED_DECIMALS))[self.name]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Pairs of texts and the objective over their cosines."""

    grams: PairGrams | FusedPairs
    objective: Correlation | PoolObjective

    def values(self, masks: Masks) -> Floats:
        """(subsets,) the objective under a few sets of layers, given as bit masks."""
        return self.objective(self.grams.cosines(masks))


def subset_values(
    task: Task,
    subsets: LayerSubsets,
    done: Done = ignore,
    *,
    table_bytes: int = _TABLE_BYTES,
    threads: int = _THREADS,
) -> Floats:
    """(subsets,) the objective of every set of layers; a thread takes twice `table_bytes`."""
    values = np.empty(len(subsets))
    if isinstance(task.grams, FusedPairs):
        for position in range(len(subsets)):
            values[position] = task.values(subsets.masks[position : position + 1])[0]
            done(1)
        return values
    blocks = SubsetCosines(task.grams, subsets, table_bytes)
    rows = max(1, _RANKED_AT_ONCE // task.grams.pairs)

    def fill(number: int) -> int:
        positions, block = blocks.block(number)
        for start in range(0, len(block), rows):
            part = slice(start, start + rows)
            values[positions[part]] = task.objective(block[part])
        return len(block)

    pool = ThreadPoolExecutor(threads)
    try:
        for finished in pool.map(fill, range(len(blocks))):
            done(finished)
    finally:
        pool.shutdown(cancel_futures=True)
    return values


def best_first(values: Floats, count: int) -> NDArray[np.int64]:
    """Positions of the `count` best sets: by value, then fewer layers, then smaller bit mask."""
    # Ties keep the order of `LayerSubsets`, because the sort is stable.
    order = np.argsort(-comparable(values), kind="stable")
    return order[:count].astype(np.int64)


def comparable(values: Floats) -> Floats:
    """Values without rounding noise, so that the order of a summation does not decide."""
    return np.round(values, _OBJECTIVE_DECIMALS)
