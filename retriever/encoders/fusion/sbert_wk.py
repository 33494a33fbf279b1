"""SBERT-WK: layers weighted by what they add to their neighbors, words by how much they change.

Wang and Kuo, 2020. For each word piece, over hidden states start_layer to the last:

- the window of a layer is up to `window` layers on each side that exist;
- alignment: the mean cosine with the window, weight proportional to its inverse (Eqs. 5, 6);
- novelty: the part of the vector's length that is outside the window's span, weight proportional
  to it (Eqs. 7, 8; Eq. 14 is misprinted and means the last entry over the column's norm);
- weight of the layer: omega * alignment + (1 - omega) * novelty, each summing to 1 over the layers
  (Eq. 9; Table VII swaps the two names).

A word's weight is the population variance of its adjacent-layer cosines, divided by the sum over
the words of the text (Eq. 12). The text's vector is the weighted sum over layers and words. It is
not normalized.

The preset ``released`` follows the authors' code. Layers less than `window` above start_layer have
no left neighbors. The mean cosine is taken to the projection on the window's span. The alignment
weight is divided by the size of the window plus one. The variance is over the fused layers only.
The code also drops the last word piece of each text, which is a matter of `mask`.

The ablation of Table VII replaces one part. `words` ``uniform`` gives the words of a text equal
weights. `layers` ``uniform`` gives the fused layers equal weights, and ``last`` reads only the last
layer.

Cases that the equations leave open; no result is NaN or infinite for finite states:

- a cosine with a zero vector is 0, and a zero vector's layer weight is 0;
- a mean cosine below 1e-6, or negative, counts as 1e-6, so no weight is negative;
- novelties that are all 0 (equal layers) give the layers equal weights, zero vectors excepted
  unless all are zero;
- variances that are all 0 (one adjacent pair, equal layers) give the words of a text equal weights;
- a text without a pooled piece gets the zero vector;
- a vector closer than 1e-6 of its length to the span of others counts as part of the span. It adds
  nothing new, and as a neighbor it is left out of the basis.

Arrays are NumPy arrays or torch tensors. Everything is a function of the cosines between the layers
of one piece. They are computed in float64: nearly parallel layers differ by small differences of
cosines, which are rounding noise in float32. The last axis of most arrays is the pieces, so each
step runs over many of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from retriever.encoders.computing import Array, array_functions, to_float32, to_float64
from retriever.encoders.settings import (
    EncoderSettings,
    WKLayers,
    WKPreset,
    WKVariance,
    WKWords,
)
from retriever.errors import ConfigError

_FEWEST_LAYERS = 2
# Squared distance from a span; float32 states equal up to rounding are about 1e-14 apart.
_SPANNED = 1e-12
# Least mean cosine.
_FLOOR = 1e-6
# Cosines of states that differ by float32 rounding alone deviate by less than 1e-14.
_NO_VARIANCE = 1e-28
# Pieces of a step, whose arrays fit into a core's caches. An accelerator needs longer steps.
_PIECES = 256
_ACCELERATOR_FACTOR = 64


@dataclass(frozen=True, slots=True)
class SBERTWKSettings:
    """Settings of SBERT-WK in a model; `EncoderSettings` explains each of them."""

    preset: WKPreset
    start_layer: int
    window: int
    omega: float
    variance: WKVariance
    words: WKWords
    layers: WKLayers

    @classmethod
    def of(cls, settings: EncoderSettings, depth: int) -> SBERTWKSettings:
        """Complete the settings of an encoder for a model of `depth` layers.

        Raises:
            ConfigError: the start layer leaves less than two layers, or, for ``released``, not more
                layers than the window.
        """
        preset = settings.wk_preset or "paper"
        window = settings.window or 2
        fewest = window + 1 if preset == "released" else _FEWEST_LAYERS
        highest = depth + 1 - fewest
        if highest < 0:
            raise ConfigError(
                f"window: SBERT-WK with wk-preset={preset} and window={window} needs at least "
                f"{fewest} hidden states, and this model has {depth + 1}; choose a smaller window, "
                "wk-preset=paper or a deeper model"
            )
        start = round(depth / 3) if settings.start_layer is None else settings.start_layer
        if start > highest:
            raise ConfigError(
                f"start-layer: expected 0 to {highest}, which leaves {fewest} of this model's "
                f"{depth + 1} hidden states (wk-preset={preset}, window={window}), found {start}"
            )
        words = settings.wk_words or "variance"
        variance = settings.wk_variance or ("all" if preset == "paper" else "fused")
        if words == "uniform":
            variance = "fused"  # No variance is taken, so no lower state is read.
        omega = 0.5 if settings.omega is None else settings.omega
        layers = settings.wk_layers or "weighted"
        return cls(preset, start, window, omega, variance, words, layers)

    def named(self) -> dict[str, Any]:
        """Return the equivalent settings of an encoder; settings without effect are None."""
        weighted = self.layers == "weighted"
        by_variance = self.words == "variance"
        return {
            "wk_preset": self.preset,
            "window": self.window if weighted else None,
            "start_layer": self.start_layer,
            "omega": self.omega if weighted else None,
            "wk_variance": self.variance if by_variance else None,
            "wk_words": None if by_variance else self.words,
            "wk_layers": None if weighted else self.layers,
        }

    @property
    def first_state(self) -> int:
        """Lowest hidden state that is read."""
        return 0 if self.variance == "all" else self.start_layer


class PieceWeights(NamedTuple):
    """Weights of the pooled pieces by SBERT-WK, text by text in order of position, float64."""

    layers: Array  # (fused layers, pieces), each column sums to 1.
    words: Array  # (pieces,), sums to 1 over each text.


def sbert_wk(states: Sequence[Array], mask: Array, settings: SBERTWKSettings) -> Array:
    """Return the vector of each text, (texts, d) float32, not normalized.

    `states` are the hidden states of a batch from `settings.first_state` up, each (texts, pieces,
    d) of any floating type. `mask` is (texts, pieces) bool; only its pieces are read. Gradients
    flow through the states, not through the weights.
    """
    pieces = _pooled_pieces(states, mask)
    weights = _weigh(pieces, mask, settings)
    members = _members(mask)
    fused = pieces[len(pieces) - len(weights.layers) :]
    parts = [
        to_float32(members * (layer * weights.words)) @ to_float32(state)
        for layer, state in zip(weights.layers, fused, strict=True)
    ]
    return sum(parts[1:], parts[0])


def sbert_wk_weights(
    states: Sequence[Array], mask: Array, settings: SBERTWKSettings
) -> PieceWeights:
    """Return the weights of layers and words in `sbert_wk`, for the same arguments."""
    return _weigh(_pooled_pieces(states, mask), mask, settings)


def _pooled_pieces(states: Sequence[Array], mask: Array) -> list[Array]:
    """Return each state as (pooled pieces, d)."""
    (places,) = array_functions(mask).where(mask.reshape(-1))
    flat = [state.reshape(-1, state.shape[-1]) for state in states]
    return flat if len(places) == len(flat[0]) else [state[places] for state in flat]


def _members(mask: Array) -> Array:
    """Return (texts, pooled pieces) float64: 1 if a piece belongs to a text, else 0."""
    xp = array_functions(mask)
    texts = xp.arange(len(mask), device=mask.device)
    return to_float64(xp.where(mask)[0] == texts[:, None])


def _weigh(pieces: Sequence[Array], mask: Array, settings: SBERTWKSettings) -> PieceWeights:
    xp = array_functions(mask)
    count = len(pieces) - settings.start_layer + settings.first_state
    step = _PIECES * (1 if str(mask.device) == "cpu" else _ACCELERATOR_FACTOR)
    buffer = xp.empty(
        (min(step, len(pieces[0])), len(pieces), pieces[0].shape[1]),
        dtype=xp.float64,
        device=mask.device,
    )
    parts = []
    for start in range(0, max(1, len(pieces[0])), step):
        wide = buffer[: min(step, len(pieces[0]) - start)]
        for layer, state in enumerate(pieces):
            wide[:, layer] = getattr(state, "detach", lambda layer_state=state: layer_state)()[
                start : start + step
            ]
        parts.append(_measure(wide, count, settings))
    beta, nu, present, variance = (
        xp.concatenate(column, axis=-1) for column in zip(*parts, strict=True)
    )
    if settings.layers == "weighted":
        # If all vectors are zero, none is preferred.
        fallback = xp.where(xp.any(present > 0, axis=0), present, 1.0)
        alignment = _shares(1 / beta, fallback)
        novelty = _shares(nu, fallback)
        layers = settings.omega * alignment + (1 - settings.omega) * novelty  # Eq. 9
    else:
        layers = xp.zeros_like(nu)
        layers[-1 if settings.layers == "last" else slice(None)] = 1
        layers = layers / layers.sum(axis=0)
    return PieceWeights(layers, _word_weights(variance, mask, settings))


def _shares(amounts: Array, fallback: Array) -> Array:
    """Divide each column by its sum; use the column of `fallback` if the sum is 0."""
    amounts = array_functions(amounts).where(amounts.sum(axis=0) > 0, amounts, fallback)
    return amounts / amounts.sum(axis=0)


def _word_weights(variance: Array, mask: Array, settings: SBERTWKSettings) -> Array:
    """Return (pieces,) weights that sum to 1 over each text; Eq. 12."""
    xp = array_functions(mask)
    members = _members(mask)
    owners = xp.where(mask)[0]
    if settings.words == "uniform":
        variance = xp.zeros_like(variance)
    amounts = xp.where((members @ variance)[owners] > 0, variance, 1.0)
    return amounts / (members @ amounts)[owners]


def _measure(
    states: Array, count: int, settings: SBERTWKSettings
) -> tuple[Array, Array, Array, Array]:
    """Return alignment, novelty, presence and variance of pieces.

    `states` are (pieces, layers, d) float64. The last `count` layers are fused. All layers enter
    the (pieces,) population variance of the adjacent-layer cosines. The other three are (count,
    pieces); presence is 1 for a vector that is not zero.
    """
    xp = array_functions(states)
    # (layers, layers, pieces)
    gram = xp.moveaxis(states @ states.swapaxes(1, 2), 0, -1)
    inverse = _inverse_root(_diagonal(gram, 0), 0.0)
    cosines = gram * inverse[:, None] * inverse[None]
    adjacent = _diagonal(cosines, 1)
    variance = xp.square(adjacent - adjacent.mean(axis=0)).mean(axis=0)
    variance = xp.where(variance > _NO_VARIANCE, variance, 0.0)
    beta, nu, present = _align(cosines, inverse, count, settings)
    return beta, nu, present, variance


def _align(
    cosines: Array, inverse: Array, count: int, settings: SBERTWKSettings
) -> tuple[Array, Array, Array]:
    """Return alignment, novelty and presence of the last `count` layers, (count, pieces) each."""
    xp = array_functions(cosines)
    released = settings.preset == "released"
    skip = len(cosines) - count
    present = to_float64(inverse[skip:] > 0)
    reach = min(settings.window, count - 1)
    # Layers that do not exist are zero vectors.
    padded = xp.zeros(
        (count + 2 * reach, count + 2 * reach, cosines.shape[2]),
        dtype=xp.float64,
        device=cosines.device,
    )
    padded[reach : reach + count, reach : reach + count] = cosines[skip:, skip:]
    for layer in range(count):
        padded[reach + layer, reach + layer] = present[layer]
    right = list(range(1, reach + 1))
    both = [-offset for offset in reversed(right)] + right
    groups = [(range(reach), right), (range(reach, count), both)]
    if not released:
        groups = [(range(count), both)]
    compared = [_compare(padded, reach, *group) for group in groups]
    total, outside = (xp.concatenate(column) for column in zip(*compared, strict=True))
    sizes = xp.asarray(
        [
            float(sum(0 <= layer + offset < count for offset in offsets))
            for layers, offsets in groups
            for layer in layers
        ],
        dtype=xp.float64,
        device=cosines.device,
    )[:, None]
    beta = total / sizes
    if released:
        inside = xp.sqrt(xp.clip(present - outside, 0, None))
        beta = xp.clip(beta / xp.clip(inside, _FLOOR, None), _FLOOR, None) * (2 * (sizes + 1))
    else:
        beta = xp.clip(beta, _FLOOR, None)
    beta = xp.where(present > 0, beta, xp.inf)
    nu = xp.sqrt(xp.where(outside > _SPANNED, outside, 0.0))
    return beta, nu, present


def _compare(
    cosines: Array, margin: int, layers: range, offsets: Sequence[int]
) -> tuple[Array, Array]:
    """Compare consecutive layers with their windows: sum of cosines, and squared distance.

    The distance is from a unit vector to the span of its window. It is the last pivot of the
    Cholesky factor of the cosines of window and vector, computed row by row. A neighbor in the span
    of earlier ones gets a column of zeros. `cosines` have `margin` layers of zeros at both ends.
    Both results are (layers, pieces).
    """

    def between(first_offset: int, second_offset: int) -> Array:
        row = margin + min(first_offset, second_offset)
        diagonal = _diagonal(cosines, abs(first_offset - second_offset))
        return diagonal[row + layers.start : row + layers.stop]

    factor: list[list[Array]] = []
    inverse: list[Array] = []
    pivot = between(0, 0)
    for place in (*offsets, 0):
        row: list[Array] = []
        pivot = between(place, place)
        for column, factor_row in enumerate(factor):
            value = between(offsets[column], place)
            for term, factor_term in zip(row, factor_row, strict=True):
                value = value - term * factor_term
            value = value * inverse[column]
            pivot = pivot - value * value
            row.append(value)
        factor.append(row)
        inverse.append(_inverse_root(pivot, _SPANNED))
    return sum(between(offset, 0) for offset in offsets), pivot


def _diagonal(square: Array, offset: int) -> Array:
    return square.diagonal(offset, 0, 1).T


def _inverse_root(values: Array, above: float) -> Array:
    """Return 1 / sqrt(value) where a value is above a limit, else 0."""
    xp = array_functions(values)
    large = values > above
    return xp.where(large, 1 / xp.sqrt(xp.where(large, values, 1.0)), 0.0)
