"""Protocols of classification: training, choice and test of a classifier.

``senteval`` (Conneau and Kiela 2018; Wang and Kuo 2020) follows the splits of a task:

- one split: nested cross-validation; each fold is tested once, and inner folds of the rest choose
  the strength of regularization;
- train and test: folds of train choose, and all of train is trained on;
- train, dev and test: dev chooses, and only train is trained on.

``bert-lc`` (Hosseini et al. 2023) merges all splits and divides them at random into 85% to train
on and 15% to test on, ten times; its strength is fixed, so nothing is chosen.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.datasets.classification import ClassificationTask
from eval.layers.search import Head
from eval.metrics.comparison import mean_and_spread
from eval.progress import Done, ignore
from eval.sentences.experiment import ACCURACY, VectorScore
from eval.sentences.supervised import pair_features
from eval.settings import TransferProtocol
from eval.transfer.classifiers import Classifier, Job, LogisticRegressions, Rows
from eval.vectors import TextVectors
from retriever.errors import BadInputError

_SPLIT_LAYOUTS = (("all",), ("train", "test"), ("train", "dev", "test"))
_TEST_SHARE = 0.15


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationData:
    """A classification task under one encoder.

    Attributes:
        classes: classes of the training split first.
        features: (examples, features), split after split: the vector of a text, or |u - v| and
            u * v of a pair.
        labels: (examples,) positions in `classes`.
        splits: split to its rows.
        pairs: whether an example is a pair of texts.
    """

    name: str
    classes: tuple[str, ...]
    features: NDArray[np.float32]
    labels: Rows
    splits: Mapping[str, Rows]
    pairs: bool


@dataclass(frozen=True, slots=True, eq=False)
class LayerData:
    """A classification task with (examples, hidden states, width) vectors in place of features."""

    data: ClassificationData
    left: NDArray[np.float32]
    right: NDArray[np.float32] | None
    head: Head | None = None

    @property
    def hidden_states(self) -> int:
        """Number of layers, including the embeddings."""
        return int(self.left.shape[1])

    def features(self, layers: Sequence[int]) -> NDArray[np.float32]:
        """Return the features of a mean of layers (Hosseini et al. 2023), not normalized."""
        sides = [
            side[:, list(layers)].mean(axis=1)
            for side in (self.left, self.right)
            if side is not None
        ]
        if self.head is not None:
            sides = list(map(self.head, sides))
        return sides[0] if self.right is None else pair_features(*sides)


def task_texts(task: ClassificationTask) -> list[str]:
    """Return each distinct text of a task."""
    parts = task.splits.values()
    return list(dict.fromkeys(text for part in parts for text in (*part.left, *(part.right or ()))))


def classification_data(task: ClassificationTask, vectors: TextVectors) -> ClassificationData:
    """Return a task with its features."""
    layers = layer_data(task, vectors)
    features = layers.left if layers.right is None else pair_features(layers.left, layers.right)
    return replace(layers.data, features=features)


def layer_data(
    task: ClassificationTask, vectors: TextVectors, head: Head | None = None
) -> LayerData:
    """Return a task with the (hidden states, width) vectors of each text."""
    data = task_classes(task)
    parts = task.splits.values()
    left = vectors.of([text for part in parts for text in part.left])
    right = None
    if data.pairs:
        right = vectors.of([text for part in parts for text in part.right or ()])
    return LayerData(data, left, right, head)


def task_classes(task: ClassificationTask) -> ClassificationData:
    """Return a task without features.

    Raises:
        BadInputError: its splits are incomplete or empty, or it has fewer than two classes.
    """
    if not any(set(task.splits) == set(layout) for layout in _SPLIT_LAYOUTS):
        expected = "; or ".join(", ".join(layout) for layout in _SPLIT_LAYOUTS)
        raise BadInputError(
            f"{task.name}: expected the splits {expected}; found "
            f"{', '.join(task.splits) or 'none'}; add the missing split"
        )
    for name, part in task.splits.items():
        if not len(part):
            raise BadInputError(f"{task.name}: the split {name} is empty; add texts to it")
    train = task.splits["all"] if "all" in task.splits else task.splits["train"]
    classes = tuple(sorted(set(train.labels)))
    if len(classes) < 2:
        raise BadInputError(
            f"{task.name}: expected at least 2 classes to tell apart, found {classes[0]!r} alone "
            f"in all {len(train)} texts; check the labels"
        )
    all_labels = {label for part in task.splits.values() for label in part.labels}
    classes += tuple(sorted(all_labels - set(classes)))
    class_numbers = {label: number for number, label in enumerate(classes)}
    splits: dict[str, Rows] = {}
    labels: list[int] = []
    for name, part in task.splits.items():
        splits[name] = np.arange(len(labels), len(labels) + len(part))
        labels += [class_numbers[label] for label in part.labels]
    pairs = any(part.right is not None for part in task.splits.values())
    no_features = np.zeros((len(labels), 0), np.float32)
    return ClassificationData(
        task.name, classes, no_features, np.array(labels, np.int64), splits, pairs
    )


def task_facts(task: ClassificationTask, tested: Rows) -> dict[str, str]:
    """Return the facts of a report on a task; `tested` are the rows that were tested."""
    data = task_classes(task)
    majority = np.bincount(data.labels[tested]).max() / len(tested)
    splits = ", ".join(f"{name} {len(part):,}" for name, part in task.splits.items())
    return {
        "splits": splits,
        "classes": f"{len(data.classes):,}",
        "tested examples": f"{len(tested):,}, of which {100 * majority:.2f}% are of one class",
    }


def tested_columns(task: ClassificationTask, tested: Rows) -> dict[str, list[object]]:
    """Return split, label and texts of the tested examples as columns."""
    rows = [
        (split, label, left, right)
        for split, part in task.splits.items()
        for label, left, right in zip(
            part.labels, part.left, part.right or [""] * len(part), strict=True
        )
    ]
    names = ["split", "label", "text"]
    if any(part.right is not None for part in task.splits.values()):
        names.append("text2")
    return {name: [rows[int(row)][column] for row in tested] for column, name in enumerate(names)}


class Outcome(NamedTuple):
    """The predictions of a classifier with one seed, test part after test part.

    Attributes:
        strengths: strength of regularization of each part.
        dev: mean accuracy that chose the strengths; None if there was no choice.
        unseen: number of tested examples whose class is not in the training data.
    """

    rows: Rows
    predicted: Rows
    correct: NDArray[np.bool_]
    strengths: tuple[float, ...]
    dev: float | None
    unseen: int


def run_protocol(
    data: ClassificationData, classifier: Classifier, protocol: TransferProtocol, seed: int
) -> Outcome:
    """Train, choose and test with one seed, which decides folds, divisions and first weights."""

    def predict(jobs: Sequence[Job]) -> list[Rows]:
        check_classes(data, [job.train for job in jobs])
        return classifier.predict(data.features, data.labels, jobs, seed)

    if protocol.name == "bert-lc":
        (strength,) = classifier.grid(folded=False)
        jobs = [Job(*parts, (strength,)) for parts in outer_divisions(data, protocol.outer, seed)]
        return join_outcome(data, jobs, predict(jobs), None)
    if "dev" in data.splits:
        grid = classifier.grid(folded=False)
        train, dev, test = (data.splits[name] for name in ("train", "dev", "test"))
        # One training per strength is enough: the best one is tested.
        (held_out_predictions,) = predict([Job(train, np.concatenate([dev, test]), grid)])
        best, score = _best_strength(data, [(dev, held_out_predictions[:, : len(dev)])])
        final_job = Job(train, test, (grid[best],))
        return join_outcome(
            data, [final_job], [held_out_predictions[best : best + 1, len(dev) :]], score
        )
    if "all" in data.splits:
        parts = stratified_folds(data, data.splits["all"], protocol.folds, seed)
    else:
        parts = [(data.splits["train"], data.splits["test"])]
    grid = classifier.grid(folded="all" not in data.splits)
    jobs = []
    scores = []
    for train, test in parts:
        folds = [Job(*fold, grid) for fold in stratified_folds(data, train, protocol.folds, seed)]
        predictions = predict(folds)
        fold_predictions = [
            (fold.test, predicted) for fold, predicted in zip(folds, predictions, strict=True)
        ]
        best, score = _best_strength(data, fold_predictions)
        jobs.append(Job(train, test, (grid[best],)))
        scores.append(score)
    return join_outcome(data, jobs, predict(jobs), float(np.mean(scores)))


def outer_divisions(data: ClassificationData, count: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Divide all examples at random into 85% and 15%: (rows to train on, rows to test on)."""
    examples = len(data.labels)
    test_size = int(examples * _TEST_SHARE)
    if test_size < 1:
        raise BadInputError(
            f"{data.name}: expected at least 7 examples to test 15% of them, found {examples}; "
            "add examples"
        )
    random = np.random.default_rng([seed, 2])
    orders = [random.permutation(examples) for _ in range(count)]
    return [(order[test_size:], order[:test_size]) for order in orders]


