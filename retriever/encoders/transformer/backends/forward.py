"""The forward pass of a BERT and of an MPNet, written once for every backend.

Devlin et al. 2019 and Song et al. 2020: post-norm layers, the exact GELU, and for MPNet a learned
bias of attention for the distance of two pieces (T5's buckets, Raffel et al. 2020, Sec. 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.transformer.backends.weights import Affine, Weights

# Of MPNet, which fixes them.
_BUCKETS = 32
_FARTHEST = 128


class Operations(Protocol):
    """What a backend computes with; values are arrays or nodes of a graph, and can be added."""

    def rows(self, table: NDArray[np.float32], places: Any) -> Any:
        """The rows of a table at (texts, pieces) places."""

    def linear(self, value: Any, layer: Affine) -> Any:
        """Each vector times the weights, plus the bias."""

    def norm(self, value: Any, layer: Affine, epsilon: float) -> Any:
        """Layer norm over the last axis; may overwrite `value`."""

    def gelu(self, value: Any) -> Any:
        """Each x times the normal distribution function at x; may overwrite `value`."""

    def attention(self, query: Any, key: Any, value: Any, heads: int, bias: Any) -> Any:
        """Softmax of scaled products plus `bias`, times the values: (texts, pieces, width)."""


def hidden_states(
    operations: Operations, weights: Weights, ids: Any, places: Any, types: Any, bias: Any
) -> Iterator[Any]:
    """Each hidden state, (texts, pieces, width), from the embeddings up.

    Args:
        operations: of the backend.
        weights: of the model.
        ids: (texts, pieces) of the words.
        places: (texts, pieces) rows of the positions' embeddings.
        types: (texts, pieces) token types; not read if the model has none.
        bias: added to the scores of attention, (texts or 1, heads or 1, pieces or 1, pieces): minus
            infinity at padding, and the bias of distances; None for none.
    """
    states = operations.rows(weights.words, ids) + operations.rows(weights.positions, places)
    if weights.types is not None:
        states = states + operations.rows(weights.types, types)
    states = operations.norm(states, weights.norm, weights.epsilon)
    yield states
    for layer in weights.layers:
        query, key, value = (
            operations.linear(states, one) for one in (layer.query, layer.key, layer.value)
        )
        mixed = operations.attention(query, key, value, weights.heads, bias)
        states = operations.linear(mixed, layer.mixed) + states
        states = operations.norm(states, layer.mixed_norm, weights.epsilon)
        inner = operations.gelu(operations.linear(states, layer.inner))
        states = operations.linear(inner, layer.outer) + states
        states = operations.norm(states, layer.outer_norm, weights.epsilon)
        yield states


@cache
def distance_buckets(longest: int) -> NDArray[np.int64]:
    """The bucket of each distance from -(longest - 1) to longest - 1, of a key from its query."""
    distances = np.arange(1 - longest, longest)
    half = _BUCKETS // 2
    exact = half // 2
    away = np.abs(distances)
    # In single precision, as the model was trained.
    scale = np.float32(half - exact) / np.float32(math.log(_FARTHEST / exact))
    far = np.log(np.maximum(away, 1).astype(np.float32) / np.float32(exact)) * scale
    buckets = np.where(away < exact, away, np.minimum(exact + far.astype(np.int64), half - 1))
    return np.where(distances > 0, half + buckets, buckets)
