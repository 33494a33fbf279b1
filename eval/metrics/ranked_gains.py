"""Rankings as arrays, and the measures of `eval.metrics.ranking` on them.

A matrix of gains has a row for each query: int64 of shape (queries, ranks), the grade of the
document at rank 1 first. A document without a grade, or with a negative one, gains nothing, and so
do all ranks beyond the matrix, so that rows may be filled up with zeros. The ideal gains of a query
are the grades of all that is judged for it, descending: a matrix in the same form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Gains = NDArray[np.int64]
Values = NDArray[np.float64]

_MAGNITUDE = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Measure:
    """A total over the ranks, divided by what depends on the judgements alone.

    Attributes:
        total: a matrix of gains and the cutoff to (queries,).
        divisor: a matrix of ideal gains and the cutoff to (queries,).
        cutoff: ranks that count, from 1; None for all.
    """

    total: Callable[[Gains, int | None], Values]
    divisor: Callable[[Gains, int | None], Values]
    cutoff: int | None = None

    def divisors(self, ideal: Gains) -> Values:
        """(queries, judged) ideal gains to (queries,) divisors, for `values`."""
        return self.divisor(ideal, self.cutoff)

    def values(self, gains: Gains, divisors: Values) -> Values:
        """(queries, ranks) gains to (queries,) values in [0, 1]; 0 where the divisor is 0."""
        values = np.zeros(len(gains))
        np.divide(self.total(gains, self.cutoff), divisors, out=values, where=divisors > 0)
        return values


def relevant(gains: Gains, cutoff: int | None = None) -> Values:
    """(queries,) relevant documents in the first ranks: the total of P@k and R@k."""
    return np.asarray(np.count_nonzero(gains[:, :cutoff] > 0, axis=1), np.float64)


def success(gains: Gains, cutoff: int | None = None) -> Values:
    """(queries,) 1 where one of the first documents is relevant, else 0."""
    return np.asarray((gains[:, :cutoff] > 0).any(axis=1), np.float64)


def reciprocal_ranks(gains: Gains, cutoff: int | None = None) -> Values:
    """(queries,) 1 / the first relevant rank, 0 where there is none."""
    rows, ranks = _relevant_ranks(gains, cutoff)
    values = np.zeros(len(gains))
    first, places = np.unique(rows, return_index=True)
    values[first] = 1 / ranks[places]
    return values


def precision_sums(gains: Gains, cutoff: int | None = None) -> Values:
    """(queries,) sums of the precision at each relevant rank: the total of AP."""
    rows, ranks = _relevant_ranks(gains, cutoff)
    counts = np.bincount(rows, minlength=len(gains))
    before = np.cumsum(counts) - counts
    found = np.arange(1, len(rows) + 1) - before[rows]
    return _sums(rows, found / ranks, len(gains))


def dcg(gains: Gains, cutoff: int | None = None) -> Values:
    """(queries,) sums of gain / log2(rank + 1) (Järvelin and Kekäläinen 2002)."""
    rows, ranks = _relevant_ranks(gains, cutoff)
    return _sums(rows, gains[rows, ranks - 1] / np.log2(ranks + 1), len(gains))


def descending_keys(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Whole numbers that ascend where scores, as 32-bit floats, descend; equal where they do.

    Args:
        scores: of any shape and without NaN; infinite ones are in order too.

    Returns:
        Of the same shape; each of them below 2**31 in magnitude.
    """
    with np.errstate(over="ignore", under="ignore"):
        # Adding zero turns -0.0, whose bits differ, into 0.0.
        bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32)
    return -(bits ^ ((bits >> 31) & _MAGNITUDE)).astype(np.int64)


def rank_columns(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """(rows, columns) keys to the columns of each row by key; equal keys keep their order.

    Args:
        keys: as `descending_keys` makes them.
    """
    columns = keys.shape[1]
    width = columns.bit_length()
    # The column in the low bits breaks ties: one sort of numbers, quicker than a stable argsort.
    order = np.sort(keys << width | np.arange(columns), axis=1)
    order &= (1 << width) - 1
    return order


def _relevant_ranks(
    gains: Gains, cutoff: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and rank of each relevant document, by row and then by rank."""
    rows, columns = np.nonzero(gains[:, :cutoff] > 0)
    return rows, columns + 1


def _sums(rows: NDArray[np.int64], terms: Values, count: int) -> Values:
    """The terms of each row, added one by one: zeros beyond the last relevant rank change nothing.

    So a perfect ranking's total is equal to its divisor, and its value exactly 1.
    """
    sums: Values = np.bincount(rows, weights=terms, minlength=count).astype(np.float64)
    return sums
