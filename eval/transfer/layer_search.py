"""BERT-LC on classification tasks: layers are chosen on inner divisions of the training examples.

The paper (Hosseini et al. 2023, Sec. 4) trains a logistic regression for every set and inner
division, which takes days. Here a ridge classifier gives the inner accuracies. The test is that of
the logistic regression, as in the paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    join_outcome,
    outer_divisions,
    tested_rows,
    unseen_notes,
)
from retriever.errors import BadInputError

Floats = NDArray[np.float64]

# Share of the training rows to validate on in an inner division.
_DEV_SHARE = 0.18
# Penalty of the ridge classifier, as a share of the mean variance of the features.
STRENGTH = 0.01


class LayerDivision(NamedTuple):
    """Rows to train on and to test on; inner divisions of the training rows choose the layers."""

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
    """Choose layers on inner divisions; test them and the baselines on outer divisions."""
    states = data.hidden_states
    max_layers = None if settings.max_layers is None else min(settings.max_layers, states)
    subsets = layer_subsets(states, max_layers)
    classifier = LogisticRegressions("bert-lc")
    strengths = classifier.grid(folded=False)
    layers: dict[str, list[tuple[int, ...]]] = {"last": [], "last4": [], "random": [], "chosen": []}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in layers}
    inner_values = []
    for number, division in enumerate(layer_divisions(data.data, settings, train_share)):
        inner_accuracy = inner_accuracies(data, division.inner, subsets, done).mean(axis=0)
        (best,) = best_first(inner_accuracy, 1).tolist()
        inner_values.append(float(inner_accuracy[best]))
        best_layers = subsets.layers(best)
        random = np.random.default_rng([settings.seed, 5, number])
        tested_layers = (
            (states - 1,),
            *baseline_layers(states, len(best_layers), random),
            best_layers,
        )
        for name, layer_set in zip(layers, tested_layers, strict=True):
            layers[name].append(layer_set)
            job = [Job(division.train, division.test, strengths)]
            features = data.features(layer_set)
            labels = data.data.labels
            predicted = classifier.predict(features, labels, job, settings.seed)
            outcomes[name].append(join_outcome(data.data, job, predicted, None))
    return _layer_scores(layers, outcomes, inner_values)


def _layer_scores(
    layers: Mapping[str, list[tuple[int, ...]]],
    outcomes: Mapping[str, list[Outcome]],
    inner_values: list[float],
) -> dict[str, VectorScore]:
    """Score the baselines and the chosen layers; `inner_values` are inner accuracies."""
    accuracies = {
        name: [float(outcome.correct.mean()) for outcome in division_outcomes]
        for name, division_outcomes in outcomes.items()
    }
    last_accuracy = float(np.mean(accuracies["last"]))
    scores = {}
    for name, division_outcomes in outcomes.items():
        accuracy, spread = mean_and_spread(accuracies[name])
        tested, correct = tested_rows(division_outcomes)
        scores[name] = VectorScore(
            values={ACCURACY: (accuracy, spread)},
            predictions=correct[None],
            extra={
                "error reduction": (accuracy - last_accuracy) / (1 - last_accuracy)
                if last_accuracy < 1
                else 0.0
            },
            details={"layers": layers[name], "accuracies": accuracies[name]},
            note="; ".join(unseen_notes(sum(outcome.unseen for outcome in division_outcomes))),
            tested=tested,
        )
    wins = Counter(layers["chosen"]).most_common()
    wins_text = "; ".join(
        f"{','.join(map(str, best_layers))} ({count})" for best_layers, count in wins
    )
    names = ("layers", "inner", "accuracy", "baseline")
    divisions = zip(
        layers["chosen"], inner_values, accuracies["chosen"], accuracies["last"], strict=True
    )
    scores["chosen"] = scores["chosen"]._replace(
        note="; ".join(
            filter(None, (f"layers chosen (divisions): {wins_text}", scores["chosen"].note))
        ),
        details={
            "divisions": [dict(zip(names, division, strict=True)) for division in divisions],
            "wins": [{"layers": best_layers, "divisions": count} for best_layers, count in wins],
        },
    )
    return scores


def layer_divisions(
    data: ClassificationData, settings: LayerTransferSettings, train_share: float = 1.0
) -> Iterator[LayerDivision]:
    """Yield the outer divisions; `train_share` of the 85% is used to train."""
    for number, (rows, test) in enumerate(outer_divisions(data, settings.outer, settings.seed)):
        train = rows[: max(2, round(train_share * len(rows)))]
        check_classes(data, [train])
        dev_size = int(len(train) * _DEV_SHARE)
        if dev_size < 1:
            raise BadInputError(
                f"{data.name}: expected at least 6 examples to choose layers on, found "
                f"{len(train)}; add examples, or train on a larger share"
            )
        random = np.random.default_rng([settings.seed, 3, number])
        orders = [random.permutation(train) for _ in range(settings.inner)]
        inner = tuple((order[dev_size:], order[:dev_size]) for order in orders)
        check_classes(data, [train_rows for train_rows, _ in inner])
        yield LayerDivision(train, test, inner)


def inner_accuracies(
    data: LayerData,
    divisions: Sequence[tuple[Rows, Rows]],
    subsets: LayerSubsets,
    done: Done = ignore,
) -> Floats:
    """Return (divisions, subsets) accuracies of a ridge classifier; divisions have equal rows.

    The features of a single text are a mean of layers: their scatter matrix is a sum of blocks of
    one and two layers. For pairs and heads it is computed for each set.
    """
    values = np.zeros((len(divisions), len(subsets)))
    score_subsets = (
        _accuracies_by_blocks
        if data.right is None and data.head is None
        else _accuracies_by_features
    )
    for division, position, accuracy in score_subsets(data, divisions, subsets):
        values[division, position] = accuracy
        done(1)
    return values


def _accuracies_by_blocks(
    data: LayerData, divisions: Sequence[tuple[Rows, Rows]], subsets: LayerSubsets
) -> Iterator[tuple[int, int, float]]:
    vectors = data.left
    labels = data.data.labels
    classes = len(data.data.classes)
    rows = np.concatenate(divisions[0])
    sets = [*map(subsets.layers, range(len(subsets)))]
    # (hidden states, width) means, subtracted to keep sums of squares exact.
    center: Floats = vectors[rows].mean(axis=0, dtype=np.float64)
    blocks = [layers for layers in sets if len(layers) <= 2]
    class_targets = _targets(labels, classes)
    sums = []
    block_scatters = {}
    for layer, center_of_layer in enumerate(center):
        # One layer at a time: all layers in float64 are large.
        centered = vectors[rows, layer] - center_of_layer
        sums.append(centered.T @ class_targets[rows])
        for block in blocks:
            if block[0] == layer:
                block_scatters[block] = _scatter(
                    centered, *(vectors[rows, i] - center[i] for i in block[1:])
                )
    for number, (train, test) in enumerate(divisions):
        targets = class_targets[train]
        test_vectors = vectors[test] - center
        # Centered vectors sum to zero, so the training rows sum to minus the test rows.
        mean = -test_vectors.sum(axis=0) / len(train)
        # The scatter of the training rows is the scatter of all rows, minus that of the test rows,
        # minus that of the training mean, once for each training row.
        excluded_vectors = np.concatenate([test_vectors, np.sqrt(len(train)) * mean[None]])
        scatters = {
            block: block_scatters[block] - _scatter(*(excluded_vectors[:, i] for i in block))
            for block in blocks
        }
        products = sums - np.tensordot(test_vectors, class_targets[test], axes=(0, 0))
        products -= mean[:, :, None] * targets.sum(axis=0)
        test_vectors = np.ascontiguousarray((test_vectors - mean).swapaxes(0, 1))
        for position, layers in enumerate(sets):
            size = len(layers)
            scatter = np.zeros_like(scatters[layers[:1]])
            for block in (*combinations(layers, 1), *combinations(layers, 2)):
                scatter += scatters[block]
            weights = _solve(scatter / size**2, products[list(layers)].mean(axis=0), len(train))
            outputs = sum(test_vectors[layer] @ weights for layer in layers) / size
            yield number, position, _share_correct(outputs + targets.mean(axis=0), labels[test])


def _accuracies_by_features(
    data: LayerData, divisions: Sequence[tuple[Rows, Rows]], subsets: LayerSubsets
) -> Iterator[tuple[int, int, float]]:
    labels = data.data.labels
    classes = len(data.data.classes)
    rows = np.concatenate(divisions[0])
    for position in range(len(subsets)):
        features = data.features(subsets.layers(position)).astype(np.float64)
        features -= features[rows].mean(axis=0)
        total_scatter = _scatter(features[rows])
        for number, (train, test) in enumerate(divisions):
            targets = _targets(labels[train], classes)
            mean = features[train].mean(axis=0)
            products = features[train].T @ targets
            products -= np.outer(mean, targets.sum(axis=0))
            scatter = total_scatter - _scatter(features[test])
            scatter -= len(train) * np.outer(mean, mean)
            weights = _solve(scatter, products, len(train))
            outputs = (features[test] - mean) @ weights + targets.mean(axis=0)
            yield number, position, _share_correct(outputs, labels[test])


def _share_correct(outputs: Floats, labels: Rows) -> float:
    """Return the share of rows whose class has the highest of (rows, classes) outputs."""
    return float((outputs.argmax(axis=1) == labels).mean())


def _targets(labels: Rows, classes: int) -> Floats:
    """Return (rows, classes): 1 for the class of a row, else -1."""
    return np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)


def _scatter(first: Floats, second: Floats | None = None) -> Floats:
    """Sum the outer products of (rows, width); with `second`, the products both ways."""
    if second is None:
        return first.T @ first
    products: Floats = first.T @ second
    return products + products.T


def _solve(scatter: Floats, products: Floats, rows: int) -> Floats:
    """Return (features, classes) weights of the ridge regression; `scatter` is overwritten."""
    from scipy.linalg import cho_factor, cho_solve

    size = len(scatter)
    mean_variance = float(np.trace(scatter)) / size
    # Where no feature varies, any penalty gives weights of zero.
    scatter[np.diag_indices(size)] += STRENGTH * mean_variance if mean_variance > 0 else rows
    # The transpose of the symmetric matrix is in Fortran order, so that nothing is copied.
    factor = cho_factor(scatter.T, overwrite_a=True, check_finite=False)
    weights: Floats = cho_solve(factor, products, check_finite=False)
    return weights
