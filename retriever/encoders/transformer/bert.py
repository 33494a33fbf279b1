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
_FILE = "model.safetensors"
_WORDS = "embeddings.word_embeddings.weight"
_HEADER_LENGTH = 8
# Id of MPNet's padding token. Its configuration may name another.
_MPNET_PADDING = 1
# Names of the parts of a layer in the two architectures.
_PARTS: dict[str, dict[str, str]] = {
    "bert": {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "mixed": "attention.output.dense",
        "mixed_norm": "attention.output.LayerNorm",
    },
    "mpnet": {
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "mixed": "attention.attn.o",
        "mixed_norm": "attention.LayerNorm",
    },
}
_COMMON = {
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "outer_norm": "output.LayerNorm",
}
# Buckets of distances, and the distance of the last bucket; fixed by MPNet.
_BUCKETS = 32
_FARTHEST = 128
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
_ENDS = np.float32(4)
# Held while the number of BLAS threads is changed.
_BUSY = threading.Lock()


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
    """One transformer layer with its norms after each residual sum."""

    query: Affine
    key: Affine
    value: Affine
    mixed: Affine
    mixed_norm: Affine
    inner: Affine
    outer: Affine
    outer_norm: Affine


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The weights of a model and the sizes that hidden states depend on."""

    words: Floats
    positions: Floats
    types: Floats | None
    norm: Affine
    layers: tuple[Layer, ...]
    heads: int
    epsilon: float
    width: int  # Components of a hidden state.
    longest: int  # Number of positions for word pieces.
    padding: int | None  # Id of the padding token, if it shifts positions.
    distances: Floats | None  # (buckets, heads) attention bias for the distance of pieces.

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the (texts, pieces) rows of `positions` for ids of that shape."""
        if self.padding is None:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        real = ids != self.padding
        counted: NDArray[np.int64] = np.cumsum(real, axis=1) * real + self.padding
        return counted


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
        return _weights(map_tensors(folder.path / _FILE), config, kind)
    except (KeyError, ValueError, TypeError, StopIteration, ArithmeticError) as error:
        raise UnsupportedModelError(f"{folder.path}: {error!r}") from error


def read_pooler(folder: ModelFolder, width: int) -> tuple[Floats, Floats]:
    """Return the (width, width) weights and (width,) bias of a model's pooler."""
    tensors = map_tensors(folder.path / _FILE)
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


def _weights(tensors: dict[str, Floats], config: Mapping[str, Any], kind: str) -> Weights:
    prefix = next(name for name in tensors if name.endswith(_WORDS)).removesuffix(_WORDS)
    width = int(config["hidden_size"])
    heads = int(config["num_attention_heads"])
    inner = int(config["intermediate_size"])
    depth = int(config["num_hidden_layers"])

    def affine(name: str, *shape: int) -> Affine:
        weight, bias = (tensors[f"{prefix}{name}.{part}"] for part in ("weight", "bias"))
        if weight.shape != shape or bias.shape != shape[:1]:
            raise ValueError(f"{name}: expected shape {shape}, found {weight.shape}, {bias.shape}")
        return Affine(name, weight, bias)

    shapes: dict[str, tuple[int, ...]] = {"inner": (inner, width), "outer": (width, inner)}
    shapes |= {"mixed_norm": (width,), "outer_norm": (width,)}
    layers = []
    for number in range(depth):
        parts = {
            part: affine(f"encoder.layer.{number}.{place}", *shapes.get(part, (width, width)))
            for part, place in (_PARTS[kind] | _COMMON).items()
        }
        layers.append(Layer(**parts))
    if width % heads:
        raise ValueError(f"{heads} attention heads do not divide the width {width}")
    relative = kind == "mpnet"
    table_names = ("word", "position") if relative else ("word", "position", "token_type")
    tables = {
        table: tensors[f"{prefix}embeddings.{table}_embeddings.weight"] for table in table_names
    }
    distances = tensors[f"{prefix}encoder.relative_attention_bias.weight"] if relative else None
    rows = [table.shape[1:] for table in tables.values()]
    if set(rows) != {(width,)} or (distances is not None and distances.shape[1:] != (heads,)):
        raise ValueError(f"embeddings of width {width} are expected, found {rows}")
    return Weights(
        words=tables["word"],
        positions=tables["position"],
        types=tables.get("token_type"),
        norm=affine("embeddings.LayerNorm", width),
        layers=tuple(layers),
        heads=heads,
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        width=width,
        longest=len(tables["position"]) - (_MPNET_PADDING + 1 if relative else 0),
        padding=_MPNET_PADDING if relative else None,
        distances=distances,
    )


