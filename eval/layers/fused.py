"""Cosines of two texts for any set of layers, from vectors that are made for each set.

A maximum over layers, and a head after the mean, are not functions of the products between layers
that `eval.layers.grams` keeps. So each set costs a pass over the vectors of all texts: for the mean
with a head of 768 by 768, 1,000 texts and the 8,191 sets of 13 hidden states, some ten TFLOP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eval.layers.grams import EncodeLayers, encode_texts
from eval.metrics.correlation import cosines
from eval.vectors import Loading
from retriever.encoders.settings import EncoderSettings

Floats = NDArray[np.float32]
Head = Callable[[Floats], Floats]
"""(texts, width) vectors to (texts, dimensions)."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerFusion:
    """What a set of layers becomes.

    Attributes:
        over: ``mean`` or ``max`` of each component over the layers.
        head: applied afterwards; None for nothing.
    """

    over: Literal["mean", "max"] = "mean"
    head: Head | None = None

    @property
    def is_linear(self) -> bool:
        """Whether the result is a plain mean."""
        return self.over == "mean" and self.head is None

    def __call__(self, layers: Floats) -> Floats:
        """(texts, layers, width) to (texts, dimensions)."""
        fused: Floats = layers.max(axis=1) if self.over == "max" else layers.mean(axis=1)
        return fused if self.head is None else self.head(fused)


@dataclass(frozen=True, slots=True, eq=False)
class FusedPairs:
    """Pairs of texts with the vectors of all layers.

    Attributes:
        vectors: (texts, hidden states, width) float32, each text once.
        rows: (2, pairs) int64, the texts of each pair.
        fusion: how layers become a vector.
    """

    vectors: Floats
    rows: NDArray[np.int64]
    fusion: LayerFusion

    @property
    def pairs(self) -> int:
        """Number of pairs of texts."""
        return int(self.rows.shape[1])

    def take(self, pairs: NDArray[np.int64]) -> FusedPairs:
        """The pairs at these positions, in this order, and only their texts."""
        texts, rows = np.unique(self.rows[:, pairs], return_inverse=True)
        return replace(self, vectors=self.vectors[texts], rows=rows.reshape(2, -1))

    def cosines(self, masks: NDArray[np.int64]) -> NDArray[np.float64]:
        """(subsets, pairs) cosines under each set, given as a bit mask; as `PairGrams.cosines`."""
        held = masks[:, None] >> np.arange(self.vectors.shape[1]) & 1
        found = np.empty((len(masks), self.pairs))
        for number, chosen in enumerate(held.astype(bool)):
            fused = self.fusion(self.vectors[:, chosen])
            found[number] = cosines(fused[self.rows[0]], fused[self.rows[1]])
        return found


def layer_fusion(asked: EncoderSettings, loading: Loading) -> LayerFusion:
    """What the settings of an encoder make of a set of layers.

    Raises:
        ConfigError: the model has no head, but the settings ask for it.
    """
    head = None
    if asked.head:
        # Its layers do not matter: a head takes the vector that they became.
        head = loading.load(replace(asked, layers=None, fusion=None, pooling=None)).project
    return LayerFusion("max" if asked.fusion == "max" else "mean", head)


def encode_fused(
    encode: EncodeLayers,
    left: Sequence[str],
    right: Sequence[str],
    fusion: LayerFusion,
    *,
    queries: bool = False,
) -> FusedPairs:
    """Encode pairs of texts, each text once; memory holds all layers of all texts.

    Args:
        encode: gives the vectors of the layers.
        left: each pair's first text; at least one.
        right: its second text.
        fusion: of the layers.
        queries: whether the first texts are queries, which may have another prompt.
    """
    firsts = [(text, queries) for text in left]
    seconds = [(text, False) for text in right]
    place = {text: row for row, text in enumerate(dict.fromkeys([*firsts, *seconds]))}
    found = encode_texts(encode, list(place))
    rows = [[place[text] for text in side] for side in (firsts, seconds)]
    return FusedPairs(np.stack([found[text] for text in place]), np.array(rows), fusion)
