"""What SBERT-WK makes of one text: the weight of each word, and of the layers in it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from eval.inspect.states import InspectedText
from eval.inspect.whole_words import word_of_pieces, word_spans
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, first_state, sbert_wk_weights
from retriever.errors import BadInputError

Unit = Literal["word", "piece"]


@dataclass(frozen=True, slots=True)
class WeightedWord:
    """A word, a word piece, a punctuation mark or a special token of a text.

    Attributes:
        text: as the text has it; a piece, and what the text does not have, as the tokenizer
            writes it.
        start, stop: its place in the text; None for a special token and for a piece of the prompt.
        weight: in [0, 1]; those of a text sum to 1.
        layers: the weight of each fused layer, the start layer first; they sum to 1. Of a word of
            several pieces the mean, each piece counting by its weight.
    """

    text: str
    start: int | None
    stop: int | None
    weight: float
    layers: tuple[float, ...]


def word_weights(one: InspectedText, settings: SBERTWKSettings, unit: Unit) -> list[WeightedWord]:
    """The weights of a text's words or pieces that are kept, in order of place.

    Args:
        one: the text and all its hidden states.
        settings: resolved for the model's depth.
        unit: whether pieces of one word are joined; then also those of one character.

    Raises:
        BadInputError: no piece of the text is kept.
    """
    import torch

    states = one.states
    if not states.kept.any():
        raise BadInputError(
            "expected a text of which a word piece is kept, found none; give more text or keep "
            "special tokens"
        )
    hidden = torch.from_numpy(states.states[first_state(settings) :]).unsqueeze(1)
    found = sbert_wk_weights(list(hidden), torch.from_numpy(states.kept)[None], settings)
    words, layers = found.words.cpu().numpy(), found.layers.cpu().numpy()
    kept = np.flatnonzero(states.kept)
    weighted = []
    for places in _units(one, kept.tolist(), unit):
        shares = words[places]
        total = float(shares.sum())
        mean = shares @ layers[places] / total if total > 0 else layers[places].mean(axis=0)
        text, start, stop = _named(one, kept[places].tolist(), unit)
        weighted.append(WeightedWord(text, start, stop, total, tuple(mean.tolist())))
    return weighted


def _units(one: InspectedText, kept: list[int], unit: Unit) -> Iterator[list[int]]:
    """Positions in `kept` of the pieces of each unit."""
    spans = one.states.spans
    owners = word_of_pieces(spans, word_spans(one.text))

    def unit_of(position: int) -> Hashable:
        place = kept[position]
        start, stop = spans[place]
        if unit == "piece" or start == stop:
            return place
        # Byte-level tokenizers make several pieces of one character, all with its span.
        return ("word", owners[place]) if owners[place] >= 0 else (start, stop)

    for _, positions in groupby(range(len(kept)), unit_of):
        yield list(positions)


def _named(one: InspectedText, places: list[int], unit: Unit) -> tuple[str, int | None, int | None]:
    spans = [one.states.spans[place] for place in places]
    start, stop = min(span[0] for span in spans), max(span[1] for span in spans)
    if start == stop:
        return one.states.pieces[places[0]], None, None
    surface = one.text[start:stop]
    if unit == "piece" or not surface.strip():
        return one.states.pieces[places[0]], start, stop
    start += len(surface) - len(surface.lstrip())
    surface = surface.strip()
    return surface, start, start + len(surface)
