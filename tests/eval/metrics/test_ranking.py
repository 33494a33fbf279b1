from __future__ import annotations

import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from eval.metrics.ranking import evaluate
from retriever.errors import BadInputError, ConfigError

# Our name → trec_eval's family with cutoffs, and the key of its result.
REFERENCE = {
    "nDCG": ("ndcg", "ndcg"),
    "nDCG@1": ("ndcg_cut.1", "ndcg_cut_1"),
    "nDCG@10": ("ndcg_cut.10", "ndcg_cut_10"),
    "AP": ("map", "map"),
    "AP@4": ("map_cut.4", "map_cut_4"),
    "RR": ("recip_rank", "recip_rank"),
    "P@5": ("P.5", "P_5"),
    "P@100": ("P.100", "P_100"),
    "R@3": ("recall.3", "recall_3"),
    "Success@1": ("success.1", "success_1"),
    "Success@5": ("success.5", "success_5"),
    "R@10": ("recall.10", "recall_10"),
}


def assert_agrees(run, qrels):
    ours = evaluate(run, qrels, list(REFERENCE))
    for name, (family, key) in REFERENCE.items():
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {family}).evaluate(run)
        expected = {query: theirs.get(query, {key: 0.0})[key] for query in qrels}
        assert ours.per_query[name] == pytest.approx(expected, abs=1e-9), name
        mean = sum(expected.values()) / len(qrels)
        assert ours.means[name] == pytest.approx(mean, abs=1e-9), name
        assert list(ours.per_query[name]) == list(qrels)


@pytest.mark.parametrize("seed", range(20))
def test_random_runs_agree_with_trec_eval(seed):
    rng = np.random.default_rng(seed)
    documents = [f"d{i}" for i in range(60)]
    run, qrels = {}, {}
    for number in range(12):
        judged = rng.choice(documents, size=int(rng.integers(1, 25)), replace=False)
        qrels[f"q{number}"] = {str(d): int(rng.integers(-1, 4)) for d in judged}
        qrels[f"q{number}"][str(judged[0])] = 0
        if number % 4 == 3:
            continue
        found = rng.choice(documents, size=int(rng.integers(1, 50)), replace=False)
        scores = rng.integers(0, 8, len(found)) / 4 if number % 2 else rng.normal(size=len(found))
        run[f"q{number}"] = {str(d): float(s) for d, s in zip(found, scores, strict=True)}
    run["unjudged"] = {"d1": 1.0}
    assert_agrees(run, qrels)


def test_a_constant_scorer_agrees_with_trec_eval():
    run = {"q": {f"d{i}": 1.0 for i in range(30)}}
    assert_agrees(run, {"q": {f"d{i}": i % 3 for i in range(40)}})


# pytrec_eval reads memory that is not its own where every grade of a query is negative.
IDS = st.sampled_from(["a", "b", "B", "é", "z", "文", "a1", "a10", "a2", "\U0001f600"])
CLOSE = st.sampled_from([0.0, 1.0, 1 + 1e-12, 1 + 1e-9, 1 + 1e-6, -1.0, 1e-50, 1e39, 1e300, 0.1])


@given(
    st.dictionaries(st.sampled_from("uvw"), st.dictionaries(IDS, CLOSE, min_size=1), min_size=1),
    st.dictionaries(
        st.sampled_from("uvw"),
        st.dictionaries(IDS, st.integers(-2, 5)).map(lambda grades: grades | {"judged": 0}),
        min_size=1,
    ),
)
def test_ties_close_scores_and_any_identifiers_agree_with_trec_eval(run, qrels):
    assert_agrees(run, qrels)


def test_values_worked_out_by_hand():
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    result = evaluate(run, {"q": {"b": 2, "c": 1, "x": 1}}, ["nDCG@2", "AP", "RR", "P@2", "R@2"])
    assert result.means == pytest.approx(
        {
            "nDCG@2": (2 / math.log2(3)) / (2 + 1 / math.log2(3)),
            "AP": (1 / 2 + 2 / 3) / 3,
            "RR": 1 / 2,
            "P@2": 1 / 2,
            "R@2": 1 / 3,
        }
    )


def test_rr_with_a_cutoff_is_zero_beyond_it():
    run = {"q": {"a": 3.0, "b": 2.0}}
    means = evaluate(run, {"q": {"b": 1}}, ["RR@1", "RR@2"]).means
    assert means == {"RR@1": 0.0, "RR@2": 0.5}


def test_equal_scores_rank_by_document_descending():
    run = {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}
    assert evaluate(run, {"q": {"c": 1}}, ["P@1"]).means["P@1"] == 1.0
    assert evaluate(run, {"q": {"a": 1}}, ["RR"]).means["RR"] == pytest.approx(1 / 3)


def test_a_negative_grade_gains_nothing():
    result = evaluate({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": -2, "b": -1}})
    assert set(result.means.values()) == {0.0}
    result = evaluate({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": -2, "b": 1}}, ["nDCG@2", "P@2"])
    assert result.means == pytest.approx({"nDCG@2": 1 / math.log2(3), "P@2": 0.5})


def test_missing_queries_and_queries_without_relevant_documents_count_as_zero():
    run = {"found": {"a": 1.0}, "none": {"a": 1.0}, "extra": {"a": 1.0}}
    qrels = {"found": {"a": 1}, "none": {"a": 0}, "missing": {"a": 1}}
    result = evaluate(run, qrels)
    for name, values in result.per_query.items():
        assert values == {"found": 1.0, "none": 0.0, "missing": 0.0}, name
        assert result.means[name] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "name", ["", "ndgc@10", "AP@", "P", "R", "P@0", "P@-1", "R@ten", "nDCG@", "P@05", "nDCG@1.5"]
)
def test_an_unknown_measure_is_refused_and_the_error_lists_what_would_work(name):
    with pytest.raises(ConfigError) as caught:
        evaluate({}, {"q": {"a": 1}}, [name])
    for known in ("nDCG", "AP", "RR", "P@k", "R@k", repr(name)):
        assert known in str(caught.value)


def test_empty_qrels_and_scores_that_are_not_numbers_are_refused():
    with pytest.raises(BadInputError, match="at least one query"):
        evaluate({"q": {"a": 1.0}}, {})
    with pytest.raises(BadInputError, match=r"query q: .*NaN"):
        evaluate({"q": {"a": math.nan}}, {"q": {"a": 1}})
