"""SBERT-WK in float64, a piece and a layer at a time, from the equations of Wang and Kuo, 2020.

Spans come from singular value decompositions of the window's vectors, lengths and cosines from
the vectors themselves. Below 1e-6 a unit vector's distance from a span, a mean cosine and a
projection's length count as 0, 1e-6 and 1e-6; below 1e-14 a deviation of cosines counts as 0.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Reference(NamedTuple):
    """Vector and weights of one text, for the tokens that are not masked."""

    vector: Array
    layers: Array
    words: Array


def reference(
    hidden: NDArray[np.floating],
    kept: NDArray[np.bool_],
    *,
    preset: str = "paper",
    start: int = 0,
    window: int = 2,
    omega: float = 0.5,
    variance: str = "all",
    word_weights: str = "variance",
    layer_weights: str = "weighted",
) -> Reference:
    """One text; `hidden` is (hidden states, pieces, d), the embedding output first."""
    hidden = np.asarray(hidden, dtype=np.float64)
    pieces = np.flatnonzero(kept)
    layers, variances, unified = [], [], []
    for piece in pieces:
        vectors = hidden[start:, piece]
        beta, nu = [], []
        for layer in range(len(vectors)):
            one, other = _layer(vectors, layer, window, preset)
            beta.append(one)
            nu.append(other)
        alignment = _shares([1 / value for value in beta], vectors)
        novelty = _shares(nu, vectors)
        weights = omega * alignment + (1 - omega) * novelty
        if layer_weights == "uniform":
            weights = np.full(len(vectors), 1 / len(vectors))
        elif layer_weights == "last":
            weights = np.eye(len(vectors))[-1]
        layers.append(weights)
        unified.append(sum(w * v for w, v in zip(weights, vectors, strict=True)))
        variances.append(_variance(hidden[:, piece] if variance == "all" else vectors))
    total = sum(variances)
    by_variance = total > 0 and word_weights == "variance"
    words = [v / total if by_variance else 1 / len(pieces) for v in variances]
    vector = np.zeros(hidden.shape[2])
    for word, one in zip(words, unified, strict=True):
        vector += word * one
    return Reference(vector, np.array(layers), np.array(words))


def _window(layer: int, count: int, window: int, preset: str) -> list[int]:
    """Eq. 4, with what does not exist left out."""
    left = [layer - step for step in range(window, 0, -1)]
    if preset == "released" and layer < window:
        left = []
    right = [layer + step for step in range(1, window + 1)]
    return [place for place in left + right if 0 <= place < count]


def _layer(vectors: Array, layer: int, window: int, preset: str) -> tuple[float, float]:
    """Eqs. 5, 7 and 8; what alignment is the inverse of, and novelty."""
    own = vectors[layer]
    length = np.linalg.norm(own)
    if length == 0:
        return np.inf, 0.0
    places = _window(layer, len(vectors), window, preset)
    around = [vectors[place] for place in places]
    mean = sum(_cosine(own, other) for other in around) / len(around)
    units = [other / np.linalg.norm(other) for other in around if np.linalg.norm(other) > 0]
    projection = np.zeros_like(own)
    if units:
        directions, sizes, _ = np.linalg.svd(np.array(units).T, full_matrices=False)
        basis = directions[:, sizes > 1e-6]
        projection = basis @ (basis.T @ own)
    nu = np.linalg.norm(own - projection) / length
    nu = 0.0 if nu < 1e-6 else nu
    if preset == "paper":
        return max(mean, 1e-6), nu
    mean *= length / max(np.linalg.norm(projection), 1e-6 * length)
    return max(mean, 1e-6) * 2 * (len(places) + 1), nu


def _cosine(one: Array, other: Array) -> float:
    """Eq. 2."""
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / lengths) if lengths > 0 else 0.0


def _shares(amounts: list[float], vectors: Array) -> Array:
    if sum(amounts) > 0:
        return np.array(amounts) / sum(amounts)
    some = np.array([float(np.any(vector != 0)) for vector in vectors])
    return some / some.sum() if some.any() else np.full(len(vectors), 1 / len(vectors))


def _variance(vectors: Array) -> float:
    """Return the variance of Eq. 12."""
    cosines = [_cosine(one, other) for one, other in pairwise(vectors)]
    mean = sum(cosines) / len(cosines)
    found = sum((cosine - mean) ** 2 for cosine in cosines) / len(cosines)
    return found if found > 1e-28 else 0.0
