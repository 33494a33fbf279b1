"""BERT and MPNet without torch: weights, the forward pass for every backend, and NumPy's.

Sources: Devlin et al. 2019 and Song et al. 2020. Layers are post-norm with the exact GELU. MPNet
adds a learned attention bias for the distance of two pieces, in the buckets of T5 (Raffel et al.
2020, Sec. 2.1).
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.model_folders import ModelFolder

Floats = NDArray[np.float32]
_WEIGHTS_FILE = "model.safetensors"
_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
_HEADER_LENGTH = 8
# Id of MPNet's padding token. Its configuration may name another.
_MPNET_PADDING_ID = 1
# Names of the parts of a layer in the two architectures.
_PARTS: dict[str, dict[str, str]] = {
    "bert": {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attention_output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
    },
    "mpnet": {
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "attention_output": "attention.attn.o",
        "attention_norm": "attention.LayerNorm",
    },
}
_COMMON_PARTS = {
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
# Number of distance buckets, and the distance from which the last one is used; fixed by MPNet.
_BUCKETS = 32
_LARGEST_DISTANCE = 128
Integers = NDArray[np.int64]
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


class UnsupportedModelError(Exception):
    """Raised for a model that the backends without torch do not support."""


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A linear layer, or the scale and shift of a layer norm. Its name is unique in the model."""

    name: str
    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One transformer layer: attention and feed-forward, each with a layer norm after it."""

    query: Affine
    key: Affine
    value: Affine
    attention_output: Affine
    attention_norm: Affine
    intermediate: Affine
    output: Affine
    output_norm: Affine


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The weights of a model and the sizes that hidden states depend on."""

    words: Floats  # (word pieces, width) embeddings.
    positions: Floats  # (positions, width) embeddings.
    types: Floats | None  # (token types, width) embeddings; None in MPNet.
    norm: Affine
    layers: tuple[Layer, ...]
    heads: int  # Number of attention heads.
    epsilon: float  # Of the layer norms.
    width: int  # Components of a hidden state.
    max_pieces: int  # Maximum number of word pieces of a text.
    padding: int | None  # Id of the padding token, if it shifts positions.
    distances: Floats | None  # (buckets, heads) attention bias for the distance of pieces.

    def position_rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for (texts, pieces) ids the row in `positions` of each piece."""
        if self.padding is None:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        is_token = ids != self.padding
        rows: NDArray[np.int64] = np.cumsum(is_token, axis=1) * is_token + self.padding
        return rows


def read_weights(folder: ModelFolder) -> Weights:
    """Map the weights of a model into memory. They are read on first use."""
    config = folder.config
    kind = str(config.get("model_type"))
    if (
        kind not in _PARTS
        or config.get("hidden_act", "gelu") != "gelu"
        or config.get("position_embedding_type", "absolute") != "absolute"
        or config.get("is_decoder")
        or config.get("add_cross_attention")
    ):
        raise UnsupportedModelError("another architecture than that of a BERT or an MPNet")
    try:
        return _assemble_weights(map_tensors(folder.path / _WEIGHTS_FILE), config, kind)
    except (KeyError, ValueError, TypeError, StopIteration, ArithmeticError) as error:
        raise UnsupportedModelError(f"{folder.path}: {error!r}") from error


def read_pooler(folder: ModelFolder, width: int) -> tuple[Floats, Floats]:
    """Return the (width, width) weights and (width,) bias of a model's pooler."""
    tensors = map_tensors(folder.path / _WEIGHTS_FILE)
    suffix = "pooler.dense.weight"
    name = next((tensor for tensor in tensors if tensor.endswith(suffix)), None)
    if name is None or tensors[name].shape != (width, width):
        raise UnsupportedModelError(f"{folder.path}: no pooler")
    return tensors[name], tensors[name.removesuffix("weight") + "bias"]


