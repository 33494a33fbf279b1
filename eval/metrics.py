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
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from indexes.errors import BadInputError, ConfigError

Gains = Sequence[int]
Measure = Callable[[Gains, Gains, int], float]


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
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, int]],
    measures: Sequence[str] = ("nDCG@10", "R@100", "AP", "RR"),
) -> Evaluation:
    """Score a run (query → document → score) against judgments (query → document → grade).

    A query of the qrels that is missing from the run counts as 0; a query of the run that is
    missing from the qrels is not used.

    Raises:
        BadInputError: the qrels have no query, or a score is not a number.
        ConfigError: a measure is unknown.
    """
    parsed = {name: _parse(name) for name in measures}
    if not qrels:
        raise BadInputError("expected qrels of at least one query, found none; check the file")
    per_query: dict[str, dict[str, float]] = {name: {} for name in measures}
    for query, grades in qrels.items():
        ranking = _rank(query, run.get(query, {}))
        # A negative grade marks a document as judged, and gains nothing.
        gains = [max(grades.get(document, 0), 0) for document in ranking]
        ideal = sorted((max(grade, 0) for grade in grades.values()), reverse=True)
        for name, (measure, cutoff) in parsed.items():
            per_query[name][query] = measure(gains, ideal, cutoff)
    means = {name: math.fsum(values.values()) / len(qrels) for name, values in per_query.items()}
    return Evaluation(per_query, means)


def _rank(query: str, scores: Mapping[str, float]) -> list[str]:
    with np.errstate(over="ignore", under="ignore"):
        floats = np.array(list(scores.values()), dtype=np.float64).astype(np.float32).tolist()
    if any(math.isnan(score) for score in floats):
        raise BadInputError(f"query {query}: expected scores that are numbers, found NaN")
    order = sorted(zip(floats, scores, strict=True), reverse=True)
    return [document for _, document in order]


def _precision(gains: Gains, ideal: Gains, cutoff: int) -> float:
    return _relevant(gains[:cutoff]) / cutoff


def _recall(gains: Gains, ideal: Gains, cutoff: int) -> float:
    return _ratio(_relevant(gains[:cutoff]), _relevant(ideal))


def _average_precision(gains: Gains, ideal: Gains, cutoff: int) -> float:
    ranks = [rank for rank, gain in enumerate(gains[:cutoff], 1) if gain >= 1]
    return _ratio(sum(found / rank for found, rank in enumerate(ranks, 1)), _relevant(ideal))


def _reciprocal_rank(gains: Gains, ideal: Gains, cutoff: int) -> float:
    return next((1 / rank for rank, gain in enumerate(gains[:cutoff], 1) if gain >= 1), 0.0)


def _success(gains: Gains, ideal: Gains, cutoff: int) -> float:
    return float(_relevant(gains[:cutoff]) > 0)


def _ndcg(gains: Gains, ideal: Gains, cutoff: int) -> float:
    return _ratio(_dcg(gains[:cutoff]), _dcg(ideal[:cutoff]))


def _dcg(gains: Gains) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1) if gain)


def _relevant(gains: Gains) -> int:
    return sum(gain >= 1 for gain in gains)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


_MEASURES: dict[str, Measure] = {
    "nDCG": _ndcg,
    "AP": _average_precision,
    "RR": _reciprocal_rank,
    "P": _precision,
    "R": _recall,
    "Success": _success,
}
_NEED_CUTOFF = ("P", "R", "Success")
_NAME = re.compile(r"(?P<measure>[A-Za-z]+)(?:@(?P<cutoff>[1-9][0-9]{0,8}))?")


def _parse(name: str) -> tuple[Measure, int]:
    match = _NAME.fullmatch(name)
    measure = _MEASURES.get(match["measure"]) if match else None
    if match and measure and (match["cutoff"] or match["measure"] not in _NEED_CUTOFF):
        return measure, int(match["cutoff"] or sys.maxsize)
    known = "nDCG, AP or RR, alone or with @k, P@k, R@k or Success@k, any k from 1 (as nDCG@10)"
    raise ConfigError(f"unknown measure {name!r}: expected {known}")
