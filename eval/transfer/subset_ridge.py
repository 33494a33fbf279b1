"""The accuracy of every set of layers by ridge regression on inner divisions, exact for each set.

The classifier is ridge regression on an indicator (1 or -1) of each class; the highest output wins,
the lower class on a tie. Its penalty is `strength` times the mean variance of the features, so that
sets of layers with vectors of different lengths are treated alike.

The features of a single text under a set of layers are the mean of the layers' vectors, which is
linear in them. So their scatter matrix is the mean of blocks of one matrix, that of all layers side
by side, and each set follows from a smaller one by adding a few blocks; no set's features are
multiplied with each other. What remains per set and division is one Cholesky decomposition.
|u - v| and u * v of pairs, maxima over layers and the outputs of a head are not linear in the
layers: each set's scatter is computed from its features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from eval.layers.subsets import LayerSubsets
from eval.transfer.data import LayerData, Rows

Floats = NDArray[np.float64]


def inner_accuracies(
    data: LayerData,
    divisions: Sequence[tuple[Rows, Rows]],
    subsets: LayerSubsets,
    strength: float,
    done: Callable[[int], object] = lambda sets: None,
) -> Floats:
    """The accuracy of every set of layers in every division.

    Args:
        data: the task.
        divisions: (rows to train on, rows to test on); their union is the same in each.
        subsets: the sets.
        strength: of the penalty, above 0.
        done: called with 1 for each set and division.

    Returns:
        (divisions, subsets) float64 in [0, 1]. For single texts this takes memory for one
        float64 matrix of (hidden states times width)².
    """
    place = {int(mask): number for number, mask in enumerate(subsets.masks)}
    values = np.zeros((len(divisions), len(subsets)))
    search = _by_blocks if data.right is None and data.fusion.is_linear else _by_features
    for division, mask, accuracy in search(data, divisions, subsets, strength):
        values[division, place[mask]] = accuracy
        done(1)
    return values


def _by_blocks(
    data: LayerData, divisions: Sequence[tuple[Rows, Rows]], subsets: LayerSubsets, strength: float
) -> Iterator[tuple[int, int, float]]:
    largest = int(subsets.sizes[-1])
    labels, classes = data.data.labels, len(data.data.classes)
    rows = np.concatenate(divisions[0])
    whole = _Sums(data.left, rows, _targets(labels[rows], classes), joined=largest > 1)
    for number, (train, test) in enumerate(divisions):
        fitted = _Fit(labels[train], classes)
        tested = data.left[test] - whole.center
        # Rows that are not tested are trained on.
        blocks = _Blocks(whole, tested, _targets(labels[test], classes), fitted.targets)
        for chosen, outputs in blocks.outputs(largest, strength):
            mask = sum(1 << layer for layer in chosen)
            yield number, mask, fitted.accuracy(outputs, labels[test])


class _Sums:
    """Sums over examples, for each layer and for each two.

    Args:
        vectors: (examples, hidden states, width) float32.
        rows: the examples that are summed.
        targets: (rows, classes).
        joined: whether the scatter of two layers is needed.

    Attributes:
        center: (hidden states, width), the mean vectors. They are subtracted, which keeps sums of
            squares exact.
        products: (hidden states, width, classes), of vectors and targets.
        scatter: of layers (i, j), i <= j, see `_scatter`.
    """

    def __init__(
        self, vectors: NDArray[np.float32], rows: Rows, targets: Floats, *, joined: bool
    ) -> None:
        self.center: Floats = vectors[rows].mean(axis=0, dtype=np.float64)
        layers = range(len(self.center))
        products = []
        self.scatter: dict[tuple[int, int], Floats] = {}
        for i in layers:
            # One layer at a time, because all of them in float64 are large.
            first = vectors[rows, i] - self.center[i]
            products.append(first.T @ targets)
            self.scatter[i, i] = _scatter(first)
            for j in layers[i + 1 :] if joined else ():
                self.scatter[i, j] = _scatter(first, vectors[rows, j] - self.center[j])
        self.products = np.stack(products)


class _Blocks:
    """One division of single texts, in blocks of layers.

    Args:
        whole: the sums over all rows, to train on and to test on.
        test: (rows, hidden states, width) float64, minus the center.
        test_targets: (rows, classes) of the rows to test on.
        targets: (rows, classes) of the rows to train on.
    """

    def __init__(self, whole: _Sums, test: Floats, test_targets: Floats, targets: Floats) -> None:
        self._states, self._width = whole.center.shape
        self._rows = len(targets)
        # All vectors sum to zero, so those to train on to minus those to test on.
        mean = -test.sum(axis=0) / self._rows
        self._test = test - mean
        self._products = (
            whole.products
            - np.tensordot(test, test_targets, axes=(0, 0))
            - mean[:, :, None] * targets.sum(axis=0)
        )
        # Around its mean, the scatter is less by the mean's own, once for each row to train on.
        taken = np.concatenate([test, np.sqrt(self._rows) * mean[None]])
        self._scatter = {
            (i, j): both - _scatter(taken[:, i], taken[:, j] if i < j else None)
            for (i, j), both in whole.scatter.items()
        }

    def outputs(self, largest: int, strength: float) -> Iterator[tuple[tuple[int, ...], Floats]]:
        """Every set of up to `largest` layers, and (test rows, classes) without the intercept."""
        width, classes = self._products.shape[1:]
        yield from self._grown(
            (),
            np.zeros((width, width)),
            np.zeros((width, classes)),
            np.zeros((len(self._test), width)),
            largest,
            strength,
        )

    def _grown(
        self,
        chosen: tuple[int, ...],
        scatter: Floats,
        products: Floats,
        tested: Floats,
        largest: int,
        strength: float,
    ) -> Iterator[tuple[tuple[int, ...], Floats]]:
        """The sets that add layers above those of this set, whose sums are given."""
        size = len(chosen) + 1
        for layer in range(chosen[-1] + 1 if chosen else 0, self._states):
            joined = scatter + self._scatter[layer, layer]
            for lower in chosen:
                joined += self._scatter[lower, layer]
            added = products + self._products[layer]
            seen = tested + self._test[:, layer]
            weights = _solve(joined / size**2, added / size, strength, self._rows)
            both = (*chosen, layer)
            yield both, seen @ weights / size
            if size < largest:
                yield from self._grown(both, joined, added, seen, largest, strength)


def _by_features(
    data: LayerData, divisions: Sequence[tuple[Rows, Rows]], subsets: LayerSubsets, strength: float
) -> Iterator[tuple[int, int, float]]:
    labels, classes = data.data.labels, len(data.data.classes)
    rows = np.concatenate(divisions[0])
    for position, mask in enumerate(subsets.masks.tolist()):
        features = data.features(subsets.layers(position)).astype(np.float64)
        features -= features[rows].mean(axis=0)
        total = _scatter(features[rows])
        for number, (train, test) in enumerate(divisions):
            fitted = _Fit(labels[train], classes)
            mean = features[train].mean(axis=0)
            products = features[train].T @ fitted.targets
            products -= np.outer(mean, fitted.targets.sum(axis=0))
            scatter = total - _scatter(features[test])
            scatter -= len(train) * np.outer(mean, mean)
            weights = _solve(scatter, products, strength, len(train))
            outputs = (features[test] - mean) @ weights
            yield number, mask, fitted.accuracy(outputs, labels[test])


class _Fit:
    """The targets of one division's training rows."""

    def __init__(self, labels: Rows, classes: int) -> None:
        self.targets = _targets(labels, classes)
        self._means = self.targets.mean(axis=0)

    def accuracy(self, outputs: Floats, labels: Rows) -> float:
        """The share of correct classes; outputs are (rows, classes) without the intercept."""
        return float(((outputs + self._means).argmax(axis=1) == labels).mean())


def _targets(labels: Rows, classes: int) -> Floats:
    """(rows, classes): 1 for a row's class and -1 for the others."""
    return np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)


def _scatter(first: Floats, second: Floats | None = None) -> Floats:
    """The sum of the outer products of rows, (rows, width); with those of `second`, both ways."""
    if second is None:
        return first.T @ first
    products: Floats = first.T @ second
    return products + products.T


def _solve(scatter: Floats, products: Floats, strength: float, rows: int) -> Floats:
    """(features, classes) weights of the ridge regression; the scatter is overwritten."""
    from scipy.linalg import cho_factor, cho_solve

    size = len(scatter)
    mean_variance = float(np.trace(scatter)) / size
    # Where no feature varies, any penalty gives weights of zero.
    scatter[np.diag_indices(size)] += strength * mean_variance if mean_variance > 0 else rows
    # The matrix is symmetric, and its transpose is in the order of Fortran: nothing is copied.
    factor = cho_factor(scatter.T, overwrite_a=True, check_finite=False)
    weights: Floats = cho_solve(factor, products, check_finite=False)
    return weights
