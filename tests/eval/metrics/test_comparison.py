"""Comparing runs: what is counted, which runs are compared, which queries differ."""

import numpy as np
import pytest

from eval.metrics.comparison import compare, compare_systems
from eval.metrics.measures import evaluate
from eval.metrics.significance import holm
from eval.settings import Resampling
from retriever.errors import BadInputError, ConfigError

QRELS = {
    "1": {"a": 1, "b": 0},
    "2": {"a": 0, "b": 2},
    "3": {"a": 0},
    "4": {"a": 1},
    "5": {"b": 1, "a": -1},
}
GOOD = {query: {"a": 1.0, "b": 0.5} for query in "12345"} | {"5": {"b": 2.0}}
POOR = {query: {"b": 1.0, "a": 0.5} for query in "1245"}
NOTHING: dict[str, dict[str, float]] = {}
RUNS = {"good": GOOD, "poor": POOR, "nothing": NOTHING}


def test_compare_equals_evaluate_over_the_counted_queries():
    for keep, queries in ((False, "1245"), (True, "12345")):
        comparison = compare(
            RUNS, QRELS, ["AP", "P@1"], baseline="poor", keep_without_positive=keep
        )
        assert comparison.queries == tuple(queries)
        assert (comparison.without_positive, comparison.excluded) == (1, not keep)
        assert comparison.missing == {"good": 0, "poor": int(keep), "nothing": len(queries)}
        for row, (name, run) in enumerate(RUNS.items()):
            expected = evaluate(run, {query: QRELS[query] for query in queries}, ["AP", "P@1"])
            for measure in ("AP", "P@1"):
                values = dict(zip(comparison.queries, comparison.values[measure][row], strict=True))
                assert values == expected.per_query[measure]
                score = comparison.scores[measure][name]
                assert score.value == pytest.approx(expected.means[measure])
                assert score.low <= score.value <= score.high
                if name == "poor":
                    assert score.difference is None
                else:
                    less = comparison.scores[measure]["poor"].value
                    assert score.difference.value == pytest.approx(score.value - less)
                    assert score.difference.low <= score.difference.value <= score.difference.high
        tests = [comparison.scores["AP"][name].difference for name in ("good", "nothing")]
        assert [difference.adjusted for difference in tests] == holm(
            [difference.p for difference in tests]
        )


def test_unknown_baseline_and_missing_judgments_are_refused():
    assert compare(RUNS, QRELS, ["AP"]).baseline == "good"
    with pytest.raises(ConfigError, match="expected one of the runs"):
        compare(RUNS, QRELS, ["AP"], baseline="best")
    with pytest.raises(BadInputError, match="a grade of at least 1, found none among 1"):
        compare(RUNS, {"3": {"a": 0}}, ["AP"])


def test_difference_counts_better_and_worse_queries_and_names_the_most_different():
    comparison = compare(RUNS, QRELS, ["P@1"])
    difference = comparison.scores["P@1"]["poor"].difference
    # Better on 2, where b is relevant; worse on 1 and 4; equal on 5.
    assert (difference.better, difference.worse) == (1, 2)
    assert comparison.most_different("P@1", "poor", 10) == [("1", -1.0), ("2", 1.0), ("4", -1.0)]
    assert comparison.most_different("P@1", "poor", 1) == [("1", -1.0)]


def test_run_without_a_relevant_hit_is_named():
    other_ids = {query: {"notes/a": 1.0} for query in "1245"}
    lines = compare({"good": GOOD, "other": other_ids}, QRELS, ["AP"]).text().splitlines()
    message = "no hit is judged relevant: compare its ids with those of the judgments"
    assert [line for line in lines if message in line] == [f"other: {message}"]


def test_seeds_equal_to_the_baseline_have_no_difference():
    # A third of 0.1 three times is not 0.1 to the last digit.
    once = np.full(40, 0.1)
    comparison = compare_systems(
        {"one": {"AP": once[None]}, "three": {"AP": np.stack([once] * 3)}},
        tuple(map(str, range(40))),
        without_positive=0,
        excluded=True,
        missing={"one": 0, "three": 0},
        baseline=None,
        resampling=Resampling(1000),
    )
    single, triple = comparison.scores["AP"].values()
    assert (single.spread, triple.spread) == (None, 0.0)
    assert (triple.difference.value, triple.difference.p, triple.difference.better) == (0.0, 1.0, 0)
    np.testing.assert_array_equal(*comparison.values["AP"])
    assert comparison.most_different("AP", "three", 5) == []


@pytest.mark.parametrize(("queries", "warned"), [(19, True), (20, False)])
def test_intervals_of_few_queries_come_with_a_warning(queries, warned):
    qrels = {str(number): {"a": 1} for number in range(queries)}
    text = compare({"run": {query: {"a": 1.0} for query in qrels}}, qrels, ["AP"]).text()
    assert ("intervals from fewer than 20 queries are often too short" in text) == warned
