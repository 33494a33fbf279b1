"""What the terms of a query contribute to the scores of the passages of a segment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import Weighting
from indexes.bm25.postings import Postings, Read
from indexes.filters.allowed import Allowed


class Contributions(NamedTuple):
    """What each posting of a query's terms adds to the score of its passage.

    Attributes:
        positions: (p,) uint32, one term's after the other's in the order of the query, ascending
            within a term.
        values: (p,) float64, what is added.
        counts: (terms,) int64, how many postings each term has.
    """

    positions: NDArray[np.uint32]
    values: NDArray[np.float64]
    counts: NDArray[np.int64]


def contributions_of(postings: Postings, read: Read, weighting: Weighting) -> Contributions:
    """What postings add to the scores of their passages.

    Args:
        postings: of the segment.
        read: some of them.
        weighting: with a factor for each term of `read`.

    Raises:
        DamagedIndexError: the postings or the lengths are impossible.
    """
    joined = read.joined()
    positions, frequencies, counts = joined.positions, joined.frequencies, joined.counts
    if not len(positions):
        return Contributions(positions, np.empty(0), counts)
    postings.check(joined)
    lengths = postings.lengths_of(positions, frequencies)
    return Contributions(positions, weighting.values(frequencies, lengths, counts), counts)


def permitted(
    contributions: Contributions, live: NDArray[np.bool_] | None, allowed: Allowed | None = None
) -> Contributions:
    """The contributions to the live passages that are allowed; None is for all."""
    if live is None and allowed is None:
        return contributions
    chosen = np.ones(len(contributions.positions), np.bool_)
    if live is not None:
        chosen &= live[contributions.positions]
    if allowed is not None:
        chosen &= allowed.at(contributions.positions)
    counts = counts_of(chosen, contributions.counts)
    return Contributions(contributions.positions[chosen], contributions.values[chosen], counts)


def counts_of(chosen: NDArray[np.bool_], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many are chosen of each of the runs of `counts` items; (runs,) int64."""
    before = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(chosen, out=before[1:])
    return np.diff(before[np.cumsum(counts)], prepend=0)


def accumulate(
    contributions: Contributions, n: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(n,) float64 the scores, added in the order of the terms, and (n,) bool which match."""
    matches = np.zeros(n, np.bool_)
    matches[contributions.positions] = True
    return sums(contributions.positions.astype(np.intp), contributions.values, n), matches


def sums(places: NDArray[np.intp], values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """What is added to each of `n` places, or of as many as occur, in the order given."""
    # bincount returns integers for an empty array.
    return np.bincount(places, values, n).astype(np.float64, copy=False)