def stratified_folds(
    data: ClassificationData, rows: Rows, folds: int, seed: int
) -> list[tuple[Rows, Rows]]:
    """Divide rows into stratified, shuffled folds: (rows of other folds, rows of the fold)."""
    from sklearn.model_selection import StratifiedKFold

    labels = data.labels[rows]
    largest = int(np.bincount(labels).max())
    if largest < folds:
        raise BadInputError(
            f"{data.name}: expected at least {folds} examples of a class for {folds} folds, found "
            f"at most {largest}; add examples or set fewer folds"
        )
    divider = StratifiedKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # A class with fewer examples than folds is missing from some folds.
        warnings.filterwarnings("ignore", message="The least populated class")
        return [(rows[train], rows[test]) for train, test in divider.split(labels, labels)]


def check_classes(data: ClassificationData, training_rows: Iterable[Rows]) -> None:
    """Raise BadInputError if all rows of a training part have the same class."""
    for rows in training_rows:
        labels = data.labels[rows]
        if (labels == labels[0]).all():
            raise BadInputError(
                f"{data.name}: {len(rows)} examples to train on are all of class "
                f"{data.classes[labels[0]]!r}: another class has too few examples; add some, or "
                "train on a larger share"
            )


def _best_strength(
    data: ClassificationData, parts: Iterable[tuple[Rows, Rows]]
) -> tuple[int, float]:
    """Return the position of the first strength with the highest mean accuracy, and this mean."""
    accuracies = [(predicted == data.labels[rows]).mean(axis=1) for rows, predicted in parts]
    scores = np.mean(accuracies, axis=0)
    best = int(np.argmax(np.round(scores, 12)))
    return best, float(scores[best])


