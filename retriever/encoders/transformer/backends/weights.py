"""The weights of a BERT or an MPNet as NumPy arrays that share the pages of its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.models.finding import ModelFolder

Floats = NDArray[np.float32]

_FILE = "model.safetensors"
_WORDS = "embeddings.word_embeddings.weight"
_HEADER_LENGTH = 8
# Whatever its configuration says.
_MPNET_PADDING = 1
# Where the two architectures keep the parts of a layer.
_PARTS: Mapping[str, Mapping[str, str]] = {
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


class UnsupportedModelError(Exception):
    """A model that these backends do not run; torch may."""


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A linear layer, or the scale and shift of a layer norm.

    Attributes:
        name: unique within the model.
        weight: (outputs, inputs), or (width,) of a norm.
        bias: (outputs,).
    """

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

    @property
    def linears(self) -> tuple[Affine, ...]:
        """The linear layers in the order of their computation."""
        return self.query, self.key, self.value, self.mixed, self.inner, self.outer


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """All that hidden states depend on.

    Attributes:
        words: (vocabulary, width).
        positions: (positions, width).
        types: (token types, width); None if the model has none.
        norm: of the embeddings.
        layers: from the lowest one up.
        heads: attention heads of a layer.
        epsilon: of the norms.
        padding: the id of the padding token where it shifts positions; None where it does not.
        distances: (buckets, heads), what attention adds for the distance of two pieces; None if it
            adds nothing.
    """

    words: Floats
    positions: Floats
    types: Floats | None
    norm: Affine
    layers: tuple[Layer, ...]
    heads: int
    epsilon: float
    padding: int | None
    distances: Floats | None

    @property
    def width(self) -> int:
        """Components of a hidden state."""
        return int(self.words.shape[1])

    @property
    def longest(self) -> int:
        """The most word pieces that there are positions for."""
        return len(self.positions) - (0 if self.padding is None else self.padding + 1)

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(texts, pieces) rows of `positions`, for ids of that shape."""
        if self.padding is None:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        real = ids != self.padding
        counted: NDArray[np.int64] = np.cumsum(real, axis=1) * real + self.padding
        return counted


def read_weights(folder: ModelFolder) -> Weights:
    """Map the weights of a model into memory; nothing is read before it is used.

    Raises:
        UnsupportedModelError: another architecture, another number format than float32, or a file
            that is not of the usual form.
    """
    config = folder.config
    kind = str(config.get("model_type"))
    _require(kind in _PARTS, "architecture")
    _require(config.get("hidden_act", "gelu") == "gelu", "activation")
    _require(config.get("position_embedding_type", "absolute") == "absolute", "positions")
    _require(not config.get("is_decoder") and not config.get("add_cross_attention"), "decoder")
    try:
        return _weights(map_tensors(folder.path / _FILE), config, kind)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise UnsupportedModelError(f"{folder.path}: {error!r}") from error


def read_pooler(folder: ModelFolder, width: int) -> tuple[Floats, Floats]:
    """(width, width) weights and (width,) bias of a model's pooler, which ends in a tanh.

    Raises:
        UnsupportedModelError: it has none.
    """
    tensors = map_tensors(folder.path / _FILE)
    name = next((one for one in tensors if one.endswith("pooler.dense.weight")), None)
    if name is None or tensors[name].shape != (width, width):
        raise UnsupportedModelError(f"{folder.path}: no pooler")
    return tensors[name], tensors[name.removesuffix("weight") + "bias"]


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise UnsupportedModelError(f"another {what} than that of a BERT or an MPNet")


def map_tensors(path: Path) -> dict[str, Floats]:
    """The float32 tensors of a safetensors file by name, memory-mapped.

    What is written to them stays in memory.

    Raises:
        UnsupportedModelError: the file is not of the usual form.
    """
    try:
        return _map_tensors(path)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise UnsupportedModelError(f"{path}: {error!r}") from error


def _map_tensors(path: Path) -> dict[str, Floats]:
    data: NDArray[np.uint8] = np.memmap(path, np.uint8, "c")
    length = int(data[:_HEADER_LENGTH].view("<u8")[0])
    start = _HEADER_LENGTH + length
    header = json.loads(bytes(data[_HEADER_LENGTH:start]))
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            part = np.asarray(data[start + first : start + last]).view("<f4")
            tensors[name] = part.reshape(entry["shape"])
    return tensors


def _weights(tensors: dict[str, Floats], config: Mapping[str, Any], kind: str) -> Weights:
    prefix = next(name for name in tensors if name.endswith(_WORDS)).removesuffix(_WORDS)
    width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    inner = int(config["intermediate_size"])
    depth = int(config["num_hidden_layers"])

    def tensor(name: str, *shape: int | None) -> Floats:
        found = tensors[prefix + name]
        if len(found.shape) != len(shape) or any(
            wanted not in (None, size) for wanted, size in zip(shape, found.shape, strict=True)
        ):
            raise ValueError(f"{name}: expected shape {shape}, found {found.shape}")
        return found

    def linear(name: str, outputs: int, inputs: int) -> Affine:
        weight = tensor(f"{name}.weight", outputs, inputs)
        return Affine(name, weight, tensor(f"{name}.bias", outputs))

    def norm(name: str) -> Affine:
        return Affine(name, tensor(f"{name}.weight", width), tensor(f"{name}.bias", width))

    def layer(number: int) -> Layer:
        at = {
            part: f"encoder.layer.{number}.{name}"
            for part, name in (*_PARTS[kind].items(), *_COMMON.items())
        }
        return Layer(
            query=linear(at["query"], width, width),
            key=linear(at["key"], width, width),
            value=linear(at["value"], width, width),
            mixed=linear(at["mixed"], width, width),
            mixed_norm=norm(at["mixed_norm"]),
            inner=linear(at["inner"], inner, width),
            outer=linear(at["outer"], width, inner),
            outer_norm=norm(at["outer_norm"]),
        )

    if width % heads:
        raise ValueError(f"{heads} attention heads do not divide the width {width}")
    relative = kind == "mpnet"
    return Weights(
        words=tensor("embeddings.word_embeddings.weight", None, width),
        positions=tensor("embeddings.position_embeddings.weight", None, width),
        types=None if relative else tensor("embeddings.token_type_embeddings.weight", None, width),
        norm=norm("embeddings.LayerNorm"),
        layers=tuple(map(layer, range(depth))),
        heads=heads,
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        padding=_MPNET_PADDING if relative else None,
        distances=tensor("encoder.relative_attention_bias.weight", None, heads)
        if relative
        else None,
    )
