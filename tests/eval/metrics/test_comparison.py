"""Comparing runs: what is counted, which runs are compared, which queries differ."""

from __future__ import annotations

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


def test_missing_queries_are_counted_for_each_run():
    assert compare(RUNS, QRELS, ["AP"]).missing == {"good": 0, "poor": 0, "nothing": 4}


def test_the_first_run_is_the_baseline_unless_another_is_named():
    assert compare(RUNS, QRELS, ["AP"]).scores["AP"]["good"].difference is None
    found = compare(RUNS, QRELS, ["AP"], baseline="poor")
    assert found.scores["AP"]["poor"].difference is None
    difference = found.scores["AP"]["good"].difference
    assert difference is not None
    assert difference.value == pytest.approx(
        found.scores["AP"]["good"].value - found.scores["AP"]["poor"].value
    )
    assert difference.low <= difference.value <= difference.high
    with pytest.raises(ConfigError, match="expected one of the runs"):
        compare(RUNS, QRELS, ["AP"], baseline="best")


def test_p_values_are_corrected_over_the_runs_of_a_measure():
    found = compare(RUNS, QRELS, ["AP"]).scores["AP"]
    differences = [found[name].difference for name in ("poor", "nothing")]
    assert [one.adjusted for one in differences] == holm([one.p for one in differences])


def test_wins_and_losses_are_counted_query_by_query():
    found = compare(RUNS, QRELS, ["P@1"]).scores["P@1"]["poor"].difference
    assert found is not None
    # Better on 2, where b is relevant; worse on 1 and 4; equal on 5.
    assert (found.better, found.worse) == (1, 2)


def test_the_queries_that_differ_most_come_first_and_equal_ones_not_at_all():
    found = compare(RUNS, QRELS, ["P@1"])
    assert found.most_different("P@1", "poor", 10) == [("1", -1.0), ("2", 1.0), ("4", -1.0)]
    assert found.most_different("P@1", "poor", 1) == [("1", -1.0)]


def test_a_run_that_scores_every_document_alike_gets_no_credit():
    qrels = {str(number): {"x": 1, "y": 0, "z": 0} for number in range(6)}
    constant = {query: dict.fromkeys("xyz", 1.0) for query in qrels}
    # Ties are broken by document descending: the relevant one comes last.
    assert compare({"constant": constant}, qrels, ["RR"]).scores["RR"]["constant"].value == (
        pytest.approx(1 / 3)
    )


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
    found = compare_systems(
        {
            "one": {measure: values[None] for measure, values in once.items()},
            "three": {measure: np.stack([values] * 3) for measure, values in once.items()},
        },
        tuple(qrels),
        without_positive=0,
        excluded=True,
        missing={"one": 0, "three": 0},
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