def join_outcome(
    data: ClassificationData, jobs: Sequence[Job], predictions: Sequence[Rows], dev: float | None
) -> Outcome:
    """Join the test parts of jobs that have one strength each."""
    is_trained_class = [np.isin(data.labels[job.test], data.labels[job.train]) for job in jobs]
    rows = np.concatenate([job.test for job in jobs])
    predicted = np.concatenate([strength_predictions[0] for strength_predictions in predictions])
    return Outcome(
        rows,
        predicted,
        predicted == data.labels[rows],
        tuple(job.values[0] for job in jobs),
        dev,
        int((~np.concatenate(is_trained_class)).sum()),
    )


def score_classification(
    data: ClassificationData,
    classifier: Classifier,
    protocol: TransferProtocol | None = None,
    seeds: int = 5,
    done: Done = ignore,
) -> VectorScore:
    """Train and test a classifier with seeds 0, 1, ...; with one seed if nothing is random."""
    protocol = protocol or TransferProtocol()
    count = effective_seeds(data, classifier, protocol, seeds)
    outcomes = []
    for seed in range(count):
        outcomes.append(run_protocol(data, classifier, protocol, seed))
        done(1)
    scores = [_seed_score(data, score) for score in outcomes]
    f1s = [score["f1"] for score in scores if score["f1"] is not None]
    tested, correct = tested_rows(outcomes)
    unseen = sum(outcome.unseen for outcome in outcomes)
    notes = unseen_notes(unseen)
    if isinstance(classifier, LogisticRegressions) and classifier.unconverged:
        notes.insert(0, f"{classifier.unconverged:,} fits reached the maximum number of steps")
    return VectorScore(
        values={ACCURACY: mean_and_spread([score["accuracy"] for score in scores])},
        predictions=correct[None],
        extra={"F1": float(np.mean(f1s))} if f1s else {},
        details={"seeds": scores, "unseen": unseen},
        note="; ".join(notes),
        tested=tested,
    )


def effective_seeds(
    data: ClassificationData, classifier: Classifier, protocol: TransferProtocol, seeds: int
) -> int:
    """Return the number of seeds: one if neither classifier nor examples are random."""
    is_deterministic = (
        protocol.name == "senteval" and "dev" in data.splits and not classifier.seeded
    )
    return 1 if is_deterministic else seeds


def tested_rows(outcomes: Sequence[Outcome]) -> tuple[Rows, NDArray[np.float64]]:
    """Return the tested rows, ascending, and the share of correct tests of each."""
    rows = np.concatenate([outcome.rows for outcome in outcomes])
    tested, positions, test_counts = np.unique(rows, return_inverse=True, return_counts=True)
    correct_counts = np.bincount(
        positions, np.concatenate([outcome.correct for outcome in outcomes])
    )
    return tested, correct_counts / test_counts


def _seed_score(data: ClassificationData, outcome: Outcome) -> dict[str, Any]:
    # F1 of the second of two classes of pairs: in MRPC, 1, a paraphrase.
    f1 = None
    if data.pairs and len(data.classes) == 2:
        predicted_positive = outcome.predicted == 1
        positive = data.labels[outcome.rows] == 1
        doubled_true_positives = 2 * int((predicted_positive & positive).sum())
        f1 = doubled_true_positives / max(int(predicted_positive.sum() + positive.sum()), 1)
    accuracy = float(outcome.correct.mean())
    return {"accuracy": accuracy, "f1": f1, "dev": outcome.dev, "chosen": outcome.strengths}


def unseen_notes(unseen: int) -> list[str]:
    """Return a note on the tests that no classifier could get right; none for 0."""
    return [f"{unseen:,} tests of a class that is not in the training data"] if unseen else []
