from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from eval.datasets.question_set import Question
from eval.metrics import pools as pool_measures
from eval.metrics.pools import PoolMeasures
from eval.metrics.ranking import evaluate
from retriever.errors import BadInputError, ConfigError

MEASURES = ["AP", "AP@3", "RR", "RR@2", "P@1", "P@5", "R@2", "Success@2", "nDCG", "nDCG@10"]
SCORES = st.sampled_from([0.0, -0.0, 1.0, 1 + 1e-12, 1 + 1e-6, -1.0, 1e-50, 1e300, -np.inf, np.inf])


def by_evaluate(questions, scores, measures=MEASURES):
    left = iter(scores.tolist())
    run = {one.id: {passage: next(left) for passage in one.candidates} for one in questions}
    qrels = {one.id: one.grades for one in questions}
    found = evaluate(run, qrels, measures).per_query
    return {name: list(values.values()) for name, values in found.items()}


def assert_equals_evaluate(questions, scores):
    found = PoolMeasures(questions, MEASURES)(scores)
    assert list(found) == MEASURES
    for name, values in by_evaluate(questions, scores).items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-12, err_msg=name)


def question(number, candidates, grades):
    return Question(f"q{number}", "?", tuple(sorted(candidates, reverse=True)), grades)


def made(seed, questions=60, largest=90):
    draw = np.random.default_rng(seed)
    every = [f"p{i}" for i in range(120)]
    made = []
    for number in range(questions):
        size = int(draw.choice([0, 1, 3, 10, 33, int(draw.integers(largest))]))
        judged = draw.choice(every, int(draw.integers(1, 40)), replace=False)
        grades = {str(one): int(draw.integers(-1, 4)) for one in judged}
        pool = [str(one) for one in draw.choice(every, size, replace=False)]
        made.append(question(number, pool, grades | {str(judged[0]): 1}))
    pairs = sum(len(one.candidates) for one in made)
    return made, draw.integers(0, 9, pairs) / 8


@st.composite
def pools_with_scores(draw):
    passages = st.sampled_from(["a", "b", "B", "é", "z", "文", "a1", "a10", "a2"])
    pool = st.tuples(st.sets(passages), st.dictionaries(passages, st.integers(-2, 5), min_size=1))
    pools = draw(st.lists(pool, min_size=1, max_size=6))
    questions = [question(number, *one) for number, one in enumerate(pools)]
    pairs = sum(len(one.candidates) for one in questions)
    return questions, np.array(draw(st.lists(SCORES, min_size=pairs, max_size=pairs)), np.float64)


@given(pools_with_scores())
def test_it_equals_evaluate_whatever_the_pools_and_ties(case):
    assert_equals_evaluate(*case)


@pytest.mark.parametrize("seed", range(5))
def test_pools_of_many_sizes_equal_evaluate_and_trec_eval(seed):
    questions, scores = made(seed)
    assert_equals_evaluate(questions, scores)
    found = PoolMeasures(questions, ["AP", "nDCG"])(scores)
    left = iter(scores.tolist())
    run = {one.id: {passage: next(left) for passage in one.candidates} for one in questions}
    answered = {query: row for query, row in run.items() if row}
    qrels = {one.id: dict(one.grades) for one in questions}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg"}).evaluate(answered)
    for name, key in (("AP", "map"), ("nDCG", "ndcg")):
        expected = [theirs.get(one.id, {key: 0.0})[key] for one in questions]
        assert found[name] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("cells", [1, 100, 3000])
def test_how_questions_are_grouped_does_not_change_a_value(monkeypatch, cells):
    questions, scores = made(7)
    whole = PoolMeasures(questions, MEASURES)(scores)
    monkeypatch.setattr(pool_measures, "_CELLS", cells)
    monkeypatch.setattr(pool_measures, "_SMALL", 1)
    for name, values in PoolMeasures(questions, MEASURES)(scores).items():
        np.testing.assert_array_equal(values, whole[name])


def test_scores_of_one_call_leave_nothing_for_the_next():
    questions, scores = made(3)
    measures = PoolMeasures(questions, MEASURES)
    first = measures(scores)
    other = measures(-scores)
    assert not np.array_equal(first["AP"], other["AP"])
    np.testing.assert_array_equal(measures(scores)["AP"], first["AP"])


def test_equal_scores_keep_the_order_of_the_candidates():
    pool = question(0, ["a", "b", "c"], {"b": 1})
    assert PoolMeasures([pool], ["RR"])(np.zeros(3))["RR"].tolist() == [1 / 2]
    assert PoolMeasures([pool], ["RR"])(np.full(3, -np.inf))["RR"].tolist() == [1 / 2]


def test_relevant_passages_outside_the_pool_count_in_the_divisor():
    pool = question(0, ["a", "b"], {"a": 1, "elsewhere": 1, "negative": -1})
    found = PoolMeasures([pool], ["AP", "R@2"])(np.array([1.0, 0.0]))
    assert found["AP"].tolist() == [1 / 4]
    assert found["R@2"].tolist() == [1 / 2]


def test_scores_in_32_bits_are_taken_as_they_are():
    questions, scores = made(5)
    wide = PoolMeasures(questions, MEASURES)(scores)
    narrow = PoolMeasures(questions, MEASURES)(scores.astype(np.float32))
    for name in MEASURES:
        np.testing.assert_array_equal(wide[name], narrow[name])


def test_a_score_that_is_not_a_number_is_refused_with_its_question():
    pools = [question(0, ["a"], {"a": 1}), question(1, [], {"a": 1}), question(2, "ab", {"a": 1})]
    with pytest.raises(BadInputError, match=r"^query q2: expected scores that are numbers"):
        PoolMeasures(pools, ["AP"])(np.array([1.0, np.nan, 0.0]))


def test_wrong_numbers_of_scores_no_questions_and_unknown_measures_are_refused():
    pool = question(0, ["a", "b"], {"a": 1})
    for wrong in (np.zeros(1), np.zeros(3), np.zeros((2, 1)), np.float64(1)):
        with pytest.raises(BadInputError, match=r"shape \(2,\)"):
            PoolMeasures([pool], ["AP"])(wrong)
    with pytest.raises(BadInputError, match="at least one question"):
        PoolMeasures([], ["AP"])
    with pytest.raises(ConfigError, match="unknown measure 'magic'"):
        PoolMeasures([pool], ["magic"])


def test_several_arrays_of_scores_are_each_measured_as_if_alone():
    questions = [
        Question("a", "?", ("c", "b", "a"), {"a": 1}),
        Question("b", "?", (), {"a": 1}),
        Question("c", "?", tuple(f"{n:03}" for n in range(99, -1, -1)), {"004": 2, "090": 1}),
    ]
    measures = PoolMeasures(questions, ["AP", "nDCG@10"])
    scores = np.random.default_rng(0).integers(0, 9, (2, 3, 103)).astype(float)
    found = measures(scores)
    for name, values in found.items():
        assert values.shape == (2, 3, 3)
        assert not values[..., 1].any()
        for place in np.ndindex(2, 3):
            np.testing.assert_array_equal(values[place], measures(scores[place])[name])
