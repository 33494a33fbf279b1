"""ModernBERT (Warner et al. 2024): layer norms before attention and before the feed-forward part.

Positions are rotations of queries and keys (Su et al. 2021). Some layers attend to all pieces, the
others to near ones alone. The feed-forward part is a GeGLU (Shazeer 2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from retriever.encoders.transformer.architectures.post_norm import (
    read_heads,
    require_positions,
)
from retriever.encoders.transformer.network import (
    Affine,
    Network,
    NetworkInputs,
    Operations,
    WeightsReader,
    check_number,
)
from retriever.encoders.transformer.tensors import (
    Floats,
    Tensor,
    UnsupportedModelError,
    WeightsMismatchError,
)

_WORDS = "embeddings.tok_embeddings.weight"
_GLOBAL = "full_attention"
_LOCAL = "sliding_attention"
# Bases of the rotations where the configuration names none: the key of earlier releases, and the
# value.
_BASES = {_GLOBAL: ("global_rope_theta", 160_000.0), _LOCAL: ("local_rope_theta", 10_000.0)}
# Attention bias of pieces that are too far away. Its exponential is 0 in every precision.
_TOO_FAR = -1e4


@dataclass(frozen=True, slots=True, eq=False)
class PreNormLayer:
    """Attention and a gated feed-forward part, each with a layer norm before it."""

    attention_norm: Affine | None  # None in the first layer.
    query: Affine
    key: Affine
    value: Affine
    attention_output: Affine
    output_norm: Affine
    intermediate: Affine
    gate: Affine
    output: Affine
    is_local: bool  # Whether pieces attend to near pieces alone.


@dataclass(frozen=True, slots=True, eq=False)
class ModernBERTNetwork(Network):
    """The weights of a ModernBERT, and its forward pass."""

    words: Tensor
    norm: Affine
    layers: tuple[PreNormLayer, ...]
    final_norm: Affine
    heads: int  # Number of attention heads.
    epsilon: float  # Of the layer norms.
    width: int
    max_pieces: int
    half_window: int  # Greatest distance of two pieces in a local layer.
    bases: dict[bool, float]  # Base of the rotations of local and of global layers.

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layers)

    def hidden_states(self, operations: Operations, inputs: NetworkInputs) -> Iterator[Any]:
        """Yield each hidden state, (texts, pieces, width), from the embeddings up.

        The last one passes through the final layer norm, as in transformers.
        """
        states = operations.norm(inputs.words, self.norm, self.epsilon)
        yield states
        head_width = self.width // self.heads
        rotations = {
            is_local: operations.rotation(*rotation_tables(self.max_pieces, head_width, base))
            for is_local, base in self.bases.items()
        }
        window_bias = operations.relative_position_bias(
            sliding_window_bias(self.max_pieces, self.half_window)
        )
        for number, layer in enumerate(self.layers, 1):
            normal = states
            if layer.attention_norm is not None:
                normal = operations.norm(states, layer.attention_norm, self.epsilon)
            query = operations.linear(normal, layer.query)
            key = operations.linear(normal, layer.key)
            value = operations.linear(normal, layer.value)
            bias = window_bias if layer.is_local else None
            rotation = rotations[layer.is_local]
            attended = operations.attention(query, key, value, self.heads, bias, rotation)
            states = operations.linear(attended, layer.attention_output) + states
            normal = operations.norm(states, layer.output_norm, self.epsilon)
            activated = operations.gelu(operations.linear(normal, layer.intermediate))
            gated = activated * operations.linear(normal, layer.gate)
            states = operations.linear(gated, layer.output) + states
            if number < self.depth:
                yield states
        yield operations.norm(states, self.final_norm, self.epsilon)


@cache
def rotation_tables(positions: int, head_width: int, base: float) -> tuple[Floats, Floats]:
    """Return the (positions, head width) cosines and sines of the rotations."""
    # In single precision, like transformers.
    exponents = np.arange(0, head_width, 2, dtype=np.float32) / np.float32(head_width)
    frequencies = np.float32(1) / np.float32(base) ** exponents
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
    angles = np.concatenate((angles, angles), axis=1)
    return np.cos(angles), np.sin(angles)


@cache
def sliding_window_bias(positions: int, half_window: int) -> Floats:
    """Return the attention bias of a local layer, (1, 2 n - 1) for each distance."""
    distances = np.abs(np.arange(1 - positions, positions))
    return np.where(distances <= half_window, 0, _TOO_FAR).astype(np.float32)[None]


def read(reader: WeightsReader) -> ModernBERTNetwork:
    """Read a ModernBERT."""
    reader.require(hidden_activation="gelu")
    reader.detect_prefix(_WORDS)
    width = reader.size("hidden_size")
    heads = read_heads(reader, width)
    if width // heads % 2:
        raise WeightsMismatchError(
            f"{heads} attention heads have an odd width, which cannot be rotated"
        )
    max_pieces = reader.size("max_position_embeddings")
    require_positions(max_pieces)
    kinds = _layer_kinds(reader)
    return ModernBERTNetwork(
        words=reader.table(_WORDS, width),
        norm=reader.affine("embeddings.norm", width),
        layers=tuple(
            _read_layer(reader, number, width, kind == _LOCAL) for number, kind in enumerate(kinds)
        ),
        final_norm=reader.affine("final_norm", width),
        heads=heads,
        epsilon=reader.number("norm_eps", 1e-5),
        width=width,
        max_pieces=max_pieces,
        half_window=reader.whole_number("local_attention", 128) // 2,
        bases={kind == _LOCAL: _read_base(reader, kind) for kind in (_GLOBAL, _LOCAL)},
    )


def _layer_kinds(reader: WeightsReader) -> list[str]:
    """Return for each layer whether its attention is global or local."""
    depth = reader.depth("num_hidden_layers")
    kinds = reader.config.get("layer_types")
    if kinds is None:
        period = reader.whole_number("global_attn_every_n_layers", 3, least=1)
        kinds = [_LOCAL if number % period else _GLOBAL for number in range(depth)]
    if not isinstance(kinds, list) or len(kinds) != depth:
        raise WeightsMismatchError(f"layer_types: expected a list of {depth}")
    if any(kind not in (_GLOBAL, _LOCAL) for kind in kinds):
        raise UnsupportedModelError(f"layer_types: expected {_GLOBAL} and {_LOCAL} alone")
    return kinds


def _read_base(reader: WeightsReader, kind: str) -> float:
    """Return the base of the rotations of a kind of layers."""
    key, default = _BASES[kind]
    base = reader.config.get(key, default)
    rotations = reader.config.get("rope_parameters") or {}
    settings = rotations.get(kind) if isinstance(rotations, dict) else None
    if isinstance(settings, dict):
        base = settings.get("rope_theta", base)
        if settings.get("rope_type", "default") != "default":
            raise UnsupportedModelError(f"rope_type: found {settings['rope_type']!r:.40}")
    if reader.config.get("rope_scaling"):
        raise UnsupportedModelError("rope_scaling: expected the default rotations")
    number = check_number("rope_theta", base)
    if not number:
        raise WeightsMismatchError("rope_theta: expected a number above 0, found 0")
    return number


def _read_layer(reader: WeightsReader, number: int, width: int, is_local: bool) -> PreNormLayer:
    name = f"layers.{number}"
    inner_width = reader.size("intermediate_size")
    attention = reader.affine(f"{name}.attn.Wqkv", 3 * width, width)
    gated = reader.affine(f"{name}.mlp.Wi", 2 * inner_width, width)
    query, key, value = (
        attention.part(f"{attention.name}.{part}", part * width, (part + 1) * width)
        for part in range(3)
    )
    return PreNormLayer(
        attention_norm=reader.affine(f"{name}.attn_norm", width) if number else None,
        query=query,
        key=key,
        value=value,
        attention_output=reader.affine(f"{name}.attn.Wo", width, width),
        output_norm=reader.affine(f"{name}.mlp_norm", width),
        intermediate=gated.part(f"{gated.name}.0", 0, inner_width),
        gate=gated.part(f"{gated.name}.1", inner_width, 2 * inner_width),
        output=reader.affine(f"{name}.mlp.Wo", width, inner_width),
        is_local=is_local,
    )
