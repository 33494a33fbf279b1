"""Several systems on the same queries: their scores, whether they differ, and tables of both."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from eval.metrics.measures import Grades, Scores, run_values
from eval.metrics.significance import holm, mean_interval, randomization_test
from eval.metrics.trec import read_qrels, read_run
from eval.reports import Table, table_lines
from eval.settings import Resampling
from retriever.errors import BadInputError, ConfigError
from retriever.terminal import on_one_line

Floats = NDArray[np.float64]
Run = Mapping[str, Scores]
Qrels = Mapping[str, Grades]
SIGNIFICANT = 0.05
"""A difference is marked where its p-value after Holm's correction is below this."""
# With fewer queries the coverage of 95% intervals is near 90% on most measures, and lower where
# most values are equal.
_MIN_QUERIES = 20
_LONGEST_QUERY = 100


@dataclass(frozen=True, slots=True)
class Difference:
    """A system against the baseline, by one measure.

    Attributes:
        value: of the system minus that of the baseline.
        low, high: its 95% interval.
        p: of the paired test, two-sided.
        adjusted: p after Holm's correction over the systems that are compared.
        better, worse: number of queries or examples where the system is above, and below, the
            baseline; None where a single example has no value, as in a correlation.
    """

    value: float
    low: float
    high: float
    p: float
    adjusted: float
    better: int | None = None
    worse: int | None = None

    @property
    def significant(self) -> bool:
        """Whether the adjusted p is below `SIGNIFICANT`."""
        return self.adjusted < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Score:
    """A system by one measure.

    Attributes:
        value: in [0, 1], or a correlation in [-1, 1]; over several seeds the mean.
        spread: standard deviation (n - 1) over the seeds, or over the divisions of a layer search;
            None where there is one.
        low, high: its 95% interval over queries or examples.
        difference: from the baseline; None for the baseline itself.
    """

    value: float
    spread: float | None
    low: float
    high: float
    difference: Difference | None


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """All systems by all measures.

    Attributes:
        queries: ids of the queries that count.
        without_positive: number of queries without a relevant document.
        excluded: whether those are left out; otherwise they count as zero.
        missing: system to the number of counted queries for which it ranks nothing; they count as
            zero.
        baseline: the system that the others are compared with.
        scores: measure to system to score, in the order given.
        values: measure to (systems, queries) float64, in the order of `scores` and `queries`; over
            several seeds the mean.
    """

    queries: tuple[str, ...]
    without_positive: int
    excluded: bool
    missing: Mapping[str, int]
    baseline: str
    scores: Mapping[str, Mapping[str, Score]]
    values: Mapping[str, Floats]

    @property
    def names(self) -> tuple[str, ...]:
        """The systems, in order."""
        return tuple(self.missing)

    def differences(self, measure: str, name: str) -> Floats:
        """Return a system's (queries,) values minus the baseline's."""
        values = self.values[measure]
        names = self.names
        difference: Floats = values[names.index(name)] - values[names.index(self.baseline)]
        return difference

    def most_different(self, measure: str, name: str, count: int) -> list[tuple[str, float]]:
        """Return the queries that differ most from the baseline, and by how much; ties by id."""
        differences = zip(self.queries, self.differences(measure, name).tolist(), strict=True)
        differing = [(query, difference) for query, difference in differences if difference != 0]
        return sorted(differing, key=lambda pair: (-abs(pair[1]), pair[0]))[:count]

    def text(self, queries: Mapping[str, str] | None = None, top: int = 5) -> str:
        """Return a table for each measure, and below it the queries that differ most.

        Args:
            queries: id to text.
            top: maximum number of queries to list per system and measure.
        """
        treatment = "left out" if self.excluded else "counted as zero"
        lines = [
            f"{len(self.queries):,} queries; {self.without_positive:,} without a relevant "
            f"document, {treatment}; 95% intervals",
            *few_remark(len(self.queries), "queries"),
        ]
        for run, missing in self.missing.items():
            if missing:
                lines.append(f"{on_one_line(run)}: missing queries that count as zero: {missing:,}")
        for run in self.names:
            if not any(scores[run].value for scores in self.scores.values()):
                lines.append(
                    f"{on_one_line(run)}: no hit is judged relevant: compare its ids with those of "
                    "the judgments"
                )
        for measure, scores in self.scores.items():
            table = comparison_table("", measure, scores, scale=1, digits=4)
            lines += ["", *table_lines(table)]
            for run in scores:
                different = self.most_different(measure, run, top)
                if different:
                    lines.append(f"greatest differences in {measure}, {on_one_line(run)}:")
                for query, difference in different:
                    text = shortened(on_one_line((queries or {}).get(query, "")), _LONGEST_QUERY)
                    lines.append(f"  {difference:+.4f}  {on_one_line(query)}  {text}".rstrip())
        return "\n".join(lines)

    def to_json(self, queries: Mapping[str, str] | None = None, top: int = 5) -> dict[str, object]:
        """Return all but the values of single queries as JSON values; arguments as in `text`."""
        texts = queries or {}
        return {
            "queries": len(self.queries),
            "without_positive": self.without_positive,
            "excluded": self.excluded,
            "missing": dict(self.missing),
            "baseline": self.baseline,
            "scores": {
                measure: {name: asdict(score) for name, score in scores.items()}
                for measure, scores in self.scores.items()
            },
            "most_different": {
                measure: {
                    name: [
                        {"query": query, "difference": difference, "text": texts.get(query)}
                        for query, difference in self.most_different(measure, name, top)
                    ]
                    for name in scores
                    if name != self.baseline
                }
                for measure, scores in self.scores.items()
            },
        }


