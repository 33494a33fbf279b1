"""The search for layers on tasks of classification, against brute force by scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from eval.layers.subsets import layer_subsets
from eval.settings import LayerTransferSettings, TransferSettings
from eval.transfer.layer_search import STRENGTH, inner_accuracies, search_transfer
from eval.transfer.protocols import LayerData, outer_divisions
from retriever.errors import BadInputError, ConfigError
from tests.eval.transfer.classification_samples import clouds, layered

PROJECTION = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)


def head(vectors):
    return np.tanh(vectors @ PROJECTION)


QUICK = LayerTransferSettings(max_layers=2, outer=3, inner=4)


def divisions(rows, count, seed=0):
    random = np.random.default_rng(seed)
    orders = [random.permutation(rows) for _ in range(count)]
    return [(order[len(order) // 4 :], order[: len(order) // 4]) for order in orders]


def brute_force(data, parts, layers):
    """Return accuracies of scikit-learn's ridge regression on class indicators."""
    x = data.features(layers).astype(np.float64)
    y = data.data.labels
    accuracies = []
    for train, test in parts:
        targets = 2.0 * np.eye(len(data.data.classes))[y[train]] - 1
        penalty = STRENGTH * x[train].var(axis=0).mean() * len(train)
        outputs = Ridge(alpha=penalty).fit(x[train], targets).predict(x[test])
        accuracies.append((outputs.argmax(axis=1) == y[test]).mean())
    return accuracies


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(("classes", "most", "head"), [(2, 4, None), (3, 2, None), (2, 2, head)])
def test_inner_accuracies_of_all_layer_sets_equal_brute_force(pairs, classes, most, head):
    data = layered(clouds(examples=160, classes=classes, width=5), pairs=pairs)
    data = replace(data, head=head)
    # Some rows take no part.
    parts = divisions(np.arange(20, 160), 3)
    subsets = layer_subsets(4, most)
    done = []
    accuracies = inner_accuracies(data, parts, subsets, done.append)
    for place in range(len(subsets)):
        expected = brute_force(data, parts, subsets.layers(place))
        np.testing.assert_allclose(accuracies[:, place], expected, atol=1e-12)
    assert sum(done) == 3 * len(subsets)


def test_inner_accuracies_tolerate_large_means_and_constant_features():
    data = layered(clouds(examples=120, width=5))
    shifted = data.left + np.float32(1000)
    shifted[:, :, 2] = 3
    dead = data.left.copy()
    dead[:, :, 2] = 0
    parts = divisions(np.arange(120), 2)
    subsets = layer_subsets(4, 2)
    accuracies = inner_accuracies(replace(data, left=shifted), parts, subsets)
    expected = inner_accuracies(replace(data, left=dead), parts, subsets)
    # Adding 1000 costs three decimal digits of float32.
    np.testing.assert_allclose(accuracies, expected, atol=0.04)
    nothing = replace(data, left=np.zeros_like(data.left))
    assert np.isfinite(inner_accuracies(nothing, parts, subsets)).all()


def regression(data, layers, train, test):
    """Return the accuracy of plain logistic regression on a mean of layers."""
    x, y = data.left[:, list(layers)].mean(axis=1), data.data.labels
    model = LogisticRegression(C=10, solver="saga", tol=0.01, max_iter=200, random_state=0)
    return model.fit(x[train], y[train]).score(x[test], y[test])


def test_search_transfer_chooses_the_separating_layer_and_scores_it_by_logistic_regression():
    data, done = layered(clouds(examples=260, apart=1.5), good=1), []
    scores = search_transfer(data, QUICK, done.append)
    assert sum(done) == 3 * 4 * 10
    assert list(scores) == ["last", "last4", "random", "chosen"]
    divisions = scores["chosen"].details["divisions"]
    layers = {name: scores[name].details["layers"] for name in ("last", "last4", "random")}
    layers["chosen"] = [division["layers"] for division in divisions]
    assert layers["last"] == [(3,)] * 3
    assert layers["last4"] == [(0, 1, 2, 3)] * 3
    assert all(1 in layer_set for layer_set in layers["chosen"])
    assert list(map(len, layers["random"])) == list(map(len, layers["chosen"]))
    assert [division["baseline"] for division in divisions] == scores["last"].details["accuracies"]
    wins = scores["chosen"].details["wins"]
    assert sum(win["divisions"] for win in wins) == 3
    first = f"{','.join(map(str, wins[0]['layers']))} ({wins[0]['divisions']})"
    assert scores["chosen"].note.startswith(f"layers chosen (divisions): {first}")
    accuracies = {name: score.details.get("accuracies") for name, score in scores.items()}
    accuracies["chosen"] = [division["accuracy"] for division in divisions]
    assert np.mean(accuracies["chosen"]) > np.mean(accuracies["last"]) + 0.1
    error = 1 - np.mean(accuracies["last"])
    for name, score in scores.items():
        for number, (train, test) in enumerate(outer_divisions(data.data, 3, 0)):
            expected = regression(data, layers[name][number], train, test)
            assert accuracies[name][number] == pytest.approx(expected, abs=0.03)
        mean, spread = np.mean(accuracies[name]), np.std(accuracies[name], ddof=1)
        assert score.values == {"accuracy": pytest.approx((mean, spread))}
        assert score.extra["error reduction"] == pytest.approx(1 - (1 - mean) / error)
        assert len(score.predictions[0]) == len(score.tested)


def test_training_share_does_not_change_the_tested_examples():
    data = layered(clouds(examples=300, apart=0.6))
    whole = search_transfer(data, QUICK)["last"]
    part = search_transfer(data, QUICK, train_share=0.1)["last"]
    np.testing.assert_array_equal(whole.tested, part.tested)
    for number, (train, test) in enumerate(outer_divisions(data.data, 3, 0)):
        # A tenth of 255.
        expected = regression(data, (3,), train[:26], test)
        assert part.details["accuracies"][number] == pytest.approx(expected, abs=0.03)
    for shares in ((0.0,), (0.5, 0.5), ()):
        with pytest.raises(ConfigError, match="train-share"):
            TransferSettings(train_shares=shares)
    with pytest.raises(BadInputError, match="at least 6 examples to choose layers on, found 3"):
        search_transfer(data, QUICK, train_share=0.01)


def test_tests_of_a_class_that_training_lacks_are_counted():
    data = layered(clouds(examples=90, classes=3, apart=0.6))
    # The third class has one example.
    labels = np.minimum(data.data.labels, 1)
    labels[7] = 2
    data = replace(data, data=replace(data.data, labels=labels))
    tested = sum(7 in test for _, test in outer_divisions(data.data, 12, 0))
    assert 0 < tested < 12
    note = search_transfer(data, replace(QUICK, outer=12))["random"].note
    assert note.startswith(f"{tested} tests of a class")


def test_layer_choice_does_not_depend_on_tested_examples():
    data = layered(clouds(examples=150, apart=0.6))
    settings = replace(QUICK, outer=1)
    before = search_transfer(data, settings)["chosen"].details["divisions"][0]
    ((_, test),) = outer_divisions(data.data, 1, 0)
    labels, left = data.data.labels.copy(), data.left.copy()
    labels[test] = 1 - labels[test]
    left[test] = np.random.default_rng(5).standard_normal(left[test].shape)
    other = LayerData(replace(data.data, labels=labels), left, None)
    after = search_transfer(other, settings)["chosen"].details["divisions"][0]
    assert [after[name] for name in ("layers", "inner")] == [before["layers"], before["inner"]]
    assert after["accuracy"] != before["accuracy"]
