"""The search for layers on tasks of classification, against brute force by scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from eval.layers.search import LayerFusion
from eval.layers.subsets import layer_subsets
from eval.transfer.layer_search import LayerTransferSettings, inner_accuracies, search_transfer
from eval.transfer.protocols import LayerData, outer_divisions
from retriever.errors import BadInputError, ConfigError
from tests.eval.transfer.classification_samples import clouds, layered

PROJECTION = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
FUSED = LayerFusion("max", lambda vectors: np.tanh(vectors @ PROJECTION))
QUICK = LayerTransferSettings(max_layers=2, outer=3, inner=4)


def divisions(rows, count, seed=0):
    random = np.random.default_rng(seed)
    orders = [random.permutation(rows) for _ in range(count)]
    return [(order[len(order) // 4 :], order[: len(order) // 4]) for order in orders]


def brute_force(data, parts, layers, strength):
    """scikit-learn's ridge regression on the indicators of the classes."""
    x = data.features(layers).astype(np.float64)
    y = data.data.labels
    accuracies = []
    for train, test in parts:
        targets = 2.0 * np.eye(len(data.data.classes))[y[train]] - 1
        penalty = strength * x[train].var(axis=0).mean() * len(train)
        outputs = Ridge(alpha=penalty).fit(x[train], targets).predict(x[test])
        accuracies.append((outputs.argmax(axis=1) == y[test]).mean())
    return accuracies


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(
    ("classes", "most", "fusion"), [(2, 4, LayerFusion()), (3, 2, LayerFusion()), (2, 2, FUSED)]
)
def test_the_accuracy_of_every_set_is_that_of_brute_force(pairs, classes, most, fusion):
    data = layered(clouds(examples=160, classes=classes, width=5), pairs=pairs)
    data = replace(data, fusion=fusion)
    # Some rows take no part.
    parts = divisions(np.arange(20, 160), 3)
    subsets = layer_subsets(4, most)
    done = []
    found = inner_accuracies(data, parts, subsets, 0.05, done.append)
    for place in range(len(subsets)):
        expected = brute_force(data, parts, subsets.layers(place), 0.05)
        np.testing.assert_allclose(found[:, place], expected, atol=1e-12)
    assert sum(done) == 3 * len(subsets)
    assert len(subsets) == sum(1 for k in range(1, most + 1) for _ in combinations(range(4), k))


@pytest.mark.parametrize("pairs", [False, True])
def test_features_are_maxima_and_the_outputs_of_a_head(pairs):
    data = replace(layered(clouds(examples=120, width=5), pairs=pairs), fusion=FUSED)
    sides = [data.left, data.right] if pairs else [data.left]
    fused = [np.tanh(side[:, [0, 2]].max(axis=1) @ PROJECTION) for side in sides]
    expected = fused[0]
    if pairs:
        expected = np.hstack([np.abs(fused[0] - fused[1]), fused[0] * fused[1]])
    np.testing.assert_allclose(data.features((0, 2)), expected, rtol=1e-5)


def test_large_means_and_dead_features_do_no_harm():
    data = layered(clouds(examples=120, width=5))
    shifted = data.left + np.float32(1000)
    shifted[:, :, 2] = 3
    dead = data.left.copy()
    dead[:, :, 2] = 0
    parts = divisions(np.arange(120), 2)
    subsets = layer_subsets(4, 2)
    found = inner_accuracies(replace(data, left=shifted), parts, subsets, 0.1)
    expected = inner_accuracies(replace(data, left=dead), parts, subsets, 0.1)
    # Adding 1000 costs three decimal digits of float32.
    np.testing.assert_allclose(found, expected, atol=0.04)
    nothing = replace(data, left=np.zeros_like(data.left))
    assert np.isfinite(inner_accuracies(nothing, parts, subsets, 0.1)).all()


