"""Pooling and fusion of hidden states to one vector per text, in NumPy or torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from retriever.encoders.computing import Array, array_functions, to_float32
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, sbert_wk
from retriever.encoders.settings import EncoderSettings, Pooling
from retriever.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens around a text: their numbers, and the positions of [CLS] and [SEP].

    Negative positions count from the end. None means that there is no such token.
    """

    before: int = 1
    after: int = 1
    cls: int | None = 0
    sep: int | None = -1
    # Token types of the special tokens before and after a text; empty if all are 0.
    types: tuple[int, ...] = ()

    def require(self, pooling: Pooling | None) -> None:
        """Raise ConfigError if there is no token for the pooling ``cls`` or ``sep``."""
        if (pooling == "cls" and self.cls is None) or (pooling == "sep" and self.sep is None):
            raise ConfigError(
                f"pooling: this model's tokenizer puts no [{pooling.upper()}] around a text; "
                "choose mean or max"
            )

    def token_types(self, length: int) -> list[int]:
        """Return the token types of a text of `length` word pieces, special tokens included."""
        inside = [0] * (length - self.before - self.after)
        return [*self.types[: self.before], *inside, *self.types[self.before :]][:length]


@dataclass(frozen=True, slots=True, eq=False)
class PooledPieces:
    """The pooled pieces of a padded batch, and the positions of its special tokens."""

    mask: Array | None  # (texts, pieces) bool; None to pool all.
    cls: Array
    sep: Array


def mean_pooling(hidden: Array, pieces: PooledPieces) -> Array:
    """Return (texts, width) float32 means of the pooled pieces; zeros for a text without one."""
    if pieces.mask is None:
        return to_float32(hidden).mean(axis=1)
    counts = to_float32(pieces.mask.sum(axis=1))[:, None]
    weights = to_float32(pieces.mask) / array_functions(counts).clip(counts, 1, None)
    return (weights[:, None] @ to_float32(hidden))[:, 0]


def max_pooling(hidden: Array, pieces: PooledPieces) -> Array:
    """Return (texts, width) float32 maxima over the pooled pieces; zeros for a text without one."""
    xp = array_functions(hidden)
    hidden = to_float32(hidden)
    if pieces.mask is None:
        return xp.amax(hidden, axis=1)
    greatest = xp.amax(xp.where(pieces.mask[:, :, None], hidden, -xp.inf), axis=1)
    return xp.where(pieces.mask.any(axis=1)[:, None], greatest, 0.0)


def _at(hidden: Array, places: Array) -> Array:
    """Return the vector of one piece of each text."""
    rows = array_functions(hidden).arange(len(hidden), device=hidden.device)
    return to_float32(hidden[rows, places])


POOLINGS: Mapping[Pooling, Callable[[Array, PooledPieces], Array]] = {
    "mean": mean_pooling,
    "max": max_pooling,
    "cls": lambda hidden, pieces: _at(hidden, pieces.cls),
    "sep": lambda hidden, pieces: _at(hidden, pieces.sep),
}


@dataclass(frozen=True, slots=True)
class Fuser:
    """Pooling and fusion of hidden states, by resolved settings.

    `fused` are the hidden states in the order of fusion, and `layers` the same ascending.
    `sbert_wk` is set if SBERT-WK fuses them.
    """

    settings: EncoderSettings
    fused: tuple[int, ...]
    layers: tuple[int, ...]
    sbert_wk: SBERTWKSettings | None = None
    special: SpecialTokens = SpecialTokens()

    def width(self, width: int) -> int:
        """Return the width of a fused vector, for hidden states of `width` components."""
        return width * (len(self.fused) if self.settings.fusion == "concat" else 1)

    @property
    def fuses_pieces(self) -> bool:
        """Whether the vector of a text is the mean or maximum of vectors of its pieces."""
        pooled = self.settings.pooling in (None, "mean", "max")
        plain = self.settings.fusion != "max" and self.sbert_wk is None
        return pooled and plain and not self.settings.head

    def pieces(self, lengths: Array, longest: int, *, padded: bool = True) -> PooledPieces:
        """Return the pooled pieces: no padding, and special tokens if the settings keep them."""
        before = after = 0
        if self.settings.special_tokens == "drop":
            before = self.special.before
            after = self.special.after
        elif self.settings.wk_preset == "released":
            # The published code drops the last piece of every text.
            after = 1
        mask = None
        if padded or before or after or self.sbert_wk is not None:
            places = array_functions(lengths).arange(longest, device=lengths.device)
            mask = (places >= before) & (places < lengths[:, None] - after)
        positions = self.special.cls or 0, -1 if self.special.sep is None else self.special.sep
        cls, sep = (lengths * (place < 0) + place for place in positions)
        return PooledPieces(mask, cls, sep)

    def fuse(self, vectors: Mapping[int, Array]) -> Array:
        """Fuse the vectors of each layer, for texts or for pieces."""
        layer_vectors = [vectors[layer] for layer in self.fused]
        if len(layer_vectors) == 1:
            return layer_vectors[0]
        xp = array_functions(layer_vectors[0])
        if self.settings.fusion == "concat":
            return xp.concatenate(layer_vectors, axis=-1)
        stacked = xp.stack(layer_vectors)
        return xp.amax(stacked, axis=0) if self.settings.fusion == "max" else stacked.mean(axis=0)

    def vectors(self, states: Sequence[Array], pieces: PooledPieces) -> Array:
        """Return (texts, width) float32 for states of `layers`, which are finite at padding."""
        if self.sbert_wk is not None:
            return sbert_wk(states, pieces.mask, self.sbert_wk)
        pool = POOLINGS[self.settings.pooling or "mean"]
        pooled = [pool(state, pieces) for state in states]
        return self.fuse(dict(zip(self.layers, pooled, strict=True)))
