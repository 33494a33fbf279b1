"""Several runs over the same judgments: what each scores, and whether they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.metrics.ranking import evaluate
from eval.metrics.significance import bootstrap_interval, holm, randomisation_test
from retriever.errors import ConfigError

Run = Mapping[str, Mapping[str, float]]
Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A run against the baseline, by one measure.

    Attributes:
        mean: of the run less that of the baseline.
        low, high: its 95% bootstrap interval.
        p: of the paired randomisation test, two-sided.
        adjusted: p after Holm's correction over the runs that are compared by this measure.
        better, worse: queries on which the run is above, and below, the baseline.
    """

    mean: float
    low: float
    high: float
    p: float
    adjusted: float
    better: int
    worse: int


@dataclass(frozen=True, slots=True)
class Score:
    """A run by one measure.

    Attributes:
        mean: over the queries.
        low, high: its 95% bootstrap interval.
        difference: from the baseline; None for the baseline itself.
    """

    mean: float
    low: float
    high: float
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All runs by all measures.

    Attributes:
        queries: how many were counted.
        without_positive: queries that no judgment calls relevant.
        excluded: whether those were left out; if not, they count as zero.
        missing: run → how many of the counted queries it does not answer; they count as zero.
        baseline: what the others are compared with.
        scores: measure → run → score, in the order given.
        per_query: measure → run → query → value.
    """

    queries: int
    without_positive: int
    excluded: bool
    missing: dict[str, int]
    baseline: str
    scores: dict[str, dict[str, Score]]
    per_query: dict[str, dict[str, dict[str, float]]]

    def most_different(self, measure: str, run: str, count: int) -> list[tuple[str, float]]:
        """The queries on which a run differs most from the baseline, with the difference.

        The greatest absolute difference first, equal ones by query; queries without one left out.
        """
        ours, theirs = self.per_query[measure][run], self.per_query[measure][self.baseline]
        found = [(query, ours[query] - theirs[query]) for query in ours]
        found.sort(key=lambda one: (-abs(one[1]), one[0]))
        return [one for one in found[:count] if one[1] != 0]


def compare(
    runs: Mapping[str, Run],
    qrels: Qrels,
    measures: Sequence[str],
    *,
    baseline: str | None = None,
    keep_without_positive: bool = False,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Score runs and compare each with a baseline.

    Args:
        runs: name → query → document → score; at least one.
        qrels: query → document → grade.
        measures: see `eval.metrics.ranking`.
        baseline: a name in `runs`; None takes the first.
        keep_without_positive: count queries without a relevant document, as zero.
        resamples: of bootstrap and randomisation test.
        seed: of both.

    Raises:
        ConfigError: the baseline is no run, or a measure is unknown.
        BadInputError: no query is left, or a score is not a number.
    """
    found, _ = compare_seeds(
        {name: [run] for name, run in runs.items()},
        qrels,
        measures,
        baseline=baseline,
        keep_without_positive=keep_without_positive,
        resamples=resamples,
        seed=seed,
    )
    return found


def compare_seeds(
    runs: Mapping[str, Sequence[Run]],
    qrels: Qrels,
    measures: Sequence[str],
    *,
    baseline: str | None = None,
    keep_without_positive: bool = False,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[Comparison, dict[str, dict[str, float]]]:
    """As `compare`, of systems that were trained with several seeds.

    A query's value is the mean over the seeds; it counts as missing where the first lacks it.

    Args:
        runs: name → one run for each seed.
        qrels: see `compare`, as the others.
        measures: see there.
        baseline: see there.
        keep_without_positive: see there.
        resamples: see there.
        seed: of bootstrap and randomisation test.

    Returns:
        The comparison, and measure → name → standard deviation (n - 1) of the seeds' means, for
        the names that have several.
    """
    baseline = next(iter(runs)) if baseline is None else baseline
    if baseline not in runs:
        raise ConfigError(
            f"baseline: expected one of the runs ({', '.join(runs)}), found {baseline!r}"
        )
    judged = {query for query, grades in qrels.items() if any(g >= 1 for g in grades.values())}
    counted = {
        query: grades for query, grades in qrels.items() if keep_without_positive or query in judged
    }
    values: dict[str, dict[str, np.ndarray]] = {measure: {} for measure in measures}
    spread: dict[str, dict[str, float]] = {measure: {} for measure in measures}
    for name, seeds in runs.items():
        evaluations = [evaluate(run, counted, measures).per_query for run in seeds]
        for measure in measures:
            table = np.array([list(one[measure].values()) for one in evaluations])
            values[measure][name] = _mean(table)
            if len(seeds) > 1:
                means = table.mean(axis=1)
                spread[measure][name] = float((means - means[0]).std(ddof=1))
    comparison = Comparison(
        queries=len(counted),
        without_positive=len(qrels) - len(judged),
        excluded=not keep_without_positive,
        missing={
            name: sum(query not in seeds[0] for query in counted) for name, seeds in runs.items()
        },
        baseline=baseline,
        scores={
            measure: compare_values(values[measure], baseline, resamples, seed)
            for measure in measures
        },
        per_query={
            measure: {
                name: dict(zip(counted, one.tolist(), strict=True))
                for name, one in values[measure].items()
            }
            for measure in measures
        },
    )
    return comparison, spread


def _mean(table: np.ndarray) -> np.ndarray:
    """(queries,) of (seeds, queries): the mean over seeds; of equal ones it is each, to the bit."""
    mean: np.ndarray = table[0] + (table - table[0]).mean(axis=0)
    return mean


def compare_values(
    values: Mapping[str, np.ndarray], baseline: str, resamples: int, seed: int
) -> dict[str, Score]:
    """Compare what is known unit by unit: means, and differences from a baseline.

    Args:
        values: name → (units,) float64, of the same units in the same order.
        baseline: one of the names.
        resamples: of bootstrap and randomisation test.
        seed: of both.
    """
    differences = {
        name: found - values[baseline] for name, found in values.items() if name != baseline
    }
    p_values = [randomisation_test(one, resamples, seed) for one in differences.values()]
    tested = dict(zip(differences, zip(p_values, holm(p_values), strict=True), strict=True))
    scores = {}
    for name, found in values.items():
        difference = None
        if name in differences:
            one = differences[name]
            difference = Difference(
                float(one.mean()),
                *bootstrap_interval(one, resamples, seed),
                *tested[name],
                better=int((one > 0).sum()),
                worse=int((one < 0).sum()),
            )
        low, high = bootstrap_interval(found, resamples, seed)
        scores[name] = Score(float(found.mean()), low, high, difference)
    return scores
