"""Exact inner-product search over kept vectors: one query in one pass, several by FAISS's kernel.

These find the best in single precision, and all that may equal the last of them; the order is that
of `nearest_of`, in double precision. Positions are local to one segment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.compiled import compiled
from indexes.errors import ConfigError
from indexes.files import set_read_ahead
from indexes.folder.checksums import UNGUARDED, BlockGuard
from indexes.vectors.library import FLAT, has_faiss, load_faiss

if TYPE_CHECKING:
    from indexes.filters.columns import Allowed
    from indexes.vectors.structure import Structure

# Positions int64 and scores float64.
Nearest = tuple[NDArray[np.int64], NDArray[np.float64]]

# Below these shares of allowed vectors, copying them out is cheaper than testing every one, and
# scoring them exactly is cheaper than scanning all.
_GATHER_SHARE = 1 / 16
_EXACT_SHARE = 1 / 4
# Vectors copied at once where nothing is compiled: they stay in the processor's cache.
_COPIED = 512
# Numbers that one thread scans for one query: 0.5 GB, some 50 ms. Threads of FAISS and of NumPy's
# BLAS wait for each other by spinning: beside other work, a scan of a millisecond takes fifty.
_ONE_THREAD = 2**27
# Results of a batch beyond k: the query is scanned alone if they are not enough to see which
# vectors may equal the k-th.
_SPARE = 16
# Scores differ in the seventh digit by kernel; ranking them there would be noise.
_DIGITS = 6
# How much a single-precision inner product, and its rounding, can be off, in units of the last
# digit kept.
_SLACK = 2.0
# Scans that take as long as making codes does, some 20 ms for 10,000 vectors of 384 numbers.
_SCANS = 16
# More queries are searched together by all threads, fewer one by one by codes: of 30,000 vectors
# that takes a third of the processor's time.
_ALONE = 64
# More numbers get no codes: 134 MB. Some at a time are coded, which stay in the cache.
_MOST_CODED = 2**27
_AT_ONCE = 2**17
# More numbers are not copied: 134 MB.
_MOST_COPIED = 2**25
# What all scales are above, so that no quotient is out of range.
_LEAST = 1e-30
_NO_BITS = np.empty(0, np.uint8)


def search_flat(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: Allowed | None = None,
    guard: BlockGuard = UNGUARDED,
    codes: Codes | None = None,
) -> list[Nearest]:
    """The `k` vectors of largest inner product for each query, found exactly."""
    if queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"expected queries of shape (q, {vectors.shape[1]}), found {queries.shape}"
        )
    queries = np.ascontiguousarray(queries, np.float32)
    permitted = len(vectors) if allowed is None else allowed.count
    k = min(k, permitted)
    if k == 0 or len(queries) == 0:
        return [(np.empty(0, np.int64), np.empty(0)) for _ in queries]
    share = permitted / len(vectors)
    few = allowed.positions if allowed is not None and share <= _GATHER_SHARE else None
    if few is not None:
        guard.check_rows(few)
    else:
        set_read_ahead(vectors, True)
        guard.check()
    are_coded = codes is not None and len(queries) <= _ALONE and vectors.size <= _MOST_CODED
    if len(queries) == 1 or (few is None and are_coded) or not has_faiss():
        near = [_search_one(vectors, query, k, allowed, codes) for query in queries]
    else:
        near = _search_many(vectors, queries, k, allowed, few)
    return [
        nearest_of(positions, exact_scores(vectors, positions, query), k)
        for query, positions in zip(queries, near, strict=True)
    ]


def nearest_of(positions: NDArray[np.int64], scores: NDArray[np.float64], k: int) -> Nearest:
    """The `k` best of some passages, whatever others are among them."""
    is_number = ~np.isnan(scores)
    positions = positions[is_number]
    scores = scores[is_number]
    top = np.partition(scores, -k)[-k:] if k < len(scores) else scores
    decimals = decimals_of(float(np.abs(top).max(initial=1.0)))
    if k < len(scores):
        # Those that are not rounded to less than the k-th.
        kept = scores >= top[0] - 10.0**-decimals
        positions = positions[kept]
        scores = scores[kept]
    best = np.argsort(-np.round(scores, decimals), kind="stable")[:k]
    return positions[best], scores[best]


def exact_scores(
    vectors: NDArray[np.float32], positions: NDArray[np.int64], query: NDArray[np.float32]
) -> NDArray[np.float64]:
    """(m,) inner products of the vectors at (m,) positions with a query, in double precision."""
    wide = np.ascontiguousarray(query, np.float64)
    scores = np.empty(len(positions))
    if compiled is not None:
        compiled.dots(vectors, np.ascontiguousarray(positions, np.int64), wide, scores)
        return scores
    for start in range(0, len(positions), _COPIED):
        part = slice(start, start + _COPIED)
        scores[part] = vectors[positions[part]].astype(np.float64) @ wide
    return scores


def rounded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores with the digits that mean something: six decimals for cosines, fewer beyond 1."""
    return np.round(scores, decimals_of(float(np.abs(scores).max(initial=1.0))))


