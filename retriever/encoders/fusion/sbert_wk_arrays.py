"""SBERT-WK in NumPy, for encoders that run without torch.

The same equations and edges as in `sbert_wk` and `window_geometry`, which say what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, first_state
from retriever.encoders.fusion.window_geometry import FLOOR, NO_VARIANCE, SPANNED, Neighbors

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

# Pieces measured at a time: their states in double precision stay in the processor's caches.
_PIECES = 512


@dataclass(frozen=True, slots=True, eq=False)
class _Geometry:
    """See `window_geometry.Geometry`."""

    beta: Doubles
    nu: Doubles
    present: Doubles
    variance: Doubles


def sbert_wk(
    states: Sequence[Floats], kept: NDArray[np.bool_], settings: SBERTWKSettings
) -> Floats:
    """The vector of each text.

    Args:
        states: the hidden states of a batch from `first_state` to the last, each (texts, pieces,
            d) float32. What is not kept is not read.
        kept: (texts, pieces), the pieces that count.
        settings: resolved for the model's depth.

    Returns:
        (texts, d) float32, not normalized.
    """
    texts, width = len(kept), states[0].shape[-1]
    vectors = np.zeros((texts, width), np.float32)
    owners = np.nonzero(kept)[0]
    if len(owners) == 0:
        return vectors
    # (layers, pieces, d)
    flat = np.stack([state[kept] for state in states])
    first = first_state(settings)
    released = settings.preset == "released"
    neighbors = Neighbors(
        count=len(flat) - (settings.start_layer or 0) + first,
        reach=settings.window,
        cut_left=released,
        projected=released,
    )
    parts = [
        _measure(flat[:, start : start + _PIECES], neighbors)
        for start in range(0, flat.shape[1], _PIECES)
    ]
    geometry = _Geometry(
        *(
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in ("beta", "nu", "present", "variance")
        )
    )
    words = _word_weights(geometry.variance, owners, texts, settings)
    weights = (_layer_weights(geometry, settings) * words).astype(np.float32)
    pieces = np.einsum("lp,lpd->pd", weights, flat[len(flat) - len(weights) :])
    # The pieces of a text are adjacent.
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    vectors[owners[starts]] = np.add.reduceat(pieces, starts, axis=0)
    return vectors


def _layer_weights(geometry: _Geometry, settings: SBERTWKSettings) -> Doubles:
    """(layers, pieces), each column summing to 1; Eq. 9."""
    if settings.layers != "weighted":
        weights = np.zeros_like(geometry.nu)
        weights[-1 if settings.layers == "last" else slice(None)] = 1
        equal: Doubles = weights / weights.sum(axis=0)
        return equal
    fallback = np.where(geometry.present.any(axis=0), geometry.present, 1.0)
    alignment = _shares(1 / geometry.beta, fallback)
    novelty = _shares(geometry.nu, fallback)
    return settings.omega * alignment + (1 - settings.omega) * novelty


def _shares(amounts: Doubles, fallback: Doubles) -> Doubles:
    amounts = np.where(amounts.sum(axis=0) > 0, amounts, fallback)
    shares: Doubles = amounts / amounts.sum(axis=0)
    return shares


def _word_weights(
    variance: Doubles, owners: Integers, texts: int, settings: SBERTWKSettings
) -> Doubles:
    """(pieces,), summing to 1 over each text; Eq. 12."""
    if settings.words == "uniform":
        variance = np.zeros_like(variance)
    changing = np.bincount(owners, variance, texts)[owners] > 0
    amounts = np.where(changing, variance, 1.0)
    return amounts / np.bincount(owners, amounts, texts)[owners]


def _measure(states: Floats, neighbors: Neighbors) -> _Geometry:
    wide = states.transpose(1, 0, 2).astype(np.float64)
    gram = (wide @ wide.transpose(0, 2, 1)).transpose(1, 2, 0)
    squares = gram.diagonal(0, 0, 1).T
    inverse = _inverse_root(squares, 0.0)
    cosines = gram * inverse[:, None] * inverse[None]
    adjacent = cosines.diagonal(1, 0, 1).T
    variance = np.square(adjacent - adjacent.mean(axis=0)).mean(axis=0)
    variance = np.where(variance > NO_VARIANCE, variance, 0.0)

    skip = len(states) - neighbors.count
    cosines = cosines[skip:, skip:].copy()
    present = (inverse[skip:] > 0).astype(np.float64)
    for layer, one in enumerate(present):
        cosines[layer, layer] = one
    total, outside = np.empty_like(present), np.empty_like(present)
    for layers, offsets in neighbors.groups():
        for layer in layers:
            window = [layer + one for one in offsets if 0 <= layer + one < neighbors.count]
            total[layer], outside[layer] = _compare(cosines, layer, window)
    sizes = np.array(neighbors.sizes(), np.float64)[:, None]
    beta = total / sizes
    if neighbors.projected:
        inside = np.sqrt(np.maximum(present - outside, 0))
        beta = np.maximum(beta / np.maximum(inside, FLOOR), FLOOR) * (2 * (sizes + 1))
    else:
        beta = np.maximum(beta, FLOOR)
    beta = np.where(present > 0, beta, np.inf)
    nu = np.sqrt(np.where(outside > SPANNED, outside, 0.0))
    return _Geometry(beta, nu, present, variance)


def _compare(cosines: Doubles, layer: int, window: Sequence[int]) -> tuple[Doubles, Doubles]:
    """The sum of a layer's cosines with its window, and its squared length outside the span."""
    factor: list[list[Doubles]] = []
    inverse: list[Doubles] = []
    pivot = cosines[layer, layer]
    for place in (*window, layer):
        row: list[Doubles] = []
        pivot = cosines[place, place]
        for column, done in enumerate(factor):
            value = cosines[window[column], place]
            for one, other in zip(row, done, strict=True):
                value = value - one * other
            value = value * inverse[column]
            pivot = pivot - value * value
            row.append(value)
        factor.append(row)
        inverse.append(_inverse_root(pivot, SPANNED))
    return sum((cosines[layer, one] for one in window), np.zeros_like(pivot)), pivot


def _inverse_root(values: Doubles, above: float) -> Doubles:
    """1 over the root where a value is above a limit, else 0."""
    large = values > above
    return np.where(large, 1 / np.sqrt(np.where(large, values, 1.0)), 0.0)
