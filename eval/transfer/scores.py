"""The accuracy of a classifier on sentence vectors: over seeds, and for each example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.transfer.classifiers import Classifier
from eval.transfer.data import ClassificationData, Rows
from eval.transfer.protocols import Done, Outcome, TransferProtocol, run_protocol
from retriever.errors import ConfigError

ACCURACY = "accuracy"


@dataclass(frozen=True, slots=True)
class SeedScore:
    """The result of one seed.

    Attributes:
        accuracy: share of the tested examples that are classified correctly, in [0, 1].
        f1: for pairs in two classes, F1 of the second class (1, a paraphrase, in MRPC); else None.
        dev: the mean accuracy by which the strength of regularization was chosen; None if nothing
            was chosen.
        chosen: the strength of each test part.
    """

    accuracy: float
    f1: float | None
    dev: float | None
    chosen: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationScore:
    """The results of all seeds.

    Attributes:
        task: its name.
        classifier: ``logistic`` or ``mlp``.
        protocol: how it was trained and tested.
        classes: the labels.
        examples: number of distinct examples that were tested.
        majority: share of the most frequent class among them: the accuracy without any model.
        unseen: number of tests, over all seeds, of an example whose class is not in the training
            data; they count as wrong.
        seeds: of each seed.
        accuracy: their mean.
        spread: their standard deviation (n - 1); None for a single seed.
        f1: mean F1, or None.
        f1_spread: like `spread`.
        tested: (examples,) int64 rows that were tested, ascending; the same for every encoder.
        correct: (examples,) float64 in [0, 1], the share of its tests, over all seeds, in which
            each was classified correctly; for paired tests.
    """

    task: str
    classifier: str
    protocol: TransferProtocol
    classes: tuple[str, ...]
    examples: int
    majority: float
    unseen: int
    seeds: tuple[SeedScore, ...]
    accuracy: float
    spread: float | None
    f1: float | None
    f1_spread: float | None
    tested: Rows
    correct: NDArray[np.float64]


def score_classification(
    data: ClassificationData,
    classifier: Classifier,
    protocol: TransferProtocol | None = None,
    seeds: int = 5,
    done: Done = lambda trained: None,
) -> ClassificationScore:
    """Train and test a classifier under seeds 0, 1, ...

    Args:
        data: a task under one encoder.
        classifier: `LogisticRegressions` or `eval.transfer.batched_mlp.MLPs`.
        protocol: None for ``senteval``.
        seeds: their number; only one is run if nothing is random (`effective_seeds`).
        done: called with the number of classifiers trained; in all `effective_seeds` times
            `eval.transfer.protocols.trainings`.

    Raises:
        BadInputError: there are fewer examples than folds, or only one class to train on.
        ConfigError: fewer than 1 seed, or a classifier that the protocol cannot use.
        MissingExtraError: scikit-learn is not installed.
    """
    protocol = protocol or TransferProtocol()
    count = effective_seeds(data, classifier, protocol, seeds)
    outcomes = [run_protocol(data, classifier, protocol, seed, done) for seed in range(count)]
    scores = tuple(_seed_score(data, outcome) for outcome in outcomes)
    tested, correct = correctness(data.labels, outcomes)
    labels = data.labels[tested]
    accuracy, spread = mean_and_spread([one.accuracy for one in scores])
    f1s = [one.f1 for one in scores if one.f1 is not None]
    f1, f1_spread = mean_and_spread(f1s) if f1s else (None, None)
    return ClassificationScore(
        task=data.name,
        classifier=classifier.name,
        protocol=protocol,
        classes=data.classes,
        examples=len(tested),
        majority=float(np.bincount(labels).max() / len(tested)),
        unseen=sum(one.unseen for one in outcomes),
        seeds=scores,
        accuracy=accuracy,
        spread=spread,
        f1=f1,
        f1_spread=f1_spread,
        tested=tested,
        correct=correct,
    )


def effective_seeds(
    data: ClassificationData, classifier: Classifier, protocol: TransferProtocol, seeds: int
) -> int:
    """The number of seeds that are run: one if neither classifier nor examples are random.

    Raises:
        ConfigError: fewer than 1.
    """
    if seeds < 1:
        raise ConfigError(f"seeds: expected at least 1, found {seeds}")
    fixed = protocol.name == "senteval" and "dev" in data.splits and not classifier.seeded
    return 1 if fixed else seeds


def correctness(labels: Rows, outcomes: Sequence[Outcome]) -> tuple[Rows, NDArray[np.float64]]:
    """The rows that were tested, ascending, and the share of correct tests of each."""
    rows = np.concatenate([one.rows for one in outcomes])
    right = np.concatenate([one.predicted == labels[one.rows] for one in outcomes])
    times = np.bincount(rows, minlength=len(labels))
    tested = np.flatnonzero(times)
    share: NDArray[np.float64] = np.bincount(rows, right, len(labels))[tested] / times[tested]
    return tested, share


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and the standard deviation (n - 1), or None for a single value."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return float(np.mean(values)), spread


def _seed_score(data: ClassificationData, outcome: Outcome) -> SeedScore:
    labels = data.labels[outcome.rows]
    f1 = None
    if data.pairs and len(data.classes) == 2:
        found, wanted = outcome.predicted == 1, labels == 1
        both = 2 * int((found & wanted).sum())
        f1 = both / max(int(found.sum() + wanted.sum()), 1)
    accuracy = float((outcome.predicted == labels).mean())
    return SeedScore(accuracy, f1, outcome.dev, outcome.chosen)


def unseen_notes(unseen: int) -> list[str]:
    """A note on the tests that no classifier could get right; none if there are none.

    Args:
        unseen: their number.
    """
    return [f"{unseen:,} tests of a class that is not in the training data"] if unseen else []
