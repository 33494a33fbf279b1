"""Measures of ranked retrieval: their names, and their values on runs and on pools of candidates.

The definitions are trec_eval's. For one query, let g(i) be the grade of the document at rank i (0
if it has none), let relevant mean g >= 1, and let R be the number of relevant judged documents:

- `P@k`: relevant documents in the first k, divided by k (even if fewer were retrieved).
- `R@k`: relevant documents in the first k, divided by R.
- `AP`, `AP@k`: the sum of P@i over the relevant ranks i (up to k), divided by R.
- `RR`, `RR@k`: 1 / the first relevant rank (0 if it is beyond k).
- `Success@k`: 1 if any of the first k documents is relevant, else 0.
- `nDCG`, `nDCG@k`: the sum over ranks i (up to k) of max(g(i), 0) / log2(i + 1), divided by the
  same sum for all judged documents by descending grade (Järvelin and Kekäläinen 2002).

A value whose divisor is 0 is 0. Documents rank by descending score, compared as 32-bit floats, then
by descending id. A matrix of gains is int64, (queries, ranks), with the grade at rank 1 first and
zeros beyond the ranking; the ideal gains are the grades of all judged documents, descending.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question
from retriever.errors import BadInputError, ConfigError, require_several

Gains = NDArray[np.int64]
Values = NDArray[np.float64]
Scores = Mapping[str, float]
Grades = Mapping[str, int]
_Total = Callable[[Gains, int | None], Values]

# Pools share a matrix of gains where their sizes round up to the same power of 2, at least _SMALL.
# A matrix has up to _CELLS cells, and more only for a single pool.
_SMALL = 32
_CELLS = 1 << 18


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of a run.

    Attributes:
        per_query: measure to query to value, for every query of the qrels, in their order.
        means: measure to mean over the queries of the qrels.
    """

    per_query: dict[str, dict[str, float]]
    means: dict[str, float]


def evaluate(
    run: Mapping[str, Scores],
    qrels: Mapping[str, Grades],
    measures: Sequence[str] = ("nDCG@10", "R@100", "AP", "RR"),
) -> Evaluation:
    """Score a run (query to document to score) by judgments (query to document to grade).

    A query of the qrels that is missing from the run counts as 0; a query of the run that is
    missing from the qrels is ignored. The result names measures canonically.

    Raises:
        BadInputError: the qrels have no query, or a score is NaN.
        ConfigError: a measure is unknown.
    """
    values_by_measure = run_values(run, qrels, measures)
    return Evaluation(
        {
            name: dict(zip(qrels, scores.tolist(), strict=True))
            for name, scores in values_by_measure.items()
        },
        {name: math.fsum(scores) / len(qrels) for name, scores in values_by_measure.items()},
    )


def run_values(
    run: Mapping[str, Scores], qrels: Mapping[str, Grades], measures: Sequence[str]
) -> dict[str, Values]:
    """Return measure to (queries,) values of a run, in the order of the qrels; see `evaluate`."""
    if not qrels:
        raise BadInputError("expected qrels of at least one query, found none; check the file")
    pools = []
    scores = []
    for query, grades in qrels.items():
        document_scores = run.get(query, {})
        # Sorting ids is slow, and where no scores are equal, their order does not count.
        distinct_scores = np.unique(
            _rounded(np.fromiter(document_scores.values(), np.float64, len(document_scores)))
        )
        documents = (
            list(document_scores)
            if len(distinct_scores) == len(document_scores)
            else sorted(document_scores, reverse=True)
        )
        pools.append(Question(query, "", tuple(documents), grades))
        scores += [document_scores[document] for document in documents]
    return PoolMeasures(pools, measures)(np.array(scores, np.float64))


def ranked_documents(scores: Scores) -> list[str]:
    """Return the documents of one query in the order in which measures rank them."""
    rounded = _rounded(np.fromiter(scores.values(), np.float64, len(scores))).tolist()
    pairs = sorted(zip(rounded, scores, strict=True), reverse=True)
    return [document for _, document in pairs]


