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

_ROWS_AT_ONCE = 1024


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
        (divisions, subsets) float64 in [0, 1]. For single texts this takes memory for three
        float64 matrices of (hidden states times width)².
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
    rows = np.concatenate(divisions[0])
    # Subtracting what all examples have in common keeps sums of squares exact.
    center = data.left[rows].mean(axis=0, dtype=np.float64)

    def flat(chosen: Rows) -> Floats:
        without: Floats = data.left[chosen] - center
        return without.reshape(len(chosen), -1)

    total = _scatter(flat, rows)
    labels, classes = data.data.labels, len(data.data.classes)
    for number, (train, test) in enumerate(divisions):
        fitted = _Fit(labels[train], classes)
        # Rows that are not tested are trained on.
        scatter = total - _scatter(flat, test)
        blocks = _Blocks(flat(train), flat(test), scatter, fitted.targets, center.shape)
        for chosen, outputs in blocks.outputs(int(subsets.sizes[-1]), strength):
            mask = sum(1 << layer for layer in chosen)
            yield number, mask, fitted.accuracy(outputs, labels[test])


class _Blocks:
    """One division of single texts, in blocks of layers.

    Args:
        train: (rows, hidden states times width) float64.
        test: (rows, hidden states times width) float64.
        scatter: of the rows to train on; is overwritten.
        targets: (rows, classes) of the rows to train on.
        shape: (hidden states, width).
    """

    def __init__(
        self, train: Floats, test: Floats, scatter: Floats, targets: Floats, shape: tuple[int, ...]
    ) -> None:
        self._states, self._width = shape
        self._rows = len(train)
        mean = train.mean(axis=0)
        products = train.T @ targets - np.outer(mean, targets.sum(axis=0))
        self._products = products.reshape(*shape, targets.shape[1])
        self._test = (test - mean).reshape(len(test), *shape)
        scatter -= len(train) * np.outer(mean, mean)
        blocks = scatter.reshape(*shape, *shape).transpose(0, 2, 1, 3)
        layers = range(self._states)
        self._pairs = {(i, j): _pair(blocks, i, j) for i in layers for j in layers if i <= j}

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
            joined = scatter + self._pairs[layer, layer]
            for lower in chosen:
                joined += self._pairs[lower, layer]
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
        total = _scatter(features.__getitem__, rows)
        for number, (train, test) in enumerate(divisions):
            fitted = _Fit(labels[train], classes)
            mean = features[train].mean(axis=0)
            products = features[train].T @ fitted.targets
            products -= np.outer(mean, fitted.targets.sum(axis=0))
            scatter = total - _scatter(features.__getitem__, test)
            scatter -= len(train) * np.outer(mean, mean)
            weights = _solve(scatter, products, strength, len(train))
            outputs = (features[test] - mean) @ weights
            yield number, mask, fitted.accuracy(outputs, labels[test])


class _Fit:
    """The targets of one division's training rows."""

    def __init__(self, labels: Rows, classes: int) -> None:
        self.targets = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)
        self._means = self.targets.mean(axis=0)

    def accuracy(self, outputs: Floats, labels: Rows) -> float:
        """The share of correct classes; outputs are (rows, classes) without the intercept."""
        return float(((outputs + self._means).argmax(axis=1) == labels).mean())


def _scatter(rows_of: Callable[[Rows], Floats], rows: Rows) -> Floats:
    """The sum of the outer products of rows, computed a block of rows at a time."""
    total: Floats | None = None
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = rows_of(rows[start : start + _ROWS_AT_ONCE])
        if total is None:
            total = block.T @ block
        else:
            total += block.T @ block
    assert total is not None
    return total


def _pair(blocks: Floats, first: int, second: int) -> Floats:
    if first == second:
        return np.ascontiguousarray(blocks[first, first])
    both: Floats = blocks[first, second] + blocks[second, first]
    return both


def _solve(scatter: Floats, products: Floats, strength: float, rows: int) -> Floats:
    """(features, classes) weights of the ridge regression."""
    from scipy.linalg import solve

    size = len(scatter)
    mean_variance = float(np.trace(scatter)) / size
    # Where no feature varies, any penalty gives weights of zero.
    scatter[np.diag_indices(size)] += strength * mean_variance if mean_variance > 0 else rows
    weights: Floats = solve(scatter, products, assume_a="pos", overwrite_a=True, check_finite=False)
    return weights
