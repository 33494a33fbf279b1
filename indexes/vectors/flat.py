"""Exact inner-product search over the vectors of one segment.

A query first finds candidates: vectors whose score may be among the `k` best. The candidates are
then scored in double precision and ranked by `rank_nearest`. docs/design/exact-search.md says why.
Positions count the vectors of one segment from 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import UNGUARDED, BlockGuard
from indexes.compiled import compiled
from indexes.files import set_read_ahead

if TYPE_CHECKING:
    from indexes.passage_mask import PassageMask

# Positions, int64, and their scores, float64; the best first.
Nearest = tuple[NDArray[np.int64], NDArray[np.float64]]

# Share of the vectors. If a filter allows less, scoring what it allows costs less than a first
# look at all vectors; both cost the same between a tenth and a seventh.
_GATHER_SHARE = 1 / 8
# Searches. Quantizing a segment takes as long as five to nine searches without it, and saves two
# thirds of each later search.
_SEARCHES_BEFORE_QUANTIZING = 8
# Bytes, one for each number of a vector: the memory that the codes of one segment may take.
_MOST_CODE_BYTES = 2**29
# Numbers that are quantized together: they stay in the processor's cache.
_QUANTIZED_TOGETHER = 2**17
# Rows that NumPy scores together if nothing is compiled: they stay in the processor's cache.
_SCORED_TOGETHER = 512
# The least scale of a code, so that no quotient overflows.
_LEAST_SCALE = 1e-30
# Single precision loses the squares of smaller numbers.
_LEAST_ERROR = 1e-17
# Relative error of four roundings in single precision.
_ROUNDING_ERROR = 4e-7
# Decimals of a cosine that are equal for every kernel; later ones are noise.
_DECIMALS = 6
# How far a single-precision score and its rounding can be off, in units of the last decimal kept.
_TIE_UNITS = 2.0
_NO_BITS = np.empty(0, np.uint8)


def search_flat(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    mask: PassageMask | None = None,
    guard: BlockGuard = UNGUARDED,
    quantized: QuantizedVectors | None = None,
) -> list[Nearest]:
    """Find for each query the `k` vectors of largest inner product, exactly.

    Args:
        vectors: (n, d), C-contiguous; may be mapped from a file.
        queries: (q, d).
        k: number of results; fewer if the mask allows fewer.
        mask: the vectors that may be found; None for all.
        guard: compares what is read with its checksums.
        quantized: what earlier searches of the same vectors have left; None scores every allowed
            vector.
    """
    if queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"expected queries of shape (q, {vectors.shape[1]}), found {queries.shape}"
        )
    queries = np.ascontiguousarray(queries, np.float32)
    k = min(k, len(vectors) if mask is None else mask.count)
    if k == 0 or len(queries) == 0:
        return [(np.empty(0, np.int64), np.empty(0)) for _ in queries]
    if mask is not None and mask.count <= _GATHER_SHARE * len(vectors):
        guard.check_rows(mask.positions)
        quantized = None
    else:
        set_read_ahead(vectors, True)
        guard.check()
    nearest = []
    for query in queries:
        candidates = None
        if quantized is not None:
            candidates = quantized.candidate_positions(vectors, query, k, mask)
        if candidates is None:
            candidates = np.arange(len(vectors)) if mask is None else mask.positions
        nearest.append(rank_nearest(candidates, exact_scores(vectors, candidates, query), k))
    return nearest


def rank_nearest(positions: NDArray[np.int64], scores: NDArray[np.float64], k: int) -> Nearest:
    """Return the `k` best of (m,) candidates; the same whatever others are among them.

    Equal rounded scores keep the order of the candidates. NaN is never among the best.
    """
    is_number = ~np.isnan(scores)
    positions = positions[is_number]
    scores = scores[is_number]
    top = np.partition(scores, -k)[-k:] if k < len(scores) else scores
    decimals = significant_decimals(float(np.abs(top).max(initial=1.0)))
    if k < len(scores):
        # Every score that may round to the k-th or more.
        may_tie = scores >= top[0] - 10.0**-decimals
        positions = positions[may_tie]
        scores = scores[may_tie]
    best = np.argsort(-np.round(scores, decimals), kind="stable")[:k]
    return positions[best], scores[best]


def exact_scores(
    vectors: NDArray[np.float32], positions: NDArray[np.int64], query: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the (m,) inner products of the vectors at (m,) positions with a query, in float64."""
    wide = np.ascontiguousarray(query, np.float64)
    scores = np.empty(len(positions))
    if compiled is not None:
        compiled.dots(vectors, np.ascontiguousarray(positions, np.int64), wide, scores)
        return scores
    for start in range(0, len(positions), _SCORED_TOGETHER):
        rows = slice(start, start + _SCORED_TOGETHER)
        scores[rows] = vectors[positions[rows]].astype(np.float64) @ wide
    return scores


