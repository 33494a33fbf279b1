"""A transformer without torch: its weights, and the forward pass for every engine.

An architecture is one module in `architectures` with a function `read`. Its forward pass calls the
operations of an engine, which work on arrays of NumPy or build the nodes of a graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.transformer.tensors import (
    Floats,
    Tensor,
    Tensors,
    UnsupportedModelError,
    WeightsMismatchError,
    part_of,
    to_values,
)

Integers = NDArray[np.int64]
# Most positions of a text. Tables of rotations and distances have one or two rows for each.
MOST_POSITIONS = 2**17
# Largest number of a configuration.
_LARGEST_NUMBER = 10**12
_IN_NUMBER_TYPES = "in float32, float16, bfloat16 or 4 bits"


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A linear layer, or the scale and shift of a layer norm. Its name is unique in the model."""

    name: str
    stored: Tensor
    bias: Floats | None

    @property
    def weight(self) -> Floats:
        """The (outputs, inputs) matrix, or the (width,) scale of a layer norm."""
        return to_values(self.stored)

    def part(self, name: str, start: int, stop: int) -> Affine:
        """Return the layer that computes the outputs from `start` to `stop`."""
        bias = None if self.bias is None else self.bias[start:stop]
        return Affine(name, part_of(self.stored, start, stop), bias)


@dataclass(frozen=True, slots=True, eq=False)
class NetworkInputs:
    """Inputs of a forward pass: arrays, or nodes of a graph."""

    words: Any  # (texts, pieces, width) word vectors.
    positions: Any  # (texts, pieces) rows of the table of positions.
    types: Any  # (texts, pieces) token types.


class Operations(Protocol):
    """The operations of an engine on arrays, or on nodes of a graph."""

    def rows(self, table: Floats, places: Any) -> Any:
        """Select rows of a table."""

    def linear(self, states: Any, layer: Affine) -> Any:
        """Apply a linear layer."""

    def norm(self, states: Any, layer: Affine, epsilon: float) -> Any:
        """Apply a layer norm."""

    def gelu(self, states: Any) -> Any:
        """Apply the exact GELU, x / 2 * (1 + erf(x / √2)); the argument may be overwritten."""

    def relative_position_bias(self, bias_by_offset: Floats) -> Any:
        """Return the (heads or 1, pieces, pieces) attention bias, by query and key.

        Args:
            bias_by_offset: (heads or 1, 2 n - 1) bias for positions of key minus query, from 1 - n
                to n - 1.
        """

    def rotation(self, cosines: Floats, sines: Floats) -> Any:
        """Return the rotation of queries and keys, from (positions, head width) tables."""

    def attention(
        self, query: Any, key: Any, value: Any, heads: int, bias: Any = None, rotation: Any = None
    ) -> Any:
        """Apply multi-head self-attention, with a bias and a rotation from above."""


class Network(ABC):
    """The weights of a model, and its forward pass."""

    words: Tensor  # (word pieces, width) embeddings.
    width: int  # Components of a hidden state.
    max_pieces: int  # Maximum number of word pieces of a text.
    has_positions = False  # Whether the forward pass reads `NetworkInputs.positions`.

    @property
    @abstractmethod
    def depth(self) -> int:
        """Number of layers."""

    @property
    def type_count(self) -> int:
        """Number of token types; 0 without any."""
        return 0

    @property
    def has_types(self) -> bool:
        """Whether the forward pass reads `NetworkInputs.types`."""
        return self.type_count > 0

    @abstractmethod
    def hidden_states(self, operations: Operations, inputs: NetworkInputs) -> Iterator[Any]:
        """Yield each hidden state, (texts, pieces, width), from the embeddings up."""

    def position_rows(self, ids: Integers) -> Integers:
        """Return for (texts, pieces) ids the row of each piece in the table of positions."""
        return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)


class WeightsReader:
    """The tensors and the configuration of a model, read with checks.

    Raises:
        UnsupportedModelError: for a tensor or a key that is missing.
        WeightsMismatchError: for a tensor or a key of an unexpected form.
    """

    def __init__(self, tensors: Tensors, config: Mapping[str, Any]) -> None:
        self.tensors = tensors
        self.config = config
        # The beginning of the tensors' names, such as ``bert.``.
        self.prefix = ""

    def detect_prefix(self, name: str) -> None:
        """Set the prefix to what precedes `name` in the first tensor that ends with it."""
        full_name = next((tensor for tensor in self.tensors if tensor.endswith(name)), None)
        if full_name is None:
            raise UnsupportedModelError(f"no tensor {name} {_IN_NUMBER_TYPES}")
        self.prefix = full_name.removesuffix(name)

    def table(self, name: str, width: int) -> Tensor:
        """Return a (rows, width) table, not converted. It has a row or more."""
        tensor = self.tensors.get(self.prefix + name)
        if tensor is None:
            raise UnsupportedModelError(f"no tensor {name} {_IN_NUMBER_TYPES}")
        if len(tensor.shape) != 2 or tensor.shape[1] != width or not len(tensor):
            raise WeightsMismatchError(
                f"{name}: expected rows of width {width}, found {tensor.shape}"
            )
        return tensor

    def affine(self, name: str, *shape: int) -> Affine:
        """Return a linear layer of shape (outputs, inputs), or a layer norm of shape (width,)."""
        weight = self.tensors.get(f"{self.prefix}{name}.weight")
        bias = self.tensors.get(f"{self.prefix}{name}.bias")
        shapes = [None if tensor is None else tensor.shape for tensor in (weight, bias)]
        if weight is None:
            raise UnsupportedModelError(
                f"{name}: expected shape {shape}, found no tensor {_IN_NUMBER_TYPES}"
            )
        if shapes[0] != shape or shapes[1] not in (None, shape[:1]):
            raise WeightsMismatchError(
                f"{name}: expected shape {shape}, found {shapes[0]} and biases of shape {shapes[1]}"
            )
        return Affine(name, weight, None if bias is None else to_values(bias))

    def size(self, *keys: str) -> int:
        """Return the positive number of the first key that the configuration has."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise WeightsMismatchError(
                    f"{key}: expected a number of 1 or more, found {value!r:.40}"
                )
            return value
        raise UnsupportedModelError(f"{keys[0]}: expected a number of 1 or more in config.json")

    def depth(self, *keys: str) -> int:
        """Return the number of layers, each of which has tensors of its own."""
        depth = self.size(*keys)
        if depth > len(self.tensors):
            raise WeightsMismatchError(f"{depth:,} layers, found {len(self.tensors):,} tensors")
        return depth

    def number(self, key: str, default: float) -> float:
        """Return the number of a key of the configuration, 0 or more."""
        value = self.config.get(key, default)
        return check_number(key, value)

    def whole_number(self, key: str, default: int, least: int = 0) -> int:
        """Return the whole number of a key of the configuration, `least` or more."""
        number = self.number(key, default)
        if number < least or number != int(number):
            raise WeightsMismatchError(
                f"{key}: expected a whole number from {least}, found {number:.6g}"
            )
        return int(number)

    def require(self, **values: Any) -> None:
        """Refuse a model whose configuration has another value of a key; a key may be missing."""
        for key, value in values.items():
            if self.config.get(key, value) != value:
                raise UnsupportedModelError(
                    f"{key}: expected {value!r}, found {self.config[key]!r:.40}"
                )


def check_number(key: str, value: Any) -> float:
    """Return a value of the configuration as a float; refuse all but finite numbers from 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _LARGEST_NUMBER:
        raise WeightsMismatchError(f"{key}: expected a number of 0 or more, found {value!r:.40}")
    return float(value)
