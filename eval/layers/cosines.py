"""Cosines under every set of layers, each from a set with one layer less.

A set D is a low part (its layers below some b) and a high part. For one high part, the quadratic
form z'Gz of D is that of the low part, which a table holds, plus that of the high part, plus the
products between the two: a sum over the low part's layers. This sum grows with the low part by one
addition: that of a set is that of the set without its top layer, plus that layer's. So a form costs
two additions, where a product with an indicator costs n(n+1)/2 multiplications.
"""

from __future__ import annotations

from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.layers.grams import PairGrams, to_cosines
from eval.layers.subsets import LayerSubsets, pair_indicators, sets_of_at_most


class _Step(NamedTuple):
    """Sets of one size with one top layer, from the sets of one layer less that are below it."""

    target: slice
    source: slice
    layer: int


class SubsetCosines:
    """The cosines of pairs of texts, in one block per high part.

    Args:
        grams: the pairs.
        subsets: the sets.
        table_bytes: maximum size of the table of low parts; a block is as large again.
    """

    def __init__(self, grams: PairGrams, subsets: LayerSubsets, table_bytes: int) -> None:
        hidden_states, largest = subsets.hidden_states, int(subsets.sizes[-1])
        set_bytes = max(grams.triangles.nbytes // grams.triangles.shape[1], 1)
        self._low = _low_layers(hidden_states, largest, table_bytes // set_bytes)
        self._largest = largest
        self._triangles = grams.triangles
        first, second = np.triu_indices(hidden_states)
        self._place = np.empty((hidden_states, hidden_states), np.int64)
        self._place[first, second] = self._place[second, first] = np.arange(len(first))

        by_size = sets_of_at_most(self._low, min(self._low, largest))
        self._ends = np.cumsum([len(masks) for masks in by_size])
        self._lows = np.concatenate(by_size)
        self._steps = _steps(self._low, self._ends)
        self._table = pair_indicators(self._lows, hidden_states) @ grams.triangles
        high = hidden_states - self._low
        self._highs = np.concatenate(sets_of_at_most(high, min(high, largest))) << self._low
        self._order = np.argsort(subsets.masks)
        self._ascending = subsets.masks[self._order]

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._highs)

    def block(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """One block.

        Returns:
            (sets,) positions among the subsets and (sets, pairs) their cosines, which may be
            overwritten.
        """
        high = self._highs[number]
        layers = np.flatnonzero(high >> np.arange(len(self._place)) & 1)
        sets = self._ends[min(self._largest - len(layers), len(self._ends) - 1)]
        forms = np.empty((3, sets, self._triangles.shape[2]))
        within = self._place[np.ix_(layers, layers)][np.triu_indices(len(layers))]
        forms[:, 0] = self._triangles[:, within].sum(axis=1)
        joints = self._triangles[:, self._place[: self._low, layers]].sum(axis=2)
        for step in self._steps:
            if step.target.start >= sets:
                break
            joint = joints[:, step.layer, None]
            np.add(forms[:, step.source], joint, out=forms[:, step.target])
        forms += self._table[:, :sets]
        # The empty set is left out.
        start = 0 if high else 1
        masks = high | self._lows[start:sets]
        positions = self._order[np.searchsorted(self._ascending, masks)]
        return positions, to_cosines(*forms[:, start:])


def _low_layers(hidden_states: int, largest: int, most: int) -> int:
    """The greatest number of layers with at most `most` sets; at least one."""
    low = 1
    while low < hidden_states:
        if sum(comb(low + 1, size) for size in range(min(low + 1, largest) + 1)) > most:
            break
        low += 1
    return low


def _steps(low: int, ends: NDArray[np.int64]) -> list[_Step]:
    steps = []
    target = 1
    for size in range(1, len(ends)):
        source = int(ends[size - 2]) if size > 1 else 0
        # Masks are ascending: those below a layer come first, then those with it in the same order.
        for layer in range(size - 1, low):
            count = comb(layer, size - 1)
            steps.append(_Step(slice(target, target + count), slice(source, source + count), layer))
            target += count
    return steps
