"""Measures of ranked retrieval: their names, and their values on rankings as arrays.

The definitions are trec_eval's. For one query, let g(i) be the grade of the document at rank i (0
if it has none), let relevant mean g >= 1, and let R be the number of relevant judged documents:

- `P@k`: relevant documents in the first k, divided by k (even if fewer were retrieved).
- `R@k`: relevant documents in the first k, divided by R.
- `AP`, `AP@k`: the sum of P@i over the relevant ranks i (up to k), divided by R.
- `RR`, `RR@k`: 1 / the first relevant rank (0 if it is beyond k).
- `Success@k`: 1 if any of the first k documents is relevant, else 0.
- `nDCG`, `nDCG@k`: the sum over ranks i (up to k) of max(g(i), 0) / log2(i + 1), divided by the
  same sum for all judged documents by descending grade (Järvelin and Kekäläinen 2002).

A value whose divisor is 0 is 0. Every value lies in [0, 1]; higher is better. Names are read in any
case, and so are `map` for AP, `mrr` for RR, `precision` for P and `recall` for R.

A matrix of gains has a row for each query: int64 of shape (queries, ranks), with the grade of the
document at rank 1 first. A document without a grade, or with a negative one, gains nothing, and
neither do ranks beyond the matrix, so rows may be padded with zeros. The ideal gains of a query are
the grades of all documents judged for it, descending: a matrix of the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from retriever.errors import BadInputError, ConfigError, require_several

Gains = NDArray[np.int64]
Values = NDArray[np.float64]

_MAGNITUDE = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Measure:
    """A sum over the ranks, divided by a number that depends on the judgments alone.

    Attributes:
        total: maps a matrix of gains and the cutoff to (queries,) sums.
        divisor: maps a matrix of ideal gains and the cutoff to (queries,) divisors.
        cutoff: the number of ranks that count; None for all.
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


def parse_measures(names: Sequence[str]) -> dict[str, Measure]:
    """Canonical name to measure, each once, in the order of `names`.

    Raises:
        ConfigError: a measure is unknown.
        TypeError: one string instead of several.
    """
    require_several("measures", names)
    return dict(map(_parse, names))


def canonical_measures(names: Sequence[str]) -> tuple[str, ...]:
    """The canonical names of measures, each once: ``map`` is AP, ``ndcg@10`` is nDCG@10.

    Raises:
        ConfigError: a measure is unknown.
    """
    return tuple(parse_measures(names))


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
    """(queries,) sums of gain / log2(rank + 1)."""
    rows, ranks = _relevant_ranks(gains, cutoff)
    return _sums(rows, gains[rows, ranks - 1] / np.log2(ranks + 1), len(gains))


def ideal_gains(judged: Sequence[Mapping[str, int]]) -> Gains:
    """(queries, most positive grades): each query's positive grades descending, then zeros."""
    best = [
        sorted((grade for grade in grades.values() if grade > 0), reverse=True) for grades in judged
    ]
    sizes = np.array([len(grades) for grades in best], dtype=np.int64)
    matrix = np.zeros((len(best), int(sizes.max(initial=0))), dtype=np.int64)
    matrix[np.arange(matrix.shape[1]) < sizes[:, None]] = list(chain.from_iterable(best))
    return matrix


def check_numbers(
    scores: NDArray[np.floating], sizes: NDArray[np.int64], queries: Sequence[str]
) -> None:
    """Refuse scores that are not numbers.

    Args:
        scores: (documents,), query after query.
        sizes: (queries,) number of documents of each.
        queries: their ids.

    Raises:
        BadInputError: a score is NaN; names the first such query.
    """
    wrong = np.isnan(scores)
    if wrong.any():
        query = queries[int(np.searchsorted(np.cumsum(sizes), wrong.argmax(), side="right"))]
        raise BadInputError(f"query {query}: expected scores that are numbers, found NaN")


def descending_keys(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Integers that ascend where scores, as 32-bit floats, descend; equal where they are equal.

    trec_eval keeps scores as 32-bit floats, so scores that differ only beyond that tie.

    Args:
        scores: of any shape and without NaN; infinite ones are ordered too.

    Returns:
        Of the same shape; each below 2**31 in magnitude.
    """
    with np.errstate(over="ignore", under="ignore"):
        # Adding zero turns -0.0, whose bits differ, into 0.0.
        bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32)
    return -(bits ^ ((bits >> 31) & _MAGNITUDE)).astype(np.int64)


def rank_columns(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """(rows, columns) keys to the columns of each row by key; equal keys keep their order.

    Args:
        keys: from `descending_keys`.
    """
    columns = keys.shape[1]
    width = columns.bit_length()
    # With the column in the low bits, one sort of integers breaks ties faster than a stable
    # argsort.
    order = np.sort(keys << width | np.arange(columns), axis=1)
    order &= (1 << width) - 1
    return order


def _relevant_ranks(
    gains: Gains, cutoff: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and rank of each relevant document, by row, then by rank."""
    rows, columns = np.nonzero(gains[:, :cutoff] > 0)
    return rows, columns + 1


def _sums(rows: NDArray[np.int64], terms: Values, count: int) -> Values:
    """The sum of each row's terms, added in order: zeros after the last relevant rank change
    nothing.

    So the total of a perfect ranking equals its divisor, and its value is exactly 1.
    """
    sums: Values = np.bincount(rows, weights=terms, minlength=count).astype(np.float64)
    return sums


def _cutoff(ideal: Gains, cutoff: int | None) -> Values:
    return np.full(len(ideal), cutoff, dtype=np.float64)


def _one(ideal: Gains, cutoff: int | None) -> Values:
    return np.ones(len(ideal))


def _all_relevant(ideal: Gains, cutoff: int | None) -> Values:
    return relevant(ideal)


_Total = Callable[[Gains, int | None], Values]
# Total and divisor.
_MEASURES: dict[str, tuple[_Total, _Total]] = {
    "nDCG": (dcg, dcg),
    "AP": (precision_sums, _all_relevant),
    "RR": (reciprocal_ranks, _one),
    "P": (relevant, _cutoff),
    "R": (relevant, _all_relevant),
    "Success": (success, _one),
}
_NEED_CUTOFF = ("P", "R", "Success")
_CANONICAL = {
    **{name.lower(): name for name in _MEASURES},
    "map": "AP",
    "mrr": "RR",
    "precision": "P",
    "recall": "R",
}
_NAME = re.compile(r"(?P<measure>[A-Za-z]+)(?:@(?P<cutoff>[1-9][0-9]{0,8}))?")


def _parse(name: str) -> tuple[str, Measure]:
    match = _NAME.fullmatch(name)
    canonical = _CANONICAL.get(match["measure"].lower()) if match else None
    if match and canonical and (match["cutoff"] or canonical not in _NEED_CUTOFF):
        cutoff = int(match["cutoff"]) if match["cutoff"] else None
        full = canonical if cutoff is None else f"{canonical}@{cutoff}"
        return full, Measure(*_MEASURES[canonical], cutoff)
    known = "nDCG, AP or RR, with or without @k; P@k, R@k or Success@k, for any k from 1 (nDCG@10)"
    raise ConfigError(f"unknown measure {name!r}: expected {known}")