def compare(
    runs: Mapping[str, Run | str | os.PathLike[str]],
    qrels: Qrels | str | os.PathLike[str],
    measures: Sequence[str] = ("AP", "RR", "nDCG@10"),
    *,
    baseline: str | None = None,
    keep_without_positive: bool = False,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Score runs and compare each with a baseline.

    Args:
        runs: name to query to document to score, or to a TREC file; at least one.
        qrels: query to document to grade, or a file.
        measures: names, see `eval.metrics.measures`.
        baseline: a name in `runs`; None takes the first.
        keep_without_positive: count queries without a relevant document, as zero.
        resamples: number of resamples of the randomization test.
        seed: random seed of the resamples.

    Raises:
        ConfigError: the baseline is no run, or a measure is unknown.
        BadInputError: no query is left, or a score is NaN.
        SourceError: a file cannot be read.
    """
    judged = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    answered = _answered_queries(judged)
    counted = judged if keep_without_positive else answered
    if judged and not counted:
        remedy = f"found none among {len(judged):,}; check the grades"
        raise BadInputError(f"qrels: expected a query with a grade of at least 1, {remedy}")
    values = {}
    missing = {}
    for name, run_or_path in runs.items():
        run = run_or_path if isinstance(run_or_path, Mapping) else read_run(run_or_path)
        measured = run_values(run, counted, measures)
        values[name] = {measure: query_values[None] for measure, query_values in measured.items()}
        missing[name] = sum(query not in run for query in counted)
    return compare_systems(
        values,
        tuple(counted),
        without_positive=len(judged) - len(answered),
        excluded=not keep_without_positive,
        missing=missing,
        baseline=baseline,
        resampling=Resampling(resamples, seed),
    )


def _answered_queries(judged: Qrels) -> Qrels:
    """Return the queries with a relevant document."""
    return {
        query: grades
        for query, grades in judged.items()
        if any(grade >= 1 for grade in grades.values())
    }


def check_baseline(baseline: str | None, names: Sequence[str], kind: str) -> str:
    """Return the name of the baseline: the first name if None.

    Raises:
        ConfigError: `baseline` is not among `names`.
    """
    if baseline is not None and baseline not in names:
        raise ConfigError(
            f"baseline: expected one of the {kind} ({', '.join(names)}), found {baseline!r}"
        )
    return baseline or names[0]


def compare_systems(
    values: Mapping[str, Mapping[str, Floats]],
    queries: tuple[str, ...],
    *,
    without_positive: int,
    excluded: bool,
    missing: Mapping[str, int],
    baseline: str | None,
    resampling: Resampling,
) -> Comparison:
    """Compare systems; `values` is system to measure to (seeds, queries) float64 in [0, 1]."""
    baseline = check_baseline(baseline, list(values), "runs")
    means = {}
    scores = {}
    for measure in values[baseline]:
        seeds = {name: by_measure[measure] for name, by_measure in values.items()}
        spreads = {
            name: mean_and_spread(seed_values.mean(axis=1))[1]
            for name, seed_values in seeds.items()
        }
        # Where all seeds are equal, the mean is that value exactly.
        system_means = {
            name: seed_values[0] + (seed_values - seed_values[0]).mean(axis=0)
            for name, seed_values in seeds.items()
        }
        scores[measure] = compare_values(system_means, baseline, resampling, spreads)
        means[measure] = np.stack(list(system_means.values()))
    return Comparison(
        queries=queries,
        without_positive=without_positive,
        excluded=excluded,
        missing=dict(missing),
        baseline=baseline,
        scores=scores,
        values=means,
    )


def compare_values(
    values: Mapping[str, Floats],
    baseline: str,
    resampling: Resampling,
    spreads: Mapping[str, float | None] | None = None,
) -> dict[str, Score]:
    """Compare systems by their (units,) values in [0, 1]; `spreads` are deviations over seeds."""
    differences = {
        name: query_values - values[baseline]
        for name, query_values in values.items()
        if name != baseline
    }
    draws = resampling.resamples, resampling.seed
    p_values = [randomization_test(values, *draws) for values in differences.values()]
    tested = dict(zip(differences, zip(p_values, holm(p_values), strict=True), strict=True))
    scores = {}
    for name, query_values in values.items():
        difference = None
        if name in differences:
            changes = differences[name]
            difference = Difference(
                float(changes.mean()),
                *mean_interval(changes, -1.0),
                *tested[name],
                better=int((changes > 0).sum()),
                worse=int((changes < 0).sum()),
            )
        spread = None if spreads is None else spreads[name]
        scores[name] = Score(
            float(query_values.mean()), spread, *mean_interval(query_values, 0.0), difference
        )
    return scores


# Mean of a measure, and its standard deviation over seeds if there are several.
Value = tuple[float, float | None]


def mean_and_spread(values: Sequence[float] | Floats) -> Value:
    """Return the mean, and the standard deviation (n - 1), or None for a single value."""
    # The deviation from the first value is exactly 0 where all are equal.
    differences = np.subtract(values, values[0])
    spread = float(differences.std(ddof=1)) if len(values) > 1 else None
    return float(np.mean(values)), spread


def percent(value: float, spread: float | None = None) -> str:
    """Format a value times 100, with ± its standard deviation."""
    return f"{100 * value:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")


def score_cell(score: Score) -> str:
    """Format a score times 100 with ± its spread, and * where it differs significantly."""
    mark = score.difference is not None and score.difference.significant
    return f"{percent(score.value, score.spread)}{'*' if mark else ''}"


def interval(low: float, high: float, scale: float = 100, digits: int = 2, sign: str = "") -> str:
    """Format an interval; with `sign` "+", positive numbers have a sign too."""
    return f"{scale * low:{sign}.{digits}f} to {scale * high:{sign}.{digits}f}"


def few_remark(count: int, unit: str) -> Iterator[str]:
    """Yield a remark if there are so few queries that intervals are too short."""
    if count < _MIN_QUERIES:
        yield (
            f"intervals from fewer than {_MIN_QUERIES} {unit} are often too short, above all where "
            "most values are equal"
        )


def shortened(text: str, longest: int) -> str:
    """Return a text, cut to at most `longest` characters with an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 2]} …"


