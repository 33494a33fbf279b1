"""The head of a cross-encoder: pooling, then layers that end in one score for each pair.

The head runs in NumPy, after a transformer in NumPy, OpenVINO or torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from retriever.encoders.computing import Array
from retriever.encoders.fusion.pooling import Fuser
from retriever.encoders.settings import EncoderSettings, Pooling
from retriever.encoders.transformer.network import Affine
from retriever.encoders.transformer.numpy_engine import (
    ACTIVATION_FUNCTIONS,
    HeadLayer,
    layer_norm,
    linear,
)
from retriever.encoders.transformer.tensors import Floats


@dataclass(frozen=True, slots=True, eq=False)
class ScoringHead:
    """Pooling of the last hidden states, and functions of (pairs, width) arrays."""

    pooling: Pooling
    layers: tuple[HeadLayer, ...]

    def score(self, states: Array, lengths: Array) -> Floats:
        """Return (pairs,) float32 scores.

        Args:
            states: (pairs, pieces, width) last hidden states, an array or a torch tensor.
            lengths: (pairs,) numbers of word pieces, of the same kind as `states`.
        """
        # The states of one layer are pooled, and there is nothing to fuse.
        fuser = Fuser(EncoderSettings(pooling=self.pooling), (1,), (1,))
        pooled = fuser.vectors([states], fuser.pieces(lengths, states.shape[1]))
        vectors: Floats = pooled if isinstance(pooled, np.ndarray) else pooled.cpu().numpy()
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors[:, 0]

    def add(self, *layers: HeadLayer) -> ScoringHead:
        """Return a head with more layers at its end."""
        return replace(self, layers=(*self.layers, *layers))


def linear_layer(layer: Affine) -> HeadLayer:
    """Return a linear layer as a function."""
    return partial(linear, layer=layer)


def norm_layer(layer: Affine, epsilon: float) -> HeadLayer:
    """Return a layer norm as a function."""
    return partial(layer_norm, layer=layer, epsilon=epsilon)


def mlp_head(arrays: Mapping[str, Floats]) -> ScoringHead:
    """Return the two-layer MLP on [CLS], by the names of `CrossHead`."""
    dense, out = (
        linear_layer(Affine(name, arrays[f"{name}.weight"], arrays[f"{name}.bias"]))
        for name in ("dense", "out")
    )
    return ScoringHead("cls", (dense, ACTIVATION_FUNCTIONS["Tanh"], out))
