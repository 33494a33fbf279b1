"""Training a FAISS index and adding the vectors of a segment, on GPUs if FAISS finds any.

GPUs have inverted lists of whole vectors, of bytes and of product-quantized codes. The result is
the index that the CPU would have built, up to rounding, and so is its file.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError
from indexes.progress import Stage, no_progress
from indexes.vectors.choice import StructureSpec, training_size
from indexes.vectors.library import count_gpus, faiss_reason, load_faiss
from indexes.vectors.unwrapped import unwrap

_ADDED_AT_ONCE = 65_536
# Any other type FAISS would copy from CPU to CPU and back.
_ON_GPUS = ("IndexIVFFlat", "IndexIVFPQ", "IndexIVFScalarQuantizer")


def build_index(
    vectors: NDArray[np.float32], spec: StructureSpec, seed: int, stage: Stage = no_progress
) -> Any:
    """A FAISS index over all vectors, by inner product, at positions 0 to n - 1.

    Args:
        vectors: (n, d) float32, C-contiguous; may be memory-mapped.
        spec: a structure that n suffices to train, see `indexes.vectors.choice.resolve`.
        seed: of the sample to train on and of FAISS's clustering. Equal vectors, seed and FAISS
            on one thread give equal indexes; a graph built on several threads may differ.
        stage: receives the number of vectors added.

    Raises:
        ConfigError: FAISS cannot train or fill such an index.
        MissingExtraError: FAISS is not installed.
    """
    faiss = load_faiss()
    index = _empty(faiss, vectors.shape[1], spec, seed)
    sample = _sample(vectors, int(getattr(unwrap(index)[1], "nlist", 0)), seed)
    if count_gpus(faiss) and type(unwrap(index)[1]).__name__ in _ON_GPUS:
        try:
            on_gpus = faiss.index_cpu_to_all_gpus(index)
            _fill(on_gpus, sample, vectors, stage)
            return faiss.index_gpu_to_cpu(on_gpus)
        except RuntimeError as error:
            # A size of code that GPUs do not have, or too little memory there.
            warnings.warn(
                f"FAISS cannot build {spec.name} on the GPU ({faiss_reason(error)}); the CPU does "
                "it",
                stacklevel=2,
            )
            index = _empty(faiss, vectors.shape[1], spec, seed)
    try:
        _fill(index, sample, vectors, stage)
    except RuntimeError as error:
        raise ConfigError(
            f"index type {spec.name!r}: FAISS cannot build it from {len(vectors):,} vectors "
            f"({faiss_reason(error)}); choose another, such as auto"
        ) from error
    return index


def _empty(faiss: Any, d: int, spec: StructureSpec, seed: int) -> Any:
    index = faiss.index_factory(d, spec.factory, faiss.METRIC_INNER_PRODUCT)
    core = unwrap(index)[1]
    for holder in (core, getattr(core, "pq", None)):
        clustering = getattr(holder, "cp", None)
        if clustering is not None:
            clustering.seed = seed
            # `resolve` says once that there are few; FAISS would say so each time.
            clustering.min_points_per_centroid = 1
    if hasattr(core, "do_polysemous_training"):
        # It takes most of the training, and serves a kind of search that is never used.
        core.do_polysemous_training = False
    return index


def _sample(vectors: NDArray[np.float32], lists: int, seed: int) -> NDArray[np.float32]:
    size = training_size(len(vectors), lists)
    if size == len(vectors):
        return vectors
    chosen = np.random.default_rng(seed).choice(len(vectors), size, replace=False, shuffle=False)
    return vectors[np.sort(chosen)]


def _fill(
    index: Any, sample: NDArray[np.float32], vectors: NDArray[np.float32], stage: Stage
) -> None:
    trained = stage("training the search structure", 1)
    index.train(np.ascontiguousarray(sample))
    trained(1)
    added = stage("building the search structure", len(vectors))
    for start in range(0, len(vectors), _ADDED_AT_ONCE):
        part = np.ascontiguousarray(vectors[start : start + _ADDED_AT_ONCE])
        index.add(part)
        added(len(part))
