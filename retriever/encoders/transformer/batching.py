"""Batches of about equal work: texts of like length together, counted in word pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import Dtype

# Batches of about this many word pieces keep a layer's activations in the processor's caches.
BATCH_PIECES: dict[Dtype, int] = {
    "float32": 1536,
    "bfloat16": 2048,
    "float16": 2048,
    "int8": 2048,
}
# A forward pass in training; a step takes several.
TRAINING_PIECES = 2048


def token_batches(
    lengths: Sequence[int] | NDArray[np.int64], pieces: int
) -> Iterator[NDArray[np.int64]]:
    """Group texts so that rows times longest row stays within `pieces`.

    Args:
        lengths: word pieces of each text, each at least 1.
        pieces: the most padded word pieces in a batch; a single longer text is a batch.

    Yields:
        int64 indexes into `lengths`; longest texts first, so that memory runs out at once or not
        at all. Every index occurs exactly once.
    """
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        rows = max(1, pieces // int(sizes[order[start]]))
        yield order[start : start + rows]
        start += rows
