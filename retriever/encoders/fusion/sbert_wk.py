"""SBERT-WK: layers weighted by what they add to their neighbors, words by how much they change.

Wang and Kuo, 2020. For each word piece, over hidden states start_layer to the last:

- the window of a layer is up to `window` layers on each side that exist;
- alignment: the mean cosine with the window, weight proportional to its inverse (Eqs. 5, 6);
- novelty: the part of the vector's length that is outside the window's span, weight proportional
  to it (Eqs. 7, 8; Eq. 14 as printed is 1 or -1, and means the last entry over the column's norm);
- weight of the layer: omega * alignment + (1 - omega) * novelty, each summing to 1 over the layers
  (Eq. 9; Table VII names the two the other way round).

A word's weight is the population variance of its adjacent-layer cosines over the sum of those of
the text (Eq. 12); the text's vector is the weighted sum over layers and words, of no set length.

The preset ``released`` is what the authors' code does instead: layers above start_layer but less
than `window` above it have no left neighbors; the mean cosine is taken with respect to the
projection on the window's span, and the alignment weight divided by the size of the window plus
one; the variance is over the fused layers only. (That code also drops the last word piece of each
text: a matter of `kept`.)

Table VII's ablation replaces one part: `words` ``uniform`` gives the words of a text equal weights;
`layers` ``uniform`` gives the fused layers equal weights, ``last`` reads the last layer alone.

Edges, where the equations say nothing; no result is ever NaN or infinite for finite states:

- a cosine with a zero vector is 0, and a zero vector's layer weight is 0;
- a mean cosine below 1e-6, or negative, counts as 1e-6, so that no weight is negative;
- novelties that are all 0 (equal layers) give the layers equal weights, zero vectors excepted
  unless all are zero;
- variances that are all 0 (one adjacent pair, equal layers) give the words of a text equal weights;
- a text of which no piece is kept gets the zero vector;
- a vector whose distance from the span of others is below 1e-6 of its length is in that span: it
  adds nothing new, and as a neighbor it is left out of the basis.

Arrays are NumPy's or torch's. Everything is a function of the cosines between the layers of one
piece, which are computed in float64: where layers are nearly parallel, what is measured are small
differences of cosines, and in float32 those are rounding noise. The last axis of most arrays is
the pieces, so each step runs over many of them at once.
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
# Squared; float32 states that are equal up to rounding are about 1e-14 apart.
_SPANNED = 1e-12
_FLOOR = 1e-6
# Cosines of states that differ by float32 rounding alone deviate by less than 1e-14.
_NO_VARIANCE = 1e-28
# Pieces of a step: what it works on stays in a core's caches; an accelerator wants longer steps.
_PIECES = 256
_ACCELERATOR_FACTOR = 64


@dataclass(frozen=True, slots=True)
class SBERTWKSettings:
    """What SBERT-WK does in a model; `EncoderSettings` says what each setting means."""

    preset: WKPreset
    start_layer: int
    window: int
    omega: float
    variance: WKVariance
    words: WKWords
    layers: WKLayers

    @classmethod
    def of(cls, settings: EncoderSettings, depth: int) -> SBERTWKSettings:
        """Those among the settings of an encoder, with defaults for a model of `depth` layers.

        A start layer is refused that leaves less than two layers, and for ``released`` one more
        than the window, or the last layer would have no window.
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
        """The settings of an encoder that say the same, without those that decide nothing."""
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
        """The lowest hidden state that is read."""
        return 0 if self.variance == "all" else self.start_layer


class PieceWeights(NamedTuple):
    """How SBERT-WK weights the pieces that are kept, text by text in order of place, float64."""

    layers: Array  # (fused layers, pieces), each column sums to 1.
    words: Array  # (pieces,), sums to 1 over each text.


def sbert_wk(states: Sequence[Array], kept: Array, settings: SBERTWKSettings) -> Array:
    """The vector of each text, (texts, d) float32, not normalized.

    `states` are the hidden states of a batch from `settings.first_state` up, each (texts, pieces,
    d) of any floating type; `kept` is (texts, pieces) bool, the pieces that count. What is not kept
    is not read. Gradients flow through the states, not the weights.
    """
    pieces = _kept_pieces(states, kept)
    weights = _weigh(pieces, kept, settings)
    members = _members(kept)
    fused = pieces[len(pieces) - len(weights.layers) :]
    parts = [
        to_float32(members * (layer * weights.words)) @ to_float32(state)
        for layer, state in zip(weights.layers, fused, strict=True)
    ]
    return sum(parts[1:], parts[0])


def sbert_wk_weights(
    states: Sequence[Array], kept: Array, settings: SBERTWKSettings
) -> PieceWeights:
    """The weights that `sbert_wk` gives layers and words; the same arguments."""
    return _weigh(_kept_pieces(states, kept), kept, settings)


def _kept_pieces(states: Sequence[Array], kept: Array) -> list[Array]:
    """Each state as (pieces that are kept, d)."""
    (places,) = array_functions(kept).where(kept.reshape(-1))
    flat = [state.reshape(-1, state.shape[-1]) for state in states]
    return flat if len(places) == len(flat[0]) else [state[places] for state in flat]