def decimals_of(largest: float) -> int:
    """How many decimals of scores of this size mean something."""
    return _DIGITS - math.ceil(math.log10(max(largest, 1.0)) - 1e-6)


def tie_slack(largest: float) -> float:
    """The largest difference of two single-precision scores that may tie."""
    return _SLACK * 10.0 ** -decimals_of(largest) if math.isfinite(largest) else math.inf


def _search_one(
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    k: int,
    allowed: Allowed | None,
    codes: Codes | None = None,
) -> NDArray[np.int64]:
    """(m,) ascending positions, among them the `k` best and all that may equal the k-th."""
    if allowed is not None and allowed.count <= _EXACT_SHARE * len(vectors):
        return allowed.positions
    near = None if codes is None else codes.near(vectors, query, k, allowed)
    if near is not None:
        return near
    if compiled is not None and vectors.size <= _ONE_THREAD:
        return np.arange(len(vectors)) if allowed is None else allowed.positions
    products = np.asarray(vectors @ query)
    if allowed is not None:
        bits = np.unpackbits(allowed.bits, count=len(products), bitorder="little")
        products[bits == 0] = -np.inf
    # Not a number is above nothing.
    products[np.isnan(products)] = -np.inf
    best = np.partition(products, -k)[-k:]
    slack = tie_slack(float(np.abs(best).max()))
    floor = float(best[0]) - slack if math.isfinite(slack) else -math.inf
    return np.flatnonzero(products > floor)


def _search_many(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: Allowed | None,
    few: NDArray[np.int64] | None,
) -> list[NDArray[np.int64]]:
    """As `_search_one` for each query; `few` are the positions allowed if these are few."""
    permitted = len(vectors) if allowed is None else allowed.count
    wanted = min(k + _SPARE, permitted)
    if few is None or len(few) * vectors.shape[1] > _MOST_COPIED:
        found = _scan(vectors, queries, wanted, allowed)
    else:
        copied = vectors[few]
        found = [(few[rows], scores) for rows, scores in _scan(copied, queries, wanted, None)]
    near = []
    for query, (positions, scores) in zip(queries, found, strict=True):
        is_all = wanted == permitted or len(scores) < wanted
        if is_all or scores[k - 1] - scores[-1] > tie_slack(float(np.abs(scores).max())):
            near.append(np.sort(positions))
        else:
            near.append(_search_one(vectors, query, k, allowed))
    return near