def hidden_states(
    operations: Any, weights: Weights, ids: Any, places: Any, types: Any, bias: Any
) -> Iterator[Any]:
    """Yield each hidden state, (texts, pieces, width), from the embeddings up.

    `operations` is a backend, such as `NumPyEngine`. It makes arrays or nodes of a graph.
    """
    states = operations.rows(weights.words, ids) + operations.rows(weights.positions, places)
    if weights.types is not None:
        states = states + operations.rows(weights.types, types)
    states = operations.norm(states, weights.norm, weights.epsilon)
    yield states
    for layer in weights.layers:
        query = operations.linear(states, layer.query)
        key = operations.linear(states, layer.key)
        value = operations.linear(states, layer.value)
        mixed = operations.attention(query, key, value, weights.heads, bias)
        states = operations.linear(mixed, layer.mixed) + states
        states = operations.norm(states, layer.mixed_norm, weights.epsilon)
        inner = operations.gelu(operations.linear(states, layer.inner))
        states = operations.linear(inner, layer.outer) + states
        states = operations.norm(states, layer.outer_norm, weights.epsilon)
        yield states


@cache
def distance_buckets(longest: int) -> NDArray[np.int64]:
    """Return the bucket of each distance of key and query, -(longest - 1) to longest - 1."""
    distances = np.arange(1 - longest, longest)
    half = _BUCKETS // 2
    exact = half // 2
    lengths = np.abs(distances)
    # In single precision, like the training of the model.
    scale = np.float32(half - exact) / np.float32(math.log(_FARTHEST / exact))
    far_buckets = np.log(np.maximum(lengths, 1).astype(np.float32) / np.float32(exact)) * scale
    capped = np.minimum(exact + far_buckets.astype(np.int64), half - 1)
    buckets = np.where(lengths < exact, lengths, capped)
    return np.where(distances > 0, half + buckets, buckets)


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _distance_bias(distances: Floats, pieces: int) -> Floats:
    """Return the (1, heads, pieces, pieces) attention bias for distances."""
    table = distances[distance_buckets(pieces)]
    place = np.arange(pieces)
    away = place[None, :] - place[:, None] + (pieces - 1)
    return np.ascontiguousarray(table[away].transpose(2, 0, 1)[None])


def gelu(values: Floats) -> Floats:
    """Replace each value x by the exact GELU, x / 2 * (1 + erf(x / √2)), in place."""
    erf = values * np.float32(math.sqrt(0.5))
    erf = np.clip(erf, -_ENDS, _ENDS, out=erf)
    squares = erf * erf
    polynomial = np.empty_like(squares)
    for coefficients, operate in ((_NUMERATOR, np.multiply), (_DENOMINATOR, np.divide)):
        np.multiply(squares, np.float32(coefficients[-1]), out=polynomial)
        for coefficient in coefficients[-2:0:-1]:
            polynomial += np.float32(coefficient)
            polynomial *= squares
        polynomial += np.float32(coefficients[0])
        operate(erf, polynomial, out=erf)
    erf += 1
    values *= erf
    values *= np.float32(0.5)
    return values


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

    For few word pieces, the threads of OpenBLAS would wait tens of milliseconds for each other.
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
            with _BUSY, _blas().limit(limits=1):
                places = weights.places(batch)
                states = hidden_states(self, weights, batch, places, batch_types, bias)
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
        mixed = (scores @ value).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(mixed, np.float32).reshape(texts, pieces, width)
