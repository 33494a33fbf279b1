"""One query whose postings were read: its scores, its best passages, its score of any passage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError

# For each query term that live passages of a segment hold: their positions, ascending, and what
# the term adds to the score of each.
Addends = list[tuple[NDArray[np.uint32], NDArray[np.float64]]]

# Sorting the positions met costs about as much as clearing and scanning this many passages each.
_SCAN_PER_POSTING = 24


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
        for held, values in self._addends[segment]:
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
            positions, scores = _matching(addends, self._sizes[index])
            mask = masks[index]
            if mask is not None:
                permitted = mask[positions]
                positions, scores = positions[permitted], scores[permitted]
            if len(best.scores) == k:
                # An equal score loses to the earlier segment, so only better ones can enter.
                better = scores > best.scores[-1]
                positions, scores = positions[better], scores[better]
            if not len(positions):
                continue
            scores = np.concatenate([best.scores, scores])
            top = _top(scores, k)
            best = Matches(
                np.concatenate([best.segments, np.full(len(positions), index)])[top],
                np.concatenate([best.positions, positions])[top],
                scores[top],
            )
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


def _accumulate(addends: Addends, n: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    positions, values = _joined(addends)
    matches = np.zeros(n, np.bool_)
    matches[positions] = True
    return np.bincount(positions, values, n).astype(np.float64, copy=False), matches


def _matching(addends: Addends, n: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The matching positions, ascending, and their scores; the way taken never changes either."""
    if len(addends) == 1:
        return addends[0][0].astype(np.intp), addends[0][1]
    if sum(len(positions) for positions, _ in addends) * _SCAN_PER_POSTING < n:
        positions, values = _joined(addends)
        positions, inverse = np.unique(positions, return_inverse=True)
        return positions, np.bincount(inverse, values).astype(np.float64, copy=False)
    scores, matches = _accumulate(addends, n)
    positions = np.flatnonzero(matches)
    return positions, scores[positions]


def _joined(addends: Addends) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """All terms' positions and values one after the other, the order in which bincount adds."""
    if not addends:
        return np.empty(0, np.intp), np.empty(0, np.float64)
    positions = np.concatenate([positions for positions, _ in addends], dtype=np.intp)
    return positions, np.concatenate([values for _, values in addends])


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
