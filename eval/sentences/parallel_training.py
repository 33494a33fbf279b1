"""Training of many small models side by side, on one table of features.

Each model has its own rows of the table; one step of all models is one batched product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

# A feature whose deviation is below this share of the largest deviation counts as constant.
_CONSTANT = 1e-6


class Scaling(NamedTuple):
    """Scaling of features to mean 0 and standard deviation 1 on the training rows."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scale (rows, features) float32 into a new C-contiguous array."""
        scaled: NDArray[np.float32] = features - self.mean
        scaled /= self.deviation
        return scaled


def scaling_of(features: NDArray[np.float32]) -> Scaling:
    """Return the scaling of training rows, (rows, features) float32."""
    mean = features.mean(axis=0, dtype=np.float64)
    squares = np.einsum("ij,ij->j", features, features, dtype=np.float64) / len(features)
    deviation = np.sqrt(np.maximum(squares - mean**2, 0))
    varies = deviation > _CONSTANT * max(float(deviation.max(initial=0)), 1e-30)
    return Scaling(mean.astype(np.float32), np.where(varies, deviation, 1.0).astype(np.float32))


def epoch_batches(
    rows: Sequence[NDArray[np.int64]], size: int, randoms: Sequence[np.random.Generator]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches of one epoch, in which each model sees its rows once in random order.

    A batch is (models, size) rows, and (models, size) float32 weights: 0 for padding where a model
    has no rows left, else 1.
    """
    import torch

    steps = math.ceil(max(len(model_rows) for model_rows in rows) / size)
    positions = np.zeros((len(rows), steps * size), np.int64)
    weights = np.zeros((len(rows), steps * size), np.float32)
    for model, (model_rows, random) in enumerate(zip(rows, randoms, strict=True)):
        positions[model, : len(model_rows)] = random.permutation(model_rows)
        weights[model, : len(model_rows)] = 1
    for start in range(0, steps * size, size):
        part = slice(start, start + size)
        yield torch.from_numpy(positions[:, part].copy()), torch.from_numpy(weights[:, part].copy())


def first_weights(
    inputs: int, shape: Sequence[int], random: np.random.Generator
) -> NDArray[np.float32]:
    """Draw uniform weights within ±1/sqrt(inputs), as torch initializes a linear layer."""
    limit = 1 / math.sqrt(inputs)
    return random.uniform(-limit, limit, tuple(shape)).astype(np.float32)
