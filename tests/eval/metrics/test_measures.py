"""Measures of runs and of pools against trec_eval, and on cases worked out by hand."""

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from eval.datasets.question_set import Question
from eval.metrics import measures
from eval.metrics.measures import PoolMeasures, canonical_measures, evaluate
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


def random_run(seed, queries=25, longest=300):
    """Return a random run and qrels with ties, empty rankings and unjudged documents."""
    draw = np.random.default_rng(seed)
    run, qrels = {}, {}
    for number in range(queries):
        documents = [f"d{i}" for i in range(int(draw.integers(2, longest)))]
        judged = draw.choice(documents, size=int(draw.integers(1, len(documents))), replace=False)
        qrels[f"q{number}"] = {str(id_): int(draw.integers(-2, 4)) for id_ in judged}
        # pytrec_eval does not return where every grade is negative.
        qrels[f"q{number}"][str(judged[0])] = int(draw.integers(0, 3))
        ranked = draw.permutation(documents)[: int(draw.integers(0, len(documents)))]
        steps = draw.choice([1, 2, 5, 1000, 10**8])
        if number % 6:
            run[f"q{number}"] = {str(id_): float(draw.integers(steps)) / 7 for id_ in ranked}
    run["not judged"] = {"d1": 1.0}
    return run, qrels


def pools_of(run, qrels):
    """Return the run as pools and the scores of their candidates."""
    pools, scores = [], []
    for query, grades in qrels.items():
        ids = sorted(run.get(query, {}), reverse=True)
        pools.append(Question(query, "?", tuple(ids), grades))
        scores += [run[query][id_] for id_ in ids]
    return pools, np.array(scores, np.float64)


def assert_agrees(run, qrels):
    """Assert that runs and pools have the values of trec_eval."""
    ours = evaluate(run, qrels, list(REFERENCE))
    pools, scores = pools_of(run, qrels)
    pooled = PoolMeasures(pools, list(REFERENCE))(scores)
    answered = {query: scores for query, scores in run.items() if scores}
    for name, (family, key) in REFERENCE.items():
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {family}).evaluate(answered)
        expected = {query: theirs.get(query, {key: 0.0})[key] for query in qrels}
        assert ours.per_query[name] == pytest.approx(expected, abs=1e-9), name
        assert ours.means[name] == pytest.approx(np.mean(list(expected.values())), abs=1e-9), name
        assert list(ours.per_query[name]) == list(qrels)
        assert pooled[name].tolist() == list(ours.per_query[name].values())


@pytest.mark.parametrize("seed", range(15))
def test_long_runs_with_many_ties_and_empty_ones_agree_with_trec_eval(seed):
    assert_agrees(*random_run(seed))


# pytrec_eval reads memory that is not its own where every grade of a query is negative.
IDS = st.sampled_from(["a", "b", "B", "é", "z", "文", "a1", "a10", "a2", "\U0001f600"])
CLOSE = st.sampled_from(
    [0.0, -0.0, 1.0, 1 + 1e-12, 1 + 1e-9, 1 + 1e-6, -1.0, 1e-50, 1e39, 1e300, 0.1]
)


@given(
    st.dictionaries(st.sampled_from("uvw"), st.dictionaries(IDS, CLOSE), min_size=1),
    st.dictionaries(
        st.sampled_from("uvw"),
        st.dictionaries(IDS, st.integers(-2, 5)).map(lambda grades: grades | {"judged": 0}),
        min_size=1,
    ),
)
def test_ties_close_scores_and_any_identifiers_agree_with_trec_eval(run, qrels):
    assert_agrees(run, qrels)


@pytest.mark.parametrize("cells", [1, 40, 3000])
def test_measures_do_not_depend_on_the_size_of_query_groups(monkeypatch, cells):
    run, qrels = random_run(99)
    whole = evaluate(run, qrels, list(REFERENCE))
    monkeypatch.setattr(measures, "_CELLS", cells)
    assert evaluate(run, qrels, list(REFERENCE)) == whole


def test_infinite_scores_rank_first_and_last():
    run = {"q": {"a": float("-inf"), "b": 0.0, "c": float("inf"), "d": -1e30, "e": 1e300}}
    for rank, document in enumerate("ecbda", 1):
        assert evaluate(run, {"q": {document: 1}}, ["RR"]).means["RR"] == 1 / rank
    # The lowest score still ranks before what pads a matrix.
    pools = [Question(ids, "?", tuple(ids), {"a": 1}) for ids in ("ba", "edcba")]
    assert PoolMeasures(pools, ["RR"])(np.full(7, -np.inf))["RR"].tolist() == [1 / 2, 1 / 5]


def test_reciprocal_rank_cutoffs_and_negative_grades_match_hand_values():
    run, names = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, ("nDCG@10", "R@100", "AP", "RR")
    assert evaluate(run, {"q": {"a": -2, "b": -1}}, names).means == dict.fromkeys(names, 0.0)
    evaluation = evaluate(
        run, {"q": {"b": 2, "c": 1, "x": 1, "negative": -1}}, ["RR", "RR@1", "RR@2"]
    )
    assert evaluation.means == {"RR": 1 / 2, "RR@1": 0.0, "RR@2": 1 / 2}


def test_stacked_score_arrays_are_measured_independently():
    pools, scores = pools_of(*random_run(3))
    prepared = PoolMeasures(pools, ["AP", "nDCG@10"])
    several = np.random.default_rng(0).integers(0, 9, (2, 3, len(scores))).astype(float)
    for name, values in prepared(several).items():
        assert values.shape == (2, 3, len(pools))
        for place in np.ndindex(2, 3):
            np.testing.assert_array_equal(values[place], prepared(several[place])[name])


def test_measure_aliases_resolve_to_canonical_names():
    names = ["map", "mrr", "ndcg@10", "P@1", "AP", "recall@100", "precision@5", "SUCCESS@1"]
    expected = ("AP", "RR", "nDCG@10", "P@1", "R@100", "P@5", "Success@1")
    assert canonical_measures(names) == expected
    evaluation = evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}}, names)
    assert tuple(evaluation.means) == tuple(evaluation.per_query) == expected


@pytest.mark.parametrize(
    "name", ["", "ndgc@10", "AP@", "P", "R", "P@0", "P@-1", "R@ten", "nDCG@", "P@05", "nDCG@1.5"]
)
def test_unknown_measure_is_refused_with_the_valid_names(name):
    with pytest.raises(ConfigError) as caught:
        canonical_measures(["AP", name])
    for valid_name in ("nDCG", "AP", "RR", "P@k", "R@k", repr(name)):
        assert valid_name in str(caught.value)


def test_the_first_query_with_a_nan_is_named_and_unused_queries_are_not_read():
    bad = {"x": float("nan")}
    run = {"empty": {}, "a": {"x": 1.0}, "b": bad | {"y": 1.0}, "c": bad, "no": bad}
    qrels = {query: {"x": 1} for query in ("missing", "empty", "a", "b", "c")}
    with pytest.raises(BadInputError, match=r"^query b: expected scores that are numbers"):
        evaluate(run, qrels)
    assert evaluate(run, {"a": {"x": 1}}).means["RR"] == 1.0


def test_evaluation_without_questions_is_refused():
    with pytest.raises(BadInputError, match="at least one question"):
        PoolMeasures([], ["AP"])
    with pytest.raises(BadInputError, match="at least one query"):
        evaluate({"q": {"a": 1.0}}, {})
