"""Scoring runs: query to document to score, as files and other programs have them.

The ranking of a query is the run's documents by descending score, compared as 32-bit floats, then
by descending id, as in trec_eval. The measures are those of `eval.metrics.measures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from eval.metrics.measures import (
    Gains,
    Measure,
    Values,
    check_numbers,
    descending_keys,
    ideal_gains,
    parse_measures,
)
from retriever.errors import BadInputError

Scores = Mapping[str, float]
Grades = Mapping[str, int]
Chunk = list[tuple[str, Scores, Grades]]

# Cells of the matrices of a chunk, each of which takes at most about 40 bytes.
_CHUNK = 1 << 18


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
    values = run_values(run, qrels, parse_measures(measures))
    return Evaluation(
        {name: dict(zip(qrels, found.tolist(), strict=True)) for name, found in values.items()},
        {name: math.fsum(found) / len(qrels) for name, found in values.items()},
    )


def run_values(
    run: Mapping[str, Scores], qrels: Mapping[str, Grades], measures: Mapping[str, Measure]
) -> dict[str, Values]:
    """Measure to (queries,) values of a run, in the order of the qrels; see `evaluate`."""
    if not qrels:
        raise BadInputError("expected qrels of at least one query, found none; check the file")
    values: dict[str, list[Values]] = {name: [] for name in measures}
    for chunk in _chunks(run, qrels):
        gains = _ranked_gains(chunk)
        ideal = ideal_gains([grades for _, _, grades in chunk])
        for name, measure in measures.items():
            values[name].append(measure.values(gains, measure.divisors(ideal)))
    return {name: np.concatenate(parts) for name, parts in values.items()}


def _chunks(run: Mapping[str, Scores], qrels: Mapping[str, Grades]) -> Iterator[Chunk]:
    """Queries in the order of the qrels, in chunks whose matrices are small."""
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

    Only documents that gain are ranked, by the number of scores of their query above theirs.
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
    """Keys that order documents by query, then by descending score; equal where both are."""
    return (rows << 33) + descending_keys(scores)


def _by_id(scores: Scores, places: NDArray[np.int64]) -> dict[str, int]:
    """The documents at these positions of a run by descending id, numbered from 0."""
    documents = list(scores)
    group = sorted((documents[place] for place in places.tolist()), reverse=True)
    return {document: number for number, document in enumerate(group)}