@dataclass(frozen=True, slots=True, eq=False)
class _PoolGroup:
    """Pools of similar size as the rows of a matrix of gains, padded with zeros.

    `pairs` are positions in the scores of all pools, `slots` their cells in the flat matrix.
    """

    queries: NDArray[np.int64]
    pairs: NDArray[np.int64]
    slots: NDArray[np.int64]
    gains: Gains
    divisors: Mapping[str, Values]

    def ranked(self, scores: NDArray[np.float32]) -> Gains:
        """Rank (arrays, pairs) scores; return (arrays times rows, columns) gains in that order."""
        matrix = np.full((len(scores), self.gains.size), np.inf, dtype=np.float32)
        matrix[:, self.slots] = -scores[:, self.pairs]
        gains = np.tile(self.gains, (len(scores), 1))
        # Stable: equal scores keep the order of candidates, and padding comes last.
        order = np.argsort(matrix.reshape(gains.shape), axis=1, kind="stable")
        return np.take_along_axis(gains, order, axis=1)


class PoolMeasures:
    """Measures of the same pools for any scores: groups and divisors are prepared once."""

    def __init__(self, pools: Sequence[Question], measures: Sequence[str]) -> None:
        self._measures = _parsed_measures(measures)
        self.names = tuple(self._measures)
        if not pools:
            raise BadInputError("expected at least one question to rank for, found none")
        self._ids = [pool.id for pool in pools]
        sizes = np.array([len(pool.candidates) for pool in pools], dtype=np.int64)
        self._ends = np.cumsum(sizes)
        judged = np.array([len(pool.grades) for pool in pools], dtype=np.int64)
        self._groups = [
            self._group(pools, sizes, members) for members in _group_by_size(sizes, judged)
        ]

    def __call__(self, scores: NDArray[np.floating]) -> dict[str, Values]:
        """Return measure to (..., queries) float64 in [0, 1] for (..., pairs) scores.

        Scores may be infinite, not NaN.
        """
        rows = scores.reshape(math.prod(scores.shape[:-1]), int(self._ends[-1]))
        wrong = np.isnan(rows).any(axis=0)
        if wrong.any():
            query = self._ids[int(np.searchsorted(self._ends, wrong.argmax(), side="right"))]
            raise BadInputError(f"query {query}: expected scores that are numbers, found NaN")
        rounded = _rounded(rows)
        values = {name: np.empty((len(rows), len(self._ids))) for name in self._measures}
        for group in self._groups:
            gains = group.ranked(rounded)
            for name, measure in self._measures.items():
                divisors = np.tile(group.divisors[name], len(rows))
                group_values = np.zeros(len(gains))
                np.divide(
                    measure.total(gains, measure.cutoff),
                    divisors,
                    out=group_values,
                    where=divisors > 0,
                )
                values[name][:, group.queries] = group_values.reshape(len(rows), -1)
        shape = (*scores.shape[:-1], len(self._ids))
        return {name: group_values.reshape(shape) for name, group_values in values.items()}

    def _group(
        self, pools: Sequence[Question], sizes: NDArray[np.int64], members: NDArray[np.int64]
    ) -> _PoolGroup:
        grouped_pools = [pools[number] for number in members]
        counts = sizes[members]
        columns = np.arange(counts.max())
        present = columns < counts[:, None]
        gains = np.zeros(present.shape, dtype=np.int64)
        # A negative grade marks a document as judged, and gains nothing.
        gains[present] = [
            max(pool.grades.get(candidate, 0), 0)
            for pool in grouped_pools
            for candidate in pool.candidates
        ]
        ideal = ideal_gains([pool.grades for pool in grouped_pools])
        return _PoolGroup(
            queries=members,
            pairs=((self._ends - sizes)[members][:, None] + columns)[present],
            slots=np.flatnonzero(present),
            gains=gains,
            divisors={
                name: measure.divisor(ideal, measure.cutoff)
                for name, measure in self._measures.items()
            },
        )


