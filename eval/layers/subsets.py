"""Sets of hidden states that a layer search tries, and cosines of pairs of texts under each.

Let a_l and b_l be the vectors of two texts in layer l, and D a set of layers with indicator z.
The cosine of their means over D is z'G_ab z / sqrt(z'G_aa z · z'G_bb z), where G_ab holds the
products a_i · b_j (Hosseini et al. 2023, Eq. 1, without computing any of its vectors). Add the two
halves of G into its upper triangle: z'Gz is then the product of this triangle with the indicator of
pairs of layers.
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

# Most sets to try, without and with --max-layers.
_DEFAULT_MAX_SETS = 2**21
_MAX_SETS = 2**25
# Pairs of texts whose products are computed together.
_GRAMS_AT_ONCE = 64
_THREADS = 2
# A mean of layers counts as zero if its squared length is below this share of the longest layer's.
_ZERO_LENGTH = 1e-12


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
        """Position of the set that holds the last layer alone."""
        return self.hidden_states - 1

    def layers(self, position: int) -> tuple[int, ...]:
        """Return the layers of one set, ascending."""
        mask = int(self.masks[position])
        return tuple(layer for layer in range(self.hidden_states) if mask >> layer & 1)


def layer_subsets(hidden_states: int, max_layers: int | None = None) -> LayerSubsets:
    """Return all non-empty sets of hidden states, or all of at most `max_layers`.

    Raises:
        ConfigError: `max_layers` is out of range, or there are too many sets.
    """
    if max_layers is not None and not 1 <= max_layers <= hidden_states:
        raise ConfigError(
            f"max-layers: the model has {hidden_states} hidden states, including the embeddings; "
            f"expected 1 to {hidden_states}, found {max_layers}"
        )
    largest = max_layers or hidden_states
    count = count_subsets(hidden_states, largest)
    max_sets = _DEFAULT_MAX_SETS if max_layers is None else _MAX_SETS
    if count > max_sets:
        fitting = max(
            size for size in range(1, largest) if count_subsets(hidden_states, size) <= max_sets
        )
        raise ConfigError(
            f"max-layers: {hidden_states} hidden states have {count:,} sets of up to {largest} "
            f"layers, more than the maximum of {max_sets:,}; set --max-layers to at most "
            f"{fitting} ({count_subsets(hidden_states, fitting):,} sets)"
        )
    by_size = _sets_of_at_most(hidden_states, largest)[1:]
    sizes = np.repeat(np.arange(1, largest + 1), [len(masks) for masks in by_size])
    return LayerSubsets(hidden_states, np.concatenate(by_size), sizes)


def count_subsets(hidden_states: int, largest: int) -> int:
    """Count the non-empty sets of at most `largest` hidden states."""
    return sum(math.comb(hidden_states, size) for size in range(1, largest + 1))


def layer_mask(layers: Iterable[int]) -> int:
    """Return the bit mask of a set of layers."""
    return sum(1 << layer for layer in layers)


def baseline_layers(
    hidden_states: int, size: int, random: np.random.Generator
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the last four layers, and `size` random layers, each ascending."""
    random_layers = random.choice(hidden_states, size, replace=False).tolist()
    return tuple(range(max(hidden_states - 4, 0), hidden_states)), tuple(sorted(random_layers))


def _sets_of_at_most(layers: int, largest: int) -> list[Masks]:
    """Return the bit masks of all sets of 0, 1, ... `largest` of the lowest `layers`, ascending."""
    # Each layer is added as the new top layer, after all sets without it: lists stay ascending.
    by_size = [np.zeros(1, np.int64), *(np.zeros(0, np.int64) for _ in range(largest))]
    for layer in range(layers):
        for size in range(largest, 0, -1):
            with_layer = by_size[size - 1] | np.int64(1 << layer)
            by_size[size] = np.concatenate([by_size[size], with_layer])
    return by_size


def _pair_indicators(masks: Masks, hidden_states: int) -> Floats:
    """Return (subsets, n(n+1)/2): 1 where a set has both layers of a pair of `triu_indices`."""
    first, second = np.triu_indices(hidden_states)
    indicators = _indicators(masks, hidden_states)
    return indicators[:, first] * indicators[:, second]


