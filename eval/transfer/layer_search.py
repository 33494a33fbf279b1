"""BERT-LC on classification tasks: layers are chosen on inner divisions of the training examples.

One thing differs from the paper (Hosseini et al. 2023, Sec. 4), whose logistic regression for every
set and inner division takes days. Here the inner accuracies are those of a ridge classifier. The
test is that of the logistic regression.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.layers.search import best_first
from eval.layers.subsets import LayerSubsets, baseline_layers, layer_subsets
from eval.metrics.comparison import mean_and_spread
from eval.progress import Done, ignore
from eval.sentences.experiment import ACCURACY, VectorScore
from eval.settings import LayerTransferSettings
from eval.transfer.classifiers import Job, LogisticRegressions, Rows
from eval.transfer.protocols import (
    ClassificationData,
    LayerData,
    Outcome,
    check_classes,
    correctness,
    outcome,
    outer_divisions,
    unseen_notes,
)
from retriever.errors import BadInputError

Floats = NDArray[np.float64]

_DEV_SHARE = 0.18
# Penalty of the ridge classifier, as a share of the mean variance of the features.
STRENGTH = 0.01


class LayerDivision(NamedTuple):
    """Rows to learn on and to test on; the former divided to train on and to validate."""

    train: Rows
    test: Rows
    inner: tuple[tuple[Rows, Rows], ...]


def search_transfer(
    data: LayerData,
    settings: LayerTransferSettings,
    done: Done = ignore,
    *,
    train_share: float = 1.0,
) -> dict[str, VectorScore]:
    """Choose layers on inner divisions, and test them and the baselines on outer ones."""
    states = data.hidden_states
    most = None if settings.max_layers is None else min(settings.max_layers, states)
    subsets = layer_subsets(states, most)
    classifier = LogisticRegressions("bert-lc")
    values = classifier.grid(folded=False)
    layers: dict[str, list[tuple[int, ...]]] = {"last": [], "last4": [], "random": [], "chosen": []}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in layers}
    choice = []
    for number, one in enumerate(layer_divisions(data.data, settings, train_share)):
        inner = inner_accuracies(data, one.inner, subsets, done).mean(axis=0)
        (best,) = best_first(inner, 1).tolist()
        choice.append(float(inner[best]))
        chosen = subsets.layers(best)
        random = np.random.default_rng([settings.seed, 5, number])
        tried_layers = ((states - 1,), *baseline_layers(states, len(chosen), random), chosen)
        for name, averaged in zip(layers, tried_layers, strict=True):
            layers[name].append(averaged)
            job = [Job(one.train, one.test, values)]
            features = data.features(averaged)
            labels = data.data.labels
            predicted = classifier.predict(features, labels, job, settings.seed)
            outcomes[name].append(outcome(data.data, job, predicted, None))
    accuracies = {name: [float(one.correct.mean()) for one in of] for name, of in outcomes.items()}
    last = float(np.mean(accuracies["last"]))
    found = {}
    for name, tests in outcomes.items():
        accuracy, spread = mean_and_spread(accuracies[name])
        tested, correct = correctness(tests)
        found[name] = VectorScore(
            values={ACCURACY: (accuracy, spread)},
            predictions=correct[None],
            extra={"error reduction": (accuracy - last) / (1 - last) if last < 1 else 0.0},
            details={"layers": layers[name], "accuracies": accuracies[name]},
            note="; ".join(unseen_notes(sum(one.unseen for one in tests))),
            tested=tested,
        )
    wins = Counter(layers["chosen"]).most_common()
    won = "; ".join(f"{','.join(map(str, chosen))} ({times})" for chosen, times in wins)
    names = ("layers", "inner", "accuracy", "baseline")
    divisions = zip(layers["chosen"], choice, accuracies["chosen"], accuracies["last"], strict=True)
    found["chosen"] = found["chosen"]._replace(
        note="; ".join(filter(None, (f"layers chosen (divisions): {won}", found["chosen"].note))),
        details={
            "divisions": [dict(zip(names, one, strict=True)) for one in divisions],
            "wins": [{"layers": chosen, "divisions": times} for chosen, times in wins],
        },
    )
    return found


def layer_divisions(
    data: ClassificationData, settings: LayerTransferSettings, train_share: float = 1.0
) -> Iterator[LayerDivision]:
    """The divisions; a share of the 85% to learn on leaves the tested examples as they are."""
    for number, (rows, test) in enumerate(outer_divisions(data, settings.outer, settings.seed)):
        train = rows[: max(2, round(train_share * len(rows)))]
        check_classes(data, [train])
        held = int(len(train) * _DEV_SHARE)
        if held < 1:
            raise BadInputError(
                f"{data.name}: expected at least 6 examples to choose layers on, found "
                f"{len(train)}; add examples, or train on a larger share"
            )
        random = np.random.default_rng([settings.seed, 3, number])
        orders = [random.permutation(train) for _ in range(settings.inner)]
        inner = tuple((order[held:], order[:held]) for order in orders)
        check_classes(data, [learned for learned, _ in inner])
        yield LayerDivision(train, test, inner)


def inner_accuracies(
    data: LayerData,
    divisions: Sequence[tuple[Rows, Rows]],
    subsets: LayerSubsets,
    done: Done = ignore,
) -> Floats:
    """The exact (divisions, subsets) accuracies by ridge regression; divisions are of equal rows.

    The features of a single text are a mean of layers, so their scatter matrix is a sum of blocks
    of one and two layers; that of pairs and heads is computed for each set.
    """
    values = np.zeros((len(divisions), len(subsets)))
    search = _by_blocks if data.right is None and data.head is None else _by_features
    for division, place, accuracy in search(data, divisions, subsets):
        values[division, place] = accuracy
        done(1)
    return values


def _by_blocks(
    data: LayerData, divisions: Sequence[tuple[Rows, Rows]], subsets: LayerSubsets
) -> Iterator[tuple[int, int, float]]:
    vectors = data.left
    labels = data.data.labels
    classes = len(data.data.classes)
    rows = np.concatenate(divisions[0])
    sets = [*map(subsets.layers, range(len(subsets)))]
    # (hidden states, width) means, which are subtracted: this keeps sums of squares exact.
    center: Floats = vectors[rows].mean(axis=0, dtype=np.float64)
    blocks = [layers for layers in sets if len(layers) <= 2]
    known = _targets(labels, classes)
    sums = []
    whole = {}
    for layer, middle in enumerate(center):
        # One layer at a time, because all of them in float64 are large.
        first = vectors[rows, layer] - middle
        sums.append(first.T @ known[rows])
        for one in blocks:
            if one[0] == layer:
                whole[one] = _scatter(first, *(vectors[rows, i] - center[i] for i in one[1:]))
    for number, (train, test) in enumerate(divisions):
        targets = known[train]
        tested = vectors[test] - center
        # All vectors sum to zero, so those to train on to minus those to test on.
        mean = -tested.sum(axis=0) / len(train)
        # Rows that are not tested are trained on. Around its mean, their scatter is less by the
        # mean's own, once for each of them.
        taken = np.concatenate([tested, np.sqrt(len(train)) * mean[None]])
        scatters = {one: whole[one] - _scatter(*(taken[:, i] for i in one)) for one in blocks}
        products = sums - np.tensordot(tested, known[test], axes=(0, 0))
        products -= mean[:, :, None] * targets.sum(axis=0)
        tested = np.ascontiguousarray((tested - mean).swapaxes(0, 1))
        for place, layers in enumerate(sets):
            size = len(layers)
            scatter = np.zeros_like(scatters[layers[:1]])
            for one in (*combinations(layers, 1), *combinations(layers, 2)):
                scatter += scatters[one]
            weights = _solve(scatter / size**2, products[list(layers)].mean(axis=0), len(train))
            outputs = sum(tested[layer] @ weights for layer in layers) / size
            yield number, place, _share_correct(outputs + targets.mean(axis=0), labels[test])


def _by_features(
    data: LayerData, divisions: Sequence[tuple[Rows, Rows]], subsets: LayerSubsets
) -> Iterator[tuple[int, int, float]]:
    labels = data.data.labels
    classes = len(data.data.classes)
    rows = np.concatenate(divisions[0])
    for place in range(len(subsets)):
        features = data.features(subsets.layers(place)).astype(np.float64)
        features -= features[rows].mean(axis=0)
        total = _scatter(features[rows])
        for number, (train, test) in enumerate(divisions):
            targets = _targets(labels[train], classes)
            mean = features[train].mean(axis=0)
            products = features[train].T @ targets
            products -= np.outer(mean, targets.sum(axis=0))
            scatter = total - _scatter(features[test])
            scatter -= len(train) * np.outer(mean, mean)
            weights = _solve(scatter, products, len(train))
            outputs = (features[test] - mean) @ weights + targets.mean(axis=0)
            yield number, place, _share_correct(outputs, labels[test])


def _share_correct(outputs: Floats, labels: Rows) -> float:
    """The share of rows whose class has the highest output, (rows, classes)."""
    return float((outputs.argmax(axis=1) == labels).mean())


def _targets(labels: Rows, classes: int) -> Floats:
    """(rows, classes): 1 for a row's class and -1 for the others."""
    return np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)


def _scatter(first: Floats, second: Floats | None = None) -> Floats:
    """The sum of the outer products of rows, (rows, width); with those of `second`, both ways."""
    if second is None:
        return first.T @ first
    products: Floats = first.T @ second
    return products + products.T


def _solve(scatter: Floats, products: Floats, rows: int) -> Floats:
    """(features, classes) weights of the ridge regression; the scatter is overwritten."""
    from scipy.linalg import cho_factor, cho_solve

    size = len(scatter)
    mean_variance = float(np.trace(scatter)) / size
    # Where no feature varies, any penalty gives weights of zero.
    scatter[np.diag_indices(size)] += STRENGTH * mean_variance if mean_variance > 0 else rows
    # The matrix is symmetric, and its transpose is in the order of Fortran: nothing is copied.
    factor = cho_factor(scatter.T, overwrite_a=True, check_finite=False)
    weights: Floats = cho_solve(factor, products, check_finite=False)
    return weights