def rounded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round scores to their significant decimals: six for cosines, fewer beyond 1."""
    return np.round(scores, significant_decimals(float(np.abs(scores).max(initial=1.0))))


def significant_decimals(largest: float) -> int:
    """Return how many decimals of scores up to `largest` are significant."""
    return _DECIMALS - math.ceil(math.log10(max(largest, 1.0)) - 1e-6)


def tie_slack(largest: float) -> float:
    """Return the largest difference of two single-precision scores that may tie."""
    return (
        _TIE_UNITS * 10.0 ** -significant_decimals(largest) if math.isfinite(largest) else math.inf
    )


class QuantizedVectors:
    """The vectors of one segment as int8 codes, which tell what cannot be among the best.

    A vector is about its scale times its code. The codes are made once the segment was searched
    often enough to repay it. Threads may share the object.
    """

    def __init__(self) -> None:
        self._searches = 0
        # None before they are made.
        self._codes: NDArray[np.int8] | None = None  # (n, d)
        self._scales = np.empty(0, np.float32)  # (n,)
        # The largest distance of a vector from its scale times its code; infinite if a vector
        # is not finite.
        self._error = math.inf
        # The largest length of a scale times a code.
        self._longest = math.inf

    def candidate_positions(
        self,
        vectors: NDArray[np.float32],
        query: NDArray[np.float32],
        k: int,
        mask: PassageMask | None,
    ) -> NDArray[np.int64] | None:
        """Return (m,) ascending positions, among them the `k` best and all that may tie with them.

        `vectors` (n, d) must be the same in every call. `query` is (d,), and `k` from 1 to the
        number of allowed vectors. None if every vector has to be scored: the segment was searched
        too seldom or is too large, nothing is compiled, or a number is not finite.
        """
        self._searches += 1
        if (
            compiled is None
            or vectors.size > _MOST_CODE_BYTES
            or self._searches <= _SEARCHES_BEFORE_QUANTIZING
        ):
            return None
        if self._codes is None:
            self._quantize(vectors)
        # In double precision, since the squares of large numbers exceed single precision.
        wide = query.astype(np.float64)
        length = float(np.linalg.norm(wide))
        if not math.isfinite(self._error + length):
            return None
        # Sums of products stay below 2 ** 31.
        largest_step = min(2**15 - 1, (2**31 - 1) // (127 * len(query)))
        scale = max(float(np.abs(wide).max()) / largest_step, _LEAST_SCALE)
        code = np.rint(wide / scale)
        query_error = float(np.linalg.norm(wide - scale * code))
        error = self._error * length + self._longest * (query_error + _ROUNDING_ERROR * length)
        margin = (2 * error + tie_slack(self._longest * length + error)) / scale
        scores = np.empty(len(vectors), np.float32)
        positions = np.empty(len(vectors), np.int64)
        count = compiled.near(
            self._codes,
            self._scales,
            code.astype(np.int16),
            _NO_BITS if mask is None else mask.bits,
            k,
            margin,
            scores,
            positions,
        )
        return positions[:count]

    def _quantize(self, vectors: NDArray[np.float32]) -> None:
        """Make the codes of (n, d) vectors; the error stays infinite if one is not finite."""
        codes = np.empty(vectors.shape, np.int8)
        scales = np.empty(len(vectors), np.float32)
        error = longest = _LEAST_ERROR
        rows = max(1, _QUANTIZED_TOGETHER // vectors.shape[1])
        for start in range(0, len(vectors), rows):
            block = slice(start, start + rows)
            originals = np.asarray(vectors[block])
            largest = np.abs(originals).max(axis=1)
            if not np.isfinite(largest).all():
                self._codes = codes[:0]
                return
            scale = np.maximum(largest / np.float32(127), np.float32(_LEAST_SCALE))
            rebuilt = np.rint(originals / scale[:, np.newaxis])
            scales[block] = scale
            codes[block] = rebuilt
            rebuilt *= scale[:, np.newaxis]
            with np.errstate(over="ignore"):
                longest = max(longest, float(np.linalg.norm(rebuilt, axis=1).max()))
                error = max(error, float(np.linalg.norm(originals - rebuilt, axis=1).max()))
        self._scales = scales
        self._longest = longest
        self._error = error
        # Last, since another thread may be about to search.
        self._codes = codes
