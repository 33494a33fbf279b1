"""Measures of ranked retrieval, as trec_eval defines them.

For one query, let the ranking be the run's documents by score descending, then by document
descending. trec_eval keeps scores as 32-bit floats, so scores that differ only beyond that are
equal here too. Let g(i) be the grade of the document at rank i (0 where it has none), relevant
mean g >= 1, and R be the number of relevant judged documents:

- `P@k`: relevant documents in the first k, divided by k (also where fewer were retrieved).
- `R@k`: relevant documents in the first k, divided by R.
- `AP`, `AP@k`: the sum over relevant ranks i (up to k) of P@i, divided by R.
- `RR`, `RR@k`: 1 / the first relevant rank (if it is at most k).
- `Success@k`: 1 if any of the first k is relevant, else 0.
- `nDCG`, `nDCG@k`: the sum over ranks i (up to k) of max(g(i), 0) / log2(i + 1), divided by the
  same sum for all judged documents by grade descending (Järvelin and Kekäläinen 2002).

A value whose divisor is 0 is 0. Every value lies in [0, 1]; higher is better.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from eval.metrics.ranked_gains import (
    Gains,
    Measure,
    Values,
    dcg,
    descending_keys,
    precision_sums,
    reciprocal_ranks,
    relevant,
    success,
)
from retriever.errors import BadInputError, ConfigError

Scores = Mapping[str, float]
Grades = Mapping[str, int]
Chunk = list[tuple[str, Scores, Grades]]

# Cells of the matrices of a chunk, each of which takes about 40 bytes at the most.
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a run scores.

    Attributes:
        per_query: measure → query → value, for every query of the qrels, in their order.
        means: measure → mean over the queries of the qrels.
    """

    per_query: dict[str, dict[str, float]]
    means: dict[str, float]


def evaluate(
    run: Mapping[str, Scores],
    qrels: Mapping[str, Grades],
    measures: Sequence[str] = ("nDCG@10", "R@100", "AP", "RR"),
) -> Evaluation:
    """Score a run (query → document → score) against judgments (query → document → grade).

    A query of the qrels that is missing from the run counts as 0; a query of the run that is
    missing from the qrels is not used.

    Raises:
        BadInputError: the qrels have no query, or a score is not a number.
        ConfigError: a measure is unknown.
    """
    parsed = parse_measures(measures)
    if not qrels:
        raise BadInputError("expected qrels of at least one query, found none; check the file")
    values: dict[str, list[float]] = {name: [] for name in parsed}
    for chunk in _chunks(run, qrels):
        gains = _ranked_gains(chunk)
        ideal = ideal_gains([grades for _, _, grades in chunk])
        for name, measure in parsed.items():
            values[name] += measure.values(gains, measure.divisors(ideal)).tolist()
    per_query = {name: dict(zip(qrels, found, strict=True)) for name, found in values.items()}
    means = {name: math.fsum(found) / len(qrels) for name, found in values.items()}
    return Evaluation(per_query, means)


def parse_measures(names: Sequence[str]) -> dict[str, Measure]:
    """The measures of these names, in their order.

    Raises:
        ConfigError: a measure is unknown.
    """
    return {name: _parse(name) for name in names}


def check_measures(names: Sequence[str]) -> None:
    """Refuse names that `evaluate` would refuse.

    Raises:
        ConfigError: a measure is unknown.
    """
    parse_measures(names)


def check_numbers(
    scores: NDArray[np.floating], sizes: NDArray[np.int64], queries: Sequence[str]
) -> None:
    """Refuse scores that are not numbers.

    Args:
        scores: (documents,), those of one query after those of the other.
        sizes: (queries,) documents of each.
        queries: their ids.

    Raises:
        BadInputError: a score is NaN; names the first such query.
    """
    wrong = np.isnan(scores)
    if wrong.any():
        query = queries[int(np.searchsorted(np.cumsum(sizes), wrong.argmax(), side="right"))]
        raise BadInputError(f"query {query}: expected scores that are numbers, found NaN")


