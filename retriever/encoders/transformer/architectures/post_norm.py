"""Transformers with a layer norm after attention and after the feed-forward part.

BERT (Devlin et al. 2019) and the models that follow it differ in the names of their tensors and in
how a piece knows its position. GELU is the exact one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from retriever.encoders.transformer.network import (
    MOST_POSITIONS,
    Affine,
    Integers,
    Network,
    NetworkInputs,
    Operations,
    WeightsReader,
)
from retriever.encoders.transformer.tensors import (
    Floats,
    Tensor,
    UnsupportedModelError,
    WeightsMismatchError,
    to_values,
)


@dataclass(frozen=True, slots=True, eq=False)
class PostNormLayer:
    """Attention and feed-forward part, each with a layer norm after it."""

    query: Affine
    key: Affine
    value: Affine
    attention_output: Affine
    attention_norm: Affine
    intermediate: Affine
    output: Affine
    output_norm: Affine


@dataclass(frozen=True, slots=True, eq=False)
class PostNormNetwork(Network):
    """The weights of a post-norm transformer, and its forward pass."""

    words: Tensor
    positions: Floats  # (positions, width) embeddings.
    types: Floats | None  # (token types, width) embeddings; None without token types.
    norm: Affine
    layers: tuple[PostNormLayer, ...]
    heads: int  # Number of attention heads.
    epsilon: float  # Of the layer norms.
    width: int
    max_pieces: int
    padding: int | None = None  # Id of the padding token, if it shifts positions.
    bias_by_offset: Floats | None = None  # See `Operations.relative_position_bias`.

    has_positions = True

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def type_count(self) -> int:
        """Number of token types; 0 without any."""
        return 0 if self.types is None else len(self.types)

    def position_rows(self, ids: Integers) -> Integers:
        """Return for (texts, pieces) ids the row in `positions` of each piece."""
        if self.padding is None:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        is_token = ids != self.padding
        rows: Integers = np.cumsum(is_token, axis=1) * is_token + self.padding
        return rows

    def hidden_states(self, operations: Operations, inputs: NetworkInputs) -> Iterator[Any]:
        """Yield each hidden state, (texts, pieces, width), from the embeddings up."""
        states = inputs.words + operations.rows(self.positions, inputs.positions)
        if self.types is not None:
            states = states + operations.rows(self.types, inputs.types)
        states = operations.norm(states, self.norm, self.epsilon)
        yield states
        bias = None
        if self.bias_by_offset is not None:
            bias = operations.relative_position_bias(self.bias_by_offset)
        for layer in self.layers:
            query = operations.linear(states, layer.query)
            key = operations.linear(states, layer.key)
            value = operations.linear(states, layer.value)
            attended = operations.attention(query, key, value, self.heads, bias)
            states = operations.linear(attended, layer.attention_output) + states
            states = operations.norm(states, layer.attention_norm, self.epsilon)
            intermediate = operations.gelu(operations.linear(states, layer.intermediate))
            states = operations.linear(intermediate, layer.output) + states
            states = operations.norm(states, layer.output_norm, self.epsilon)
            yield states


def read_layers(
    reader: WeightsReader, layer_name: str, part_names: Mapping[str, str], width: int
) -> tuple[PostNormLayer, ...]:
    """Read the layers of a model.

    Args:
        reader: tensors and configuration of the model.
        layer_name: the name of a layer's tensors before its number, such as ``encoder.layer``.
        part_names: the name of each field of `PostNormLayer` in a layer.
        width: components of a hidden state.
    """
    inner_width = reader.size("intermediate_size", "hidden_dim")
    shapes: dict[str, tuple[int, ...]] = {
        "attention_norm": (width,),
        "intermediate": (inner_width, width),
        "output": (width, inner_width),
        "output_norm": (width,),
    }
    layers = []
    for number in range(reader.depth("num_hidden_layers", "n_layers")):
        parts = {
            part: reader.affine(f"{layer_name}.{number}.{name}", *shapes.get(part, (width, width)))
            for part, name in part_names.items()
        }
        layers.append(PostNormLayer(**parts))
    return tuple(layers)


def read_heads(reader: WeightsReader, width: int) -> int:
    """Return the number of attention heads, which divides the width."""
    heads = reader.size("num_attention_heads", "n_heads")
    if width % heads:
        raise WeightsMismatchError(f"{heads} attention heads do not divide the width {width}")
    return heads


def require_positions(positions: int) -> None:
    """Refuse a number of positions that tables of positions would take gigabytes for."""
    if positions > MOST_POSITIONS:
        raise UnsupportedModelError(
            f"max_position_embeddings: expected at most {MOST_POSITIONS:,}, found {positions:,}"
        )


def read_embeddings(reader: WeightsReader, kind: str, width: int) -> Floats:
    """Return the (rows, width) embeddings of positions or token types."""
    table = reader.table(f"embeddings.{kind}_embeddings.weight", width)
    require_positions(len(table))
    return to_values(table)
