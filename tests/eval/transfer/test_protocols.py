"""Protocols of classification against plain scikit-learn code, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from eval.datasets.classification import ClassificationTask, LabeledTexts
from eval.settings import TransferProtocol
from eval.transfer.classifiers import LogisticRegressions, MLPs
from eval.transfer.protocols import (
    classification_data,
    layer_data,
    outer_divisions,
    run_protocol,
    score_classification,
    task_texts,
)
from eval.vectors import TextVectors
from retriever.errors import BadInputError
from tests.eval.transfer.classification_samples import clouds

NOISE = 0.02
SENTEVAL = LogisticRegressions("senteval")


def plain(value):
    return LogisticRegression(C=value, max_iter=5000)


def fold_choice(x, y, folds, seed, grid):
    """Return the strength that plain folds choose, and its accuracy."""
    divider = StratifiedKFold(folds, shuffle=True, random_state=seed)
    scores = [
        np.mean([plain(value).fit(x[a], y[a]).score(x[b], y[b]) for a, b in divider.split(x, y)])
        for value in grid
    ]
    return grid[int(np.argmax(scores))], max(scores)


def test_nested_cross_validation_equals_scikit_learn():
    data = clouds(examples=120, apart=1.5)
    x, y = data.features, data.labels
    outcome = run_protocol(data, SENTEVAL, TransferProtocol(folds=3), 3)
    is_correct, strengths, scores = [], [], []
    divider = StratifiedKFold(3, shuffle=True, random_state=3)
    for train, test in divider.split(x, y):
        value, dev = fold_choice(x[train], y[train], 3, 3, SENTEVAL.grid(folded=False))
        strengths.append(value)
        scores.append(dev)
        is_correct += (plain(value).fit(x[train], y[train]).predict(x[test]) == y[test]).tolist()
    assert outcome.strengths == tuple(strengths)
    assert outcome.dev == pytest.approx(np.mean(scores), abs=NOISE)
    assert sorted(outcome.rows) == list(range(120))
    assert (outcome.predicted == y[outcome.rows]).mean() == pytest.approx(
        np.mean(is_correct), abs=NOISE
    )


def test_strength_for_the_test_split_is_chosen_by_folds_of_train():
    data = clouds(examples=150, classes=3, apart=1.5, splits=(0.7, 0.3))
    train, test = data.splits["train"], data.splits["test"]
    outcome = run_protocol(data, SENTEVAL, TransferProtocol(folds=3), 1)
    x, y = data.features, data.labels
    value, dev = fold_choice(x[train], y[train], 3, 1, SENTEVAL.grid(folded=True))
    assert outcome.strengths == (value,)
    assert outcome.dev == pytest.approx(dev, abs=NOISE)
    expected = plain(value).fit(x[train], y[train]).predict(x[test])
    assert (outcome.predicted == expected).mean() > 1 - NOISE
    np.testing.assert_array_equal(outcome.rows, test)


def test_strength_is_chosen_on_dev_independently_of_test_labels():
    data = clouds(examples=240, apart=1, splits=(0.5, 0.25, 0.25))
    train, dev, test = data.splits.values()
    outcome = run_protocol(data, SENTEVAL, TransferProtocol(), 0)
    x, y = data.features, data.labels
    models = [plain(value).fit(x[train], y[train]) for value in SENTEVAL.grid(folded=False)]
    scores = [model.score(x[dev], y[dev]) for model in models]
    best = int(np.argmax(scores))
    assert outcome.dev == pytest.approx(scores[best], abs=NOISE)
    assert (outcome.predicted == models[best].predict(x[test])).mean() > 1 - NOISE
    flipped = data.labels.copy()
    flipped[test] = 1 - flipped[test]
    again = run_protocol(replace(data, labels=flipped), SENTEVAL, TransferProtocol(), 0)
    assert again.strengths == outcome.strengths
    np.testing.assert_array_equal(again.predicted, outcome.predicted)


def test_bert_lc_divides_all_examples_with_a_fixed_strength():
    data = clouds(examples=120, splits=(0.6, 0.2, 0.2))
    protocol, classifier = TransferProtocol("bert-lc", outer=6), LogisticRegressions("bert-lc")
    outcome = run_protocol(data, classifier, protocol, 0)
    assert (outcome.strengths, outcome.dev) == ((10,) * 6, None)
    assert len(outcome.rows) == 6 * 18
    for train, test in outer_divisions(data, 6, 0):
        assert sorted([*train, *test]) == list(range(120))


def test_classification_score_is_the_mean_and_deviation_over_seeds():
    data, done = clouds(examples=100, apart=0.7), []
    score = score_classification(data, MLPs(epochs=2), TransferProtocol(folds=3), 3, done.append)
    assert done == [1, 1, 1]
    shares = [seed_values["accuracy"] for seed_values in score.details["seeds"]]
    assert len(set(shares)) > 1
    assert score.values["accuracy"] == pytest.approx((np.mean(shares), np.std(shares, ddof=1)))
    assert score.predictions.mean() == pytest.approx(np.mean(shares))
    np.testing.assert_array_equal(score.tested, np.arange(100))
    assert (score.extra, score.note, score.details["unseen"]) == ({}, "", 0)


def test_deterministic_classifier_is_run_for_one_seed():
    data = clouds(examples=100, splits=(0.6, 0.2, 0.2))
    score = score_classification(data, LogisticRegressions(), seeds=5)
    assert len(score.details["seeds"]) == 1
    assert score.values["accuracy"][1] is None
    assert len(score_classification(data, MLPs(epochs=1), seeds=2).details["seeds"]) == 2


def test_f1_of_pair_classification_equals_scikit_learn():
    data = clouds(examples=120, apart=1, splits=(0.6, 0.4), pairs=True)
    score = score_classification(data, LogisticRegressions(), TransferProtocol(folds=3), seeds=1)
    outcome = run_protocol(data, LogisticRegressions(), TransferProtocol(folds=3), 0)
    expected = f1_score(data.labels[outcome.rows], outcome.predicted)
    assert score.extra["F1"] == pytest.approx(expected)


def texts(labels, pairs=False):
    left = tuple(f"{label} {row}" for row, label in enumerate(labels))
    return LabeledTexts(tuple(labels), left, tuple(reversed(left)) if pairs else None)


def vectors(task, *shape):
    listed = task_texts(task)
    table = np.random.default_rng(0).standard_normal((len(listed), *shape))
    return TextVectors(listed, table.astype(np.float32))


@pytest.mark.parametrize("pairs", [False, True])
def test_features_are_text_vectors_or_differences_and_products_of_pairs(pairs):
    splits = {"train": texts("pnpn", pairs), "test": texts("np", pairs)}
    task = ClassificationTask("task", splits)
    text_vectors = vectors(task, 4, 3)
    fused = text_vectors.vectors[:, [0, 2]].mean(axis=1) * 2
    plain_data = classification_data(task, TextVectors(task_texts(task), fused))
    layers = layer_data(task, text_vectors, lambda vectors: 2 * vectors)
    mean = layer_data(task, text_vectors).features((0, 2))
    means = text_vectors.vectors[:, [0, 2]].mean(axis=1)
    for features, table in ((plain_data.features, fused), (mean, means)):
        rows = TextVectors(task_texts(task), table)
        u = rows.of([text for part in splits.values() for text in part.left])
        if pairs:
            v = rows.of([text for part in splits.values() for text in part.right])
            u = np.concatenate([abs(u - v), u * v], axis=1)
        np.testing.assert_allclose(features, u, atol=1e-6)
    np.testing.assert_array_equal(layers.features((0, 2)), plain_data.features)
    assert (plain_data.classes, plain_data.pairs, layers.hidden_states) == (("n", "p"), pairs, 4)
    for data in (plain_data, layers.data):
        np.testing.assert_array_equal(data.labels, [1, 0, 1, 0, 0, 1])
        assert {name: rows.tolist() for name, rows in data.splits.items()} == {
            "train": [0, 1, 2, 3],
            "test": [4, 5],
        }


def test_examples_of_a_class_missing_in_training_count_as_wrong():
    splits = {"train": texts("ab" * 10), "dev": texts("abab"), "test": texts("abzz")}
    task = ClassificationTask("task", splits)
    data = classification_data(task, vectors(task, 3))
    assert data.classes == ("a", "b", "z")
    for classifier in (LogisticRegressions(), MLPs(epochs=1)):
        score = score_classification(data, classifier, seeds=1)
        assert score.details["unseen"] == 2
        assert score.note == "2 tests of a class that is not in the training data"
        np.testing.assert_array_equal(score.predictions[0, 2:], 0)


@pytest.mark.parametrize(
    ("splits", "settings", "message"),
    [
        ({"all": "aaaa"}, {}, "expected at least 2 classes to tell apart, found 'a' alone in all"),
        ({"train": "ab", "dev": "ab"}, {}, "expected the splits .*; found train, dev"),
        ({"train": "ab", "test": ""}, {}, "the split test is empty"),
        ({"all": "abab"}, {}, "expected at least 10 examples of a class for 10 folds, found"),
        ({"all": "a" * 20 + "b"}, {"folds": 5}, "are all of class 'a'"),
        ({"all": "ababab"}, {"name": "bert-lc"}, "at least 7 examples"),
    ],
)
def test_splits_that_cannot_be_learned_are_refused(splits, settings, message):
    task = ClassificationTask("task", {name: texts(labels) for name, labels in splits.items()})
    classifier = LogisticRegressions("bert-lc") if "name" in settings else MLPs()
    with pytest.raises(BadInputError, match=f"^task: .*{message}"):
        score_classification(
            classification_data(task, vectors(task, 3)), classifier, TransferProtocol(**settings)
        )
