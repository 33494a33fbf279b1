"""Sets of layers, their objectives, and what a search reports, against plain loops."""

from collections import Counter
from dataclasses import asdict, fields, replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from eval.datasets.question_set import Question
from eval.layers.search import (
    Gain,
    LayerEffect,
    LayerTask,
    PoolObjective,
    SetScore,
    SizeEffect,
    best_first,
    bootstrap_gain,
    search_given,
    search_shuffled,
    subset_values,
)
from eval.layers.subsets import SubsetCosines, layer_subsets, pair_grams
from eval.metrics.correlation import Correlation
from eval.metrics.measures import PoolMeasures
from eval.metrics.significance import percentile_interval, resampling_weights
from eval.qa.pools import EmbeddedPairs
from eval.settings import LayerSearchSettings
from retriever.errors import ConfigError
from tests.eval.qa.samples import made_set


def made_vectors(pairs, hidden_states, dimensions, seed=0):
    """Return vectors of pairs: some identical, some with equal cosines, one zero."""
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
def test_layer_subsets_enumerate_each_set_up_to_the_largest_size_once(hidden_states, largest):
    subsets = layer_subsets(hidden_states, largest)
    most = largest or hidden_states
    sets = [subsets.layers(place) for place in range(len(subsets))]
    every = [
        layers for size in range(1, most + 1) for layers in combinations(range(hidden_states), size)
    ]
    # Fewer layers first, then the smaller mask.
    assert sets == sorted(
        every, key=lambda layers: (len(layers), sum(1 << layer for layer in layers))
    )
    assert [len(layers) for layers in sets] == subsets.sizes.tolist()
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
    sample = grams.take(order)
    assert sample.pairs == 7
    rows = np.array(expected)[:, order]
    np.testing.assert_allclose(sample.cosines(subsets.masks), rows, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scale", [1, 1e-15, 1e15])
def test_subset_cosines_do_not_depend_on_vector_length(scale):
    left, right = made_vectors(30, 3, 8)
    left[:, 2] = -left[:, 0]
    masks = layer_subsets(3).masks
    cosines = pair_grams(left * np.float32(scale), right).cosines(masks)
    np.testing.assert_allclose(cosines, pair_grams(left, right).cosines(masks), atol=1e-6)
    # Layers that cancel.
    assert (cosines[masks == 0b101] == 0).all()


@pytest.mark.parametrize(
    ("name", "reference"), [("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)]
)
def test_the_correlation_of_every_set_equals_scipys(name, reference):
    left, right = made_vectors(60, 6, 8)
    gold = np.round(np.random.default_rng(0).random(60) * 5)
    subsets = layer_subsets(6)
    values = subset_values(LayerTask(pair_grams(left, right), Correlation(gold, name)), subsets)
    for position, value in enumerate(values):
        cosines = np.round(brute_cosines(left, right, subsets.layers(position)), 10)
        assert value == pytest.approx(reference(cosines, gold).statistic, abs=1e-9)


POOLS = made_set(answered=0.75)


@pytest.mark.parametrize(("name", "measure"), [("AP", "AP"), ("mrr", "RR"), ("ndcg@10", "nDCG@10")])
def test_the_measure_of_every_set_equals_that_of_its_mean_vectors(name, measure):
    pairs = len(POOLS.pairs()[0])
    left, right = made_vectors(pairs, 4, 8)
    # Candidates with the same text tie, and rank by id.
    for pair in range(1, pairs, 3):
        left[pair], right[pair] = left[pair - 1], right[pair - 1]
    subsets = layer_subsets(4)
    objective = PoolObjective(POOLS.questions, name)
    grams = pair_grams(left, right)
    values = subset_values(LayerTask(grams, objective), subsets)
    each = objective.per_question(grams.cosines(subsets.masks))
    measured = PoolMeasures(POOLS.questions, [measure])
    for position, value in enumerate(values):
        cosines = np.round(brute_cosines(left, right, subsets.layers(position)), 6)
        expected = measured(cosines)[measure]
        assert each[position] == pytest.approx(expected, abs=1e-9)
        assert value == pytest.approx(expected.mean(), abs=1e-12)


def test_questions_are_ranked_as_eval_qa_ranks_them_noise_included():
    # The answer's cosine is above the other's by less than vectors differ between batches, and
    # by more than a 32-bit float resolves.
    questions = (Question("q", "?", ("z", "a"), {"a": 1}),)
    question_vector = np.array([[1.0, 0.0]], np.float32)
    angles = np.arccos([0.9, 0.9 + 3e-7])
    passages = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    rows = np.zeros(2, np.int64), np.arange(2)
    pooled = EmbeddedPairs(question_vector, passages, *rows).cosines()
    grams = pair_grams(question_vector[rows[0]][:, None], passages[rows[1]][:, None])
    objective = PoolObjective(questions, "mrr")
    searched = objective(grams.cosines(np.array([1])))
    assert searched.tolist() == PoolMeasures(questions, ["RR"])(pooled)["RR"].tolist() == [0.5]
    # Zeros tie whatever their sign.
    zeros = np.array([[0.0, -0.0], [-0.0, 0.0], [-0.1, 0.0]])
    assert objective(zeros).tolist() == [0.5, 0.5, 1]


def test_resampled_measure_is_the_mean_over_the_drawn_questions():
    cosines = np.random.default_rng(0).random((2, len(POOLS.pairs()[0])))
    ranking = PoolObjective(POOLS.questions, "map")
    weights = np.array([[2.0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0]])
    each = ranking.per_question(cosines)
    expected = each[:, [0, 0, 2, *[6] * 9]].mean(axis=1)
    assert ranking.resampled(cosines, weights)[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("table_bytes", "threads"), [(1, 1), (1, 2), (30_000, 3), (10**9, 1), (10**9, 4)]
)
def test_blocks_and_threads_do_not_change_the_result(monkeypatch, table_bytes, threads):
    left, right = made_vectors(80, 7, 8)
    task = LayerTask(pair_grams(left, right), Correlation(np.arange(80.0) % 7))
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
    values = subset_values(LayerTask(pair_grams(left, right), objective), subsets)
    assert best_first(values, 7).tolist() == list(range(7))
    # A higher objective comes first unless it is rounding.
    assert best_first(np.array([0.3, 0.5, 0.5 + 1e-15, 0.7]), 3).tolist() == [3, 1, 2]


LAYERS = 5
SUBSETS = layer_subsets(LAYERS)
QUICK = LayerSearchSettings(top=10, resamples=200)
SCORE, GAIN, SIZE, LAYER = (
    [field.name for field in fields(kind)] for kind in (SetScore, Gain, SizeEffect, LayerEffect)
)


def made_task(pairs=120, seed=0, name="spearman"):
    """Return a task on which layer 1 is best, layer 4 second and the others poor."""
    random = np.random.default_rng(seed)
    shared = random.standard_normal((pairs, 1, 16))
    alike = random.random((pairs, 1, 1))
    noise = np.array([4, 0.5, 4, 4, 1])[:, None]
    left = shared + noise * random.standard_normal((pairs, LAYERS, 16))
    right = alike * shared + noise * random.standard_normal((pairs, LAYERS, 16))
    return LayerTask(pair_grams(left, right), Correlation(alike[:, 0, 0], name))


@pytest.fixture(scope="module")
def tasks():
    return made_task(seed=0), made_task(seed=1)


def rounded(value):
    """Round all floats of a report for comparison."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return round(value, 10) if isinstance(value, float) else value


def mask(layers):
    return sum(1 << layer for layer in layers)


@pytest.mark.parametrize("tested", [True, False])
def test_search_report_equals_plain_loops_over_all_sets(tasks, tested):
    search, held_out = tasks[0], tasks[1] if tested else None
    report = asdict(search_given(search, held_out, SUBSETS, QUICK))
    sets = list(map(SUBSETS.layers, range(len(SUBSETS))))
    values = dict(zip(sets, subset_values(search, SUBSETS).tolist(), strict=True))
    tests = dict.fromkeys(sets)
    if tested:
        tests = dict(zip(sets, subset_values(held_out, SUBSETS).tolist(), strict=True))
    order = sorted(sets, key=lambda subset: -values[subset])
    last, best = (4,), order[0]

    def score(layers):
        return dict(zip(SCORE, (layers, values[layers], tests[layers]), strict=True))

    def gain(layers):
        values_of_set, task = (tests, held_out) if tested else (values, search)
        low, high = bootstrap_gain(task, mask(best), mask(layers), 200, [0])
        both = values_of_set[best], values_of_set[layers]
        return dict(
            zip(GAIN, (tested, *both, both[0] - both[1], low, high, 200, None), strict=True)
        )

    drawn = report["others"][1]["score"]["layers"]
    assert len(set(drawn)) == len(best)
    effects = []
    for size in range(1, LAYERS + 1):
        same = [subset for subset in order if len(subset) == size]
        mean = float(np.mean([values[subset] for subset in same]))
        effects.append((size, len(same), values[same[0]], mean, tests[same[0]], same[0]))
    layers = []
    for layer in range(LAYERS):
        has = next(subset for subset in order if layer in subset)
        lacks = next(subset for subset in order if layer not in subset)
        layers.append((layer, values[has], values[lacks], tests[has], tests[lacks]))
    assert rounded(report) == rounded(
        {
            "search_units": 120,
            "held_out_units": 120 if tested else None,
            "subsets": 31,
            "best": score(best),
            "baseline": score(last),
            "top": [score(subset) for subset in order[:10]],
            "gain": gain(last),
            "others": [
                {"name": name, "score": score(subset), "gain": gain(subset)}
                for name, subset in (("last 4 layers", (1, 2, 3, 4)), ("random layers", drawn))
            ],
            "sizes": [dict(zip(SIZE, row, strict=True)) for row in effects],
            "layers": [dict(zip(LAYER, row, strict=True)) for row in layers],
            "shuffles": [],
            "wins": [],
        }
    )


def test_baselines_are_scored_even_if_outside_the_searched_sets(tasks):
    part = search_given(*tasks, layer_subsets(LAYERS, 2), QUICK).others[0].score
    whole = search_given(*tasks, SUBSETS, QUICK).others[0].score
    assert (part.layers, part.search, part.held_out) == (
        *(whole.layers, whole.search),
        whole.held_out,
    )
    drawn = {
        search_given(tasks[0], None, SUBSETS, replace(QUICK, seed=seed)).others[1].score.layers
        for seed in range(9)
    }
    assert len(drawn) > 1


def test_the_papers_protocol_reports_means_over_shuffles_that_depend_on_the_seed(tasks):
    settings = replace(QUICK, dev_size=40, shuffles=4)
    report = search_shuffled(tasks[0], SUBSETS, settings)
    shuffles = report.shuffles
    fewer = search_shuffled(tasks[0], SUBSETS, replace(settings, shuffles=3))
    assert fewer.shuffles == shuffles[:3]
    other = search_shuffled(tasks[0], SUBSETS, replace(settings, shuffles=1, seed=1))
    assert other.gain.best != shuffles[0].gain.best
    assert (other.gain.spread, other.others[0].gain.spread) == (0, 0)
    assert all(
        (search.search_units, search.held_out_units) == (40, 80) for search in (report, *shuffles)
    )

    def mean(value):
        return pytest.approx(np.mean([value(shuffle) for shuffle in shuffles]))

    winners = [shuffle.best.layers for shuffle in shuffles]
    assert dict(report.wins) == Counter(winners)
    assert report.wins[0][1] == max(times for _, times in report.wins)
    for place, baseline in enumerate([report, *report.others]):

        def held_out(shuffle, place=place):
            return (shuffle.others[place - 1].score if place else shuffle.baseline).held_out

        gains = [shuffle.best.held_out - held_out(shuffle) for shuffle in shuffles]
        spread = pytest.approx(np.std(gains, ddof=1))
        both = mean(lambda shuffle: shuffle.best.held_out), mean(held_out)
        gain = Gain(True, *both, pytest.approx(np.mean(gains)), None, None, None, spread)
        assert baseline.gain == gain
    names = [(baseline.name, None) for baseline in shuffles[0].others]
    assert [(baseline.name, baseline.score) for baseline in report.others] == names
    assert report.baseline == SetScore((4,), mean(lambda shuffle: shuffle.baseline.search), None)
    scores = sorted((score.search for score in report.top), reverse=True)
    assert [score.search for score in report.top] == scores
    assert report.top[0] == report.best
    assert len(report.top) == 10
    assert report.sizes[1] == SizeEffect(
        *(2, 10),
        *[
            mean(lambda shuffle, n=n: getattr(shuffle.sizes[1], n))
            for n in ("best", "mean", "held_out")
        ],
        None,
    )
    assert report.layers[2] == LayerEffect(
        2, *[mean(lambda shuffle, n=n: getattr(shuffle.layers[2], n)) for n in LAYER[1:]]
    )


@pytest.mark.parametrize(
    ("questions", "baseline", "interval"),
    [(30, 0b10, (0.5, 0.5)), (30, 0b01, (0.0, 0.0)), (1, 0b10, (-1.0, 1.0))],
    ids=["never varies", "no difference", "one question says nothing of others"],
)
def test_bootstrap_interval_of_a_constant_difference_is_a_point(questions, baseline, interval):
    # The first candidate is relevant, and first with one layer, second with the other.
    pools = [Question(f"q{number}", "?", ("b", "a"), {"b": 1}) for number in range(questions)]
    cosines = {0b01: [0.9, 0.1] * questions, 0b10: [0.1, 0.9] * questions}
    grams = SimpleNamespace(cosines=lambda masks: np.array([cosines[mask] for mask in masks]))
    task = LayerTask(grams, PoolObjective(pools, "mrr"))
    assert bootstrap_gain(task, 0b01, baseline, 300, 0) == interval


def test_gain_interval_equals_resampling_the_pairs():
    task = made_task(40)
    (weights,) = resampling_weights(40, 150, np.random.default_rng(7))
    cosines = task.grams.cosines(np.array([0b00010, 0b10000]))
    ours, theirs = task.objective.resampled(cosines, weights).T
    expected = percentile_interval(ours - theirs, 40)
    assert bootstrap_gain(task, 0b00010, 0b10000, 150, 7) == expected