def comparison_table(
    title: str, unit: str, scores: Mapping[str, Score], *, scale: float = 100, digits: int = 2
) -> Table:
    """Return a table of systems: values with intervals, differences where there are several."""
    columns = [unit, "value", "95% interval"]
    if len(scores) > 1:
        columns += ["difference", "95% interval", "p", "Holm"]
        differences = [score.difference for score in scores.values() if score.difference]
        if any(difference.better is not None for difference in differences):
            columns += ["better", "worse"]
    rows = []
    for name, score in scores.items():
        spread = "" if score.spread is None else f" ± {scale * score.spread:.{digits}f}"
        row = [name, f"{scale * score.value:.{digits}f}{spread}"]
        row.append(interval(score.low, score.high, scale, digits))
        difference = score.difference
        if difference is not None:
            row.append(f"{scale * difference.value:+.{digits}f}")
            row.append(interval(difference.low, difference.high, scale, digits, "+"))
            row += [f"{difference.p:.4f}", f"{difference.adjusted:.4f}"]
            if difference.better is not None and difference.worse is not None:
                row += [f"{difference.better:,}", f"{difference.worse:,}"]
        elif len(scores) > 1:
            row.append("baseline")
        rows.append((*row, *[""] * (len(columns) - len(row))))
    return Table(tuple(columns), tuple(rows), title)
