"""Whole words of word pieces, and the weight of each in an SBERT-WK vector.

Words are divided like in the analyzer: letters and digits of any script with their marks and inner
apostrophes, and each CJK ideograph by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from retriever.documents.analyzer import NO_LANGUAGE, Analyzer, AnalyzerSettings
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, sbert_wk_weights
from retriever.errors import BadInputError

if TYPE_CHECKING:
    from retriever.encoders.transformer.piece_model import TextStates

Span = tuple[int, int]
Unit = Literal["word", "piece"]


def word_spans(text: str) -> list[Span]:
    """Return the (start, stop) of each word of the text, ascending and disjoint."""
    analyzer = Analyzer(AnalyzerSettings(NO_LANGUAGE, division="plain"))
    # The analyzer repeats a word whose normal form consists of several words.
    return list(dict.fromkeys((start, stop) for _, start, stop in analyzer.spans(text)))


def word_of_pieces(pieces: Sequence[Span], words: Sequence[Span]) -> NDArray[np.int64]:
    """Return the first word that each piece shares a character with; -1 for none."""
    stops = [stop for _, stop in words]
    words_of_pieces = np.full(len(pieces), -1, np.int64)
    for piece, (start, stop) in enumerate(pieces):
        word = bisect_right(stops, start)
        if start < stop and word < len(words) and words[word][0] < stop:
            words_of_pieces[piece] = word
    return words_of_pieces


def word_vectors(
    states: NDArray[np.floating], owners: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the words that have pieces, and the mean vector of each in every layer."""
    words, places = np.unique(owners[owners >= 0], return_inverse=True)
    shares = np.zeros((len(words), len(owners)))
    shares[places, np.flatnonzero(owners >= 0)] = 1
    shares /= shares.sum(axis=1, keepdims=True)
    return words, shares @ states.astype(np.float64)


@dataclass(frozen=True, slots=True)
class WeightedWord:
    """A word, a word piece, a punctuation mark or a special token of a text."""

    text: str  # Spelled as in the text; pieces and special tokens as in the tokenizer.
    # Character offsets in the text; None for special tokens and pieces of the prompt.
    start: int | None
    stop: int | None
    weight: float  # In [0, 1]; the weights of a text sum to 1.
    # Weights of the fused layers from the start layer on; they sum to 1. A word of several pieces
    # has their mean, weighted by the weights of the pieces.
    layers: tuple[float, ...]


def word_weights(
    text: str, states: TextStates, settings: SBERTWKSettings, unit: Unit
) -> list[WeightedWord]:
    """Return the weights of the pooled words or pieces, in the order of the text."""
    if not states.is_pooled.any():
        raise BadInputError(
            "expected a text with word pieces that are pooled, found none; give more text or use "
            "--special-tokens keep"
        )
    hidden = list(states.states[settings.first_state :, None])
    weights = sbert_wk_weights(hidden, states.is_pooled[None], settings)
    words = weights.words
    layers = weights.layers.T
    pooled = np.flatnonzero(states.is_pooled)
    weighted = []
    for places in _units(text, states, pooled.tolist(), unit):
        shares = words[places]
        total = float(shares.sum())
        mean = shares @ layers[places] / total if total > 0 else layers[places].mean(axis=0)
        surface, start, stop = _read_surface(text, states, pooled[places].tolist(), unit)
        weighted.append(WeightedWord(surface, start, stop, total, tuple(mean.tolist())))
    return weighted


def _units(text: str, states: TextStates, pooled: list[int], unit: Unit) -> Iterator[list[int]]:
    """Yield the positions in `pooled` of the pieces of each unit."""
    spans = states.spans
    owners = word_of_pieces(spans, word_spans(text))

    def unit_of(position: int) -> Hashable:
        piece = pooled[position]
        start, stop = spans[piece]
        if unit == "piece" or start == stop:
            return piece
        # Byte-level tokenizers divide a character into several pieces with the same span.
        return ("word", owners[piece]) if owners[piece] >= 0 else (start, stop)

    for _, positions in groupby(range(len(pooled)), unit_of):
        yield list(positions)


def _read_surface(
    text: str, states: TextStates, places: list[int], unit: Unit
) -> tuple[str, int | None, int | None]:
    spans = [states.spans[place] for place in places]
    start = min(span[0] for span in spans)
    stop = max(span[1] for span in spans)
    if start == stop:
        return states.pieces[places[0]], None, None
    surface = text[start:stop]
    if unit == "piece" or not surface.strip():
        return states.pieces[places[0]], start, stop
    start += len(surface) - len(surface.lstrip())
    surface = surface.strip()
    return surface, start, start + len(surface)
