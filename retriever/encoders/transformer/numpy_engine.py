"""The forward pass in NumPy, in single precision on one core, for a few short texts."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from retriever.encoders.transformer.network import Affine, Network, NetworkInputs
from retriever.encoders.transformer.tensors import Floats

# Coefficients of erf(x) = x P(x²) / Q(x²) on [-4, 4]; beyond, it is ±1 in single precision. They
# are a reweighted least-squares fit with an error below 5e-7.
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
_ERF_LIMIT = np.float32(4)
# Protects the number of BLAS threads, which is global.
_BLAS_LOCK = threading.Lock()
# Attention scores in memory at once: 64 MB.
_MOST_SCORES = 2**24
Rotation = tuple[Floats, Floats]
# Function of (texts, width) vectors, after pooling.
HeadLayer = Callable[[Floats], Floats]
# Function of a linear layer and its input.
Watch = Callable[[Affine, Floats], None]


@dataclass(frozen=True, slots=True, eq=False)
class HiddenStates:
    """Hidden states of a batch of texts, valid until the next batch."""

    rows: NDArray[np.int64]  # (texts,) positions of the texts among those of the call.
    lengths: NDArray[np.int64]  # (texts,) numbers of word pieces.
    states: list[Floats]  # (texts, pieces, width) of each layer, padded to the longest text.


class NumPyEngine:
    """The forward pass of a network, one text at a time.

    It uses one core: for few word pieces the threads of OpenBLAS wait tens of milliseconds for each
    other. `watch` is called with the input of each linear layer.
    """

    def __init__(self, network: Network, layers: Sequence[int], watch: Watch | None = None) -> None:
        self._network = network
        self._layers = layers
        self._watch = watch

    def run(
        self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
    ) -> Iterator[HiddenStates]:
        """Run texts, and yield the states of each."""
        network = self._network
        for row, pieces in enumerate(ids):
            batch = np.asarray(pieces, np.int64)[None]
            batch_types = np.zeros_like(batch)
            if types is not None:
                batch_types = np.asarray(types[row], np.int64)[None]
            # One call at a time, since the number of threads is global in the library.
            # Numbers that overflow are found in the vectors.
            quiet = np.errstate(over="ignore", invalid="ignore")
            with _BLAS_LOCK, _blas_controller().limit(limits=1), quiet:
                inputs = NetworkInputs(
                    network.words[batch], network.position_rows(batch), batch_types
                )
                states = network.hidden_states(_ArrayOperations(len(pieces), self._watch), inputs)
                computed = list(islice(states, self._layers[-1] + 1))
            selected = [computed[layer] for layer in self._layers]
            yield HiddenStates(np.array([row]), np.array([len(pieces)]), selected)


@cache
def _blas_controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@dataclass(frozen=True, slots=True, eq=False)
class _ArrayOperations:
    """The operations of a forward pass on arrays, for one text of `pieces` pieces."""

    pieces: int
    watch: Watch | None

    def rows(self, table: Floats, places: NDArray[np.int64]) -> Floats:
        selected: Floats = table[places]
        return selected

    def linear(self, states: Floats, layer: Affine) -> Floats:
        if self.watch is not None:
            self.watch(layer, states)
        return linear(states, layer)

    def norm(self, states: Floats, layer: Affine, epsilon: float) -> Floats:
        return layer_norm(states, layer, epsilon)

    def gelu(self, states: Floats) -> Floats:
        return gelu(states)

    def relative_position_bias(self, bias_by_offset: Floats) -> Floats:
        # Row q of the view begins at the distance -q: no element is copied.
        zero = bias_by_offset.shape[1] // 2
        near = bias_by_offset[:, zero + 1 - self.pieces : zero + self.pieces]
        bias: Floats = sliding_window_view(near, self.pieces, axis=1)[:, ::-1]
        return bias

    def rotation(self, cosines: Floats, sines: Floats) -> Rotation:
        return cosines[: self.pieces], sines[: self.pieces]

    def attention(
        self,
        query: Floats,
        key: Floats,
        value: Floats,
        heads: int,
        bias: Floats | None = None,
        rotation: Rotation | None = None,
    ) -> Floats:
        texts, pieces, width = query.shape
        query, key, value = (
            projected.reshape(texts, pieces, heads, -1).transpose(0, 2, 1, 3)
            for projected in (query, key, value)
        )
        if rotation is not None:
            query = _rotate(query, rotation)
            key = _rotate(key, rotation)
        attended = np.empty((texts, pieces, heads, width // heads), np.float32)
        step = max(1, _MOST_SCORES // (heads * pieces))
        for start in range(0, pieces, step):
            block = slice(start, start + step)
            scores = query[:, :, block] @ key.swapaxes(2, 3)
            scores *= np.float32(1 / math.sqrt(width // heads))
            if bias is not None:
                scores += bias[:, block]
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            attended[:, block] = (scores @ value).transpose(0, 2, 1, 3)
        return attended.reshape(texts, pieces, width)


def _rotate(states: Floats, rotation: Rotation) -> Floats:
    """Rotate the pairs of components that are half a head apart."""
    cosines, sines = rotation
    first, second = np.split(states, 2, axis=-1)
    turned = np.concatenate((-second, first), axis=-1)
    rotated: Floats = states * cosines + turned * sines
    return rotated


def linear(states: Floats, layer: Affine) -> Floats:
    """Apply a linear layer."""
    product: Floats = states @ layer.weight.T
    if layer.bias is not None:
        product += layer.bias
    return product


def layer_norm(states: Floats, layer: Affine, epsilon: float) -> Floats:
    """Apply a layer norm."""
    centered: Floats = states - states.mean(axis=-1, keepdims=True)
    variance = np.square(centered).mean(axis=-1, keepdims=True)
    centered /= np.sqrt(variance + np.float32(epsilon))
    centered *= layer.weight
    if layer.bias is not None:
        centered += layer.bias
    return centered


def gelu(values: Floats) -> Floats:
    """Replace each value x by the exact GELU, x / 2 * (1 + erf(x / √2)), in place."""
    erf = values * np.float32(math.sqrt(0.5))
    erf = np.clip(erf, -_ERF_LIMIT, _ERF_LIMIT, out=erf)
    squares = erf * erf
    polynomial = np.empty_like(squares)
    for coefficients, apply in ((_NUMERATOR, np.multiply), (_DENOMINATOR, np.divide)):
        np.multiply(squares, np.float32(coefficients[-1]), out=polynomial)
        for coefficient in coefficients[-2:0:-1]:
            polynomial += np.float32(coefficient)
            polynomial *= squares
        polynomial += np.float32(coefficients[0])
        apply(erf, polynomial, out=erf)
    erf += 1
    values *= erf
    values *= np.float32(0.5)
    return values


def _sigmoid(values: Floats) -> Floats:
    # In double precision, since the exponential of a float32 can overflow.
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-values.astype(np.float64)))).astype(np.float32)


ACTIVATION_FUNCTIONS: Mapping[str, HeadLayer] = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    "ReLU": lambda values: np.maximum(values, 0),
    "GELU": gelu,
    "Sigmoid": _sigmoid,
}
