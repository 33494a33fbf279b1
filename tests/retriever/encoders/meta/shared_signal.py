"""Words of which two sources see the same signal, each rotated, with noise of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.sources import WordBatch

Floats = NDArray[np.float32]
SIGNAL, WIDTHS = 8, (20, 16)
WORDS, LENGTH, BATCH = 480, 6, 10


@dataclass(frozen=True, eq=False)
class SharedSignal:
    """Sentences of `LENGTH` words; the last 20 of 80 are held out.

    Attributes:
        signal: (WORDS, SIGNAL), what the sources share.
        sources: per source (WORDS, d_j) of length 1.
        noise: per source (d_j, d_j - SIGNAL), the directions that hold noise alone.
        types: (WORDS,).
    """

    signal: NDArray[np.float64]
    sources: tuple[Floats, ...]
    noise: tuple[NDArray[np.float64], ...]
    types: NDArray[np.int64]

    @classmethod
    def drawn(cls, levels: tuple[float, float] = (0.3, 0.3), seed: int = 0) -> SharedSignal:
        """With noise of these standard deviations where the signal has 1."""
        chance = np.random.default_rng(seed)
        signal = chance.standard_normal((WORDS, SIGNAL))
        sources, directions = [], []
        for width, level in zip(WIDTHS, levels, strict=True):
            rotation = np.linalg.qr(chance.standard_normal((width, width)))[0]
            noise = level * chance.standard_normal((WORDS, width - SIGNAL))
            vectors = np.concatenate([signal, noise], 1) @ rotation.T
            sources.append(unit(vectors).astype(np.float32))
            directions.append(rotation[:, SIGNAL:])
        return cls(signal, tuple(sources), tuple(directions), chance.integers(0, 50, WORDS))

    def batch(self, sentences: NDArray[np.int64]) -> WordBatch:
        words = (sentences[:, None] * LENGTH + np.arange(LENGTH)).ravel()
        return WordBatch(
            tuple(vectors[words] for vectors in self.sources),
            np.repeat(np.arange(len(sentences)), LENGTH),
            self.types[words],
        )

    def epochs(self, number: int) -> Iterator[WordBatch]:
        order = np.random.default_rng([5, number]).permutation(60)
        for start in range(0, 60, BATCH):
            yield self.batch(order[start : start + BATCH])

    @property
    def held_out(self) -> list[WordBatch]:
        return [self.batch(np.arange(60, 70)), self.batch(np.arange(70, 80))]


def unit(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def meta_vectors(projection: Projection, sources: tuple[Floats, ...]) -> NDArray[np.floating]:
    """The definition of a projection."""
    parts = zip(projection.weights, projection.matrices, projection.means, sources, strict=True)
    return sum(weight * (x - mean) @ matrix.T for weight, matrix, mean, x in parts)


def agreement(vectors: NDArray[np.floating], signal: NDArray[np.floating]) -> float:
    """Pearson correlation of the cosines of held-out words with those of their signal."""
    pairs = np.triu_indices(120, 1)
    found, true = (unit(one[360:]) @ unit(one[360:]).T for one in (vectors, signal))
    return float(np.corrcoef(found[pairs], true[pairs])[0, 1])
