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
- a text of which no piece is kept gets the zero vector.

`retriever.encoders.fusion.window_geometry` says when layers count as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from retriever.encoders.fusion.window_geometry import Geometry, Neighbors, measure
from retriever.encoders.settings import EncoderSettings
from retriever.errors import ConfigError

if TYPE_CHECKING:
    import torch

_FEWEST_LAYERS = 2


@dataclass(frozen=True, slots=True)
class SBERTWKSettings:
    """What SBERT-WK does.

    Attributes:
        preset: as in the ``paper`` or as in the authors' ``released`` code.
        start_layer: the lowest hidden state that is fused, 0 being the embedding output; None
            stands for a third of the depth, rounded (12 layers: 4; 6: 2; 24: 8).
        window: neighboring layers on each side, at least 1.
        omega: the weight of alignment, in [0, 1]; novelty has the rest. The released code has 0.5.
        variance: the hidden states that a word's variance is taken over, ``all`` or those that
            are ``fused``; None stands for all in the paper and the fused ones in the released code.
        words: a word's weight, from its ``variance`` or ``uniform`` over the text.
        layers: a layer's weight, ``weighted`` by alignment and novelty, ``uniform`` over the fused
            layers, or 1 for the ``last``. Unless weighted, window and omega do not matter.

    Raises:
        ConfigError: an impossible value, or ``released`` with a variance over all hidden states.
    """

    preset: Literal["paper", "released"] = "paper"
    start_layer: int | None = None
    window: int = 2
    omega: float = 0.5
    variance: Literal["all", "fused"] | None = None
    words: Literal["variance", "uniform"] = "variance"
    layers: Literal["weighted", "uniform", "last"] = "weighted"

    def __post_init__(self) -> None:
        if self.preset not in ("paper", "released"):
            raise ConfigError(f"wk-preset: expected paper or released, found {self.preset!r}")
        if self.start_layer is not None and self.start_layer < 0:
            raise ConfigError(f"start-layer: expected at least 0, found {self.start_layer}")
        if self.window < 1:
            raise ConfigError(f"window: expected at least 1, found {self.window}")
        if not 0 <= self.omega <= 1:
            raise ConfigError(f"omega: expected 0 to 1, found {self.omega}")
        if self.variance not in (None, "all", "fused"):
            raise ConfigError(f"wk-variance: expected all or fused, found {self.variance!r}")
        if self.words not in ("variance", "uniform"):
            raise ConfigError(f"wk-words: expected variance or uniform, found {self.words!r}")
        if self.layers not in ("weighted", "uniform", "last"):
            raise ConfigError(
                f"wk-layers: expected weighted, uniform or last, found {self.layers!r}"
            )
        if self.preset == "released" and self.variance == "all":
            raise ConfigError(
                "wk-variance: expected fused with wk-preset=released, found all; leave it out"
            )

    @classmethod
    def of(cls, settings: EncoderSettings, depth: int) -> SBERTWKSettings:
        """Those among the settings of an encoder, resolved; raises what `resolved` raises."""
        return cls(
            preset=settings.wk_preset or "paper",
            start_layer=settings.start_layer,
            window=2 if settings.window is None else settings.window,
            omega=0.5 if settings.omega is None else settings.omega,
            variance=settings.wk_variance,
            words=settings.wk_words or "variance",
            layers=settings.wk_layers or "weighted",
        ).resolved(depth)

    def resolved(self, depth: int) -> SBERTWKSettings:
        """The same for a model of `depth` layers, with a start layer and a variance.

        Raises:
            ConfigError: the start layer leaves too few layers: two are needed, and for
                ``released`` one more than the window, or the last layer would have no window.
        """
        fewest = self.window + 1 if self.preset == "released" else _FEWEST_LAYERS
        highest = depth + 1 - fewest
        if highest < 0:
            raise ConfigError(
                f"window: SBERT-WK with wk-preset={self.preset} and window={self.window} needs at "
                f"least {fewest} hidden states, and this model has {depth + 1}; choose a smaller "
                "window, wk-preset=paper or a deeper model"
            )
        start = round(depth / 3) if self.start_layer is None else self.start_layer
        if start > highest:
            raise ConfigError(
                f"start-layer: expected 0 to {highest}, which leaves {fewest} of this model's "
                f"{depth + 1} hidden states (wk-preset={self.preset}, window={self.window}), "
                f"found {start}"
            )
        variance = self.variance or ("all" if self.preset == "paper" else "fused")
        if self.words == "uniform":
            variance = "fused"  # No variance is taken, so no lower state is read.
        return replace(self, start_layer=start, variance=variance)