def _scan(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int, allowed: Allowed | None
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The `k` best vectors for each query, in single precision."""
    faiss = load_faiss()
    scores = np.empty((len(queries), k), np.float32)
    positions = np.empty((len(queries), k), np.int64)
    sizes = vectors.shape[1], len(queries), len(vectors), k
    arguments = [*map(faiss.swig_ptr, (queries, vectors)), *sizes]
    arguments += map(faiss.swig_ptr, (scores, positions))
    if allowed is not None:
        arguments.append(faiss.IDSelectorBitmap(allowed.bits))
    # The kernel behind IndexFlat, called on the vectors in place: nothing is copied.
    faiss.knn_inner_product(*arguments)
    # Where nothing is found the position is -1.
    return [
        (row[row >= 0], values[row >= 0]) for row, values in zip(positions, scores, strict=True)
    ]


class Codes:
    """The vectors of a segment in eight bits, for a first look at all; threads may share them.

    They are made once the segment has been scanned as often as that takes. A quarter of the bytes
    leaves the processor's cache to the encoder.
    """

    def __init__(self) -> None:
        self._scans = 0
        self._made: _Coded | None = None

    def near(
        self,
        vectors: NDArray[np.float32],
        query: NDArray[np.float32],
        k: int,
        allowed: Allowed | None,
    ) -> NDArray[np.int64] | None:
        """(m,) ascending positions, among them the `k` best and all that may equal the k-th.

        `vectors` (n, d) are always those of one segment, `query` is (d,), `k` from 1 to the number
        of allowed ones. None where there are no codes: the segment was scanned too seldom or is too
        large, nothing is compiled, or a number is not finite.
        """
        self._scans += 1
        if compiled is None or vectors.size > _MOST_CODED or self._scans < _SCANS:
            return None
        coded = self._made = self._made or _Coded.of(vectors)
        # The squares of large numbers are beyond single precision.
        wide = query.astype(np.float64)
        largest = float(np.abs(wide).max())
        length = float(np.linalg.norm(wide))
        if not math.isfinite(coded.error + length):
            return None
        # Sums of products stay below 2 ** 31.
        step = max(largest / min(2**15 - 1, (2**31 - 1) // (127 * len(query))), _LEAST)
        whole = np.rint(wide / step)
        rest = float(np.linalg.norm(wide - step * whole))
        # And four roundings in single precision.
        error = coded.error * length + coded.longest * (rest + 4e-7 * length)
        margin = (2 * error + tie_slack(coded.longest * length + error)) / step
        scores = np.empty(len(vectors), np.float32)
        positions = np.empty(len(vectors), np.int64)
        bits = _NO_BITS if allowed is None else allowed.bits
        whole = whole.astype(np.int16)
        found = compiled.near(*coded[:2], whole, bits, k, margin, scores, positions)
        return positions[:found]


class _Coded(NamedTuple):
    """A vector is nearly its scale times its code."""

    codes: NDArray[np.int8]  # (n, d)
    scales: NDArray[np.float32]  # (n,)
    error: float  # the largest distance of the two; infinite if a vector has no length
    longest: float  # the largest length of a scale times a code

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> _Coded:
        """The codes of vectors (n, d)."""
        codes = np.empty(vectors.shape, np.int8)
        scales = np.empty(len(vectors), np.float32)
        # In single precision, squares of smaller numbers are lost.
        error = longest = 1e-17
        rows = max(1, _AT_ONCE // vectors.shape[1])
        for start in range(0, len(vectors), rows):
            own = slice(start, start + rows)
            part = np.asarray(vectors[own])
            largest = np.abs(part).max(axis=1)
            if not np.isfinite(largest).all():
                return cls(codes[:0], scales[:0], math.inf, math.inf)
            scales[own] = scale = np.maximum(largest / np.float32(127), np.float32(_LEAST))
            codes[own] = whole = np.rint(part / scale[:, np.newaxis])
            whole *= scale[:, np.newaxis]
            with np.errstate(over="ignore"):
                longest = max(longest, float(np.linalg.norm(whole, axis=1).max()))
                error = max(error, float(np.linalg.norm(part - whole, axis=1).max()))
        return cls(codes, scales, error, longest)


# The recall by default.
USUAL_RECALL = 0.95


class Measured(NamedTuple):
    """The recall, from 0 to 1, that one search effort reaches."""

    effort: int
    recall: float


class SegmentStructure(NamedTuple):
    """What a segment's manifest says of its structure."""

    name: str  # ``flat``, another name or a factory string
    reasons: tuple[str, ...] = ()  # why, as sentences
    recall: tuple[Measured, ...] = ()  # @10, efforts ascending; empty for ``flat``
    structure: Structure | None = None  # None for ``flat``
    codes: Codes | None = None  # of a ``flat`` segment in files

    def search(
        self,
        vectors: NDArray[np.float32],
        queries: NDArray[np.float32],
        k: int,
        allowed: Allowed | None = None,
        recall: float | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> list[Nearest]:
        """The best vectors of a segment, exactly or through its structure."""
        if self.structure is None:
            return search_flat(vectors, queries, k, allowed, guard, self.codes)
        searcher = self.structure.searcher
        effort = self.effort(recall)
        return searcher.search(vectors, queries, k, allowed, effort, guard)

    def effort(self, recall: float | None) -> int | None:
        """The least effort that reaches a recall@10; None if there is nothing to choose."""
        if not self.recall:
            return None
        best = max(self.recall, key=lambda one: one.recall)
        if recall is None:
            recall = min(USUAL_RECALL, best.recall)
        elif not 0 < recall <= 1:
            raise ConfigError(f"recall: expected a number above 0 and at most 1, found {recall}")
        elif recall > best.recall:
            raise ConfigError(
                f"recall {recall}: the best that this structure reaches is {best.recall:.4f}, at "
                f"effort {best.effort}; ask for less, or `retriever compact` with another "
                "--index-type"
            )
        return min(one.effort for one in self.recall if one.recall >= recall)

    @classmethod
    def recorded(cls, manifest: Mapping[str, Any], structure: Structure | None) -> SegmentStructure:
        """What a manifest says of a structure that is open."""
        measured = tuple(Measured(**one) for one in manifest.get("recall", ()))
        reasons = tuple(manifest.get("reasons", ()))
        codes = Codes() if structure is None else None
        return cls(manifest["structure"], reasons, measured, structure, codes)

    def to_json(self) -> dict[str, Any]:
        """What the manifest holds of it."""
        return {
            "structure": self.name,
            "reasons": list(self.reasons),
            "recall": [one._asdict() for one in self.recall],
        }


FLAT_STRUCTURE = SegmentStructure(FLAT)
