"""What a layer search reports, against plain loops over all sets, and its protocols."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from eval.datasets.question_set import Question
from eval.layers.protocol import (
    LayerSearchSettings,
    bootstrap_gain,
    search_given,
    search_shuffled,
)
from eval.layers.search import PoolObjective, Task, subset_values
from eval.layers.subsets import layer_subsets, pair_grams
from eval.metrics.correlation import Correlation
from eval.metrics.significance import resampling_weights
from retriever.errors import BadInputError, ConfigError

LAYERS = 5
SUBSETS = layer_subsets(LAYERS)
QUICK = LayerSearchSettings(top=10, resamples=200)


def made_task(pairs=120, seed=0, name="spearman"):
    """Gold scores that layer 1 tells best, layer 4 second, the others hardly."""
    random = np.random.default_rng(seed)
    shared = random.standard_normal((pairs, 1, 16))
    alike = random.random((pairs, 1, 1))
    noise = np.array([4, 0.5, 4, 4, 1])[:, None]
    left = shared + noise * random.standard_normal((pairs, LAYERS, 16))
    right = alike * shared + noise * random.standard_normal((pairs, LAYERS, 16))
    return Task(pair_grams(left, right), Correlation(alike[:, 0, 0], name))


@pytest.fixture(scope="module")
def tasks():
    return made_task(seed=0), made_task(seed=1)


@pytest.fixture(scope="module")
def values(tasks):
    """(subsets,) objectives on the search data and on the held-out data."""
    return [subset_values(task, SUBSETS) for task in tasks]


@pytest.fixture(scope="module")
def report(tasks):
    return search_given(*tasks, SUBSETS, QUICK)


def test_a_report_holds_the_best_sets_and_their_held_out_objectives(report, values):
    found, tested = values
    best = int(np.argmax(found))
    assert report.subsets == 31
    assert (report.search_units, report.held_out_units) == (120, 120)
    assert report.best.layers == SUBSETS.layers(best)
    assert report.best.search == found[best]
    assert report.best.held_out == tested[best]
    assert report.best.held_out_rank == 1 + (tested > tested[best] + 1e-12).sum()
    assert report.baseline.layers == (LAYERS - 1,)
    assert [score.search for score in report.top] == sorted(found, reverse=True)[:10]
    assert report.gain.held_out
    assert report.gain.gain == tested[best] - tested[LAYERS - 1]
    assert report.gain.low < report.gain.gain < report.gain.high


def test_without_held_out_data_the_gain_is_marked_as_that_of_the_search_data(tasks):
    report = search_given(tasks[0], None, SUBSETS, QUICK)
    assert not report.gain.held_out
    assert report.held_out_units is None
    assert report.best.held_out is None
    assert report.best.held_out_rank is None
    assert report.gain.gain == report.best.search - report.baseline.search


def test_where_not_every_set_is_tried_on_held_out_data_the_chosen_ones_still_are(
    tasks, report, monkeypatch
):
    monkeypatch.setattr("eval.layers.protocol._RANKED_COSINES", 120 * 31 - 1)
    part = search_given(*tasks, SUBSETS, QUICK)
    assert part.best.held_out_rank is None
    assert part.best.held_out == pytest.approx(report.best.held_out, abs=1e-12)
    for one, other in zip(part.sizes, report.sizes, strict=True):
        assert one.held_out == pytest.approx(other.held_out, abs=1e-12)
    monkeypatch.setattr("eval.layers.protocol._RANKED_COSINES", 120 * 31)
    assert search_given(*tasks, SUBSETS, QUICK) == report


def test_the_best_set_is_also_compared_with_the_last_four_and_with_random_layers(
    tasks, report, values
):
    found, tested = values
    last_four, random = report.others
    assert (last_four.name, random.name) == ("last 4 layers", "random layers")
    assert last_four.score.layers == (1, 2, 3, 4)
    for one in report.others:
        (place,) = (i for i in range(31) if SUBSETS.layers(i) == one.score.layers)
        assert one.score.search == pytest.approx(found[place], abs=1e-12)
        assert one.score.held_out == pytest.approx(tested[place], abs=1e-12)
        assert one.score.held_out_rank == 1 + (tested > tested[place] + 1e-12).sum()
        assert one.gain.gain == pytest.approx(report.best.held_out - tested[place], abs=1e-12)
        assert one.gain.low <= one.gain.gain <= one.gain.high
    # They need not be among the sets that are tried.
    part = search_given(*tasks, layer_subsets(LAYERS, 2), QUICK).others[0].score
    assert (part.search, part.held_out) == (last_four.score.search, last_four.score.held_out)
    drawn = set()
    for seed in range(30):
        settings = LayerSearchSettings(top=1, resamples=100, seed=seed)
        one = search_given(tasks[0], None, SUBSETS, settings).others[1]
        assert len(one.score.layers) == len(report.best.layers)
        drawn.add(one.score.layers)
    assert len(drawn) > 1


def test_effects_are_the_best_and_the_mean_of_the_sets_concerned(report, values):
    sets = map(SUBSETS.layers, range(len(SUBSETS)))
    objectives = dict(zip(sets, zip(*values, strict=True), strict=True))
    for effect in report.sizes:
        chosen = {layers: both for layers, both in objectives.items() if len(layers) == effect.size}
        best = max(chosen, key=lambda layers: chosen[layers][0])
        assert effect.sets == len(chosen)
        assert effect.best_layers == best
        assert (effect.best, effect.held_out) == chosen[best]
        assert effect.mean == pytest.approx(np.mean([both[0] for both in chosen.values()]))
    assert [effect.size for effect in report.sizes] == [1, 2, 3, 4, 5]
    for effect in report.layers:
        lacking = [both for layers, both in objectives.items() if effect.layer not in layers]
        having = [both for layers, both in objectives.items() if effect.layer in layers]
        assert (effect.without, effect.held_out_without) == max(lacking)
        assert (effect.with_layer, effect.held_out_with) == max(having)
    assert [effect.layer for effect in report.layers] == list(range(LAYERS))


def test_the_papers_protocol_divides_the_pairs_by_seed(tasks):
    task = tasks[0]
    first = search_shuffled(task, SUBSETS, replace(QUICK, dev_size=40, shuffles=3))
    assert first == search_shuffled(task, SUBSETS, replace(QUICK, dev_size=40, shuffles=3))
    other = search_shuffled(task, SUBSETS, replace(QUICK, dev_size=40, shuffles=3, seed=1))
    assert other.test_best != first.test_best
    # More shuffles begin with the same ones.
    more = search_shuffled(task, SUBSETS, replace(QUICK, dev_size=40, shuffles=4))
    assert more.shuffles[:3] == first.shuffles


def test_the_papers_protocol_reports_means_over_shuffles(tasks):
    report = search_shuffled(tasks[0], SUBSETS, replace(QUICK, dev_size=40, shuffles=4))
    assert all((one.search_units, one.held_out_units) == (40, 80) for one in report.shuffles)
    gains = [one.best.held_out - one.baseline.held_out for one in report.shuffles]
    assert report.gain == pytest.approx(np.mean(gains))
    assert report.gain_spread == pytest.approx(np.std(gains, ddof=1))
    assert report.test_best - report.test_baseline == pytest.approx(report.gain)
    assert sum(times for _, times in report.wins) == 4
    winners = [one.best.layers for one in report.shuffles]
    assert all(winners.count(layers) == times for layers, times in report.wins)
    for value in (
        lambda one: one.baseline.search,
        *(lambda one, n=name: getattr(one.sizes[1], n) for name in ("best", "mean", "held_out")),
        *(
            lambda one, n=name: getattr(one.layers[2], n)
            for name in ("with_layer", "without", "held_out_with", "held_out_without")
        ),
    ):
        assert value(report) == pytest.approx(np.mean([value(one) for one in report.shuffles]))
    assert (report.best.held_out, report.sizes[1].best_layers) == (None, None)
    for place, mean in enumerate(report.others):
        gains = [one.best.held_out - one.others[place].score.held_out for one in report.shuffles]
        assert mean.name == report.shuffles[0].others[place].name
        assert mean.gain == pytest.approx(np.mean(gains))
        assert mean.gain_spread == pytest.approx(np.std(gains, ddof=1))
        assert mean.test == pytest.approx(report.test_best - mean.gain)
    once = search_shuffled(tasks[0], SUBSETS, replace(QUICK, dev_size=40, shuffles=1))
    assert once.gain_spread == 0


@pytest.mark.parametrize("dev_size", [1, 119, 350])
def test_a_division_that_leaves_too_few_pairs_is_refused(tasks, dev_size):
    with pytest.raises(ConfigError, match=f"expected 2 to 118 of the 120 pairs, found {dev_size}"):
        search_shuffled(tasks[0], SUBSETS, replace(QUICK, dev_size=dev_size))


def test_a_division_whose_gold_scores_are_all_equal_is_refused(tasks):
    gold = np.zeros(120)
    gold[0] = 1
    task = Task(tasks[0].grams, Correlation(gold))
    with pytest.raises(BadInputError, match="nothing correlates with a constant"):
        search_shuffled(task, SUBSETS, replace(QUICK, dev_size=60))


def made_ranking(cosines):
    """A task of questions with two candidates, the first relevant; cosines of two single layers.

    Vectors of one component for the question and two for the candidates give any cosine.
    """
    questions = [
        Question(f"q{number}", "?", ("b", "a"), {"b": 1}) for number in range(cosines.shape[1])
    ]
    left = np.zeros((2 * cosines.shape[1], 2, 2))
    left[..., 0] = 1
    right = np.empty_like(left)
    right[..., 0] = cosines.reshape(2, -1).T
    right[..., 1] = np.sqrt(1 - right[..., 0] ** 2)
    return Task(pair_grams(left, right), PoolObjective(questions, "mrr"))


@pytest.mark.parametrize(
    ("questions", "baseline", "interval"),
    [(30, 0b10, (0.5, 0.5)), (30, 0b01, (0.0, 0.0)), (1, 0b10, (-1.0, 1.0))],
    ids=["never varies", "no difference", "one question says nothing of others"],
)
def test_the_interval_of_a_constant_difference(questions, baseline, interval):
    cosines = np.empty((2, questions, 2))
    cosines[0] = 0.9, 0.1
    cosines[1] = 0.1, 0.9
    assert bootstrap_gain(made_ranking(cosines), 0b01, baseline, 300, 0) == interval


def test_the_interval_of_a_mean_difference_is_near_the_normal_one():
    wins = np.arange(200) % 4 == 0
    cosines = np.empty((2, 200, 2))
    cosines[0] = 0.9, 0.1
    cosines[1] = np.where(wins[:, None], [0.1, 0.9], [0.9, 0.1])
    low, high = bootstrap_gain(made_ranking(cosines), 0b01, 0b10, 4000, 0)
    differences = 0.5 * wins
    middle, error = differences.mean(), differences.std() / np.sqrt(200)
    assert low == pytest.approx(middle - 1.96 * error, abs=0.006)
    assert high == pytest.approx(middle + 1.96 * error, abs=0.006)


def test_the_interval_of_a_correlation_is_that_of_resampled_pairs(monkeypatch):
    task = made_task(40)
    expected = bootstrap_gain(task, 0b00010, 0b10000, 150, 7)
    drawn = np.random.default_rng(7).integers(0, 40, (150, 40))
    ours, theirs = np.round(task.grams.cosines(np.array([0b00010, 0b10000])), 10)
    gold = np.random.default_rng(0)
    gold.standard_normal((40, 1, 16))
    scores = gold.random((40, 1, 1))[:, 0, 0]
    gains = [
        scipy.stats.spearmanr(ours[row], scores[row])[0]
        - scipy.stats.spearmanr(theirs[row], scores[row])[0]
        for row in drawn
    ]
    level = scipy.stats.norm.cdf(-np.sqrt(40 / 39) * scipy.stats.t.ppf(0.975, 39))
    assert expected == pytest.approx(np.quantile(gains, [level, 1 - level]), rel=1e-4)
    monkeypatch.setattr(
        "eval.layers.protocol.resampling_weights",
        lambda units, resamples, random: resampling_weights(units, resamples, random, 40 * 7),
    )
    assert bootstrap_gain(task, 0b00010, 0b10000, 150, 7) == pytest.approx(expected, abs=1e-12)