def _group_by_size(
    sizes: NDArray[np.int64], judged: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """Yield positions of queries, in groups whose matrices are small or at least half full."""
    widths = np.maximum(sizes, judged)
    powers = np.ceil(np.log2(np.maximum(widths, _SMALL))).astype(np.int64)
    for power in np.unique(powers).tolist():
        members = np.flatnonzero(powers == power)
        rows = max(1, _CELLS >> power)
        for start in range(0, len(members), rows):
            yield members[start : start + rows]


class _Measure(NamedTuple):
    """A sum over the first `cutoff` ranks, and its divisor, computed from the judgments alone."""

    total: _Total
    divisor: _Total
    cutoff: int | None


def canonical_measures(names: Sequence[str]) -> tuple[str, ...]:
    """Return the canonical names of measures, each once: ``map`` is AP, ``ndcg@10`` is nDCG@10.

    Raises:
        ConfigError: a measure is unknown.
        TypeError: one string instead of several.
    """
    return tuple(_parsed_measures(names))


def _parsed_measures(names: Sequence[str]) -> dict[str, _Measure]:
    require_several("measures", names)
    return dict(map(_parse, names))


def relevant_counts(gains: Gains, cutoff: int | None = None) -> Values:
    """Count the relevant documents in the first ranks, (queries,): the total of P@k and R@k."""
    return np.asarray(np.count_nonzero(gains[:, :cutoff] > 0, axis=1), np.float64)


def reciprocal_ranks(gains: Gains, cutoff: int | None = None) -> Values:
    """Return (queries,) 1 / the first relevant rank, 0 where there is none."""
    rows, ranks = _relevant_ranks(gains, cutoff)
    values = np.zeros(len(gains))
    first, places = np.unique(rows, return_index=True)
    values[first] = 1 / ranks[places]
    return values


def precision_sums(gains: Gains, cutoff: int | None = None) -> Values:
    """Sum the precision at each relevant rank, (queries,): the total of AP."""
    rows, ranks = _relevant_ranks(gains, cutoff)
    counts = np.bincount(rows, minlength=len(gains))
    before = np.cumsum(counts) - counts
    relevant_so_far = np.arange(1, len(rows) + 1) - before[rows]
    return _sums(rows, relevant_so_far / ranks, len(gains))


def dcg(gains: Gains, cutoff: int | None = None) -> Values:
    """Sum gain / log2(rank + 1), (queries,)."""
    rows, ranks = _relevant_ranks(gains, cutoff)
    return _sums(rows, gains[rows, ranks - 1] / np.log2(ranks + 1), len(gains))


def ideal_gains(judged: Sequence[Mapping[str, int]]) -> Gains:
    """Return each query's positive grades descending, then zeros: (queries, most such grades)."""
    best = [
        sorted((grade for grade in grades.values() if grade > 0), reverse=True) for grades in judged
    ]
    sizes = np.array([len(grades) for grades in best], dtype=np.int64)
    matrix = np.zeros((len(best), int(sizes.max(initial=0))), dtype=np.int64)
    matrix[np.arange(matrix.shape[1]) < sizes[:, None]] = list(chain.from_iterable(best))
    return matrix


def _rounded(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    """Round scores to float32, as trec_eval compares them; too large ones become infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return scores.astype(np.float32)


def _relevant_ranks(
    gains: Gains, cutoff: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and the rank of each relevant document, by row, then by rank."""
    rows, columns = np.nonzero(gains[:, :cutoff] > 0)
    return rows, columns + 1


def _sums(rows: NDArray[np.int64], terms: Values, count: int) -> Values:
    sums: Values = np.bincount(rows, weights=terms, minlength=count).astype(np.float64)
    return sums


# Measure to its total and its divisor.
_MEASURES: dict[str, tuple[_Total, _Total]] = {
    "nDCG": (dcg, dcg),
    "AP": (precision_sums, lambda ideal, cutoff: relevant_counts(ideal)),
    "RR": (reciprocal_ranks, lambda ideal, cutoff: np.ones(len(ideal))),
    "P": (relevant_counts, lambda ideal, cutoff: np.full(len(ideal), cutoff, np.float64)),
    "R": (relevant_counts, lambda ideal, cutoff: relevant_counts(ideal)),
    "Success": (
        lambda gains, cutoff: np.minimum(relevant_counts(gains, cutoff), 1),
        lambda ideal, cutoff: np.ones(len(ideal)),
    ),
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


def _parse(name: str) -> tuple[str, _Measure]:
    match = _NAME.fullmatch(name)
    canonical = _CANONICAL.get(match["measure"].lower()) if match else None
    if match and canonical and (match["cutoff"] or canonical not in _NEED_CUTOFF):
        cutoff = int(match["cutoff"]) if match["cutoff"] else None
        full = canonical if cutoff is None else f"{canonical}@{cutoff}"
        return full, _Measure(*_MEASURES[canonical], cutoff)
    expected = (
        "nDCG, AP or RR, with or without @k; P@k, R@k or Success@k, for any k from 1 (nDCG@10)"
    )
    raise ConfigError(f"unknown measure {name!r}: expected {expected}")
