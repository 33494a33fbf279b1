"""Sets of layers, their cosines and objectives, against plain loops and other libraries."""

from itertools import combinations

import numpy as np
import pytest
import pytrec_eval
import scipy.stats

from eval.datasets.question_set import Question
from eval.layers.search import PoolObjective, Task, best_first, subset_values
from eval.layers.subsets import SubsetCosines, layer_subsets, pair_grams
from eval.metrics.correlation import Correlation
from eval.metrics.measures import PoolMeasures, evaluate
from eval.qa.pools import EmbeddedPairs
from retriever.errors import ConfigError


def made_vectors(pairs, hidden_states, dimensions, seed=0):
    """Two texts a pair; some identical, some with equal cosines, one with no vector at all."""
    random = np.random.default_rng(seed)
    shared = random.standard_normal((pairs, 1, dimensions))
    alike = random.random((pairs, 1, 1))
    left = shared + random.standard_normal((pairs, hidden_states, dimensions))
    right = alike * shared + random.standard_normal((pairs, hidden_states, dimensions))
    right[: pairs // 5] = left[: pairs // 5]
    left[-3:], right[-3:] = left[-6:-3], right[-6:-3]
    left[pairs // 2] = 0
    return left.astype(np.float32), right.astype(np.float32)


def brute_cosines(left, right, layers):
    a = left[:, list(layers)].astype(np.float64).mean(axis=1)
    b = right[:, list(layers)].astype(np.float64).mean(axis=1)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = (a * b).sum(axis=1)
    return np.divide(products, lengths, out=np.zeros(len(a)), where=lengths > 0)


@pytest.mark.parametrize(
    ("hidden_states", "largest"), [(1, None), (7, None), (13, None), (13, 4), (25, 3), (6, 6)]
)
def test_every_set_up_to_the_largest_size_is_there_once(hidden_states, largest):
    subsets = layer_subsets(hidden_states, largest)
    most = largest or hidden_states
    found = [subsets.layers(place) for place in range(len(subsets))]
    every = [
        layers for size in range(1, most + 1) for layers in combinations(range(hidden_states), size)
    ]
    # Fewer layers first, then the smaller mask.
    assert found == sorted(every, key=lambda one: (len(one), sum(1 << layer for layer in one)))
    assert [len(layers) for layers in found] == subsets.sizes.tolist()
    assert subsets.layers(subsets.last) == (hidden_states - 1,)


@pytest.mark.parametrize(
    ("hidden_states", "largest", "message"),
    [
        # As many sets of up to eight as in the paper.
        (25, None, "33,554,431 sets .* set --max-layers to at most 8 \\(1,807,780 sets\\)"),
        (49, 12, "set --max-layers"),
        (7, 8, "expected 1 to 7, found 8"),
        (7, 0, "expected 1 to 7, found 0"),
    ],
)
def test_too_many_sets_are_refused(hidden_states, largest, message):
    with pytest.raises(ConfigError, match=message):
        layer_subsets(hidden_states, largest)


@pytest.mark.parametrize("largest", [1, 2, 4, 6])
@pytest.mark.parametrize("table_bytes", [1, 10_000, 100_000, 10**9])
def test_the_cosines_of_every_set_equal_those_of_the_mean_vectors(largest, table_bytes):
    left, right = made_vectors(150, 6, 8)
    subsets, grams = layer_subsets(6, largest), pair_grams(left, right)
    expected = [
        brute_cosines(left, right, layers) for layers in map(subsets.layers, range(len(subsets)))
    ]
    np.testing.assert_allclose(grams.cosines(subsets.masks), expected, rtol=0, atol=1e-13)
    blocks = SubsetCosines(grams, subsets, table_bytes)
    seen = []
    for number in range(len(blocks)):
        positions, cosines = blocks.block(number)
        seen += positions.tolist()
        rows = [expected[position] for position in positions]
        np.testing.assert_allclose(cosines, rows, rtol=0, atol=1e-13)
    assert sorted(seen) == list(range(len(subsets)))
    order = np.random.default_rng(0).permutation(150)[:7]
    taken = grams.take(order)
    assert taken.pairs == 7
    rows = np.array(expected)[:, order]
    np.testing.assert_allclose(taken.cosines(subsets.masks), rows, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scale", [1, 1e-15, 1e15])
def test_the_length_of_the_vectors_does_not_matter(scale):
    left, right = made_vectors(30, 3, 8)
    left[:, 2] = -left[:, 0]
    masks = layer_subsets(3).masks
    found = pair_grams(left * np.float32(scale), right).cosines(masks)
    np.testing.assert_allclose(found, pair_grams(left, right).cosines(masks), atol=1e-6)
    # Layers that cancel.
    assert (found[masks == 0b101] == 0).all()


@pytest.mark.parametrize(
    ("name", "reference"), [("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)]
)
def test_the_correlation_of_every_set_equals_scipys(name, reference):
    left, right = made_vectors(60, 6, 8)
    gold = np.round(np.random.default_rng(0).random(60) * 5)
    subsets = layer_subsets(6)
    values = subset_values(Task(pair_grams(left, right), Correlation(gold, name)), subsets)
    for position, value in enumerate(values):
        cosines = np.round(brute_cosines(left, right, subsets.layers(position)), 10)
        assert value == pytest.approx(reference(cosines, gold).statistic, abs=1e-9)


# Ids whose order as strings is not that of their numbers.
IDS = ["d1", "d10", "d2", "é", "B", "b", "文", "\U0001f600"]


def made_questions(seed):
    random = np.random.default_rng(seed)
    questions = []
    for number in range(12):
        pool = random.choice(IDS, size=int(random.integers(1, len(IDS) + 1)), replace=False)
        grades = {str(one): int(random.integers(-1, 3)) for one in pool if random.random() < 0.7}
        grades["missing" if number % 3 else str(pool[0])] = 1
        candidates = tuple(sorted(map(str, pool), reverse=True))
        questions.append(Question(f"q{number}", f"question {number}", candidates, grades))
    return questions


@pytest.mark.parametrize(
    ("name", "measure", "family", "key"),
    [
        ("AP", "AP", "map", "map"),
        ("mrr", "RR", "recip_rank", "recip_rank"),
        ("ndcg@10", "nDCG@10", "ndcg_cut.10", "ndcg_cut_10"),
    ],
)
def test_the_measure_of_every_set_equals_trec_evals(name, measure, family, key):
    questions = made_questions(0)
    pairs = sum(len(question.candidates) for question in questions)
    left, right = made_vectors(pairs, 4, 8)
    # Candidates with the same text tie, and rank by id.
    for pair in range(1, pairs, 3):
        left[pair], right[pair] = left[pair - 1], right[pair - 1]
    subsets = layer_subsets(4)
    objective = PoolObjective(questions, name)
    grams = pair_grams(left, right)
    values = subset_values(Task(grams, objective), subsets)
    each = objective.per_question(grams.cosines(subsets.masks))
    qrels = {question.id: dict(question.grades) for question in questions}
    for position, value in enumerate(values):
        cosines = np.round(brute_cosines(left, right, subsets.layers(position)), 6)
        scores = iter(cosines.tolist())
        run = {one.id: {c: next(scores) for c in one.candidates} for one in questions}
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {family}).evaluate(run)
        expected = [theirs[question.id][key] for question in questions]
        assert each[position] == pytest.approx(expected, abs=1e-9)
        assert value == pytest.approx(evaluate(run, qrels, [measure]).means[measure], abs=1e-12)


def test_questions_are_ranked_as_eval_qa_ranks_them_noise_included():
    # The answer's cosine is above the other's by less than vectors differ between batches, and
    # by more than a 32-bit float resolves.
    questions = (Question("q", "?", ("z", "a"), {"a": 1}),)
    asked = np.array([[1.0, 0.0]], np.float32)
    angles = np.arccos([0.9, 0.9 + 3e-7])
    passages = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    rows = np.zeros(2, np.int64), np.arange(2)
    pooled = EmbeddedPairs(asked, passages, *rows).cosines()
    grams = pair_grams(asked[rows[0]][:, None], passages[rows[1]][:, None])
    objective = PoolObjective(questions, "mrr")
    searched = objective(grams.cosines(np.array([1])))
    assert searched.tolist() == PoolMeasures(questions, ["RR"])(pooled)["RR"].tolist() == [0.5]
    # Zeros tie whatever their sign.
    zeros = np.array([[0.0, -0.0], [-0.0, 0.0], [-0.1, 0.0]])
    assert objective(zeros).tolist() == [0.5, 0.5, 1]


def test_a_resample_is_the_mean_over_the_questions_drawn():
    questions = made_questions(0)
    pairs = sum(len(question.candidates) for question in questions)
    cosines = np.random.default_rng(0).random((2, pairs))
    ranking = PoolObjective(questions, "map")
    weights = np.array([[2.0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0]])
    each = ranking.per_question(cosines)
    expected = each[:, [0, 0, 2, *[6] * 9]].mean(axis=1)
    assert ranking.resampled(cosines, weights)[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("table_bytes", "threads"), [(1, 1), (1, 2), (30_000, 3), (10**9, 1), (10**9, 4)]
)
def test_blocks_and_threads_do_not_change_the_result(monkeypatch, table_bytes, threads):
    left, right = made_vectors(80, 7, 8)
    task = Task(pair_grams(left, right), Correlation(np.arange(80.0) % 7))
    subsets, done = layer_subsets(7, 5), []
    expected = subset_values(task, subsets)
    monkeypatch.setattr("eval.layers.search._TABLE_BYTES", table_bytes)
    monkeypatch.setattr("eval.layers.search._THREADS", threads)
    np.testing.assert_array_equal(subset_values(task, subsets, done.append), expected)
    assert sum(done) == len(subsets)
    assert (len(done) > 1) == (table_bytes < 10**9)


def test_equal_objectives_go_to_fewer_layers_then_to_the_smaller_mask():
    # Three equal layers: every set of them has the same objective.
    left, right = (side.repeat(3, axis=1) for side in made_vectors(50, 1, 8))
    objective = Correlation(np.random.default_rng(1).random(50))
    subsets = layer_subsets(3)
    values = subset_values(Task(pair_grams(left, right), objective), subsets)
    assert best_first(values, 7).tolist() == list(range(7))
    # A higher objective comes first unless it is rounding.
    assert best_first(np.array([0.3, 0.5, 0.5 + 1e-15, 0.7]), 3).tolist() == [3, 1, 2]
