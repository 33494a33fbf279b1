"""Exact inner-product search over kept vectors: one query in one pass, several by FAISS's kernel,
or on a GPU where that pays.

One query is scanned by one thread, unless the vectors are many. The threads of FAISS and of NumPy's
BLAS wait for each other by spinning: where the processor has other work, a scan of a millisecond
then takes fifty, see docs/scale.md.

Positions are local to one segment. FAISS's "nothing found" (-1) never leaves this module, and
neither does its convention of a fixed number of columns.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.compiled import compiled
from indexes.files.arrays import set_read_ahead
from indexes.files.checksums import UNGUARDED, BlockGuard
from indexes.filters.allowed import Allowed
from indexes.vectors.library import count_gpus, faiss_reason, gpu_resources, load_faiss

# Below this share of allowed vectors, copying them out is cheaper than testing every one.
_GATHER_SHARE = 1 / 16
# Vectors copied at once: few enough to stay in the processor's cache until they are scored.
_COPIED = 512
# Numbers that one thread scans for one query: 0.5 GB, some 50 ms.
_ONE_THREAD = 2**27
# Least number of multiplications that is worth a transfer to a GPU, and bytes sent at once.
_GPU_LEAST, _GPU_CHUNK = 2**32, 2**30
_GPU_MOST_RESULTS = 2048  # GPU_MAX_SELECTION_K in FAISS
# Scores differ in the seventh digit by kernel; ranking them there would be noise.
_DIGITS = 6
# How much a single-precision inner product, and its rounding, can be off, in units of the last
# digit kept.
_SLACK = 2.0


def search_flat(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: Allowed | None = None,
    guard: BlockGuard = UNGUARDED,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The `k` vectors of largest inner product for each query, found exactly.

    Args:
        vectors: (n, d) float32, C-contiguous; may be memory-mapped.
        queries: (q, d) float32.
        k: at least 1; may exceed n.
        allowed: some of them, or None for all; only these can be returned.
        guard: checks what is read of the vectors.

    Returns:
        For each query (positions int64, scores float32), higher scores first, at most
        min(k, allowed) entries. Equal scores come in any order.

    Raises:
        DamagedIndexError: the vectors were altered.
        MissingExtraError: FAISS is needed and not installed.
        ValueError: queries and vectors have different dimensions.
    """
    if queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"expected queries of shape (q, {vectors.shape[1]}), found {queries.shape}"
        )
    queries = np.ascontiguousarray(queries, np.float32)
    if allowed is not None:
        if allowed.count <= len(vectors) * _GATHER_SHARE:
            return _search_among(vectors, queries, k, allowed.positions, guard)
        k = min(k, allowed.count)
    k = min(k, len(vectors))
    if k == 0 or len(queries) == 0:
        return [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
    _before_scan(vectors, guard)
    if len(queries) == 1 and compiled is not None and is_one_pass(vectors, allowed):
        return [_best(_products(vectors, queries[0], allowed), k)]
    faiss = load_faiss()
    found_there = _scan_on_gpu(faiss, vectors, queries, k) if allowed is None else None
    scores, positions = found_there or _scan(faiss, vectors, queries, k, allowed)
    return [
        (row[row >= 0], values[row >= 0]) for row, values in zip(positions, scores, strict=True)
    ]


def _before_scan(vectors: NDArray[np.float32], guard: BlockGuard) -> None:
    """Prepare for reading all vectors in order.

    Raises:
        DamagedIndexError: they were altered.
    """
    set_read_ahead(vectors, True)
    guard.check_all()


def exact_scores(
    vectors: NDArray[np.float32], positions: NDArray[np.int64], query: NDArray[np.float32]
) -> NDArray[np.float64]:
    """(m,) inner products of the vectors at (m,) positions with a query, in double precision.

    The same vector has the same score at any position, to the last bit.
    """
    wide = np.ascontiguousarray(query, np.float64)
    scores = np.empty(len(positions))
    if compiled is not None:
        compiled.dots(vectors, np.ascontiguousarray(positions, np.int64), wide, scores)
        return scores
    lanes = -(-len(wide) // 8)
    wide = np.pad(wide, (0, 8 * lanes - len(wide)))
    for start in range(0, len(positions), _COPIED):
        rows = vectors[positions[start : start + _COPIED]].astype(np.float64)
        rows = np.pad(rows, ((0, 0), (0, 8 * lanes - rows.shape[1])))
        # One product after the other, as the compiled form adds them.
        sums = np.add.reduce((rows * wide).reshape(len(rows), lanes, 8), axis=1)
        pairs = sums[:, 0::2] + sums[:, 1::2]
        scores[start : start + _COPIED] = (pairs[:, 0] + pairs[:, 1]) + (pairs[:, 2] + pairs[:, 3])
    return scores


def rounded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores with the digits that mean something: six decimals for cosines, fewer beyond 1."""
    return np.round(scores, decimals_of(float(np.abs(scores).max(initial=1.0))))


def decimals_of(largest: float) -> int:
    """How many decimals of scores of this size mean something."""
    return _DIGITS - math.ceil(math.log10(max(largest, 1.0)) - 1e-6)


def tie_slack(score: float) -> float:
    """The largest difference of two single-precision scores of this size that still tie."""
    return _SLACK * 10.0 ** -decimals_of(abs(score))


def at_least(
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    floor: float,
    allowed: Allowed | None = None,
    guard: BlockGuard = UNGUARDED,
) -> NDArray[np.int64]:
    """(m,) int64, ascending: the positions whose inner product with a query (d,) is about `floor`
    or more, in single precision. The other arguments are as of `search_flat`.
    """
    if allowed is not None and allowed.count <= len(vectors) * _GATHER_SHARE:
        guard.check_rows(allowed.positions)
        return allowed.positions[exact_scores(vectors, allowed.positions, query) >= floor]
    _before_scan(vectors, guard)
    return np.flatnonzero(_products(vectors, query, allowed) >= floor)


def is_one_pass(vectors: NDArray[np.float32], allowed: Allowed | None) -> bool:
    """Whether `nearest_with_ties` costs no more for one query than `search_flat`."""
    is_most = allowed is None or 2 * allowed.count >= len(vectors)
    return is_most and vectors.size < _GPU_LEAST


def nearest_with_ties(
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    k: int,
    allowed: Allowed | None = None,
    guard: BlockGuard = UNGUARDED,
) -> NDArray[np.int64]:
    """(m,) int64, ascending: the positions of the `k` vectors of largest inner product with a query
    (d,), and of all that may equal them, without those that score NaN. The other arguments are as
    of `search_flat`.
    """
    _before_scan(vectors, guard)
    scores = _products(vectors, query, allowed)
    floor = -np.inf
    if k < len(scores):
        least = float(np.partition(scores, -k)[-k])
        floor = least - tie_slack(least) if np.isfinite(least) else least
    return np.flatnonzero((scores >= floor) & (scores > -np.inf))


def _products(
    vectors: NDArray[np.float32], query: NDArray[np.float32], allowed: Allowed | None
) -> NDArray[np.float32]:
    """(n,) float32: the inner products of all vectors with a query (d,), in single precision.

    -inf where a product is not a number, and for a vector that is not allowed.
    """
    if compiled is not None and vectors.size <= _ONE_THREAD:
        scores = np.empty(len(vectors), np.float32)
        compiled.products(vectors, np.ascontiguousarray(query, np.float32), scores)
    else:
        scores = np.asarray(vectors @ query)
    scores[np.isnan(scores)] = -np.inf
    if allowed is not None:
        mask = np.unpackbits(allowed.bits, count=len(scores), bitorder="little")
        scores[mask == 0] = -np.inf
    return scores


def _best(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The positions of the `k` highest scores above -inf, highest first, and these scores."""
    best = np.argpartition(-scores, k - 1)[:k] if k < len(scores) else np.arange(len(scores))
    best = best[np.argsort(-scores[best], kind="stable")]
    best = best[scores[best] > -np.inf]
    return best.astype(np.int64), scores[best]


def _search_among(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    positions: NDArray[np.int64],
    guard: BlockGuard,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """As `search_flat`, of the vectors at (m,) positions, few among many."""
    guard.check_rows(positions)
    if len(queries) == 1:
        scores = exact_scores(vectors, positions, queries[0]).astype(np.float32)
        scores[np.isnan(scores)] = -np.inf
        best, values = _best(scores, k)
        return [(positions[best], values)]
    vectors = np.asarray(vectors)
    copied = np.empty((min(_COPIED, len(positions)), vectors.shape[1]), np.float32)
    best = np.empty((len(queries), 0), np.int64)
    scores = np.empty((len(queries), 0), np.float32)
    for start in range(0, len(positions), _COPIED):
        part = positions[start : start + _COPIED]
        # The positions exist; without "clip" NumPy would copy once more.
        rows = np.take(vectors, part, axis=0, out=copied[: len(part)], mode="clip")
        best = np.concatenate([best, np.broadcast_to(part, (len(queries), len(part)))], axis=1)
        scores = np.concatenate([scores, queries @ rows.T], axis=1)
        if best.shape[1] > k:
            # NaN comes last.
            top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            best, scores = np.take_along_axis(best, top, 1), np.take_along_axis(scores, top, 1)
    found = []
    for row, values in zip(best, scores, strict=True):
        order = np.argsort(-values, kind="stable")
        order = order[~np.isnan(values[order])]
        found.append((row[order], values[order]))
    return found


def _scan_on_gpu(
    faiss: Any, vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
    """As `_scan`; None if there is no GPU, or it cannot do it or is not worth it."""
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
    except RuntimeError as error:
        warnings.warn(
            f"FAISS cannot scan on the GPU ({faiss_reason(error)}); the CPU does it", stacklevel=2
        )
        return None
    return scores, positions


def _scan(
    faiss: Any,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: Allowed | None,
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
        arguments.append(faiss.IDSelectorBitmap(allowed.bits))
    threads = faiss.omp_get_max_threads()
    alone = len(queries) == 1 and vectors.size <= _ONE_THREAD
    try:
        # The number is the calling thread's own.
        faiss.omp_set_num_threads(1 if alone else threads)
        # The kernel behind IndexFlat, called on the vectors in place: nothing is copied.
        faiss.knn_inner_product(*arguments)
    finally:
        faiss.omp_set_num_threads(threads)
    return scores, positions
