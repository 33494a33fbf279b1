"""Exact inner-product search over kept vectors, with FAISS's kernel.

Positions are local to one segment. FAISS's "nothing found" (-1) never leaves this module, and
neither does its convention of a fixed number of columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexes.faiss_library import load_faiss

# Below this share of allowed vectors, copying them out is cheaper than testing every one.
_GATHER_SHARE = 1 / 16


def search_flat(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_] | None = None,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The `k` vectors of largest inner product for each query, found exactly.

    Args:
        vectors: (n, d) float32, C-contiguous; may be memory-mapped.
        queries: (q, d) float32.
        k: at least 1; may exceed n.
        allowed: (n,) bool, or None for all; only these can be returned.

    Returns:
        For each query (positions int64, scores float32), higher scores first, at most
        min(k, allowed) entries. The order among equal scores is FAISS's.

    Raises:
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
            found = search_flat(np.ascontiguousarray(vectors[chosen]), queries, k)
            return [(chosen[positions], scores) for positions, scores in found]
        k = min(k, len(chosen))
    k = min(k, len(vectors))
    if k == 0 or len(queries) == 0:
        return [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
    faiss = load_faiss()
    queries = np.ascontiguousarray(queries, np.float32)
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
    return [
        (row[row >= 0], values[row >= 0]) for row, values in zip(positions, scores, strict=True)
    ]
