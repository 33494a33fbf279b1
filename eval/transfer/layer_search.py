"""BERT-LC on classification tasks: the layers to average are chosen on inner divisions only.

Hosseini et al. (2023), Sec. 4: all splits are merged; ten random divisions give 85% of the examples
to learn and choose on and 15% to test on. For each of them every set of up to four layers is tried
on ten random inner divisions of the 85%, with 82% to train on and 18% to validate; the set with the
highest mean accuracy is trained on all of the 85% and tested. No tested example influences the
choice of the set that it is tested with.

One thing differs from the paper, which trains its logistic regression for every set and inner
division, 100 times the number of sets; this takes days. Here the inner accuracies are those of a
ridge classifier, exact for every set (`subset_ridge`); with more than one finalist, that many of
the best sets are tried with the logistic regression, which then decides. The test is always that of
the logistic regression.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.layers.search import best_first
from eval.layers.subsets import LayerSubsets, layer_subsets
from eval.transfer.classifiers import Classifier, Job, LogisticRegressions
from eval.transfer.data import ClassificationData, LayerData, Rows
from eval.transfer.protocols import Outcome, checked_jobs, outcome, outer_divisions
from eval.transfer.scores import correctness, mean_and_spread
from eval.transfer.subset_ridge import inner_accuracies
from retriever.errors import BadInputError, ConfigError

_DEV_SHARE = 0.18


@dataclass(frozen=True, slots=True)
class LayerTransferSettings:
    """How sets of layers are tried.

    Attributes:
        max_layers: maximum size of a set; None for all layers.
        outer: number of divisions to test on.
        inner: number of inner divisions to choose on, for each of them.
        strength: of the ridge classifier's penalty, as a share of the mean variance of features.
        finalists: number of sets that the logistic regression chooses from; 1 leaves the choice to
            the ridge classifier.
        seed: of the divisions and of the random layers.

    Raises:
        ConfigError: a value is impossible.
    """

    max_layers: int | None = 4
    outer: int = 10
    inner: int = 10
    strength: float = 0.01
    finalists: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("outer", "inner", "finalists"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if not 0 < self.strength < np.inf:
            raise ConfigError(f"strength: expected a number above 0, found {self.strength}")


@dataclass(frozen=True, slots=True, eq=False)
class LayerDivision:
    """A division of the examples to test on, and divisions of the others to choose on.

    Attributes:
        train: (examples,) int64 rows to learn on.
        test: (examples,) int64 rows to test on.
        inner: of the rows of `train`, to train on and to validate.
    """

    train: Rows
    test: Rows
    inner: tuple[tuple[Rows, Rows], ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerAccuracy:
    """One way to choose layers, tested on every outer division.

    Attributes:
        name: "chosen"; or of a baseline "last", "last4", or "random": a seeded draw of as many
            layers as were chosen for the division.
        layers: of each division, ascending.
        accuracies: of the logistic regression over them on the tested examples of each division.
        accuracy: their mean.
        spread: their standard deviation (n - 1); None for one.
        correct: (tested examples,) float64, the share of correct tests of each.
    """

    name: str
    layers: tuple[tuple[int, ...], ...]
    accuracies: tuple[float, ...]
    accuracy: float
    spread: float | None
    correct: NDArray[np.float64]

    def error_reduction(self, baseline: LayerAccuracy) -> float:
        """(A - B) / (1 - B) for accuracies A and B of the baseline; 0 if B is 1."""
        error = 1 - baseline.accuracy
        return (self.accuracy - baseline.accuracy) / error if error > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class LayerTransferScore:
    """The result of the search on one task.

    Attributes:
        task: its name.
        chosen: the chosen layers.
        choice: of each outer division, the mean inner accuracy by which they were chosen.
        baselines: "last", "last4" and "random".
        wins: the sets that were chosen and their numbers of divisions, most frequent first.
        subsets: the sets that were tried.
        inner: (outer divisions, subsets) float64 mean inner accuracy of the ridge classifier.
        learned: number of examples that each division learned on.
        tested: (examples,) int64 rows that were tested, ascending.
        unseen: number of tests, over all outer divisions, of an example whose class is not in the
            training data.
    """

    task: str
    chosen: LayerAccuracy
    choice: tuple[float, ...]
    baselines: tuple[LayerAccuracy, ...]
    wins: tuple[tuple[tuple[int, ...], int], ...]
    subsets: LayerSubsets
    inner: NDArray[np.float64]
    learned: int
    tested: Rows
    unseen: int


def search_transfer(
    data: LayerData,
    settings: LayerTransferSettings | None = None,
    classifier: Classifier | None = None,
    done: Callable[[int], object] = lambda steps: None,
    *,
    train_share: float = 1.0,
) -> LayerTransferScore:
    """Choose layers on inner divisions, test them on outer ones.

    Args:
        data: a task, with the vectors of every layer.
        settings: how sets are tried; None takes the defaults.
        classifier: what is tested; None is the logistic regression of the paper.
        done: called with the number of sets tried on a division; outer times inner times the number
            of sets in all.
        train_share: see `layer_divisions`.

    Raises:
        ConfigError: the classifier has several strengths.
        What `layer_divisions` raises.
        MissingExtraError: scikit-learn is not installed.
    """
    settings = settings or LayerTransferSettings()
    classifier = classifier or LogisticRegressions("bert-lc")
    most = None if settings.max_layers is None else min(settings.max_layers, data.hidden_states)
    subsets = layer_subsets(data.hidden_states, most)
    values = classifier.grid(folded=False)
    if len(values) != 1:
        raise ConfigError(
            f"{classifier.name}: the layers are chosen for one strength of regularization, found "
            f"{len(values)}; use the logistic regression of bert-lc"
        )
    inner = np.zeros((settings.outer, len(subsets)))
    layers: dict[str, list[tuple[int, ...]]] = {"last": [], "last4": [], "random": [], "chosen": []}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in layers}
    choice = []
    learned = 0
    for number, one in enumerate(layer_divisions(data.data, settings, train_share)):
        learned, job = len(one.train), Job(one.train, one.test, values)
        tries = inner_accuracies(data, one.inner, subsets, settings.strength, done)
        inner[number] = tries.mean(axis=0)
        best = best_first(inner[number], settings.finalists).tolist()
        scores = inner[number, best]
        if len(best) > 1:
            tried = [Job(*part, values) for part in one.inner]
            scores = np.array(
                [
                    _accuracy(data, _test(data, subsets.layers(place), classifier, tried, settings))
                    for place in best
                ]
            )
        # Of equal ones the one that the ridge classifier prefers.
        first = int(np.argmax(np.round(scores, 12)))
        choice.append(float(scores[first]))
        states, chosen = data.hidden_states, subsets.layers(best[first])
        random = np.random.default_rng([settings.seed, 5, number])
        drawn = random.choice(states, len(chosen), replace=False).tolist()
        for name, averaged in (
            ("last", (states - 1,)),
            ("last4", tuple(range(max(states - 4, 0), states))),
            ("random", tuple(sorted(drawn))),
            ("chosen", chosen),
        ):
            layers[name].append(averaged)
            outcomes[name].append(_test(data, averaged, classifier, [job], settings))
    found = []
    for name, tests in outcomes.items():
        accuracies = tuple(_accuracy(data, one) for one in tests)
        correct = correctness(data.data.labels, tests)[1]
        means = mean_and_spread(accuracies)
        found.append(LayerAccuracy(name, tuple(layers[name]), accuracies, *means, correct))
    return LayerTransferScore(
        task=data.data.name,
        chosen=found[-1],
        choice=tuple(choice),
        baselines=tuple(found[:-1]),
        wins=tuple(Counter(layers["chosen"]).most_common()),
        subsets=subsets,
        inner=inner,
        learned=learned,
        tested=correctness(data.data.labels, outcomes["chosen"])[0],
        unseen=sum(one.unseen for one in outcomes["chosen"]),
    )


def layer_divisions(
    data: ClassificationData, settings: LayerTransferSettings, train_share: float = 1.0
) -> Iterator[LayerDivision]:
    """The divisions that layers are chosen, learned and tested on.

    Args:
        data: a task; its features are not used.
        settings: number of divisions and seed.
        train_share: share of the 85% of each division that is kept to choose and learn on, in
            (0, 1]; the tested examples stay the same (Fig. 1 of the paper).

    Raises:
        ConfigError: the share is impossible.
        BadInputError: there are too few examples to divide, or a training part has only one class.
    """
    if not 0 < train_share <= 1:
        raise ConfigError(f"train-share: expected above 0, up to 1, found {train_share}")
    for number, (rows, test) in enumerate(outer_divisions(data, settings.outer, settings.seed)):
        train = rows[: max(2, round(train_share * len(rows)))]
        checked_jobs(data, [Job(train, test, ())])
        held = int(len(train) * _DEV_SHARE)
        if held < 1:
            raise BadInputError(
                f"{data.name}: expected at least 6 examples to choose layers on, found "
                f"{len(train)}; add examples, or train on a larger share"
            )
        random = np.random.default_rng([settings.seed, 3, number])
        orders = [random.permutation(train) for _ in range(settings.inner)]
        inner = tuple((order[held:], order[:held]) for order in orders)
        checked_jobs(data, [Job(*part, ()) for part in inner])
        yield LayerDivision(train, test, inner)


def _test(
    data: LayerData,
    layers: tuple[int, ...],
    classifier: Classifier,
    jobs: Sequence[Job],
    settings: LayerTransferSettings,
) -> Outcome:
    features = data.features(layers)
    found = classifier.predict(features, data.data.labels, jobs, settings.seed)
    return outcome(data.data, jobs, found, None)


def _accuracy(data: LayerData, outcome: Outcome) -> float:
    return float((outcome.predicted == data.data.labels[outcome.rows]).mean())