def test_the_layer_that_tells_the_classes_apart_is_chosen_and_tested_by_logistic_regression():
    data = layered(clouds(examples=260, apart=1.5), good=1)
    score = search_transfer(data, QUICK)
    chosen, (last, last4, random) = score.chosen, score.baselines
    assert all(1 in layers for layers in chosen.layers)
    assert chosen.accuracy > last.accuracy + 0.1
    assert (last.layers[0], last4.layers[0]) == ((3,), (0, 1, 2, 3))
    assert list(map(len, random.layers)) == list(map(len, chosen.layers))
    assert sum(count for _, count in score.wins) == 3
    for number, (train, test) in enumerate(outer_divisions(data.data, 3, 0)):
        for one in (chosen, *score.baselines):
            found = one.accuracies[number]
            x = data.left[:, list(one.layers[number])].mean(axis=1)
            model = LogisticRegression(
                C=10, solver="saga", tol=0.01, max_iter=200, random_state=0
            ).fit(x[train], data.data.labels[train])
            assert found == pytest.approx(model.score(x[test], data.data.labels[test]), abs=0.03)
    for one in (chosen, *score.baselines):
        assert one.accuracy == pytest.approx(np.mean(one.accuracies))
        assert one.spread == pytest.approx(np.std(one.accuracies, ddof=1))
        assert len(one.correct) == len(score.tested)
    error = 1 - last.accuracy
    assert chosen.error_reduction(last) == pytest.approx(1 - (1 - chosen.accuracy) / error)
    assert last.error_reduction(last) == 0


def test_a_share_of_the_training_examples_leaves_the_tested_ones_as_they_are():
    data = layered(clouds(examples=300, apart=0.6))
    whole = search_transfer(data, QUICK)
    part = search_transfer(data, QUICK, train_share=0.1)
    np.testing.assert_array_equal(whole.tested, part.tested)
    for number, (train, test) in enumerate(outer_divisions(data.data, 3, 0)):
        few = train[:26]  # A tenth of 255.
        x = data.left[:, 3]
        model = LogisticRegression(C=10, solver="saga", tol=0.01, max_iter=200, random_state=0)
        score = model.fit(x[few], data.data.labels[few]).score(x[test], data.data.labels[test])
        assert part.baselines[0].accuracies[number] == pytest.approx(score, abs=0.03)
    with pytest.raises(ConfigError, match="train-share"):
        search_transfer(data, QUICK, train_share=0.0)


def test_tests_of_a_class_that_training_lacks_are_counted():
    data = layered(clouds(examples=90, classes=3, apart=0.6))
    # The third class has one example.
    labels = np.minimum(data.data.labels, 1)
    labels[7] = 2
    data = replace(data, data=replace(data.data, labels=labels))
    settings = replace(QUICK, outer=12)
    tested = sum(7 in test for _, test in outer_divisions(data.data, 12, 0))
    assert 0 < tested < 12
    assert search_transfer(data, settings).unseen == tested


def test_no_tested_example_has_a_part_in_the_choice():
    data = layered(clouds(examples=150, apart=0.6))
    settings = replace(QUICK, outer=1)
    before = search_transfer(data, settings)
    ((_, test),) = outer_divisions(data.data, 1, 0)
    labels = data.data.labels.copy()
    labels[test] = 1 - labels[test]
    left = data.left.copy()
    left[test] = np.random.default_rng(5).standard_normal(left[test].shape)
    other = LayerData(replace(data.data, labels=labels), left, None)
    after = search_transfer(other, settings)
    assert after.chosen.layers == before.chosen.layers
    np.testing.assert_array_equal(after.inner, before.inner)
    assert after.chosen.accuracy != before.chosen.accuracy


def test_finalists_are_decided_by_the_logistic_regression():
    data = layered(clouds(examples=150, apart=0.8))
    plain = search_transfer(data, replace(QUICK, outer=1))
    many = search_transfer(data, replace(QUICK, outer=1, finalists=4))
    np.testing.assert_array_equal(plain.inner, many.inner)
    ranked = np.argsort(-plain.inner[0].round(12), kind="stable")[:4]
    finalists = [plain.subsets.layers(int(place)) for place in ranked]
    assert plain.chosen.layers[0] == finalists[0]
    assert many.chosen.layers[0] in finalists


def test_progress_is_reported_and_impossible_settings_are_refused():
    data = layered(clouds(examples=60))
    done = []
    score = search_transfer(data, QUICK, done=done.append)
    assert sum(done) == 3 * 4 * len(score.subsets)
    for bad in ({"outer": 0}, {"inner": 0}, {"strength": 0.0}, {"finalists": 0}):
        with pytest.raises(ConfigError):
            replace(QUICK, **bad)
    with pytest.raises(BadInputError, match="at least 7 examples"):
        search_transfer(layered(clouds(examples=6)), QUICK)
