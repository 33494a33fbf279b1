"""Training many small models of the same shape at once: batches, scaling, first weights.

Each model has its own rows of a shared table of features; a step of all models is one batched
product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

# A feature whose deviation is below this share of the largest one is constant up to rounding.
_CONSTANT = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Scales features to mean 0 and standard deviation 1 on the training rows.

    Attributes:
        mean: (features,) float32.
        deviation: (features,) float32; 1 for a feature that does not vary.
    """

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """(rows, features) float32, C-contiguous; a new array."""
        scaled: NDArray[np.float32] = features - self.mean
        scaled /= self.deviation
        return scaled


def scaling_of(features: NDArray[np.float32]) -> Scaling:
    """The scaling of training rows, (rows, features) float32."""
    mean = features.mean(axis=0, dtype=np.float64)
    squares = np.einsum("ij,ij->j", features, features, dtype=np.float64) / len(features)
    deviation = np.sqrt(np.maximum(squares - mean**2, 0))
    varies = deviation > _CONSTANT * max(float(deviation.max(initial=0)), 1e-30)
    return Scaling(mean.astype(np.float32), np.where(varies, deviation, 1.0).astype(np.float32))


def no_scaling(features: int) -> Scaling:
    """A scaling that changes nothing."""
    return Scaling(np.zeros(features, np.float32), np.ones(features, np.float32))


def epoch_batches(
    rows: Sequence[NDArray[np.int64]], size: int, randoms: Sequence[np.random.Generator]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """One epoch: each model sees its rows once, in its own random order.

    Args:
        rows: for each model the rows that it is trained on.
        size: number of rows in a batch.
        randoms: for each model the generator of its order.

    Yields:
        (models, size) int64 rows, and (models, size) float32 with 0 for padding: the last batch is
        not full, and a model with fewer rows has none left in the last batches.
    """
    import torch

    steps = math.ceil(max(len(one) for one in rows) / size)
    places = np.zeros((len(rows), steps * size), np.int64)
    real = np.zeros((len(rows), steps * size), np.float32)
    for model, (own, random) in enumerate(zip(rows, randoms, strict=True)):
        places[model, : len(own)] = random.permutation(own)
        real[model, : len(own)] = 1
    for start in range(0, steps * size, size):
        part = slice(start, start + size)
        yield torch.from_numpy(places[:, part].copy()), torch.from_numpy(real[:, part].copy())


def first_weights(
    inputs: int, shape: Sequence[int], random: np.random.Generator
) -> NDArray[np.float32]:
    """Uniform within ±1/sqrt(inputs), as torch initializes a linear layer."""
    limit = 1 / math.sqrt(inputs)
    return random.uniform(-limit, limit, tuple(shape)).astype(np.float32)
