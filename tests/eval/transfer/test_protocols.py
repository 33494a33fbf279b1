"""Protocols of classification against plain scikit-learn code, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from eval.datasets.classification import ClassificationTask, LabeledTexts
from eval.transfer.classifiers import LogisticRegressions, MLPs
from eval.transfer.protocols import (
    TransferProtocol,
    classification_data,
    layer_data,
    outer_divisions,
    run_protocol,
    score_classification,
    task_texts,
    trainings,
)
from eval.vectors import TextVectors
from retriever.errors import BadInputError, ConfigError
from tests.eval.transfer.classification_samples import clouds

NOISE = 0.02


def plain(value):
    return LogisticRegression(C=value, max_iter=5000)


def fold_choice(x, y, folds, seed, grid):
    """The strength that plain folds choose, and its accuracy."""
    divider = StratifiedKFold(folds, shuffle=True, random_state=seed)
    scores = [
        np.mean([plain(value).fit(x[a], y[a]).score(x[b], y[b]) for a, b in divider.split(x, y)])
        for value in grid
    ]
    return grid[int(np.argmax(scores))], max(scores)


def test_nested_folds_are_those_of_plain_scikit_learn():
    data = clouds(examples=150, apart=1.5)
    x, y = data.features, data.labels
    classifier = LogisticRegressions("senteval")
    outcome = run_protocol(data, classifier, TransferProtocol(folds=4), 3)
    right, chosen = [], []
    divider = StratifiedKFold(4, shuffle=True, random_state=3)
    for train, test in divider.split(x, y):
        value, _ = fold_choice(x[train], y[train], 4, 3, classifier.grid(folded=False))
        chosen.append(value)
        right += (plain(value).fit(x[train], y[train]).predict(x[test]) == y[test]).tolist()
    assert outcome.chosen == tuple(chosen)
    assert sorted(outcome.rows) == list(range(150))
    assert (outcome.predicted == y[outcome.rows]).mean() == pytest.approx(np.mean(right), abs=NOISE)


def test_folds_of_train_choose_for_train_and_test():
    data = clouds(examples=200, classes=3, apart=1.5, splits=(0.7, 0.3))
    train, test = data.splits["train"], data.splits["test"]
    classifier = LogisticRegressions("senteval")
    outcome = run_protocol(data, classifier, TransferProtocol(folds=5), 1)
    x, y = data.features, data.labels
    value, dev = fold_choice(x[train], y[train], 5, 1, classifier.grid(folded=True))
    assert outcome.chosen == (value,)
    assert outcome.dev == pytest.approx(dev, abs=NOISE)
    expected = plain(value).fit(x[train], y[train]).predict(x[test])
    assert (outcome.predicted == expected).mean() > 1 - NOISE
    np.testing.assert_array_equal(outcome.rows, test)


def test_dev_chooses_where_there_is_one_and_test_has_no_say():
    data = clouds(examples=240, apart=1, splits=(0.5, 0.25, 0.25))
    train, dev, test = data.splits.values()
    classifier = LogisticRegressions("senteval")
    outcome = run_protocol(data, classifier, TransferProtocol(), 0)
    x, y = data.features, data.labels
    models = [plain(value).fit(x[train], y[train]) for value in classifier.grid(folded=False)]
    scores = [model.score(x[dev], y[dev]) for model in models]
    best = int(np.argmax(scores))
    assert outcome.dev == pytest.approx(scores[best], abs=NOISE)
    assert (outcome.predicted == models[best].predict(x[test])).mean() > 1 - NOISE
    flipped = data.labels.copy()
    flipped[test] = 1 - flipped[test]
    again = run_protocol(replace(data, labels=flipped), classifier, TransferProtocol(), 0)
    assert again.chosen == outcome.chosen
    np.testing.assert_array_equal(again.predicted, outcome.predicted)


def test_bert_lc_divides_all_examples_and_chooses_nothing():
    data = clouds(examples=120, splits=(0.6, 0.2, 0.2))
    outcome = run_protocol(
        data, LogisticRegressions("bert-lc"), TransferProtocol("bert-lc", outer=6), 0
    )
    assert outcome.chosen == (10,) * 6
    assert outcome.dev is None
    assert len(outcome.rows) == 6 * 18
    for train, test in outer_divisions(data, 6, 0):
        assert sorted([*train, *test]) == list(range(120))


@pytest.mark.parametrize("splits", [None, (0.7, 0.3), (0.6, 0.2, 0.2)])
def test_progress_counts_every_training(splits):
    data = clouds(examples=90, splits=splits)
    for classifier in (LogisticRegressions(), MLPs(epochs=1)):
        done = []
        protocol = TransferProtocol(folds=3)
        run_protocol(data, classifier, protocol, 0, done.append)
        assert sum(done) == trainings(data, classifier, protocol)


def test_a_score_is_mean_and_deviation_over_seeds_and_keeps_every_example():
    data = clouds(examples=100, apart=0.7)
    score = score_classification(data, MLPs(epochs=2), TransferProtocol(folds=3), seeds=3)
    shares = [one.accuracy for one in score.seeds]
    assert score.accuracy == pytest.approx(np.mean(shares))
    assert score.spread == pytest.approx(np.std(shares, ddof=1))
    assert len(set(shares)) > 1
    assert score.correct.mean() == pytest.approx(score.accuracy)
    np.testing.assert_array_equal(score.tested, np.arange(100))
    assert score.f1 is None


def test_what_nothing_random_decides_is_run_once():
    data = clouds(examples=100, splits=(0.6, 0.2, 0.2))
    score = score_classification(data, LogisticRegressions(), seeds=5)
    assert len(score.seeds) == 1
    assert score.spread is None
    assert len(score_classification(data, MLPs(epochs=1), seeds=2).seeds) == 2


def test_f1_of_pairs_is_that_of_scikit_learn():
    data = clouds(examples=120, apart=1, splits=(0.6, 0.4), pairs=True)
    score = score_classification(data, LogisticRegressions(), TransferProtocol(folds=3), seeds=1)
    outcome = run_protocol(data, LogisticRegressions(), TransferProtocol(folds=3), 0)
    expected = f1_score(data.labels[outcome.rows], outcome.predicted)
    assert score.f1 == pytest.approx(expected)


def texts(labels, pairs=False):
    left = tuple(f"{label} {row}" for row, label in enumerate(labels))
    return LabeledTexts(tuple(labels), left, tuple(reversed(left)) if pairs else None)


def vectors(task, *shape, seed=0):
    listed = task_texts(task)
    table = np.random.default_rng(seed).standard_normal((len(listed), *shape))
    return TextVectors(listed, table.astype(np.float32))


def test_features_of_a_text_are_its_vector_and_of_a_pair_difference_and_product():
    single = ClassificationTask("mr", {"all": texts("pnpn")})
    known = vectors(single, 3)
    data = classification_data(single, known)
    np.testing.assert_array_equal(data.features, known.of(single.splits["all"].left))
    assert data.classes == ("n", "p")
    np.testing.assert_array_equal(data.labels, [1, 0, 1, 0])
    paired = ClassificationTask("mrpc", {"train": texts("10", True), "test": texts("01", True)})
    known = vectors(paired, 3)
    data = classification_data(paired, known)
    part = paired.splits["test"]
    u, v = known.of(part.left), known.of(part.right)
    expected = np.concatenate([abs(u - v), u * v], axis=1)
    np.testing.assert_array_equal(data.features[data.splits["test"]], expected)
    assert data.pairs


@pytest.mark.parametrize("pairs", [False, True])
def test_features_of_layers_are_those_of_their_mean(pairs):
    task = ClassificationTask("task", {"all": texts("abab", pairs)})
    known = vectors(task, 4, 3)
    data = layer_data(task, known)
    part = task.splits["all"]
    mean = TextVectors(task_texts(task), known.of(task_texts(task))[:, [0, 2]].mean(axis=1))
    expected = classification_data(task, mean)
    assert part.right is None or pairs
    np.testing.assert_allclose(data.features((0, 2)), expected.features, atol=1e-6)
    np.testing.assert_array_equal(data.data.labels, expected.labels)
    assert data.hidden_states == 4


def test_a_label_that_training_lacks_counts_as_wrong_and_is_counted():
    splits = {"train": texts("ab" * 10), "dev": texts("abab"), "test": texts("abzz")}
    task = ClassificationTask("task", splits)
    data = classification_data(task, vectors(task, 3))
    assert data.classes == ("a", "b", "z")
    for classifier in (LogisticRegressions(), MLPs(epochs=1)):
        score = score_classification(data, classifier, seeds=1)
        assert score.unseen == 2
        np.testing.assert_array_equal(score.correct[2:], 0)


def refused(make):
    with pytest.raises(BadInputError) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_what_cannot_be_learned_is_named_in_one_line():
    def data(**splits):
        task = ClassificationTask("task", splits)
        return classification_data(task, vectors(task, 3))

    message = refused(lambda: data(all=texts("aaaa")))
    assert message == (
        "task: expected at least 2 classes to tell apart, found 'a' alone in all 4 texts; check "
        "the labels"
    )
    assert "found train, dev" in refused(lambda: data(train=texts("ab"), dev=texts("ab")))
    assert "split test is empty" in refused(lambda: data(train=texts("ab"), test=texts("")))
    few = data(all=texts("abab"))
    message = refused(lambda: score_classification(few, LogisticRegressions()))
    assert message.startswith("task: expected at least 10 examples of a class for 10 folds, found")
    rare = data(all=texts("a" * 20 + "b"))
    message = refused(lambda: score_classification(rare, MLPs(), TransferProtocol(folds=5)))
    assert "are all of class 'a'" in message
    tiny = data(all=texts("ababab"))
    bert_lc = LogisticRegressions("bert-lc")
    assert "at least 7 examples" in refused(
        lambda: score_classification(tiny, bert_lc, TransferProtocol("bert-lc"))
    )


def test_impossible_protocols_are_refused():
    for bad in ({"folds": 1}, {"outer": 0}, {"name": "loo"}):
        with pytest.raises(ConfigError):
            TransferProtocol(**bad)
    with pytest.raises(ConfigError, match="seeds: expected at least 1"):
        score_classification(clouds(), LogisticRegressions(), seeds=0)
