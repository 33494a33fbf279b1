"""One query whose postings were read: its scores, its best passages, its score of any passage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.allowed import Allowed
from indexes.bm25_addends import Addends, accumulate, permitted
from indexes.bm25_best import best_passages, top_places
from indexes.errors import ConfigError


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
        pairs = [accumulate(*pair) for pair in zip(self._addends, self._sizes, strict=True)]
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

    def search(self, k: int, allowed: Sequence[Allowed | None] | None = None) -> Matches:
        """The `k` best live passages that hold a query term, exactly; fewer where fewer match.

        Args:
            k: 1 or more.
            allowed: for each segment some passages, or None for all; only these are
                returned. Statistics, and so scores, stay those of all live passages.

        Raises:
            ConfigError: k is below 1, or what is allowed does not fit the segments.
        """
        if k < 1:
            raise ConfigError(f"k: expected 1 or more, found {k}")
        chosen = self._fitting(allowed)
        best = Matches(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
        for index, addends in enumerate(self._addends):
            positions, scores = best_passages(
                permitted(addends, chosen[index]), self._sizes[index], k
            )
            if len(best.scores) == k:
                # An equal score loses to the earlier segment, so only better ones can enter.
                better = scores > best.scores[-1]
                positions, scores = positions[better], scores[better]
            found = Matches(np.full(len(scores), index), positions, scores)
            if not len(best.scores):
                best = found
            elif len(scores):
                best = _better(best, found, k)
        return best

    def _fitting(self, allowed: Sequence[Allowed | None] | None) -> list[Allowed | None]:
        if allowed is None:
            return [None] * len(self._sizes)
        found = [None if some is None else len(some) for some in allowed]
        if len(found) != len(self._sizes) or any(
            size not in (None, wanted) for size, wanted in zip(found, self._sizes, strict=True)
        ):
            raise ConfigError(
                f"allowed: expected some of {list(self._sizes)} passages, found of {found}"
            )
        return list(allowed)


def _better(first: Matches, second: Matches, k: int) -> Matches:
    """The `k` best of both, those of `first` before equal ones of `second`."""
    segments, positions, scores = (np.concatenate(both) for both in zip(first, second, strict=True))
    top = top_places(scores, k)
    return Matches(segments[top], positions[top], scores[top])