def ideal_gains(judged: Sequence[Grades]) -> Gains:
    """Each query's positive grades descending, filled up with zeros: (queries, most of them)."""
    best = [
        sorted((grade for grade in grades.values() if grade > 0), reverse=True) for grades in judged
    ]
    sizes = np.array([len(grades) for grades in best], dtype=np.int64)
    matrix = np.zeros((len(best), int(sizes.max(initial=0))), dtype=np.int64)
    matrix[np.arange(matrix.shape[1]) < sizes[:, None]] = list(chain.from_iterable(best))
    return matrix


def _chunks(run: Mapping[str, Scores], qrels: Mapping[str, Grades]) -> Iterator[Chunk]:
    """Queries in the order of the qrels, as many at a time as keep the matrices small."""
    chunk: Chunk = []
    widest = 0
    for query, grades in qrels.items():
        scores = run.get(query, {})
        width = max(len(scores), len(grades))
        if chunk and (len(chunk) + 1) * max(widest, width) > _CHUNK:
            yield chunk
            chunk, widest = [], 0
        chunk.append((query, scores, grades))
        widest = max(widest, width)
    yield chunk


def _ranked_gains(chunk: Chunk) -> Gains:
    """(queries, ranks) gains in the order of the ranking, up to the last rank that gains.

    Only documents that gain are ranked: by how many scores of the query are above theirs.
    """
    sizes = np.array([len(scores) for _, scores, _ in chunk], dtype=np.int64)
    values = (scores.values() for _, scores, _ in chunk)
    flat = np.fromiter(chain.from_iterable(values), np.float64, int(sizes.sum()))
    check_numbers(flat, sizes, [query for query, _, _ in chunk])
    found = [
        (row, document, grade, scores[document])
        for row, (_, scores, grades) in enumerate(chunk)
        for document, grade in grades.items()
        if grade > 0 and document in scores
    ]
    if not found:
        return np.zeros((len(chunk), 0), dtype=np.int64)
    rows, documents, grades, scores = zip(*found, strict=True)
    keys = _query_keys(np.repeat(np.arange(len(chunk)), sizes), flat)
    row = np.array(rows)
    key = _query_keys(row, np.array(scores, dtype=np.float64))
    in_order = np.sort(keys)
    above, through = (np.searchsorted(in_order, key, side) for side in ("left", "right"))
    starts = np.cumsum(sizes) - sizes
    ranks = above - starts[row]
    groups: dict[int, dict[str, int]] = {}
    for place in np.flatnonzero(through - above > 1).tolist():
        group = groups.get(int(key[place]))
        if group is None:
            start, stop = starts[rows[place]], starts[rows[place]] + sizes[rows[place]]
            equal = np.flatnonzero(keys[start:stop] == key[place])
            group = groups[int(key[place])] = _by_id(chunk[rows[place]][1], equal)
        ranks[place] += group[documents[place]]
    gains = np.zeros((len(chunk), int(ranks.max()) + 1), dtype=np.int64)
    gains[row, ranks] = grades
    return gains


def _query_keys(rows: NDArray[np.int64], scores: Values) -> NDArray[np.int64]:
    """Keys that order documents by query, then by score descending; equal where both are."""
    return (rows << 33) + descending_keys(scores)


def _by_id(scores: Scores, places: NDArray[np.int64]) -> dict[str, int]:
    """The documents at these places of a run, by id descending, each with its number from 0."""
    documents = list(scores)
    group = sorted((documents[place] for place in places.tolist()), reverse=True)
    return {document: number for number, document in enumerate(group)}


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
_NAME = re.compile(r"(?P<measure>[A-Za-z]+)(?:@(?P<cutoff>[1-9][0-9]{0,8}))?")


def _parse(name: str) -> Measure:
    match = _NAME.fullmatch(name)
    parts = _MEASURES.get(match["measure"]) if match else None
    if match and parts and (match["cutoff"] or match["measure"] not in _NEED_CUTOFF):
        return Measure(*parts, int(match["cutoff"]) if match["cutoff"] else None)
    known = "nDCG, AP or RR, alone or with @k, P@k, R@k or Success@k, any k from 1 (as nDCG@10)"
    raise ConfigError(f"unknown measure {name!r}: expected {known}")
