"""The sets of hidden states that a layer search tries, and cosines of pairs of texts under each.

Let a_l and b_l be the vectors of two texts in layer l, and D a set of layers with indicator z.
The cosine of their means over D is z'G_ab z / sqrt(z'G_aa z · z'G_bb z), where G_ab holds the
products a_i · b_j (Hosseini et al. 2023, Eq. 1, without computing any of its vectors). A quadratic
form of an indicator is a product of the matrix's upper triangle (both halves added) with the
indicator of pairs of layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.errors import ConfigError

Floats = NDArray[np.float64]
Masks = NDArray[np.int64]

_MOST_UNASKED = 2**21
_MOST = 2**25
_GRAMS_AT_ONCE = 64
_THREADS = 2
# A mean over layers whose squared length is below this part of the longest layer's is rounding.
_NOTHING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class LayerSubsets:
    """Non-empty sets of hidden states, fewer layers first, then by bit mask ascending."""

    hidden_states: int
    # (subsets,): bit l stands for hidden state l.
    masks: Masks
    # (subsets,) numbers of layers.
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.masks)

    @property
    def last(self) -> int:
        """The position of the set of the last layer only."""
        return self.hidden_states - 1

    def layers(self, position: int) -> tuple[int, ...]:
        """The layers of one set, ascending."""
        mask = int(self.masks[position])
        return tuple(layer for layer in range(self.hidden_states) if mask >> layer & 1)


def layer_subsets(hidden_states: int, max_layers: int | None = None) -> LayerSubsets:
    """Every non-empty set of hidden states, or those of at most `max_layers`; refuses too many."""
    if max_layers is not None and not 1 <= max_layers <= hidden_states:
        raise ConfigError(
            f"max-layers: the model has {hidden_states} hidden states, including the embeddings; "
            f"expected 1 to {hidden_states}, found {max_layers}"
        )
    largest = max_layers or hidden_states
    count = count_subsets(hidden_states, largest)
    most = _MOST_UNASKED if max_layers is None else _MOST
    if count > most:
        fitting = max(
            size for size in range(1, largest) if count_subsets(hidden_states, size) <= most
        )
        raise ConfigError(
            f"max-layers: {hidden_states} hidden states have {count:,} sets of up to {largest} "
            f"layers, more than the maximum of {most:,}; set --max-layers to at most "
            f"{fitting} ({count_subsets(hidden_states, fitting):,} sets)"
        )
    by_size = _sets_of_at_most(hidden_states, largest)[1:]
    sizes = np.repeat(np.arange(1, largest + 1), [len(masks) for masks in by_size])
    return LayerSubsets(hidden_states, np.concatenate(by_size), sizes)


def count_subsets(hidden_states: int, largest: int) -> int:
    """Number of non-empty sets of at most `largest` hidden states."""
    return sum(math.comb(hidden_states, size) for size in range(1, largest + 1))


def layer_mask(layers: Iterable[int]) -> int:
    """The bit mask of some layers."""
    return sum(1 << layer for layer in layers)


def baseline_layers(
    hidden_states: int, size: int, random: np.random.Generator
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The last four layers, and as many random ones as a set has."""
    drawn = random.choice(hidden_states, size, replace=False).tolist()
    return tuple(range(max(hidden_states - 4, 0), hidden_states)), tuple(sorted(drawn))


def _sets_of_at_most(layers: int, largest: int) -> list[Masks]:
    """The bit masks of the sets of 0, 1, ... `largest` of the lowest `layers`, each ascending."""
    # Sets without a new top layer, then those with it: each list stays ascending, and no other
    # sets are computed.
    by_size = [np.zeros(1, np.int64), *(np.zeros(0, np.int64) for _ in range(largest))]
    for layer in range(layers):
        for size in range(largest, 0, -1):
            with_layer = by_size[size - 1] | np.int64(1 << layer)
            by_size[size] = np.concatenate([by_size[size], with_layer])
    return by_size


def _pair_indicators(masks: Masks, hidden_states: int) -> Floats:
    """(subsets, n(n+1)/2): 1 where a set has both layers of a pair of `numpy.triu_indices`."""
    first, second = np.triu_indices(hidden_states)
    held = _indicators(masks, hidden_states)
    return held[:, first] * held[:, second]


def _indicators(masks: Masks, layers: int) -> Floats:
    """(subsets, layers): 1 where a set has a layer."""
    return (masks[:, None] >> np.arange(layers) & 1).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class PairGrams:
    """Everything that the cosines of pairs of texts depend on under any set of n hidden states."""

    hidden_states: int
    # (3, n(n+1)/2, pairs): G_ab, G_aa and G_bb in the order of `numpy.triu_indices`, each text's
    # longest layer scaled to length 1.
    triangles: Floats

    @property
    def pairs(self) -> int:
        """Number of pairs of texts."""
        return int(self.triangles.shape[2])

    def take(self, pairs: NDArray[np.int64]) -> PairGrams:
        """The pairs at these positions, in this order."""
        return PairGrams(self.hidden_states, np.ascontiguousarray(self.triangles[:, :, pairs]))

    def cosines(self, masks: Masks) -> Floats:
        """(subsets, pairs) cosines under each set; 0 where a mean over the layers is zero."""
        return _to_cosines(*(_pair_indicators(masks, self.hidden_states) @ self.triangles))


