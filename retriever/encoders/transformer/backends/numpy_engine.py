"""The forward pass in NumPy: nothing to load or compile, so the quickest way to one vector."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.transformer.backends.forward import distance_buckets, hidden_states
from retriever.encoders.transformer.backends.weights import Affine, Weights

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Watch = Callable[[Affine, Floats], None]

# erf(x) is about x P(x²) / Q(x²) on [-4, 4], and 1 beyond in single precision. A least-squares fit
# with weights raised where the error was largest; that of the result is below 5e-7.
_NUMERATOR = (
    1.128378987312317,
    0.19624891877174377,
    0.05346747487783432,
    0.00400364538654685,
    0.00028804183239117265,
    1.974834958673455e-06,
)
_DENOMINATOR = (
    1.0,
    0.5072522163391113,
    0.1164764016866684,
    0.015444418415427208,
    0.0012163607170805335,
    3.748093877220526e-05,
)
_ENDS = 4.0
_BUSY = threading.Lock()


class NumPyEngine:
    """Runs one text at a time, in single precision and on one core.

    A few word pieces are too little work for more cores: OpenBLAS's threads would wait for each
    other, on a busy machine for tens of milliseconds.

    Args:
        weights: of the model.
        watch: called with each linear layer and its input, (1, pieces, inputs).
    """

    def __init__(self, weights: Weights, watch: Watch | None = None) -> None:
        self._weights = weights
        self._operations = _Operations(watch)

    def states(
        self, ids: Sequence[int], layers: Sequence[int], types: Sequence[int] | None = None
    ) -> list[Floats]:
        """The hidden states of one text.

        Args:
            ids: of its word pieces, special tokens included.
            layers: the hidden states that are wanted, ascending.
            types: token types; all 0 if None.

        Returns:
            For each of them (1, pieces, width) float32.
        """
        weights, rows = self._weights, np.asarray(ids, np.int64)[None]
        kinds = np.zeros_like(rows) if types is None else np.asarray(types, np.int64)[None]
        bias = None if weights.distances is None else _distance_bias(weights.distances, len(ids))
        # The number of threads is the library's, and a second call would restore the first one's.
        with _BUSY, _one_thread():
            states = hidden_states(
                self._operations, weights, rows, weights.places(rows), kinds, bias
            )
            found = list(islice(states, layers[-1] + 1))
        return [found[layer] for layer in layers]


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _one_thread() -> AbstractContextManager[object]:
    limit: AbstractContextManager[object] = _blas().limit(limits=1)
    return limit


def _distance_bias(distances: Floats, pieces: int) -> Floats:
    """(1, heads, pieces, pieces), what attention adds for distances."""
    table = distances[distance_buckets(pieces)]
    place = np.arange(pieces)
    away = place[None, :] - place[:, None] + (pieces - 1)
    return np.ascontiguousarray(table[away].transpose(2, 0, 1)[None])


class _Operations:
    """See `forward.Operations`; values are float32 arrays."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch

    def rows(self, table: Floats, places: Integers) -> Floats:
        return table[places]

    def linear(self, value: Floats, layer: Affine) -> Floats:
        if self._watch is not None:
            self._watch(layer, value)
        product: Floats = value @ layer.weight.T
        product += layer.bias
        return product

    def norm(self, value: Floats, layer: Affine, epsilon: float) -> Floats:
        value -= value.mean(axis=-1, keepdims=True)
        variance = np.square(value).mean(axis=-1, keepdims=True)
        value /= np.sqrt(variance + np.float32(epsilon))
        value *= layer.weight
        value += layer.bias
        return value

    def gelu(self, value: Floats) -> Floats:
        value *= 1 + erf(value * np.float32(math.sqrt(0.5)))
        value *= np.float32(0.5)
        return value

    def attention(
        self, query: Floats, key: Floats, value: Floats, heads: int, bias: Floats | None
    ) -> Floats:
        texts, pieces, width = query.shape

        def split(states: Floats) -> Floats:
            return states.reshape(texts, pieces, heads, -1).transpose(0, 2, 1, 3)

        scores = split(query) @ split(key).swapaxes(2, 3)
        scores *= np.float32(1 / math.sqrt(width // heads))
        if bias is not None:
            scores += bias
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ split(value)).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(mixed, np.float32).reshape(texts, pieces, width)


def erf(values: Floats) -> Floats:
    """The error function of each value, float32, within 5e-7."""
    ends = np.float32(_ENDS)
    values = np.clip(values, -ends, ends)
    squares = values * values
    values *= _polynomial(_NUMERATOR, squares)
    values /= _polynomial(_DENOMINATOR, squares)
    return values


def _polynomial(coefficients: Sequence[float], values: Floats) -> Floats:
    result = values * np.float32(coefficients[-1])
    for one in coefficients[-2:0:-1]:
        result += np.float32(one)
        result *= values
    result += np.float32(coefficients[0])
    return result
