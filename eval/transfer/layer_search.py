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
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.layers.search import best_first
from eval.layers.subsets import LayerSubsets, layer_subsets
from eval.transfer.classifiers import Classifier, Job, LogisticRegressions
from eval.transfer.data import LayerData, Rows
from eval.transfer.protocols import Outcome, checked_jobs, outer_divisions
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
        seed: of the divisions.

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


@dataclass(frozen=True, slots=True)
class LayerDivision:
    """One outer division.

    Attributes:
        layers: the chosen ones, ascending.
        inner: the mean accuracy by which they were chosen.
        accuracy: of the logistic regression over them, on the tested examples.
        baseline: the same over the last layer.
    """

    layers: tuple[int, ...]
    inner: float
    accuracy: float
    baseline: float


@dataclass(frozen=True, slots=True, eq=False)
class LayerTransferScore:
    """The result of the search on one task.

    Attributes:
        task: its name.
        divisions: of each outer division.
        accuracy: their mean.
        spread: their standard deviation (n - 1); None for one.
        baseline: the mean accuracy of the last layer.
        baseline_spread: as `spread`.
        wins: the sets that were chosen and their numbers of divisions, most frequent first.
        subsets: the sets that were tried.
        inner: (outer divisions, subsets) float64 mean inner accuracy of the ridge classifier.
        tested: (examples,) int64 rows that were tested, ascending.
        correct: (examples,) float64, the share of correct tests of each with the chosen layers.
        baseline_correct: the same with the last layer.
    """

    task: str
    divisions: tuple[LayerDivision, ...]
    accuracy: float
    spread: float | None
    baseline: float
    baseline_spread: float | None
    wins: tuple[tuple[tuple[int, ...], int], ...]
    subsets: LayerSubsets
    inner: NDArray[np.float64]
    tested: Rows
    correct: NDArray[np.float64]
    baseline_correct: NDArray[np.float64]


def search_transfer(
    data: LayerData,
    settings: LayerTransferSettings | None = None,
    classifier: Classifier | None = None,
    done: Callable[[int], object] = lambda steps: None,
) -> LayerTransferScore:
    """Choose layers on inner divisions, test them on outer ones.

    Args:
        data: a task, with the vectors of every layer.
        settings: how sets are tried; None takes the defaults.
        classifier: what is tested; None is the logistic regression of the paper.
        done: called with the number of sets tried on a division; outer times inner times the number
            of sets in all.

    Raises:
        ConfigError: the classifier has several strengths.
        BadInputError: there are too few examples to divide, or a training part has only one
            class.
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
    outer = outer_divisions(data.data, settings.outer, settings.seed)
    inner = np.zeros((len(outer), len(subsets)))
    divisions, chosen, last = [], [], []
    for number, (train, test) in enumerate(outer):
        job = Job(train, test, values)
        checked_jobs(data.data, [job])
        parts = _inner_divisions(data, train, settings, number)
        inner[number] = inner_accuracies(data, parts, subsets, settings.strength, done).mean(axis=0)
        best = best_first(inner[number], settings.finalists).tolist()
        scores = inner[number, best]
        if len(best) > 1:
            tried = [Job(*part, values) for part in parts]
            scores = np.array(
                [
                    _accuracy(data, _test(data, subsets.layers(one), classifier, tried, settings))
                    for one in best
                ]
            )
        # Of equal ones the one that the ridge classifier prefers.
        first = int(np.argmax(np.round(scores, 12)))
        layers = subsets.layers(best[first])
        chosen.append(_test(data, layers, classifier, [job], settings))
        last.append(_test(data, subsets.layers(subsets.last), classifier, [job], settings))
        divisions.append(
            LayerDivision(
                layers,
                float(scores[first]),
                _accuracy(data, chosen[-1]),
                _accuracy(data, last[-1]),
            )
        )
    accuracy, spread = mean_and_spread([one.accuracy for one in divisions])
    baseline, baseline_spread = mean_and_spread([one.baseline for one in divisions])
    tested, correct = correctness(data.data.labels, chosen)
    return LayerTransferScore(
        task=data.data.name,
        divisions=tuple(divisions),
        accuracy=accuracy,
        spread=spread,
        baseline=baseline,
        baseline_spread=baseline_spread,
        wins=tuple(Counter(one.layers for one in divisions).most_common()),
        subsets=subsets,
        inner=inner,
        tested=tested,
        correct=correct,
        baseline_correct=correctness(data.data.labels, last)[1],
    )


def _inner_divisions(
    data: LayerData, rows: Rows, settings: LayerTransferSettings, number: int
) -> list[tuple[Rows, Rows]]:
    held = int(len(rows) * _DEV_SHARE)
    if held < 1:
        raise BadInputError(
            f"{data.data.name}: expected at least 6 examples to choose layers on, found "
            f"{len(rows)}; add examples"
        )
    random = np.random.default_rng([settings.seed, 3, number])
    orders = [random.permutation(rows) for _ in range(settings.inner)]
    parts = [(order[held:], order[:held]) for order in orders]
    checked_jobs(data.data, [Job(*part, ()) for part in parts])
    return parts


def _test(
    data: LayerData,
    layers: tuple[int, ...],
    classifier: Classifier,
    jobs: Sequence[Job],
    settings: LayerTransferSettings,
) -> Outcome:
    features = data.features(layers)
    found = classifier.predict(features, data.data.labels, jobs, settings.seed)
    return Outcome(
        np.concatenate([job.test for job in jobs]),
        np.concatenate([one[0] for one in found]),
        jobs[0].values,
        None,
        0,
    )


def _accuracy(data: LayerData, outcome: Outcome) -> float:
    return float((outcome.predicted == data.data.labels[outcome.rows]).mean())