def _to_cosines(products: Floats, left: Floats, right: Floats) -> Floats:
    """Cosines from z'G_ab z, z'G_aa z and z'G_bb z, which are overwritten; 0 with a zero vector."""
    nothing = None
    if left.size and min(left.min(), right.min()) < _NOTHING:
        nothing = np.minimum(left, right) < _NOTHING
        left[nothing] = right[nothing] = 1.0
    np.multiply(left, right, out=left)
    np.sqrt(left, out=left)
    np.divide(products, left, out=products)
    if nothing is not None:
        products[nothing] = 0.0
    return products


def pair_grams(left: NDArray[np.floating], right: NDArray[np.floating]) -> PairGrams:
    """The scalar products, in float64, between the layers of pairs of texts, (pairs, n, d) each."""
    pairs, n, _ = left.shape
    first, second = np.triu_indices(n)
    triangles = np.empty((3, len(first), pairs))

    def fill(start: int) -> None:
        part = slice(start, start + _GRAMS_AT_ONCE)
        both = np.concatenate([left[part], right[part]], axis=1, dtype=np.float64)
        grams = both @ both.transpose(0, 2, 1)
        a = slice(0, n)
        b = slice(n, 2 * n)
        for kind, (rows, columns) in enumerate(((a, b), (a, a), (b, b))):
            gram = grams[:, rows, columns]
            scale = np.sqrt(_longest(grams[:, rows, rows]) * _longest(grams[:, columns, columns]))
            summed = (gram + gram.transpose(0, 2, 1))[:, first, second] / scale[:, None]
            triangles[kind, :, part] = summed.T

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(fill, range(0, pairs, _GRAMS_AT_ONCE)))
    triangles[:, first == second] /= 2
    return PairGrams(n, triangles)


def _longest(grams: Floats) -> Floats:
    squares: Floats = np.diagonal(grams, axis1=1, axis2=2).max(axis=1)
    return np.where(squares > 0, squares, 1.0)


class SubsetCosines:
    """The cosines of pairs of texts under every set, in one block per high part.

    A set is a low part (its layers below some b) and a high part. Its form z'Gz is that of the low
    part, from a table, plus that of the high part, plus the products between the two, which are
    linear in the low part.
    """

    def __init__(self, grams: PairGrams, subsets: LayerSubsets, table_bytes: int) -> None:
        hidden_states = subsets.hidden_states
        largest = int(subsets.sizes[-1])
        most = table_bytes // max(grams.triangles.nbytes // grams.triangles.shape[1], 1)
        # The greatest number of layers with at most so many sets, the empty one too; at least one.
        low = 1
        while low < hidden_states and 1 + count_subsets(low + 1, min(low + 1, largest)) <= most:
            low += 1
        self._low = low
        self._largest = largest
        self._triangles = grams.triangles
        first, second = np.triu_indices(hidden_states)
        self._place = np.empty((hidden_states, hidden_states), np.int64)
        self._place[first, second] = self._place[second, first] = np.arange(len(first))

        by_size = _sets_of_at_most(self._low, min(self._low, largest))
        self._ends = np.cumsum([len(masks) for masks in by_size])
        self._lows = np.concatenate(by_size)
        self._held = _indicators(self._lows, low)
        self._table = _pair_indicators(self._lows, hidden_states) @ grams.triangles
        high = hidden_states - self._low
        self._highs = np.concatenate(_sets_of_at_most(high, min(high, largest))) << self._low
        self._order = np.argsort(subsets.masks)
        self._ascending = subsets.masks[self._order]

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._highs)

    def block(self, number: int) -> tuple[NDArray[np.int64], Floats]:
        """(sets,) positions among the subsets, and (sets, pairs) their cosines, in a new array."""
        high = self._highs[number]
        layers = np.flatnonzero(high >> np.arange(len(self._place)) & 1)
        sets = self._ends[min(self._largest - len(layers), len(self._ends) - 1)]
        within = self._place[np.ix_(layers, layers)][np.triu_indices(len(layers))]
        forms = self._held[:sets] @ self._triangles[:, self._place[: self._low, layers]].sum(axis=2)
        forms += self._triangles[:, within].sum(axis=1, keepdims=True)
        forms += self._table[:, :sets]
        # The empty set is left out.
        start = 0 if high else 1
        masks = high | self._lows[start:sets]
        positions = self._order[np.searchsorted(self._ascending, masks)]
        return positions, _to_cosines(*forms[:, start:])
