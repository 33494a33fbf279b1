"""One query whose postings were read: its scores, its best passages, its score of any passage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError

# Sorting a posting costs about as much as clearing and scanning so many passages.
_SCAN_PER_POSTING = 24


class Addends(NamedTuple):
    """What the terms of a query add to the scores of the live passages of a segment.

    Attributes:
        positions: (p,) uint32, one term's after the other's in the order of the query, ascending
            within a term.
        values: (p,) float64, what is added.
        counts: (terms,) int64, how many of them belong to each term.
    """

    positions: NDArray[np.uint32]
    values: NDArray[np.float64]
    counts: NDArray[np.int64]


class Matches(NamedTuple):
    """Passages found: three arrays of one length, scores descending, ties by (segment, position).

    Attributes:
        segments: int64 index into the segments searched.
        positions: int64 position within that segment.
        scores: float64; a match can score zero or less (robertson, atire, okapi).
    """

    segments: NDArray[np.int64]
    positions: NDArray[np.int64]
    scores: NDArray[np.float64]


class BM25Query:
    """Made by `indexes.bm25.BM25.query`; all methods give a passage the same score, bit by bit.

    Args:
        addends: one entry for each segment.
        sizes: the number of passages of each segment, dead ones included.
    """

    def __init__(self, addends: Sequence[Addends], sizes: Sequence[int]) -> None:
        self._addends = addends
        self._sizes = sizes

    def scores(self) -> tuple[list[NDArray[np.float64]], list[NDArray[np.bool_]]]:
        """The score of every passage, and which passages match.

        Returns:
            Two lists with an (n,) array for each segment: float64 scores, and True where the
            passage is alive and holds a query term. Those that do not match score 0.
        """
        pairs = [_accumulate(*pair) for pair in zip(self._addends, self._sizes, strict=True)]
        return [scores for scores, _ in pairs], [matches for _, matches in pairs]

    def at(
        self, segment: int, positions: NDArray[np.integer]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The scores of chosen passages of one segment, and which of them match.

        Args:
            segment: index into the segments.
            positions: (m,) positions below n, in any order.

        Returns:
            (m,) float64 scores, 0 for those that do not match, and (m,) bool matches.
        """
        scores, matches = np.zeros(len(positions)), np.zeros(len(positions), np.bool_)
        wanted = positions.astype(np.uint32)
        addends = self._addends[segment]
        ends = np.cumsum(addends.counts).tolist()
        for start, stop in zip([0, *ends], ends, strict=False):
            if start == stop:
                continue
            held, values = addends.positions[start:stop], addends.values[start:stop]
            places = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
            holds = held[places] == wanted
            scores[holds] += values[places[holds]]
            matches |= holds
        return scores, matches

    def search(self, k: int, allowed: Sequence[NDArray[np.bool_] | None] | None = None) -> Matches:
        """The `k` best live passages that hold a query term, exactly; fewer where fewer match.

        Args:
            k: 1 or more.
            allowed: for each segment an (n,) bool mask, or None for all; only these passages are
                returned. Statistics, and so scores, stay those of all live passages.

        Raises:
            ConfigError: k is below 1, or the masks do not fit the segments.
        """
        if k < 1:
            raise ConfigError(f"k: expected 1 or more, found {k}")
        masks = self._masks(allowed)
        best = Matches(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
        for index, addends in enumerate(self._addends):
            permitted = _permitted(addends, masks[index])
            positions, scores = _contenders(permitted, self._sizes[index], k)
            if len(best.scores) == k:
                # An equal score loses to the earlier segment, so only better ones can enter.
                better = scores > best.scores[-1]
                positions, scores = positions[better], scores[better]
            if len(positions):
                top = _top(scores, k)
                found = Matches(
                    np.full(len(top), index), positions[top].astype(np.int64), scores[top]
                )
                best = _better(best, found, k) if len(best.scores) else found
        return best

    def _masks(
        self, allowed: Sequence[NDArray[np.bool_] | None] | None
    ) -> list[NDArray[np.bool_] | None]:
        if allowed is None:
            return [None] * len(self._sizes)
        masks = list(allowed)
        expected = [(np.bool_, (n,)) for n in self._sizes]
        found = [
            wanted if mask is None else (mask.dtype, mask.shape)
            for mask, wanted in zip(masks, expected, strict=False)
        ]
        if len(masks) != len(expected) or found != expected:
            shown = [None if mask is None else f"{mask.dtype} {mask.shape}" for mask in masks]
            raise ConfigError(
                f"allowed: expected boolean masks of lengths {list(self._sizes)}, found {shown}"
            )
        return masks


def _permitted(addends: Addends, mask: NDArray[np.bool_] | None) -> Addends:
    """Those of chosen passages."""
    if mask is None:
        return addends
    chosen = mask[addends.positions]
    counts = counts_of(chosen, addends.counts)
    return Addends(addends.positions[chosen], addends.values[chosen], counts)


def counts_of(chosen: NDArray[np.bool_], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many are chosen of each of the runs of `counts` items; (runs,) int64."""
    before = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(chosen, out=before[1:])
    return np.diff(before[np.cumsum(counts)], prepend=0)


def _accumulate(addends: Addends, n: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(n,) the scores and which passages match; bincount adds in the order of the terms."""
    matches = np.zeros(n, np.bool_)
    matches[addends.positions] = True
    return _sums(addends.positions.astype(np.intp), addends.values, n), matches


def _contenders(
    addends: Addends, n: int, k: int
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Positions, ascending, with the `k` best among them, and their scores.

    The way taken never changes a score.
    """
    positions, values, counts = addends
    if len(counts) == 1 or not len(positions):
        return positions, values
    if len(positions) * _SCAN_PER_POSTING >= n:
        scores = _sums(positions.astype(np.intp), values, n)
        enough = np.flatnonzero(counts >= k)
        if len(enough):
            # The k-th best passage of one term bounds the k-th best of all from below.
            term = enough[np.argmin(counts[enough])]
            start = int(counts[:term].sum())
            floor = _kth_largest(scores[positions[start : start + counts[term]]], k)
            if floor > 0:
                best = _distinct(positions[scores[positions] >= floor])
                return best, scores[best]
        matches = np.zeros(n, np.bool_)
        matches[positions] = True
        held = np.flatnonzero(matches)
        return held, scores[held]
    # A stable sort keeps the order of the terms, and is quick where ascending runs are joined.
    order = np.argsort(positions, kind="stable")
    found = positions[order]
    first = _first(found)
    return found[first], _sums(np.cumsum(first) - 1, values[order], 0)


def _distinct(positions: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Each position once, ascending; they come in ascending runs."""
    found = np.sort(positions, kind="stable")
    return found[_first(found)]


def _first(positions: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which of ascending positions are the first of their value."""
    first = np.empty(len(positions), np.bool_)
    first[:1] = True
    np.not_equal(positions[1:], positions[:-1], out=first[1:])
    return first


def _sums(places: NDArray[np.intp], values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    # Of no values bincount makes integers.
    return np.bincount(places, values, n).astype(np.float64, copy=False)


def _better(first: Matches, second: Matches, k: int) -> Matches:
    """The `k` best of both, those of `first` before equal ones of `second`."""
    segments, positions, scores = (np.concatenate(both) for both in zip(first, second, strict=True))
    top = _top(scores, k)
    return Matches(segments[top], positions[top], scores[top])


def _top(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """The indices of the `k` largest scores, descending, equal scores by index."""
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


def _kth_largest(scores: NDArray[np.float64], k: int) -> np.float64:
    place = len(scores) - k
    smallest_kept: np.float64 = np.partition(scores, place)[place]
    return smallest_kept
