"""The best passages of a segment for one query.

The compiled form (`compiled`) and that of NumPy add the same numbers in the same order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.compiled import compiled
from indexes.bm25.contributions import Addends, accumulate, sums

# Sorting a posting costs about as much as clearing and scanning so many passages.
_SCAN_PER_POSTING = 24


class Best(NamedTuple):
    """Passages of one segment: arrays of one length, scores descending, ties by position.

    Attributes:
        positions: int64.
        scores: float64.
    """

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]


def best_passages(addends: Addends, n: int, k: int) -> Best:
    """The `k` best passages that hold a term, exactly; fewer where fewer do.

    Args:
        addends: of the passages that may be returned.
        n: how many passages the segment has.
        k: 1 or more.
    """
    if not len(addends.positions):
        return Best(np.empty(0, np.int64), np.empty(0, np.float64))
    if compiled is None:
        return best_by_numpy(addends, n, k)
    most = min(k, len(addends.positions))
    best = Best(np.empty(most, np.int64), np.empty(most))
    found = compiled.best(*addends, *best)
    return Best(best.positions[:found], best.scores[:found])


def best_by_numpy(addends: Addends, n: int, k: int) -> Best:
    """See `best_passages`; there must be a posting."""
    positions, scores = _contenders(addends, n, k)
    top = top_places(scores, k)
    return Best(positions[top].astype(np.int64), scores[top])


def top_places(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """The places of the `k` largest scores, descending, equal scores by place."""
    chosen = np.arange(len(scores))
    # The k-th largest of a sample bounds the k-th largest of all from below, so that most scores
    # need one comparison only.
    stride = math.isqrt(len(scores) // k)
    if stride > 1:
        chosen = np.flatnonzero(scores >= _kth_largest(scores[::stride], k))
    if len(chosen) > k:
        candidates = scores[chosen]
        threshold = _kth_largest(candidates, k)
        above = np.flatnonzero(candidates > threshold)
        level = np.flatnonzero(candidates == threshold)[: k - len(above)]
        chosen = chosen[np.sort(np.concatenate([above, level]))]
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _contenders(
    addends: Addends, n: int, k: int
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Positions, ascending, with the `k` best among them, and their scores.

    The way taken never changes a score.
    """
    positions, values, counts = addends
    if len(counts) == 1:
        return positions, values
    if len(positions) * _SCAN_PER_POSTING >= n:
        scores, matches = accumulate(addends, n)
        held = np.flatnonzero(matches)
        return held, scores[held]
    # A stable sort keeps the order of the terms, and is quick where ascending runs are joined.
    order = np.argsort(positions, kind="stable")
    found = positions[order]
    first = np.empty(len(found), np.bool_)
    first[0] = True
    np.not_equal(found[1:], found[:-1], out=first[1:])
    return found[first], sums(np.cumsum(first) - 1, values[order], 0)


def _kth_largest(scores: NDArray[np.float64], k: int) -> np.float64:
    place = len(scores) - k
    smallest_kept: np.float64 = np.partition(scores, place)[place]
    return smallest_kept
