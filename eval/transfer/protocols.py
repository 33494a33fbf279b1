"""Protocols of the papers: the examples that a classifier is trained, chosen and tested on.

``senteval`` (Conneau and Kiela 2018; Wang and Kuo 2020) follows the splits of a task:

- one split: nested cross-validation; each fold is tested once, and inner folds of the rest choose
  the strength of regularization;
- train and test: folds of train choose, and all of train is trained on;
- train, dev and test: dev chooses, and only train is trained on.

``bert-lc`` (Hosseini et al. 2023) merges all splits and divides them at random into 85% to train
on and 15% to test on, ten times; its strength is fixed, so nothing is chosen.

Folds are stratified. The strength with the highest mean accuracy is chosen, the first of equal
ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eval.transfer.classifiers import Classifier, Job, Rows
from eval.transfer.data import ClassificationData
from retriever.errors import BadInputError, ConfigError, require_classifiers

ProtocolName = Literal["senteval", "bert-lc"]
Done = Callable[[int], object]

_TEST_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class TransferProtocol:
    """How a classifier is trained and tested.

    Attributes:
        name: ``senteval`` or ``bert-lc``.
        folds: number of folds of each cross-validation, at least 2.
        outer: number of divisions into training and test examples by ``bert-lc``.

    Raises:
        ConfigError: a value is impossible.
    """

    name: ProtocolName = "senteval"
    folds: int = 10
    outer: int = 10

    def __post_init__(self) -> None:
        if self.name not in ("senteval", "bert-lc"):
            raise ConfigError(f"protocol: expected senteval or bert-lc, found {self.name!r}")
        if self.folds < 2:
            raise ConfigError(f"folds: expected at least 2, found {self.folds}")
        if self.outer < 1:
            raise ConfigError(f"outer: expected at least 1, found {self.outer}")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The predictions of a classifier with one seed.

    Attributes:
        rows: the rows that were tested, test part after test part.
        predicted: the class of each of them.
        chosen: the strength of each test part.
        dev: the mean accuracy by which they were chosen; None if nothing was chosen.
        unseen: number of tests of an example whose class is not in the training data; these
            predictions cannot be right.
    """

    rows: Rows
    predicted: Rows
    chosen: tuple[float, ...]
    dev: float | None
    unseen: int


def run_protocol(
    data: ClassificationData,
    classifier: Classifier,
    protocol: TransferProtocol,
    seed: int,
    done: Done = lambda trained: None,
) -> Outcome:
    """Train, choose and test with one seed, which decides folds, divisions and first weights.

    Args:
        data: the task.
        classifier: what is trained.
        protocol: how.
        seed: at least 0; encoders with the same seed are tested on the same examples.
        done: called with the number of classifiers trained, `trainings` in all.

    Raises:
        BadInputError: there are fewer examples than folds, or a training part has only one class.
        MissingExtraError: scikit-learn is not installed.
    """
    require_classifiers()
    if protocol.name == "bert-lc":
        values = classifier.grid(folded=False)
        if len(values) != 1:
            raise ConfigError(
                f"protocol: bert-lc chooses no strength of regularization, and {classifier.name} "
                "has several; use the logistic regression of bert-lc"
            )
        jobs = [Job(*parts, values) for parts in outer_divisions(data, protocol.outer, seed)]
        predictions = classifier.predict(
            data.features, data.labels, checked_jobs(data, jobs), seed, done
        )
        return outcome(data, jobs, predictions, None)
    if "all" in data.splits:
        return _nested(data, classifier, protocol.folds, seed, done)
    learned, test = data.splits["train"], data.splits["test"]
    if "dev" in data.splits:
        grid = classifier.grid(folded=False)
        dev = data.splits["dev"]
        # One training per strength is enough: the best one is tested.
        job = Job(learned, np.concatenate([dev, test]), grid)
        (both,) = classifier.predict(
            data.features, data.labels, checked_jobs(data, [job]), seed, done
        )
        scores = _accuracies(data, [(dev, both[:, : len(dev)])])
        best = _best(scores)
        chosen = Job(learned, test, (grid[best],))
        return outcome(data, [chosen], [both[best : best + 1, len(dev) :]], float(scores[best]))
    return _folded(data, classifier, protocol.folds, seed, done)


def trainings(data: ClassificationData, classifier: Classifier, protocol: TransferProtocol) -> int:
    """The number of classifiers that `run_protocol` trains."""
    if protocol.name == "bert-lc":
        return protocol.outer
    if "all" in data.splits:
        values = len(classifier.grid(folded=False))
        return protocol.folds * (protocol.folds * values + 1)
    if "dev" in data.splits:
        return len(classifier.grid(folded=False))
    return protocol.folds * len(classifier.grid(folded=True)) + 1