def map_tensors(path: Path) -> dict[str, Floats]:
    """Map the float32 tensors of a safetensors file into memory, by name."""
    tensors = {}
    try:
        data: NDArray[np.uint8] = np.memmap(path, np.uint8, "c")
        start = _HEADER_LENGTH + int(data[:_HEADER_LENGTH].view("<u8")[0])
        header = json.loads(bytes(data[_HEADER_LENGTH:start]))
        for name, entry in header.items():
            if name != "__metadata__" and entry["dtype"] == "F32":
                first, last = entry["data_offsets"]
                part = np.asarray(data[start + first : start + last]).view("<f4")
                tensors[name] = part.reshape(entry["shape"])
    except (AttributeError, LookupError, ValueError, TypeError, OSError) as error:
        raise UnsupportedModelError(f"{path}: {error!r}") from error
    except (RecursionError, ArithmeticError, MemoryError) as error:
        raise UnsupportedModelError(f"{path}: its header is damaged ({error!r})") from error
    return tensors


def _assemble_weights(tensors: dict[str, Floats], config: Mapping[str, Any], kind: str) -> Weights:
    prefix = next(name for name in tensors if name.endswith(_WORD_EMBEDDINGS)).removesuffix(
        _WORD_EMBEDDINGS
    )
    width = int(config["hidden_size"])
    heads = int(config["num_attention_heads"])
    intermediate_width = int(config["intermediate_size"])
    depth = int(config["num_hidden_layers"])

    def read_affine(name: str, *shape: int) -> Affine:
        weight, bias = (tensors[f"{prefix}{name}.{part}"] for part in ("weight", "bias"))
        if weight.shape != shape or bias.shape != shape[:1]:
            raise ValueError(f"{name}: expected shape {shape}, found {weight.shape}, {bias.shape}")
        return Affine(name, weight, bias)

    shapes: dict[str, tuple[int, ...]] = {
        "intermediate": (intermediate_width, width),
        "output": (width, intermediate_width),
    }
    shapes |= {"attention_norm": (width,), "output_norm": (width,)}
    layers = []
    for number in range(depth):
        parts = {
            part: read_affine(
                f"encoder.layer.{number}.{tensor_name}", *shapes.get(part, (width, width))
            )
            for part, tensor_name in (_PARTS[kind] | _COMMON_PARTS).items()
        }
        layers.append(Layer(**parts))
    if width % heads:
        raise ValueError(f"{heads} attention heads do not divide the width {width}")
    has_distance_bias = kind == "mpnet"
    table_names = ("word", "position") if has_distance_bias else ("word", "position", "token_type")
    tables = {
        table: tensors[f"{prefix}embeddings.{table}_embeddings.weight"] for table in table_names
    }
    distances = (
        tensors[f"{prefix}encoder.relative_attention_bias.weight"] if has_distance_bias else None
    )
    row_shapes = [table.shape[1:] for table in tables.values()]
    if set(row_shapes) != {(width,)} or (distances is not None and distances.shape[1:] != (heads,)):
        raise ValueError(f"embeddings of width {width} are expected, found {row_shapes}")
    return Weights(
        words=tables["word"],
        positions=tables["position"],
        types=tables.get("token_type"),
        norm=read_affine("embeddings.LayerNorm", width),
        layers=tuple(layers),
        heads=heads,
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        width=width,
        max_pieces=len(tables["position"]) - (_MPNET_PADDING_ID + 1 if has_distance_bias else 0),
        padding=_MPNET_PADDING_ID if has_distance_bias else None,
        distances=distances,
    )


def hidden_states(
    operations: Any, weights: Weights, ids: Any, position_rows: Any, types: Any, bias: Any
) -> Iterator[Any]:
    """Yield each hidden state, (texts, pieces, width), from the embeddings up.

    `operations` is a backend, such as `NumPyEngine`. It makes arrays or nodes of a graph.
    """
    states = operations.rows(weights.words, ids) + operations.rows(weights.positions, position_rows)
    if weights.types is not None:
        states = states + operations.rows(weights.types, types)
    states = operations.norm(states, weights.norm, weights.epsilon)
    yield states
    for layer in weights.layers:
        query = operations.linear(states, layer.query)
        key = operations.linear(states, layer.key)
        value = operations.linear(states, layer.value)
        attended = operations.attention(query, key, value, weights.heads, bias)
        states = operations.linear(attended, layer.attention_output) + states
        states = operations.norm(states, layer.attention_norm, weights.epsilon)
        intermediate = operations.gelu(operations.linear(states, layer.intermediate))
        states = operations.linear(intermediate, layer.output) + states
        states = operations.norm(states, layer.output_norm, weights.epsilon)
        yield states


