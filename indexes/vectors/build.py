"""Building a FAISS index from the vectors of a segment, on GPUs if FAISS finds any."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError
from indexes.protocol import Stage
from indexes.vectors.choice import Choice, training_size
from indexes.vectors.library import count_gpus, faiss_reason, load_faiss, unwrap

# Vectors that FAISS is given together.
_ADDED_TOGETHER = 65_536
# FAISS would copy any other type from the CPU to the GPU and back.
_GPU_TYPES = ("IndexIVFFlat", "IndexIVFPQ", "IndexIVFScalarQuantizer")


def build_index(vectors: NDArray[np.float32], choice: Choice, stage: Stage) -> Any:
    """Build a FAISS index over all vectors, by inner product, at positions 0 to n - 1."""
    faiss = load_faiss()
    index = _create_index(faiss, vectors.shape[1], choice)
    sample = _sample(vectors, int(getattr(unwrap(index)[1], "nlist", 0)))
    if count_gpus(faiss) and type(unwrap(index)[1]).__name__ in _GPU_TYPES:
        try:
            on_gpus = faiss.index_cpu_to_all_gpus(index)
            _fill(on_gpus, sample, vectors, stage)
            return faiss.index_gpu_to_cpu(on_gpus)
        except RuntimeError as error:
            # The GPU has too little memory, or no code of this size.
            warnings.warn(
                f"FAISS cannot build {choice.name} on the GPU ({faiss_reason(error)}); the CPU "
                "does it",
                stacklevel=2,
            )
            index = _create_index(faiss, vectors.shape[1], choice)
    try:
        _fill(index, sample, vectors, stage)
    except RuntimeError as error:
        raise ConfigError(
            f"index type {choice.name!r}: FAISS cannot build it from {len(vectors):,} vectors "
            f"({faiss_reason(error)}); choose another, such as auto"
        ) from error
    return index


def _create_index(faiss: Any, dimensions: int, choice: Choice) -> Any:
    """Create an index without vectors whose training is repeatable."""
    index = faiss.index_factory(dimensions, choice.factory, faiss.METRIC_INNER_PRODUCT)
    core = unwrap(index)[1]
    for trained in (core, getattr(core, "pq", None)):
        clustering = getattr(trained, "cp", None)
        if clustering is not None:
            clustering.seed = 0
            # `resolve` says once that the vectors are few; FAISS would say so each time.
            clustering.min_points_per_centroid = 1
    if hasattr(core, "do_polysemous_training"):
        # It takes most of the training and serves a kind of search that is never used.
        core.do_polysemous_training = False
    return index


def _sample(vectors: NDArray[np.float32], lists: int) -> NDArray[np.float32]:
    """Return the vectors that an index is trained on, in their order."""
    size = training_size(len(vectors), lists)
    if size == len(vectors):
        return vectors
    rows = np.random.default_rng(0).choice(len(vectors), size, replace=False, shuffle=False)
    return vectors[np.sort(rows)]


def _fill(
    index: Any, sample: NDArray[np.float32], vectors: NDArray[np.float32], stage: Stage
) -> None:
    """Train an index on a sample and add all vectors."""
    report_trained = stage("training the search structure", 1)
    index.train(np.ascontiguousarray(sample))
    report_trained(1)
    report_added = stage("building the search structure", len(vectors))
    for start in range(0, len(vectors), _ADDED_TOGETHER):
        block = np.ascontiguousarray(vectors[start : start + _ADDED_TOGETHER])
        index.add(block)
        report_added(len(block))
