"""From hidden states to one vector per text in NumPy, as `retriever.encoders.fusion` in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.fusion.sbert_wk_arrays import sbert_wk
from retriever.encoders.models.finding import ModelFolder
from retriever.encoders.models.settings import Projection
from retriever.encoders.settings import EncoderSettings, Pooling
from retriever.encoders.transformer.backends.numpy_engine import erf
from retriever.encoders.transformer.backends.weights import (
    UnsupportedModelError,
    map_tensors,
    read_pooler,
)
from retriever.encoders.transformer.resolution import Fusion

Floats = NDArray[np.float32]
Booleans = NDArray[np.bool_]
Layer = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Fuser:
    """Pools, fuses and projects the hidden states of a batch.

    Attributes:
        settings: resolved.
        fusion: what they read.
        head: layers after pooling, in order; empty for none.
        dimensions: components of a vector.
    """

    settings: EncoderSettings
    fusion: Fusion
    head: tuple[Layer, ...]
    dimensions: int

    @property
    def layers(self) -> tuple[int, ...]:
        """The hidden states that are read, ascending and without repetition."""
        return tuple(sorted(set(self.fusion.layers)))

    def __call__(self, states: Sequence[Floats], lengths: NDArray[np.int64]) -> Floats:
        """The vector of each text.

        Args:
            states: of each of `layers` (texts, longest, width) float32, finite at padding.
            lengths: (texts,) word pieces of each text.

        Returns:
            (texts, dimensions) float32, not normalized.
        """
        kept = self._kept(lengths, states[0].shape[1])
        if self.fusion.sbert_wk is not None:
            vectors = sbert_wk(states, kept, self.fusion.sbert_wk)
        else:
            pool = _POOLINGS[self.settings.pooling or "mean"]
            pooled = {
                layer: pool(state, kept, lengths)
                for layer, state in zip(self.layers, states, strict=True)
            }
            vectors = self._fused([pooled[layer] for layer in self.fusion.layers])
        for layer in self.head:
            vectors = layer(vectors)
        return vectors

    @property
    def fuses_pieces(self) -> bool:
        """Whether a piece has a vector of its own; see `TransformerModel.fuses_pieces`."""
        pooled = self.settings.pooling in (None, "mean", "max")
        plain = self.settings.fusion != "max" and self.fusion.sbert_wk is None
        return pooled and plain and not self.head

    def pieces(self, states: Sequence[Floats]) -> Floats:
        """The vector of every piece, its layers averaged or concatenated.

        Args:
            states: of each of `layers` (texts, longest, width) float32.

        Returns:
            (texts, longest, dimensions) float32; without meaning at padding.
        """
        by_layer = dict(zip(self.layers, states, strict=True))
        chosen = [by_layer[layer] for layer in self.fusion.layers]
        if self.settings.fusion == "concat":
            return np.concatenate(chosen, axis=2)
        return chosen[0] if len(chosen) == 1 else np.mean(chosen, axis=0, dtype=np.float32)

    def _kept(self, lengths: NDArray[np.int64], longest: int) -> Booleans:
        """Which pieces are pooled: none of the padding, and special tokens as the settings say."""
        before = after = 0
        if self.settings.special_tokens == "drop":
            before = after = 1
        elif self.settings.wk_preset == "released":
            # The published code drops the last piece, whatever it is.
            after = 1
        places = np.arange(longest)
        kept: Booleans = (places >= before) & (places < lengths[:, None] - after)
        return kept

    def _fused(self, pooled: Sequence[Floats]) -> Floats:
        if self.settings.fusion == "concat":
            return np.concatenate(pooled, axis=1)
        if len(pooled) == 1:
            return pooled[0]
        stacked = np.stack(pooled)
        fused: Floats = stacked.max(axis=0) if self.settings.fusion == "max" else stacked.mean(0)
        return fused


def make_fuser(folder: ModelFolder, settings: EncoderSettings, fusion: Fusion, width: int) -> Fuser:
    """The fuser of a model whose hidden states have `width` components.

    Raises:
        UnsupportedModelError: the settings ask for a head that cannot be read here.
    """
    dimensions = width * (len(fusion.layers) if settings.fusion == "concat" else 1)
    head: list[Layer] = []
    if settings.head and folder.settings.projections:
        for projection in folder.settings.projections:
            layer, dimensions = _dense(projection, dimensions)
            head.append(layer)
    elif settings.head:
        head.append(_affine(*read_pooler(folder, width), np.tanh))
    return Fuser(settings, fusion, tuple(head), dimensions)


def _mean(states: Floats, kept: Booleans, lengths: NDArray[np.int64]) -> Floats:
    counts = np.maximum(kept.sum(axis=1, keepdims=True), 1)
    weights = kept.astype(np.float32) / counts.astype(np.float32)
    pooled: Floats = (weights[:, None, :] @ states)[:, 0]
    return pooled


def _max(states: Floats, kept: Booleans, lengths: NDArray[np.int64]) -> Floats:
    greatest = np.where(kept[:, :, None], states, np.float32(-np.inf)).max(axis=1)
    return np.where(kept.any(axis=1, keepdims=True), greatest, np.float32(0))


def _cls(states: Floats, kept: Booleans, lengths: NDArray[np.int64]) -> Floats:
    return states[:, 0].copy()


def _sep(states: Floats, kept: Booleans, lengths: NDArray[np.int64]) -> Floats:
    return states[np.arange(len(states)), lengths - 1]


_POOLINGS: Mapping[Pooling, Callable[[Floats, Booleans, NDArray[np.int64]], Floats]] = {
    "mean": _mean,
    "max": _max,
    "cls": _cls,
    "sep": _sep,
}


def _relu(values: Floats) -> Floats:
    return np.maximum(values, 0)


def _gelu(values: Floats) -> Floats:
    half = np.float32(0.5)
    return half * values * (1 + erf(values * np.sqrt(half)))


def _sigmoid(values: Floats) -> Floats:
    # In double precision, where the exponential of a float32 does not overflow unnoticed.
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-values.astype(np.float64)))).astype(np.float32)


_ACTIVATIONS: Mapping[str, Layer] = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    "ReLU": _relu,
    "GELU": _gelu,
    "Sigmoid": _sigmoid,
}


def _dense(projection: Projection, width: int) -> tuple[Layer, int]:
    tensors = map_tensors(projection.folder / "model.safetensors")
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    if weight is None or weight.ndim != 2 or weight.shape[1] != width:
        raise UnsupportedModelError(f"{projection.folder}: another projection")
    shift = np.zeros(len(weight), np.float32) if bias is None else bias
    return _affine(weight, shift, _ACTIVATIONS[projection.activation]), len(weight)


def _affine(weight: Floats, bias: Floats, activation: Layer) -> Layer:
    return lambda vectors: activation(vectors @ weight.T + bias)