def _indicators(masks: Masks, layers: int) -> Floats:
    """Return (subsets, layers): 1 where a set has a layer."""
    return (masks[:, None] >> np.arange(layers) & 1).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class PairGrams:
    """Products between the layers of pairs of texts: they determine all cosines under any set.

    Attributes:
        hidden_states: n, the embeddings included.
        triangles: (3, n(n+1)/2, pairs) G_ab, G_aa and G_bb in the order of `numpy.triu_indices`;
            the longest layer of each text is scaled to length 1.
    """

    hidden_states: int
    triangles: Floats

    @property
    def pairs(self) -> int:
        """Number of pairs of texts."""
        return int(self.triangles.shape[2])

    def take(self, pairs: NDArray[np.int64]) -> PairGrams:
        """Return the pairs at these positions, in this order."""
        return PairGrams(self.hidden_states, np.ascontiguousarray(self.triangles[:, :, pairs]))

    def cosines(self, masks: Masks) -> Floats:
        """Return (subsets, pairs) cosines under each set; 0 where a mean of layers is zero."""
        return _to_cosines(*(_pair_indicators(masks, self.hidden_states) @ self.triangles))


def _to_cosines(products: Floats, left: Floats, right: Floats) -> Floats:
    """Return cosines from z'G_ab z, z'G_aa z and z'G_bb z, overwritten; 0 for a zero vector."""
    is_zero = None
    if left.size and min(left.min(), right.min()) < _ZERO_LENGTH:
        is_zero = np.minimum(left, right) < _ZERO_LENGTH
        left[is_zero] = right[is_zero] = 1.0
    np.multiply(left, right, out=left)
    np.sqrt(left, out=left)
    np.divide(products, left, out=products)
    if is_zero is not None:
        products[is_zero] = 0.0
    return products


def pair_grams(left: NDArray[np.floating], right: NDArray[np.floating]) -> PairGrams:
    """Return the float64 products between the layers of pairs of texts, (pairs, n, d) each."""
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
    """Cosines of pairs of texts under every set, one block for each high part.

    A set is a low part (its layers below some b) and a high part. Its form z'Gz has three terms:
    the form of the low part, from a table; the form of the high part; and the products between the
    two, which are linear in the low part.
    """

    def __init__(self, grams: PairGrams, subsets: LayerSubsets, table_bytes: int) -> None:
        hidden_states = subsets.hidden_states
        largest = int(subsets.sizes[-1])
        max_low_sets = table_bytes // max(grams.triangles.nbytes // grams.triangles.shape[1], 1)
        # The greatest number of low layers whose sets, the empty one included, fit into the table.
        low = 1
        while (
            low < hidden_states
            and 1 + count_subsets(low + 1, min(low + 1, largest)) <= max_low_sets
        ):
            low += 1
        self._low = low
        self._largest = largest
        self._triangles = grams.triangles
        first, second = np.triu_indices(hidden_states)
        self._pair_positions = np.empty((hidden_states, hidden_states), np.int64)
        self._pair_positions[first, second] = self._pair_positions[second, first] = np.arange(
            len(first)
        )

        by_size = _sets_of_at_most(self._low, min(self._low, largest))
        self._ends = np.cumsum([len(masks) for masks in by_size])
        self._low_masks = np.concatenate(by_size)
        self._low_indicators = _indicators(self._low_masks, low)
        self._low_forms = _pair_indicators(self._low_masks, hidden_states) @ grams.triangles
        high = hidden_states - self._low
        self._high_masks = np.concatenate(_sets_of_at_most(high, min(high, largest))) << self._low
        self._order = np.argsort(subsets.masks)
        self._ascending = subsets.masks[self._order]

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._high_masks)

    def block(self, number: int) -> tuple[NDArray[np.int64], Floats]:
        """Return (sets,) positions among the subsets, and (sets, pairs) cosines, a new array."""
        high = self._high_masks[number]
        layers = np.flatnonzero(high >> np.arange(len(self._pair_positions)) & 1)
        low_count = self._ends[min(self._largest - len(layers), len(self._ends) - 1)]
        inner_pairs = self._pair_positions[np.ix_(layers, layers)][np.triu_indices(len(layers))]
        forms = self._low_indicators[:low_count] @ self._triangles[
            :, self._pair_positions[: self._low, layers]
        ].sum(axis=2)
        forms += self._triangles[:, inner_pairs].sum(axis=1, keepdims=True)
        forms += self._low_forms[:, :low_count]
        # The empty set is left out.
        start = 0 if high else 1
        masks = high | self._low_masks[start:low_count]
        positions = self._order[np.searchsorted(self._ascending, masks)]
        return positions, _to_cosines(*forms[:, start:])
