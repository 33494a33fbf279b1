"""From hidden states to one vector per text, in NumPy or torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from retriever.encoders.computing import Array, array_functions, to_float32
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, sbert_wk
from retriever.encoders.settings import EncoderSettings, Pooling


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens around a text; negative places count from its end, None is none."""

    before: int = 1
    after: int = 1
    cls: int | None = 0
    sep: int | None = -1
    # Token types of those before and those after; empty if all types are 0.
    types: tuple[int, ...] = ()

    def token_types(self, length: int) -> list[int]:
        """The token types of a text of `length` word pieces, special tokens included."""
        inside = [0] * (length - self.before - self.after)
        return [*self.types[: self.before], *inside, *self.types[self.before :]][:length]


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Which places of a padded batch are pooled, and where its special tokens are."""

    kept: Array | None  # (texts, pieces) bool; None if all are.
    cls: Array
    sep: Array


def mean_pooling(hidden: Array, pieces: Pieces) -> Array:
    """(texts, width) float32: the mean of the pieces that are kept; the zero vector if none is."""
    if pieces.kept is None:
        return to_float32(hidden).mean(axis=1)
    counts = to_float32(pieces.kept.sum(axis=1))[:, None]
    weights = to_float32(pieces.kept) / array_functions(counts).clip(counts, 1, None)
    return (weights[:, None] @ to_float32(hidden))[:, 0]


def max_pooling(hidden: Array, pieces: Pieces) -> Array:
    """The greatest value of each component over the pieces that are kept, else zeros."""
    xp = array_functions(hidden)
    hidden = to_float32(hidden)
    if pieces.kept is None:
        return xp.amax(hidden, axis=1)
    greatest = xp.amax(xp.where(pieces.kept[:, :, None], hidden, -xp.inf), axis=1)
    return xp.where(pieces.kept.any(axis=1)[:, None], greatest, 0.0)


def _at(hidden: Array, places: Array) -> Array:
    """The vector of one piece of each text: of [CLS], or of the last [SEP]."""
    rows = array_functions(hidden).arange(len(hidden), device=hidden.device)
    return to_float32(hidden[rows, places])


POOLINGS: Mapping[Pooling, Callable[[Array, Pieces], Array]] = {
    "mean": mean_pooling,
    "max": max_pooling,
    "cls": lambda hidden, pieces: _at(hidden, pieces.cls),
    "sep": lambda hidden, pieces: _at(hidden, pieces.sep),
}


@dataclass(frozen=True, slots=True)
class Fuser:
    """Pools and fuses the hidden states of a batch, by resolved settings.

    `fused` are the hidden states in the order of their fusion, `layers` the same ascending;
    `sbert_wk` is set if it fuses them.
    """

    settings: EncoderSettings
    fused: tuple[int, ...]
    layers: tuple[int, ...]
    sbert_wk: SBERTWKSettings | None = None
    special: SpecialTokens = SpecialTokens()

    def width(self, width: int) -> int:
        """Components of a fused vector, for hidden states of `width` components."""
        return width * (len(self.fused) if self.settings.fusion == "concat" else 1)

    @property
    def fuses_pieces(self) -> bool:
        """Whether a piece has a vector of its own, of which the text's is the mean or maximum."""
        pooled = self.settings.pooling in (None, "mean", "max")
        plain = self.settings.fusion != "max" and self.sbert_wk is None
        return pooled and plain and not self.settings.head

    def pieces(self, lengths: Array, longest: int, *, padded: bool = True) -> Pieces:
        """Which pieces are pooled: none of the padding, special tokens as the settings say."""
        before = after = 0
        if self.settings.special_tokens == "drop":
            before = self.special.before
            after = self.special.after
        elif self.settings.wk_preset == "released":
            # The published code drops the last piece, whatever it is.
            after = 1
        kept = None
        if padded or before or after or self.sbert_wk is not None:
            places = array_functions(lengths).arange(longest, device=lengths.device)
            kept = (places >= before) & (places < lengths[:, None] - after)
        ends = self.special.cls or 0, self.special.sep or -1
        cls, sep = (lengths * (place < 0) + place for place in ends)
        return Pieces(kept, cls, sep)

    def fuse(self, vectors: Mapping[int, Array]) -> Array:
        """One vector of those of each layer, of texts or of pieces."""
        chosen = [vectors[layer] for layer in self.fused]
        if len(chosen) == 1:
            return chosen[0]
        xp = array_functions(chosen[0])
        if self.settings.fusion == "concat":
            return xp.concatenate(chosen, axis=-1)
        stacked = xp.stack(chosen)
        return xp.amax(stacked, axis=0) if self.settings.fusion == "max" else stacked.mean(axis=0)

    def vectors(self, states: Sequence[Array], pieces: Pieces) -> Array:
        """(texts, width) float32, of the states of `layers`, which are finite at padding."""
        if self.sbert_wk is not None:
            return sbert_wk(states, pieces.kept, self.sbert_wk)
        pool = POOLINGS[self.settings.pooling or "mean"]
        pooled = [pool(state, pieces) for state in states]
        return self.fuse(dict(zip(self.layers, pooled, strict=True)))
