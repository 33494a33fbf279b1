"""The weight of each word of a text in its SBERT-WK vector, and of the layers in each word."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np

from eval.inspect.figures import weights_figure
from eval.inspect.states import InspectedText, Inspection
from eval.inspect.whole_words import word_of_pieces, word_spans
from eval.progress import Notify, ignore
from eval.reports.text import printable
from eval.vectors.encoders import Loading
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, first_state, sbert_wk_weights
from retriever.encoders.resolution import sbert_wk_settings
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.errors import BadInputError, ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Unit = Literal["word", "piece"]


@dataclass(frozen=True, slots=True)
class WeightedWord:
    """A word, a word piece, a punctuation mark or a special token of a text.

    Attributes:
        text: as it is written in the text; pieces and special tokens as the tokenizer writes them.
        start, stop: character offsets in the text; None for special tokens and pieces of the
            prompt.
        weight: in [0, 1]; the weights of a text sum to 1.
        layers: weights of the fused layers, from the start layer on, which sum to 1; for a word of
            several pieces their mean, weighted by the pieces' weights.
    """

    text: str
    start: int | None
    stop: int | None
    weight: float
    layers: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WeightInspection:
    """The result of `inspect_weights`.

    Attributes:
        encoder: text form.
        passage: the text.
        cut: whether it was longer than the window and lost its end.
        unit: "word" or "piece".
        first_layer: number of the first fused hidden state.
        words: in the order of the text.
    """

    encoder: str
    passage: str
    cut: bool
    unit: Unit
    first_layer: int
    words: tuple[WeightedWord, ...]

    def text(self) -> str:
        """The words on one line, each followed by its weight."""
        return " ".join(f"{printable(word.text)}({word.weight:.3f})" for word in self.words)

    def to_json(self) -> dict[str, object]:
        """All numbers."""
        return {
            "encoder": self.encoder,
            "text": self.passage,
            "cut": self.cut,
            "unit": self.unit,
            "first_layer": self.first_layer,
            "words": [asdict(word) for word in self.words],
        }

    def figure(self) -> Figure:
        """The weights of words and layers; see `weights_figure`."""
        return weights_figure(self.words, self.first_layer)


def inspect_weights(
    text: str,
    encoder: str = "",
    *,
    unit: Unit = "word",
    loading: Loading | None = None,
    notify: Notify = ignore,
) -> WeightInspection:
    """Compute the weight of each word of a text in its SBERT-WK vector.

    Args:
        text: not blank.
        encoder: text form; the fusion is SBERT-WK without being named.
        unit: whether the pieces of a word are joined.
        loading: where the model comes from.
        notify: called with a warning if the text is cut at the window.

    Raises:
        ConfigError: the encoder has another fusion, or layers that cannot be read one by one.
        BadInputError: the mask includes no piece of the text.
        What `Encoder.load` raises.
    """
    model = (loading or Loading()).load(as_sbert_wk(encoder))
    settings = sbert_wk_settings(model.spec.settings, model.depth)
    inspection = Inspection(model, [text], notify=notify)
    (one,) = inspection
    words = word_weights(one, settings, unit)
    return WeightInspection(
        encoder=str(model.spec),
        passage=one.text,
        cut=bool(inspection.read.cut),
        unit=unit,
        first_layer=settings.start_layer or 0,
        words=tuple(words),
    )


def sbert_wk_form(form: str) -> str:
    """A text form with SBERT-WK as the fusion, if it names neither a fusion nor a preset."""
    _, *settings = form.split("::")
    named = any(one.startswith("fusion=") or "=" not in one for one in settings)
    return form if named else f"{form}::fusion=sbert-wk"


def as_sbert_wk(form: str) -> EncoderSettings:
    """The settings of an encoder whose fusion is SBERT-WK, without being named.

    Raises:
        ConfigError: the form names another fusion, or is malformed.
    """
    asked = parse_encoder(sbert_wk_form(form))
    if asked.fusion != "sbert-wk":
        raise ConfigError(f"fusion: expected sbert-wk, found {asked.fusion}; leave it out")
    return asked


def word_weights(one: InspectedText, settings: SBERTWKSettings, unit: Unit) -> list[WeightedWord]:
    """The weights of the words or pieces that the mask includes, in the order of the text.

    Args:
        one: the text and all its hidden states.
        settings: resolved for the model's depth.
        unit: whether the pieces of one word are joined, and those of one character.

    Raises:
        BadInputError: the mask includes no piece.
    """
    import torch

    states = one.states
    if not states.kept.any():
        raise BadInputError(
            "expected a text with word pieces that are pooled, found none; give more text or use "
            "--special-tokens keep"
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