def _members(kept: Array) -> Array:
    """(texts, pieces that are kept) float64: 1 where a piece is of a text."""
    xp = array_functions(kept)
    texts = xp.arange(len(kept), device=kept.device)
    return to_float64(xp.where(kept)[0] == texts[:, None])


def _weigh(pieces: Sequence[Array], kept: Array, settings: SBERTWKSettings) -> PieceWeights:
    xp = array_functions(kept)
    count = len(pieces) - settings.start_layer + settings.first_state
    step = _PIECES * (1 if str(kept.device) == "cpu" else _ACCELERATOR_FACTOR)
    buffer = xp.empty(
        (min(step, len(pieces[0])), len(pieces), pieces[0].shape[1]),
        dtype=xp.float64,
        device=kept.device,
    )
    parts = []
    for start in range(0, max(1, len(pieces[0])), step):
        wide = buffer[: min(step, len(pieces[0]) - start)]
        for layer, state in enumerate(pieces):
            wide[:, layer] = getattr(state, "detach", lambda one=state: one)()[start : start + step]
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
    return PieceWeights(layers, _word_weights(variance, kept, settings))


def _shares(amounts: Array, fallback: Array) -> Array:
    """Each column over its sum; that of the fallback if the sum is 0."""
    amounts = array_functions(amounts).where(amounts.sum(axis=0) > 0, amounts, fallback)
    return amounts / amounts.sum(axis=0)


def _word_weights(variance: Array, kept: Array, settings: SBERTWKSettings) -> Array:
    """(pieces,), summing to 1 over each text; Eq. 12."""
    xp = array_functions(kept)
    members = _members(kept)
    owners = xp.where(kept)[0]
    if settings.words == "uniform":
        variance = xp.zeros_like(variance)
    amounts = xp.where((members @ variance)[owners] > 0, variance, 1.0)
    return amounts / (members @ amounts)[owners]


def _measure(
    states: Array, count: int, settings: SBERTWKSettings
) -> tuple[Array, Array, Array, Array]:
    """Alignment, novelty, whether a vector is not zero, and variance of some pieces.

    `states` are (pieces, layers, d) float64; the last `count` layers are fused, all of them enter
    the population variance of the adjacent-layer cosines. All but that are (count, pieces).
    """
    xp = array_functions(states)
    released = settings.preset == "released"
    # (layers, layers, pieces)
    gram = xp.moveaxis(states @ states.swapaxes(1, 2), 0, -1)
    inverse = _inverse_root(_diagonal(gram, 0), 0.0)
    cosines = gram * inverse[:, None] * inverse[None]
    adjacent = _diagonal(cosines, 1)
    variance = xp.square(adjacent - adjacent.mean(axis=0)).mean(axis=0)
    variance = xp.where(variance > _NO_VARIANCE, variance, 0.0)

    skip = len(cosines) - count
    present = to_float64(inverse[skip:] > 0)
    reach = min(settings.window, count - 1)
    # Layers that do not exist are zero vectors.
    padded = xp.zeros(
        (count + 2 * reach, count + 2 * reach, cosines.shape[2]),
        dtype=xp.float64,
        device=states.device,
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
        device=states.device,
    )[:, None]
    beta = total / sizes
    if released:
        inside = xp.sqrt(xp.clip(present - outside, 0, None))
        beta = xp.clip(beta / xp.clip(inside, _FLOOR, None), _FLOOR, None) * (2 * (sizes + 1))
    else:
        beta = xp.clip(beta, _FLOOR, None)
    beta = xp.where(present > 0, beta, xp.inf)
    nu = xp.sqrt(xp.where(outside > _SPANNED, outside, 0.0))
    return beta, nu, present, variance


def _compare(
    cosines: Array, margin: int, layers: range, offsets: Sequence[int]
) -> tuple[Array, Array]:
    """The unit vectors of a run of layers against their windows: sum of cosines, squared rest.

    The rows of the Cholesky factor of the cosines of the window and the vector, unrolled; a
    neighbor in the span of those before it gets a column of zeros. `cosines` have `margin` layers
    of zeros at both ends; both results are (layers, pieces).
    """

    def between(one: int, other: int) -> Array:
        first = margin + min(one, other)
        diagonal = _diagonal(cosines, abs(one - other))
        return diagonal[first + layers.start : first + layers.stop]

    factor: list[list[Array]] = []
    inverse: list[Array] = []
    pivot = between(0, 0)
    for place in (*offsets, 0):
        row: list[Array] = []
        pivot = between(place, place)
        for column, done in enumerate(factor):
            value = between(offsets[column], place)
            for one, other in zip(row, done, strict=True):
                value = value - one * other
            value = value * inverse[column]
            pivot = pivot - value * value
            row.append(value)
        factor.append(row)
        inverse.append(_inverse_root(pivot, _SPANNED))
    return sum(between(offset, 0) for offset in offsets), pivot


def _diagonal(square: Array, offset: int) -> Array:
    return square.diagonal(offset, 0, 1).T


def _inverse_root(values: Array, above: float) -> Array:
    """1 over the root where a value is above a limit, else 0."""
    xp = array_functions(values)
    large = values > above
    return xp.where(large, 1 / xp.sqrt(xp.where(large, values, 1.0)), 0.0)
