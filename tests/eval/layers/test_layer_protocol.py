"""What a layer search reports, against plain loops over all sets, and its protocols."""

from collections import Counter
from dataclasses import asdict, fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from eval.datasets.question_set import Question
from eval.layers.search import (
    Gain,
    LayerEffect,
    PoolObjective,
    SetScore,
    SizeEffect,
    Task,
    bootstrap_gain,
    search_given,
    search_shuffled,
    subset_values,
)
from eval.layers.subsets import layer_subsets, pair_grams
from eval.metrics.correlation import Correlation
from eval.settings import LayerSearchSettings

LAYERS = 5
SUBSETS = layer_subsets(LAYERS)
QUICK = LayerSearchSettings(top=10, resamples=200)
SCORE, GAIN, SIZE, LAYER = (
    [field.name for field in fields(kind)] for kind in (SetScore, Gain, SizeEffect, LayerEffect)
)


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


def rounded(value):
    """A report as values that compare up to rounding."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return round(value, 10) if isinstance(value, float) else value


def mask(layers):
    return sum(1 << layer for layer in layers)


@pytest.mark.parametrize(
    ("tested", "ranked"), [(True, 120 * 31), (True, 120 * 31 - 1), (False, 120 * 31)]
)
def test_a_report_is_that_of_plain_loops_over_all_sets(tasks, monkeypatch, tested, ranked):
    monkeypatch.setattr("eval.layers.search._RANKED_COSINES", ranked)
    search, held_out = tasks[0], tasks[1] if tested else None
    found = asdict(search_given(search, held_out, SUBSETS, QUICK))
    sets = list(map(SUBSETS.layers, range(len(SUBSETS))))
    values = dict(zip(sets, subset_values(search, SUBSETS).tolist(), strict=True))
    tests = dict.fromkeys(sets)
    if tested:
        tests = dict(zip(sets, subset_values(held_out, SUBSETS).tolist(), strict=True))
    order = sorted(sets, key=lambda one: -values[one])
    last, best = (4,), order[0]

    def score(layers):
        rank = None
        if tested and ranked == 120 * 31:
            rank = 1 + sum(one > tests[layers] + 1e-12 for one in tests.values())
        return dict(zip(SCORE, (layers, values[layers], tests[layers], rank), strict=True))

    def gain(layers):
        shown, task = (tests, held_out) if tested else (values, search)
        low, high = bootstrap_gain(task, mask(best), mask(layers), 200, [0])
        both = shown[best], shown[layers]
        return dict(
            zip(GAIN, (tested, *both, both[0] - both[1], low, high, 200, None), strict=True)
        )

    drawn = found["others"][1]["score"]["layers"]
    assert len(set(drawn)) == len(best)
    effects = []
    for size in range(1, LAYERS + 1):
        same = [one for one in order if len(one) == size]
        mean = float(np.mean([values[one] for one in same]))
        effects.append((size, len(same), values[same[0]], mean, tests[same[0]], same[0]))
    layers = []
    for layer in range(LAYERS):
        has = next(one for one in order if layer in one)
        lacks = next(one for one in order if layer not in one)
        layers.append((layer, values[has], values[lacks], tests[has], tests[lacks]))
    assert rounded(found) == rounded(
        {
            "search_units": 120,
            "held_out_units": 120 if tested else None,
            "subsets": 31,
            "best": score(best),
            "baseline": score(last),
            "top": [score(one) for one in order[:10]],
            "gain": gain(last),
            "others": [
                {"name": name, "score": score(one), "gain": gain(one)}
                for name, one in (("last 4 layers", (1, 2, 3, 4)), ("random layers", drawn))
            ],
            "sizes": [dict(zip(SIZE, one, strict=True)) for one in effects],
            "layers": [dict(zip(LAYER, one, strict=True)) for one in layers],
            "shuffles": [],
            "wins": [],
        }
    )


def test_baselines_need_not_be_among_the_sets_that_are_tried(tasks):
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
    assert all((one.search_units, one.held_out_units) == (40, 80) for one in (report, *shuffles))

    def mean(value):
        return pytest.approx(np.mean([value(one) for one in shuffles]))

    winners = [one.best.layers for one in shuffles]
    assert dict(report.wins) == Counter(winners)
    assert report.wins[0][1] == max(times for _, times in report.wins)
    for place, baseline in enumerate([report, *report.others]):

        def held_out(one, place=place):
            return (one.others[place - 1].score if place else one.baseline).held_out

        gains = [one.best.held_out - held_out(one) for one in shuffles]
        spread = pytest.approx(np.std(gains, ddof=1))
        both = mean(lambda one: one.best.held_out), mean(held_out)
        gain = Gain(True, *both, pytest.approx(np.mean(gains)), None, None, None, spread)
        assert baseline.gain == gain
    names = [(one.name, None) for one in shuffles[0].others]
    assert [(one.name, one.score) for one in report.others] == names
    assert report.baseline == SetScore((4,), mean(lambda one: one.baseline.search), None, None)
    found = sorted((one.search for one in report.top), reverse=True)
    assert [one.search for one in report.top] == found
    assert report.top[0] == report.best
    assert len(report.top) == 10
    assert report.sizes[1] == SizeEffect(
        *(2, 10),
        *[mean(lambda one, n=n: getattr(one.sizes[1], n)) for n in ("best", "mean", "held_out")],
        None,
    )
    assert report.layers[2] == LayerEffect(
        2, *[mean(lambda one, n=n: getattr(one.layers[2], n)) for n in LAYER[1:]]
    )


@pytest.mark.parametrize(
    ("questions", "baseline", "interval"),
    [(30, 0b10, (0.5, 0.5)), (30, 0b01, (0.0, 0.0)), (1, 0b10, (-1.0, 1.0))],
    ids=["never varies", "no difference", "one question says nothing of others"],
)
def test_the_interval_of_a_constant_difference(questions, baseline, interval):
    # The first candidate is relevant, and first with one layer, second with the other.
    asked = [Question(f"q{number}", "?", ("b", "a"), {"b": 1}) for number in range(questions)]
    cosines = {0b01: [0.9, 0.1] * questions, 0b10: [0.1, 0.9] * questions}
    grams = SimpleNamespace(cosines=lambda masks: np.array([cosines[mask] for mask in masks]))
    task = Task(grams, PoolObjective(asked, "mrr"))
    assert bootstrap_gain(task, 0b01, baseline, 300, 0) == interval


def test_the_interval_of_a_correlation_is_that_of_resampled_pairs():
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
