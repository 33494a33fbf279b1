"""Exact inner-product search over kept vectors, with FAISS's kernel, of a GPU for large batches.

Positions are local to one segment. FAISS's "nothing found" (-1) never leaves this module, and
neither does its convention of a fixed number of columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.block_sums import UNGUARDED, BlockGuard
from indexes.faiss_library import count_gpus, gpu_resources, load_faiss

# Below this share of allowed vectors, copying them out is cheaper than testing every one.
_GATHER_SHARE = 1 / 16
# Multiplications from which on it is worth to send the vectors to a GPU, and bytes sent at once.
_GPU_LEAST, _GPU_CHUNK = 2**32, 2**30
_GPU_MOST_RESULTS = 2048  # GPU_MAX_SELECTION_K in FAISS


def search_flat(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_] | None = None,
    guard: BlockGuard = UNGUARDED,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The `k` vectors of largest inner product for each query, found exactly.

    Args:
        vectors: (n, d) float32, C-contiguous; may be memory-mapped.
        queries: (q, d) float32.
        k: at least 1; may exceed n.
        allowed: (n,) bool, or None for all; only these can be returned.
        guard: checks what is read of the vectors.

    Returns:
        For each query (positions int64, scores float32), higher scores first, at most
        min(k, allowed) entries. The order among equal scores is FAISS's.

    Raises:
        DamagedIndexError: the vectors are not as they were written.
        MissingExtraError: FAISS is not installed.
        ValueError: queries and vectors have different dimensions.
    """
    if queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"expected queries of shape (q, {vectors.shape[1]}), found {queries.shape}"
        )
    if allowed is not None:
        chosen = np.flatnonzero(allowed)
        if len(chosen) <= len(vectors) * _GATHER_SHARE:
            guard.check_rows(chosen)
            found = search_flat(np.ascontiguousarray(vectors[chosen]), queries, k)
            return [(chosen[positions], scores) for positions, scores in found]
        k = min(k, len(chosen))
    k = min(k, len(vectors))
    if k == 0 or len(queries) == 0:
        return [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
    guard.check_all()
    faiss = load_faiss()
    queries = np.ascontiguousarray(queries, np.float32)
    found_there = _scan_on_gpu(faiss, vectors, queries, k) if allowed is None else None
    scores, positions = found_there or _scan(faiss, vectors, queries, k, allowed)
    return [
        (row[row >= 0], values[row >= 0]) for row, values in zip(positions, scores, strict=True)
    ]


def _scan_on_gpu(
    faiss: Any, vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
    """As `_scan`; None where there is no GPU, or it cannot do it or is not worth it."""
    if k > _GPU_MOST_RESULTS or len(queries) * vectors.size < _GPU_LEAST or not count_gpus(faiss):
        return None
    try:
        scores, positions = faiss.knn_gpu(
            gpu_resources(faiss),
            queries,
            np.asarray(vectors),
            k,
            metric=faiss.METRIC_INNER_PRODUCT,
            vectorsMemoryLimit=_GPU_CHUNK,
        )
    except RuntimeError:  # too little memory there
        return None
    return scores, positions


def _scan(
    faiss: Any,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_] | None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and positions, (q, k) each, -1 where nothing is found."""
    scores = np.empty((len(queries), k), np.float32)
    positions = np.empty((len(queries), k), np.int64)
    arguments = [
        faiss.swig_ptr(queries),
        faiss.swig_ptr(vectors),
        vectors.shape[1],
        len(queries),
        len(vectors),
        k,
        faiss.swig_ptr(scores),
        faiss.swig_ptr(positions),
    ]
    if allowed is not None:
        bitmap = np.packbits(allowed, bitorder="little")
        arguments.append(faiss.IDSelectorBitmap(bitmap))
    # The kernel behind IndexFlat, called on the vectors where they lie: nothing is copied.
    faiss.knn_inner_product(*arguments)
    return scores, positions
