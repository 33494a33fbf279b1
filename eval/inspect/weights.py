"""The parts of a text's vector, word by word: weights of words and layers in SBERT-WK, lengths of
the sources' parts in a meta-embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from eval.figures import heat_map, new_figure, plain_text, short_label
from eval.inspect.layers import Inspection, cut_warning
from eval.inspect.words import LONGEST_LABEL, WIDEST
from eval.progress import Notify, ignore
from eval.reports import Table, table_lines
from eval.settings import Loading
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.encoders.fusion.words import Unit, WeightedWord, word_weights
from retriever.encoders.registry import is_meta_folder
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.errors import ConfigError
from retriever.terminal import on_one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCHES_A_WORD = 0.32


@dataclass(frozen=True, slots=True, eq=False)
class TextInspection:
    """A text under an encoder; `cut` says whether it was longer than the window."""

    encoder: str
    passage: str
    cut: bool

    def to_json(self) -> dict[str, object]:
        """All numbers."""
        facts = asdict(self)
        return {"text": facts.pop("passage"), **facts}


@dataclass(frozen=True, slots=True, eq=False)
class WeightInspection(TextInspection):
    """The result of `inspect_weights`; `first_layer` is the number of the first fused layer."""

    unit: Unit
    first_layer: int
    words: tuple[WeightedWord, ...]

    def text(self) -> str:
        """The words on one line, each followed by its weight."""
        return " ".join(f"{on_one_line(word.text)}({word.weight:.3f})" for word in self.words)

    def figure(self) -> Figure:
        """The weight of each word as a bar, and below it the weights of the layers in it."""
        figure = new_figure(_width(self.words), 5.5)
        top, bottom = figure.subplots(2, 1, sharex=True)
        places = range(len(self.words))
        top.bar(places, [word.weight for word in self.words])
        top.set_ylabel("weight in the text")
        layers = np.array([word.layers for word in self.words]).T
        image = bottom.imshow(layers, cmap="viridis", origin="lower", aspect="auto")
        figure.colorbar(image, ax=bottom, label="weight in the word")
        bottom.set_ylabel("hidden state")
        bottom.set_yticks(
            range(len(layers)), [str(self.first_layer + row) for row in range(len(layers))]
        )
        _name_words(bottom, self.words, fontsize=8)
        return figure


def inspect_weights(
    text: str,
    encoder: str = "",
    *,
    unit: Unit = "word",
    loading: Loading | None = None,
    notify: Notify = ignore,
) -> WeightInspection:
    """Compute the weight of each word of a text in its SBERT-WK vector.

    The fusion is SBERT-WK without being named; the `unit` says whether a word's pieces are joined.

    Raises:
        ConfigError: the encoder has another fusion, or layers that cannot be read one by one.
        BadInputError: the mask includes no piece of the text.
        What `Encoder.load` raises.
    """
    model = (loading or Loading()).load(as_sbert_wk(encoder))
    settings = SBERTWKSettings.of(model.spec.settings, model.depth)
    inspection = Inspection(model, [text], notify=notify)
    (one,) = inspection
    words = word_weights(one.text, one.states, settings, unit)
    return WeightInspection(
        encoder=str(model.spec),
        passage=one.text,
        cut=bool(inspection.read.cut),
        unit=unit,
        first_layer=settings.start_layer,
        words=tuple(words),
    )


def sbert_wk_form(form: str) -> str:
    """A text form with SBERT-WK as the fusion, if it names neither a fusion nor a preset."""
    _, *settings = form.split("::")
    named = any(one.startswith("fusion=") or "=" not in one for one in settings)
    return form if named else f"{form}::fusion=sbert-wk"


def as_sbert_wk(form: str) -> EncoderSettings:
    """The settings of an encoder whose fusion is SBERT-WK, without being named."""
    asked = parse_encoder(sbert_wk_form(form))
    if asked.fusion != "sbert-wk":
        raise ConfigError(f"fusion: expected sbert-wk, found {asked.fusion}; leave it out")
    return asked


@dataclass(frozen=True, slots=True)
class SourceWeight:
    """A source: its text form, and its weight in the sum."""

    encoder: str
    weight: float


@dataclass(frozen=True, slots=True)
class MetaWord:
    """A word of a text, or the text itself, and the length of each source's part of its vector."""

    text: str
    start: int
    stop: int
    lengths: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MetaInspection(TextInspection):
    """The result of `inspect_meta`; the level is "word" or "sentence"."""

    method: str
    level: str
    sources: tuple[SourceWeight, ...]
    words: tuple[MetaWord, ...]

    def text(self) -> str:
        """The sources with their weights, and the words as a table."""
        numbered = [
            (str(number), one.encoder, f"{one.weight:.3f}")
            for number, one in enumerate(self.sources, 1)
        ]
        rows = tuple(
            (word.text, *(f"{length:.3f}" for length in word.lengths)) for word in self.words
        )
        columns = (self.level, *(f"source {number}" for number, _, _ in numbered))
        sources = Table(("source", "encoder", "weight"), tuple(numbered), left=(0, 1))
        lines = [f"{self.encoder}: {self.method}; length of each source's part of the vector", ""]
        lines += [*table_lines(sources), "", *table_lines(Table(columns, rows))]
        return "\n".join(lines)

    def figure(self) -> Figure:
        """The length of each source's part of each word as a heat map."""
        figure = new_figure(_width(self.words), 3.2)
        axes = figure.subplots()
        lengths = np.array([word.lengths for word in self.words]).T
        image = heat_map(axes, lengths, 2, numbers=False)
        figure.colorbar(image, ax=axes, label="length of its part")
        axes.set_ylabel("source")
        axes.set_yticks(range(len(lengths)), [str(row + 1) for row in range(len(lengths))])
        _name_words(axes, self.words)
        return figure


def is_meta(encoder: str) -> bool:
    """Whether a text form names the folder of a meta-embedding."""
    return is_meta_folder(parse_encoder(encoder).model or "")


def inspect_meta(
    text: str, encoder: str, *, loading: Loading | None = None, notify: Notify = ignore
) -> MetaInspection:
    """Compute how long each source's part of each word's meta-vector is.

    Raises:
        ConfigError: the encoder does not name the folder of a meta-embedding.
        What `Encoder.load` raises.
    """
    model = (loading or Loading()).load(encoder)
    found = model.contributions(text)
    if found.cut:
        notify(cut_warning(1, model))
    facts = model.meta_parts().describe()
    return MetaInspection(
        encoder=str(model.spec),
        passage=text,
        cut=found.cut,
        method=facts["method"],
        level=facts["level"],
        sources=tuple(SourceWeight(one["encoder"], one["weight"]) for one in facts["sources"]),
        words=tuple(
            MetaWord(text[start:stop], start, stop, tuple(row))
            for (start, stop), row in zip(found.spans, found.lengths.tolist(), strict=True)
        ),
    )


def _width(words: Sequence[object]) -> float:
    return min(max(6, 2 + _INCHES_A_WORD * len(words)), WIDEST)


def _name_words(
    axes: Axes, words: Sequence[WeightedWord | MetaWord], fontsize: float | None = None
) -> None:
    labels = [short_label(word.text, LONGEST_LABEL) for word in words]
    axes.set_xticks(range(len(words)), labels, rotation=90, fontsize=fontsize)
    plain_text(*axes.get_xticklabels())