def outer_divisions(data: ClassificationData, count: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Random divisions of all examples: (rows to train on, rows to test on), of 85% and 15%.

    Raises:
        BadInputError: there are fewer than 7 examples, so that 15% are none.
    """
    examples = len(data.labels)
    held = int(examples * _TEST_SHARE)
    if held < 1:
        raise BadInputError(
            f"{data.name}: expected at least 7 examples to test 15% of them, found {examples}; "
            "add examples"
        )
    random = np.random.default_rng([seed, 2])
    orders = [random.permutation(examples) for _ in range(count)]
    return [(order[held:], order[:held]) for order in orders]


def _nested(
    data: ClassificationData, classifier: Classifier, folds: int, seed: int, done: Done
) -> Outcome:
    grid = classifier.grid(folded=False)
    jobs, dev = [], []
    for learned, test in stratified(data, data.splits["all"], folds, seed):
        scores = _fold_scores(data, classifier, learned, grid, folds, seed, done)
        best = _best(scores)
        dev.append(float(scores[best]))
        jobs.append(Job(learned, test, (grid[best],)))
    predictions = classifier.predict(data.features, data.labels, jobs, seed, done)
    return outcome(data, jobs, predictions, float(np.mean(dev)))


def _folded(
    data: ClassificationData, classifier: Classifier, folds: int, seed: int, done: Done
) -> Outcome:
    grid = classifier.grid(folded=True)
    learned = data.splits["train"]
    scores = _fold_scores(data, classifier, learned, grid, folds, seed, done)
    best = _best(scores)
    jobs = [Job(learned, data.splits["test"], (grid[best],))]
    predictions = classifier.predict(data.features, data.labels, jobs, seed, done)
    return outcome(data, jobs, predictions, float(scores[best]))


def _fold_scores(
    data: ClassificationData,
    classifier: Classifier,
    rows: Rows,
    grid: tuple[float, ...],
    folds: int,
    seed: int,
    done: Done,
) -> NDArray[np.float64]:
    """(strengths,) mean accuracy over folds of these rows."""
    jobs = [Job(learned, held, grid) for learned, held in stratified(data, rows, folds, seed)]
    found = classifier.predict(data.features, data.labels, jobs, seed, done)
    return _accuracies(data, [(job.test, one) for job, one in zip(jobs, found, strict=True)])


def stratified(
    data: ClassificationData, rows: Rows, folds: int, seed: int
) -> list[tuple[Rows, Rows]]:
    """Folds of some rows, stratified and shuffled: (rows of the others, rows of the fold).

    Raises:
        BadInputError: no class has as many examples as there are folds, or the examples outside of
            a fold are all of one class.
    """
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
        parts = [(rows[a], rows[b]) for a, b in divider.split(labels, labels)]
    checked_jobs(data, [Job(learned, held, ()) for learned, held in parts])
    return parts


def checked_jobs(data: ClassificationData, jobs: Sequence[Job]) -> Sequence[Job]:
    """The same jobs.

    Raises:
        BadInputError: the training rows of one of them are all of one class.
    """
    for job in jobs:
        labels = data.labels[job.train]
        if (labels == labels[0]).all():
            raise BadInputError(
                f"{data.name}: {len(job.train)} examples to train on are all of class "
                f"{data.classes[labels[0]]!r}: another class has too few examples; add some, or "
                "train on a larger share"
            )
    return jobs


def _accuracies(
    data: ClassificationData, parts: Iterable[tuple[Rows, Rows]]
) -> NDArray[np.float64]:
    """(strengths,) mean over the parts of the share of correct predictions."""
    shares = [(predicted == data.labels[rows]).mean(axis=1) for rows, predicted in parts]
    mean: NDArray[np.float64] = np.mean(shares, axis=0)
    return mean


def _best(scores: NDArray[np.float64]) -> int:
    return int(np.argmax(np.round(scores, 12)))


def outcome(
    data: ClassificationData, jobs: Sequence[Job], predictions: Sequence[Rows], dev: float | None
) -> Outcome:
    """Put the test parts together.

    Args:
        data: the task.
        jobs: what was trained, each with one strength.
        predictions: for each job (strengths, tests) classes, of which the first row counts.
        dev: see `Outcome`.
    """
    known = [np.isin(data.labels[job.test], data.labels[job.train]) for job in jobs]
    return Outcome(
        np.concatenate([job.test for job in jobs]),
        np.concatenate([found[0] for found in predictions]),
        tuple(job.values[0] for job in jobs),
        dev,
        int((~np.concatenate(known)).sum()),
    )
