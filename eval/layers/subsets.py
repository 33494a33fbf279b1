"""The sets of hidden states that a layer search tries, in the order that decides ties."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.errors import ConfigError

_MOST_UNASKED = 2**21
_MOST = 2**25


@dataclass(frozen=True, slots=True, eq=False)
class LayerSubsets:
    """Non-empty sets of hidden states, fewer layers first, then by bit mask ascending.

    Attributes:
        hidden_states: n; a model of depth L has L + 1, and 0 is the embedding output.
        masks: (subsets,) int64; bit l stands for hidden state l.
        sizes: (subsets,) int64, the number of layers of each set; ascending.
    """

    hidden_states: int
    masks: NDArray[np.int64]
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

    def contains(self, layer: int) -> NDArray[np.bool_]:
        """(subsets,) whether each set has this layer."""
        return (self.masks >> layer & 1).astype(np.bool_)


def layer_subsets(hidden_states: int, max_layers: int | None = None) -> LayerSubsets:
    """Every non-empty set of hidden states, or those of at most `max_layers`.

    Raises:
        ConfigError: `max_layers` is not in 1 to `hidden_states`, or there are too many sets: more
            than 2^21 if `max_layers` is None, more than 2^25 otherwise.
    """
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
    by_size = sets_of_at_most(hidden_states, largest)[1:]
    sizes = np.repeat(np.arange(1, largest + 1), [len(masks) for masks in by_size])
    return LayerSubsets(hidden_states, np.concatenate(by_size), sizes)


def layer_mask(layers: Iterable[int]) -> int:
    """The bit mask of some layers."""
    return sum(1 << layer for layer in layers)


def count_subsets(hidden_states: int, largest: int) -> int:
    """Number of non-empty sets of at most `largest` hidden states."""
    return sum(math.comb(hidden_states, size) for size in range(1, largest + 1))


def pair_indicators(masks: NDArray[np.int64], hidden_states: int) -> NDArray[np.float64]:
    """(subsets, n(n+1)/2): 1 where a set has both layers of a pair (i, j), i <= j, else 0.

    The pairs are in the order of `numpy.triu_indices`.
    """
    first, second = np.triu_indices(hidden_states)
    held = (masks[:, None] >> np.arange(hidden_states) & 1).astype(np.float64)
    return held[:, first] * held[:, second]


def sets_of_at_most(layers: int, largest: int) -> list[NDArray[np.int64]]:
    """The bit masks of the sets of 0, 1, ... `largest` of the lowest `layers`, each ascending."""
    # Sets without a new top layer, then those with it: each list stays ascending, and no other
    # sets are computed.
    by_size = [np.zeros(1, np.int64), *(np.zeros(0, np.int64) for _ in range(largest))]
    for layer in range(layers):
        for size in range(largest, 0, -1):
            with_layer = by_size[size - 1] | np.int64(1 << layer)
            by_size[size] = np.concatenate([by_size[size], with_layer])
    return by_size
