"""The best passages of a segment for one query.

The compiled form (`indexes.compiled`) and that of NumPy add the same numbers in the same order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.contributions import (
    Contributions,
    accumulate,
    contributions_of,
    permitted,
    sums,
)
from indexes.bm25.formulas import Weighting
from indexes.bm25.postings import Postings, Read
from indexes.compiled import compiled
from indexes.filters.allowed import Allowed

# Sorting one posting costs about as much as clearing and scanning this many passages.
_SCAN_PER_POSTING = 24
_NO_BITS = np.empty(0, np.uint8)


class Best(NamedTuple):
    """Passages of one segment: arrays of one length, scores descending, equal ones by position.

    Attributes:
        positions: int64.
        scores: float64.
    """

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]


def best_passages(
    postings: Postings,
    read: Read,
    weighting: Weighting,
    k: int,
    live: NDArray[np.bool_] | None = None,
    allowed: Allowed | None = None,
) -> Best:
    """The `k` best passages that hold a term, exactly; fewer if fewer do.

    Args:
        postings: of the segment, n passages.
        read: those of the query's terms.
        weighting: with a factor for each term of `read`.
        k: 1 or more.
        live: (n,) the passages that were not deleted; None for all.
        allowed: the passages that may be returned; None for all.

    Raises:
        DamagedIndexError: the postings are impossible.
    """
    most = min(k, int(read.counts.sum()))
    if not most:
        return Best(np.empty(0, np.int64), np.empty(0, np.float64))
    if compiled is not None:
        postings.check_lengths(read)
        best = Best(np.empty(most, np.int64), np.empty(most))
        mask = _NO_BITS if live is None else live
        bits = _NO_BITS if allowed is None else allowed.bits
        found = compiled.best(
            *read, weighting.factors, postings.lengths, *weighting.constants(), mask, bits, *best
        )
        if found >= 0:
            return Best(best.positions[:found], best.scores[:found])
        # Impossible postings are named below.
    return best_by_numpy(postings, read, weighting, k, live, allowed)


def best_by_numpy(
    postings: Postings,
    read: Read,
    weighting: Weighting,
    k: int,
    live: NDArray[np.bool_] | None = None,
    allowed: Allowed | None = None,
) -> Best:
    """See `best_passages`."""
    contributions = permitted(contributions_of(postings, read, weighting), live, allowed)
    if not len(contributions.positions):
        return Best(np.empty(0, np.int64), np.empty(0, np.float64))
    positions, scores = _contenders(contributions, len(postings), k)
    top = top_places(scores, k)
    return Best(positions[top].astype(np.int64), scores[top])


def top_places(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """The places of the `k` largest of (n,) scores, descending; equal ones by place, ascending."""
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
        level = np.flatnonzero(candidates == threshold)
        chosen = chosen[np.sort(np.concatenate([above, level[: k - len(above)]]))]
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _contenders(
    contributions: Contributions, n: int, k: int
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Positions, ascending, with the `k` best among them, and their scores.

    The way taken never changes a score.
    """
    positions, values, counts = contributions
    if len(counts) == 1:
        return positions, values
    if len(positions) * _SCAN_PER_POSTING >= n:
        scores, matches = accumulate(contributions, n)
        held = np.flatnonzero(matches)
        return held, scores[held]
    # A stable sort keeps the order of the terms, and is fast on concatenated ascending runs.
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
