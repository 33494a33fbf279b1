"""Whole words of word pieces, and the weight of each in an SBERT-WK vector.

Words are those of the analyzer: letters and digits of any script with their marks and inner
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
    from retriever.encoders.transformer.model import TextStates

Span = tuple[int, int]
Unit = Literal["word", "piece"]


def word_spans(text: str) -> list[Span]:
    """(start, stop) of each word of the text, ascending, disjoint."""
    analyzer = Analyzer(AnalyzerSettings(NO_LANGUAGE, division="plain"))
    # A word whose normal form consists of several words is listed several times.
    return list(dict.fromkeys((start, stop) for _, start, stop in analyzer.spans(text)))


def word_of_pieces(pieces: Sequence[Span], words: Sequence[Span]) -> NDArray[np.int64]:
    """The word of each piece: the first one that it shares a character with; -1 for none."""
    stops = [stop for _, stop in words]
    found = np.full(len(pieces), -1, np.int64)
    for place, (start, stop) in enumerate(pieces):
        word = bisect_right(stops, start)
        if start < stop and word < len(words) and words[word][0] < stop:
            found[place] = word
    return found


def word_vectors(
    states: NDArray[np.floating], owners: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The mean vector of each word's pieces, layer by layer."""
    words, places = np.unique(owners[owners >= 0], return_inverse=True)
    shares = np.zeros((len(words), len(owners)))
    shares[places, np.flatnonzero(owners >= 0)] = 1
    shares /= shares.sum(axis=1, keepdims=True)
    return words, shares @ states.astype(np.float64)


@dataclass(frozen=True, slots=True)
class WeightedWord:
    """A word, a word piece, a punctuation mark or a special token of a text."""

    text: str  # As in the text; pieces and special tokens as the tokenizer writes them.
    # Character offsets in the text; None for special tokens and pieces of the prompt.
    start: int | None
    stop: int | None
    weight: float  # In [0, 1]; the weights of a text sum to 1.
    # Weights of the fused layers, from the start layer on, which sum to 1; for a word of several
    # pieces their mean, weighted by the pieces' weights.
    layers: tuple[float, ...]


def word_weights(
    text: str, states: TextStates, settings: SBERTWKSettings, unit: Unit
) -> list[WeightedWord]:
    """The weights of the words or pieces that the mask includes, in the order of the text."""
    if not states.kept.any():
        raise BadInputError(
            "expected a text with word pieces that are pooled, found none; give more text or use "
            "--special-tokens keep"
        )
    hidden = list(states.states[settings.first_state :, None])
    found = sbert_wk_weights(hidden, states.kept[None], settings)
    words = found.words
    layers = found.layers.T
    kept = np.flatnonzero(states.kept)
    weighted = []
    for places in _units(text, states, kept.tolist(), unit):
        shares = words[places]
        total = float(shares.sum())
        mean = shares @ layers[places] / total if total > 0 else layers[places].mean(axis=0)
        surface, start, stop = _named(text, states, kept[places].tolist(), unit)
        weighted.append(WeightedWord(surface, start, stop, total, tuple(mean.tolist())))
    return weighted


def _units(text: str, states: TextStates, kept: list[int], unit: Unit) -> Iterator[list[int]]:
    """Positions in `kept` of the pieces of each unit."""
    spans = states.spans
    owners = word_of_pieces(spans, word_spans(text))

    def unit_of(position: int) -> Hashable:
        place = kept[position]
        start, stop = spans[place]
        if unit == "piece" or start == stop:
            return place
        # Byte-level tokenizers make several pieces of one character, all with its span.
        return ("word", owners[place]) if owners[place] >= 0 else (start, stop)

    for _, positions in groupby(range(len(kept)), unit_of):
        yield list(positions)


def _named(
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