@dataclass(frozen=True, slots=True)
class PieceWeights:
    """How SBERT-WK weights the pieces that are kept, text by text in order of place.

    Attributes:
        layers: (pieces, fused layers) float64, each row sums to 1.
        words: (pieces,) float64, sums to 1 over each text.
        beta: (pieces, fused layers) float64, the alignment: the mean cosine, for ``released`` that
            of the projection times twice the window's size plus one; the weight is proportional
            to its inverse. Infinite for a zero vector.
        nu: (pieces, fused layers) float64 in [0, 1], the novelty.
        variance: (pieces,) float64, that of the adjacent-layer cosines.
    """

    layers: torch.Tensor
    words: torch.Tensor
    beta: torch.Tensor
    nu: torch.Tensor
    variance: torch.Tensor


def first_state(settings: SBERTWKSettings) -> int:
    """The lowest hidden state that is read, for resolved settings."""
    if settings.start_layer is None or settings.variance is None:
        raise ValueError("the settings are not resolved for a depth")
    return 0 if settings.variance == "all" else settings.start_layer


def sbert_wk(
    states: Sequence[torch.Tensor], kept: torch.Tensor, settings: SBERTWKSettings
) -> torch.Tensor:
    """The vector of each text.

    Args:
        states: the hidden states of a batch from `first_state` to the last, each (texts, pieces,
            d) of any floating type, on one device. What is not kept is not read.
        kept: (texts, pieces) bool, the pieces that count, on the same device.
        settings: resolved for the model's depth.

    Returns:
        (texts, d) float32, not normalized.

    Raises:
        ConfigError: there are too few states for the settings.
    """
    import torch
    from torch.nn.functional import embedding_bag

    texts, _, width = states[0].shape
    vectors = torch.zeros((texts, width), dtype=torch.float32, device=kept.device)
    places, owners = _places(kept)
    if len(places) == 0:
        return vectors
    flat = _rows(states)
    geometry = _measure(flat, kept, places, settings)
    words = _word_weights(geometry.variance, owners, texts, settings)
    weights = (_layer_weights(geometry, settings) * words).float()
    counts = kept.sum(dim=1)
    starts = counts.cumsum(dim=0) - counts
    for state, weight in zip(flat[len(flat) - len(weights) :], weights, strict=True):
        vectors += embedding_bag(
            places, state.float(), starts, mode="sum", per_sample_weights=weight
        )
    return vectors


def sbert_wk_weights(
    states: Sequence[torch.Tensor], kept: torch.Tensor, settings: SBERTWKSettings
) -> PieceWeights:
    """The weights that `sbert_wk` gives layers and words; the same arguments and errors."""
    places, owners = _places(kept)
    geometry = _measure(_rows(states), kept, places, settings)
    return PieceWeights(
        _layer_weights(geometry, settings).T,
        _word_weights(geometry.variance, owners, len(kept), settings),
        geometry.beta.T,
        geometry.nu.T,
        geometry.variance,
    )


def _places(kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of the pieces that are kept, and the text of each."""
    places = kept.flatten().nonzero().squeeze(1)
    return places, places // kept.shape[1]


def _rows(states: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [state.detach().reshape(-1, state.shape[-1]) for state in states]


def _measure(
    flat: Sequence[torch.Tensor],
    kept: torch.Tensor,
    places: torch.Tensor,
    settings: SBERTWKSettings,
) -> Geometry:
    first = first_state(settings)
    settings.resolved(first + len(flat) - 1)
    released = settings.preset == "released"
    neighbors = Neighbors(
        count=len(flat) - (settings.start_layer or 0) + first,
        reach=settings.window,
        cut_left=released,
        projected=released,
    )
    return measure(flat, None if len(places) == kept.numel() else places, neighbors)


def _layer_weights(geometry: Geometry, settings: SBERTWKSettings) -> torch.Tensor:
    """(layers, pieces), each column summing to 1; Eq. 9."""
    import torch

    if settings.layers != "weighted":
        weights = torch.zeros_like(geometry.nu)
        weights[-1 if settings.layers == "last" else slice(None)] = 1
        return weights / weights.sum(dim=0)
    # If all vectors are zero, none is preferred.
    fallback = torch.where(geometry.present.any(dim=0), geometry.present, 1.0)
    alignment = _shares(geometry.beta.reciprocal(), fallback)
    novelty = _shares(geometry.nu, fallback)
    return settings.omega * alignment + (1 - settings.omega) * novelty


def _shares(amounts: torch.Tensor, fallback: torch.Tensor) -> torch.Tensor:
    """Each column over its sum; that of the fallback if the sum is 0."""
    import torch

    amounts = torch.where(amounts.sum(dim=0) > 0, amounts, fallback)
    return amounts / amounts.sum(dim=0)


def _word_weights(
    variance: torch.Tensor, owners: torch.Tensor, texts: int, settings: SBERTWKSettings
) -> torch.Tensor:
    """(pieces,), summing to 1 over each text; Eq. 12."""
    import torch

    if settings.words == "uniform":
        variance = torch.zeros_like(variance)
    none = variance.new_zeros(texts)
    changing = none.index_add(0, owners, variance)[owners] > 0
    amounts = torch.where(changing, variance, 1.0)
    totals: torch.Tensor = none.index_add(0, owners, amounts)[owners]
    return amounts / totals