@cache
def distance_buckets(longest: int) -> NDArray[np.int64]:
    """Return the bucket of each distance of key and query, -(longest - 1) to longest - 1."""
    distances = np.arange(1 - longest, longest)
    half = _BUCKETS // 2
    exact = half // 2
    lengths = np.abs(distances)
    # In single precision, like the training of the model.
    scale = np.float32(half - exact) / np.float32(math.log(_LARGEST_DISTANCE / exact))
    far_buckets = np.log(np.maximum(lengths, 1).astype(np.float32) / np.float32(exact)) * scale
    capped = np.minimum(exact + far_buckets.astype(np.int64), half - 1)
    buckets = np.where(lengths < exact, lengths, capped)
    return np.where(distances > 0, half + buckets, buckets)


@cache
def _blas_controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _distance_bias(distances: Floats, pieces: int) -> Floats:
    """Return the (1, heads, pieces, pieces) attention bias for distances."""
    table = distances[distance_buckets(pieces)]
    positions = np.arange(pieces)
    offsets = positions[None, :] - positions[:, None] + (pieces - 1)
    return np.ascontiguousarray(table[offsets].transpose(2, 0, 1)[None])


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


# Function of a linear layer and its input.
Watch = Callable[[Affine, Floats], None]


@dataclass(frozen=True, slots=True, eq=False)
class HiddenStates:
    """Hidden states of a batch of texts, valid until the next batch."""

    rows: NDArray[np.int64]
    lengths: NDArray[np.int64]
    states: list[Floats]


@dataclass(frozen=True, slots=True, eq=False)
class NumPyEngine:
    """The forward pass in NumPy, one text at a time, in single precision, on one core.

    One core, because for few word pieces the threads of OpenBLAS wait tens of milliseconds for
    each other.
    `norm` and `gelu` overwrite their argument. `watch` is called with the input of each linear
    layer.
    """

    weights: Weights
    layers: Sequence[int]
    watch: Watch | None = None

    # Selects rows of a table.
    rows = staticmethod(getitem)
    gelu = staticmethod(gelu)

    def run(
        self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
    ) -> Iterator[HiddenStates]:
        """Run texts, and yield the states of each."""
        weights = self.weights
        for row, pieces in enumerate(ids):
            batch = np.asarray(pieces, np.int64)[None]
            batch_types = np.zeros_like(batch)
            if types is not None:
                batch_types = np.asarray(types[row], np.int64)[None]
            bias = None
            if weights.distances is not None:
                bias = _distance_bias(weights.distances, len(pieces))
            # One call at a time, since the number of threads is global in the library.
            with _BLAS_LOCK, _blas_controller().limit(limits=1):
                position_rows = weights.position_rows(batch)
                states = hidden_states(self, weights, batch, position_rows, batch_types, bias)
                computed = list(islice(states, self.layers[-1] + 1))
            selected = [computed[layer] for layer in self.layers]
            yield HiddenStates(np.array([row]), np.array([len(pieces)]), selected)

    def linear(self, value: Floats, layer: Affine) -> Floats:
        """Apply a linear layer."""
        if self.watch is not None:
            self.watch(layer, value)
        product: Floats = value @ layer.weight.T
        product += layer.bias
        return product

    def norm(self, value: Floats, layer: Affine, epsilon: float) -> Floats:
        """Apply a layer norm, in place."""
        value -= value.mean(axis=-1, keepdims=True)
        variance = np.square(value).mean(axis=-1, keepdims=True)
        value /= np.sqrt(variance + np.float32(epsilon))
        value *= layer.weight
        value += layer.bias
        return value

    def attention(
        self, query: Floats, key: Floats, value: Floats, heads: int, bias: Floats | None
    ) -> Floats:
        """Apply multi-head self-attention."""
        texts, pieces, width = query.shape
        query, key, value = (
            projected.reshape(texts, pieces, heads, -1).transpose(0, 2, 1, 3)
            for projected in (query, key, value)
        )
        scores = query @ key.swapaxes(2, 3)
        scores *= np.float32(1 / math.sqrt(width // heads))
        if bias is not None:
            scores += bias
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        attended = (scores @ value).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(attended, np.float32).reshape(texts, pieces, width)
