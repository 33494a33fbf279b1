"""Comparing runs: what is counted, which runs are compared, which queries differ."""

import numpy as np
import pytest

from eval.metrics.comparison import compare, compare_systems
from eval.metrics.measures import evaluate, run_values
from eval.metrics.significance import holm
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


def test_queries_without_a_relevant_document_are_left_out_and_counted():
    found = compare(RUNS, QRELS, ["AP"])
    assert found.queries == ("1", "2", "4", "5")
    assert (found.without_positive, found.excluded) == (1, True)
    kept = compare(RUNS, QRELS, ["AP"], keep_without_positive=True)
    assert kept.queries == ("1", "2", "3", "4", "5")
    assert (kept.without_positive, kept.excluded) == (1, False)
    assert kept.values["AP"][0, 2] == 0
    assert kept.scores["AP"]["good"].value == pytest.approx(
        4 / 5 * found.scores["AP"]["good"].value
    )


def test_values_and_means_are_those_of_evaluate():
    judged = {query: grades for query, grades in QRELS.items() if query != "3"}
    found = compare(RUNS, QRELS, ["AP", "P@1"])
    for row, (name, run) in enumerate(RUNS.items()):
        expected = evaluate(run, judged, ["AP", "P@1"])
        for measure in ("AP", "P@1"):
            values = dict(zip(found.queries, found.values[measure][row], strict=True))
            assert values == expected.per_query[measure]
            score = found.scores[measure][name]
            assert score.value == pytest.approx(expected.means[measure])
            assert score.low <= score.value <= score.high


def test_the_first_run_is_the_baseline_unless_another_is_named():
    first = compare(RUNS, QRELS, ["AP"])
    assert first.missing == {"good": 0, "poor": 0, "nothing": 4}
    assert first.scores["AP"]["good"].difference is None
    found = compare(RUNS, QRELS, ["AP"], baseline="poor").scores["AP"]
    assert found["poor"].difference is None
    difference = found["good"].difference
    assert difference.value == pytest.approx(found["good"].value - found["poor"].value)
    assert difference.low <= difference.value <= difference.high
    with pytest.raises(ConfigError, match="expected one of the runs"):
        compare(RUNS, QRELS, ["AP"], baseline="best")


def test_p_values_are_corrected_over_the_runs_of_a_measure():
    found = compare(RUNS, QRELS, ["AP"]).scores["AP"]
    differences = [found[name].difference for name in ("poor", "nothing")]
    assert [one.adjusted for one in differences] == holm([one.p for one in differences])


def test_wins_and_losses_are_counted_query_by_query_and_the_queries_that_differ_most_named():
    found = compare(RUNS, QRELS, ["P@1"])
    difference = found.scores["P@1"]["poor"].difference
    # Better on 2, where b is relevant; worse on 1 and 4; equal on 5.
    assert (difference.better, difference.worse) == (1, 2)
    assert found.most_different("P@1", "poor", 10) == [("1", -1.0), ("2", 1.0), ("4", -1.0)]
    assert found.most_different("P@1", "poor", 1) == [("1", -1.0)]


def test_judgments_without_a_relevant_document_are_refused():
    with pytest.raises(BadInputError, match="at least one query"):
        compare(RUNS, {"3": {"a": 0}}, ["AP"])


def test_seeds_that_all_equal_the_baseline_differ_in_nothing():
    # A third of 0.1 three times is not 0.1 to the last digit.
    qrels = {str(i): {f"d{j}": int(j % (i + 2) == 1) for j in range(30)} for i in range(40)}
    run = {
        query: {document: float((int(query) * 7 + j * 11) % 29) for j, document in enumerate(held)}
        for query, held in qrels.items()
    }
    once = run_values(run, qrels, ["AP", "RR"])
    systems = {
        name: {measure: np.stack([values] * seeds) for measure, values in once.items()}
        for name, seeds in (("one", 1), ("three", 3))
    }
    found = compare_systems(
        systems,
        tuple(qrels),
        without_positive=0,
        excluded=True,
        missing=dict.fromkeys(systems, 0),
        baseline=None,
        resamples=1000,
        seed=0,
    )
    for measure in ("AP", "RR"):
        difference = found.scores[measure]["three"].difference
        assert difference is not None
        assert (difference.value, difference.p, difference.better) == (0.0, 1.0, 0)
        assert found.scores[measure]["three"].spread == 0.0
        assert found.scores[measure]["one"].spread is None
        np.testing.assert_array_equal(*found.values[measure])
        assert found.most_different(measure, "three", 5) == []


@pytest.mark.parametrize(("queries", "warned"), [(19, True), (20, False)])
def test_intervals_of_few_queries_come_with_a_warning(queries, warned):
    qrels = {str(number): {"a": 1} for number in range(queries)}
    text = compare({"run": {query: {"a": 1.0} for query in qrels}}, qrels, ["AP"]).text()
    assert ("intervals from fewer than 20 queries are often too short" in text) == warned
