"""Runs that try the array form of the measures: sizes, chunks, ties between many, gaps."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval

from eval.metrics import ranking as metrics
from eval.metrics.measures import (
    canonical_measures,
    dcg,
    descending_keys,
    precision_sums,
    rank_columns,
    reciprocal_ranks,
)
from eval.metrics.ranking import evaluate
from retriever.errors import BadInputError, ConfigError

# Our name → trec_eval's family with cutoffs, and the key of its result.
REFERENCE = {
    "nDCG": ("ndcg", "ndcg"),
    "nDCG@3": ("ndcg_cut.3", "ndcg_cut_3"),
    "AP": ("map", "map"),
    "AP@4": ("map_cut.4", "map_cut_4"),
    "RR": ("recip_rank", "recip_rank"),
    "P@5": ("P.5", "P_5"),
    "R@100": ("recall.100", "recall_100"),
    "Success@1": ("success.1", "success_1"),
}


def made(seed, queries=25, longest=300):
    """Runs with few or many ties, empty or missing, and documents without a judgment."""
    draw = np.random.default_rng(seed)
    run, qrels = {}, {}
    for number in range(queries):
        documents = [f"d{i}" for i in range(int(draw.integers(2, longest)))]
        judged = draw.choice(documents, size=int(draw.integers(1, len(documents))), replace=False)
        qrels[f"q{number}"] = {str(one): int(draw.integers(-2, 4)) for one in judged}
        # pytrec_eval does not return where every grade is negative.
        qrels[f"q{number}"][str(judged[0])] = int(draw.integers(0, 3))
        found = draw.permutation(documents)[: int(draw.integers(0, len(documents)))]
        steps = draw.choice([1, 2, 5, 1000, 10**8])
        if number % 6:
            run[f"q{number}"] = {str(one): float(draw.integers(steps)) / 7 for one in found}
    run["not judged"] = {"d1": 1.0}
    return run, qrels


def assert_agrees(run, qrels):
    ours = evaluate(run, qrels, list(REFERENCE))
    answered = {query: scores for query, scores in run.items() if scores}
    for name, (family, key) in REFERENCE.items():
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {family}).evaluate(answered)
        expected = {query: theirs.get(query, {key: 0.0})[key] for query in qrels}
        assert ours.per_query[name] == pytest.approx(expected, abs=1e-9), name
        assert ours.means[name] == pytest.approx(np.mean(list(expected.values())), abs=1e-9), name


@pytest.mark.parametrize("seed", range(15))
def test_long_runs_with_many_ties_and_empty_ones_agree_with_trec_eval(seed):
    assert_agrees(*made(seed))


@pytest.mark.parametrize("cells", [1, 40, 700, 5000])
def test_the_size_of_a_chunk_does_not_change_a_value(monkeypatch, cells):
    run, qrels = made(99)
    whole = evaluate(run, qrels, list(REFERENCE))
    monkeypatch.setattr(metrics, "_CHUNK", cells)
    assert evaluate(run, qrels, list(REFERENCE)) == whole


@pytest.mark.parametrize("relevant", [["d0"], ["d99"], ["d50", "d7", "d51"]])
def test_a_constant_scorer_gets_what_the_order_of_ids_gives(relevant):
    documents = [f"d{i}" for i in range(100)]
    order = sorted(documents, reverse=True)
    ranks = sorted(order.index(one) + 1 for one in relevant)
    # The order of the run and of the judgments must not matter.
    for listed in (documents, documents[::-1], order):
        run = {"q": dict.fromkeys(listed, 0.25)}
        found = evaluate(run, {"q": dict.fromkeys(relevant, 1)}, ["RR", "AP"]).means
        assert found["RR"] == 1 / ranks[0]
        average = sum(number / rank for number, rank in enumerate(ranks, 1)) / len(ranks)
        assert found["AP"] == pytest.approx(average, abs=1e-12)


def test_a_perfect_ranking_scores_exactly_one():
    draw = np.random.default_rng(4)
    grades = {f"q{n}": {f"d{i}": int(draw.integers(4)) for i in range(50 + n)} for n in range(40)}
    run = {
        query: {one: float(grade) for one, grade in row.items()} for query, row in grades.items()
    }
    for name, values in evaluate(run, grades, ["nDCG", "nDCG@10", "AP", "RR"]).per_query.items():
        assert set(values.values()) == {1.0}, name


def test_the_first_query_with_a_nan_is_named_and_unused_queries_are_not_read():
    nan = float("nan")
    run = {
        "empty": {},
        "a": {"x": 1.0},
        "b": {"x": 1.0, "y": nan},
        "c": {"x": nan},
        "no": {"x": nan},
    }
    qrels = {query: {"x": 1} for query in ("missing", "empty", "a", "b", "c")}
    with pytest.raises(BadInputError, match=r"^query b: expected scores that are numbers"):
        evaluate(run, qrels)
    assert evaluate(run, {"a": {"x": 1}}).means["RR"] == 1.0


def test_infinite_scores_rank_first_and_last():
    run = {"q": {"a": float("-inf"), "b": 0.0, "c": float("inf"), "d": -1e30, "e": 1e300}}
    for rank, document in enumerate("ecbda", 1):
        assert evaluate(run, {"q": {document: 1}}, ["RR"]).means["RR"] == 1 / rank


def test_measures_have_one_name_and_are_read_under_others():
    asked = ["map", "mrr", "ndcg@10", "P@1", "AP", "recall@100", "precision@5", "SUCCESS@1"]
    expected = ("AP", "RR", "nDCG@10", "P@1", "R@100", "P@5", "Success@1")
    assert canonical_measures(asked) == expected
    found = evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}}, asked)
    assert tuple(found.means) == tuple(found.per_query) == expected
    with pytest.raises(ConfigError, match="unknown measure 'magic'"):
        canonical_measures(["AP", "magic"])


def test_totals_of_a_matrix_worked_out_by_hand():
    gains = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [-3, 0, 0, 4]])
    assert reciprocal_ranks(gains).tolist() == [1 / 2, 0, 1 / 4]
    assert reciprocal_ranks(gains, 3).tolist() == [1 / 2, 0, 0]
    assert precision_sums(gains).tolist() == [1 / 2 + 2 / 4, 0, 1 / 4]
    assert precision_sums(gains, 2).tolist() == [1 / 2, 0, 0]
    expected = [2 / np.log2(3) + 1 / np.log2(5), 0, 4 / np.log2(5)]
    np.testing.assert_allclose(dcg(gains), expected, rtol=1e-15)
    np.testing.assert_array_equal(dcg(gains, 1), 0)


def test_keys_order_32_bit_floats_and_equal_keys_keep_their_columns():
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2**32, (50, 40), dtype=np.uint32)
    scores = bits.view(np.float32)
    scores = np.where(np.isnan(scores), np.float32(0), scores)
    scores[:, 30:] = draw.choice([0.0, -0.0, np.inf, -np.inf, 1.0], (50, 10))
    expected = np.argsort(-scores, axis=1, kind="stable")
    np.testing.assert_array_equal(rank_columns(descending_keys(scores)), expected)
