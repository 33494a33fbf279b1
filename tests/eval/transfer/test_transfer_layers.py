"""The search for layers on tasks of classification, against brute force by scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from eval.layers.subsets import layer_subsets
from eval.transfer.batched_mlp import MLPs
from eval.transfer.data import LayerData
from eval.transfer.layer_search import LayerTransferSettings, search_transfer
from eval.transfer.protocols import outer_divisions
from eval.transfer.subset_ridge import inner_accuracies
from retriever.errors import BadInputError, ConfigError
from tests.eval.transfer.classification_samples import clouds, layered

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
@pytest.mark.parametrize(("classes", "most"), [(2, 4), (3, 2)])
def test_the_accuracy_of_every_set_is_that_of_brute_force(pairs, classes, most):
    data = layered(clouds(examples=160, classes=classes, width=5), pairs=pairs)
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
    assert all(1 in one.layers for one in score.divisions)
    assert score.accuracy > score.baseline + 0.1
    assert sum(count for _, count in score.wins) == 3
    for one, (train, test) in zip(score.divisions, outer_divisions(data.data, 3, 0), strict=True):
        for layers, found in ((one.layers, one.accuracy), ((3,), one.baseline)):
            x = data.left[:, list(layers)].mean(axis=1)
            model = LogisticRegression(
                C=10, solver="saga", tol=0.01, max_iter=200, random_state=0
            ).fit(x[train], data.data.labels[train])
            assert found == pytest.approx(model.score(x[test], data.data.labels[test]), abs=0.03)
    accuracies = [one.accuracy for one in score.divisions]
    assert score.accuracy == pytest.approx(np.mean(accuracies))
    assert score.spread == pytest.approx(np.std(accuracies, ddof=1))
    assert len(score.correct) == len(score.baseline_correct) == len(score.tested)


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
    assert after.divisions[0].layers == before.divisions[0].layers
    np.testing.assert_array_equal(after.inner, before.inner)
    assert after.accuracy != before.accuracy


def test_finalists_are_decided_by_the_logistic_regression():
    data = layered(clouds(examples=150, apart=0.8))
    plain = search_transfer(data, replace(QUICK, outer=1))
    many = search_transfer(data, replace(QUICK, outer=1, finalists=4))
    np.testing.assert_array_equal(plain.inner, many.inner)
    ranked = np.argsort(-plain.inner[0].round(12), kind="stable")[:4]
    finalists = [plain.subsets.layers(int(place)) for place in ranked]
    assert plain.divisions[0].layers == finalists[0]
    assert many.divisions[0].layers in finalists


def test_progress_is_reported_and_impossible_settings_are_refused():
    data = layered(clouds(examples=60))
    done = []
    score = search_transfer(data, QUICK, done=done.append)
    assert sum(done) == 3 * 4 * len(score.subsets)
    with pytest.raises(ConfigError, match="one strength"):
        search_transfer(data, QUICK, MLPs())
    for bad in ({"outer": 0}, {"inner": 0}, {"strength": 0.0}, {"finalists": 0}):
        with pytest.raises(ConfigError):
            replace(QUICK, **bad)
    with pytest.raises(BadInputError, match="at least 7 examples"):
        search_transfer(layered(clouds(examples=6)), QUICK)
