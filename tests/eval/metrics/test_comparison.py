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


def test_values_scores_and_tests_are_those_of_evaluate_over_the_queries_that_count():
    for kept, queries in ((False, "1245"), (True, "12345")):
        found = compare(RUNS, QRELS, ["AP", "P@1"], baseline="poor", keep_without_positive=kept)
        assert found.queries == tuple(queries)
        assert (found.without_positive, found.excluded) == (1, not kept)
        assert found.missing == {"good": 0, "poor": int(kept), "nothing": len(queries)}
        for row, (name, run) in enumerate(RUNS.items()):
            expected = evaluate(run, {query: QRELS[query] for query in queries}, ["AP", "P@1"])
            for measure in ("AP", "P@1"):
                values = dict(zip(found.queries, found.values[measure][row], strict=True))
                assert values == expected.per_query[measure]
                score = found.scores[measure][name]
                assert score.value == pytest.approx(expected.means[measure])
                assert score.low <= score.value <= score.high
                if name == "poor":
                    assert score.difference is None
                else:
                    less = found.scores[measure]["poor"].value
                    assert score.difference.value == pytest.approx(score.value - less)
                    assert score.difference.low <= score.difference.value <= score.difference.high
        tests = [found.scores["AP"][name].difference for name in ("good", "nothing")]
        assert [one.adjusted for one in tests] == holm([one.p for one in tests])


def test_what_cannot_be_compared_is_refused():
    assert compare(RUNS, QRELS, ["AP"]).baseline == "good"
    with pytest.raises(ConfigError, match="expected one of the runs"):
        compare(RUNS, QRELS, ["AP"], baseline="best")
    with pytest.raises(BadInputError, match="a grade of at least 1, found none among 1"):
        compare(RUNS, {"3": {"a": 0}}, ["AP"])


def test_wins_and_losses_are_counted_query_by_query_and_the_queries_that_differ_most_named():
    found = compare(RUNS, QRELS, ["P@1"])
    difference = found.scores["P@1"]["poor"].difference
    # Better on 2, where b is relevant; worse on 1 and 4; equal on 5.
    assert (difference.better, difference.worse) == (1, 2)
    assert found.most_different("P@1", "poor", 10) == [("1", -1.0), ("2", 1.0), ("4", -1.0)]
    assert found.most_different("P@1", "poor", 1) == [("1", -1.0)]


def test_seeds_that_all_equal_the_baseline_differ_in_nothing():
    # A third of 0.1 three times is not 0.1 to the last digit.
    once = np.full(40, 0.1)
    found = compare_systems(
        {"one": {"AP": once[None]}, "three": {"AP": np.stack([once] * 3)}},
        tuple(map(str, range(40))),
        without_positive=0,
        excluded=True,
        missing={"one": 0, "three": 0},
        baseline=None,
        resampling=Resampling(1000),
    )
    one, three = found.scores["AP"].values()
    assert (one.spread, three.spread) == (None, 0.0)
    assert (three.difference.value, three.difference.p, three.difference.better) == (0.0, 1.0, 0)
    np.testing.assert_array_equal(*found.values["AP"])
    assert found.most_different("AP", "three", 5) == []


@pytest.mark.parametrize(("queries", "warned"), [(19, True), (20, False)])
def test_intervals_of_few_queries_come_with_a_warning(queries, warned):
    qrels = {str(number): {"a": 1} for number in range(queries)}
    text = compare({"run": {query: {"a": 1.0} for query in qrels}}, qrels, ["AP"]).text()
    assert ("intervals from fewer than 20 queries are often too short" in text) == warned
