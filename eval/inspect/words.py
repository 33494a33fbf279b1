"""Words under an encoder: variance over the layers, and weights in an SBERT-WK vector.

The variance of a word is the population variance of its cosines between adjacent layers, averaged
over its occurrences in many texts (Wang and Kuo 2020, Sec. III and Table I).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.figures import new_figure, plain_text, short_label
from eval.inspect.layers import Inspection, TextsRead
from eval.progress import Notify, Progress, ignore, silent
from eval.reports import Report, ReportedResult, Section, Table, environment
from eval.settings import Loading
from retriever.documents.division import normalize
from retriever.encoders import EncoderSettings, TextStates, parse_encoder, scale_to_unit
from retriever.encoders.fusion import (
    SBERTWKSettings,
    Unit,
    WeightedWord,
    word_of_pieces,
    word_spans,
    word_vectors,
    word_weights,
)
from retriever.errors import BadInputError, ConfigError
from retriever.terminal import on_one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Maximum number of characters of a word as a label in a figure.
_LONGEST_LABEL = 24
# Widest figure in inches: matplotlib refuses images of 65,536 dots.
_WIDEST_FIGURE = 400.0
_INCHES_PER_WORD = 0.32


@dataclass(frozen=True, slots=True)
class WordVariance:
    """A word, in lower case and normal form NFKC, and its mean variance over its occurrences."""

    word: str
    count: int
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class WordInspection(ReportedResult):
    """The result of `inspect_words`.

    Attributes:
        words: number of words with at least `min_count` occurrences.
        groups: words of the "low", "middle" and "high" third by variance, ascending; "high" is
            descending.
    """

    encoder: str
    read: TextsRead
    hidden_states: int
    min_count: int
    words: int
    groups: Mapping[str, Sequence[WordVariance]]
    device: str | None = None
    command: str = ""

    def report(self) -> Report:
        """Return the groups beside each other as a table."""
        return Report(
            name="inspect-words",
            title=f"{self.encoder}: {self.read}, {self.words:,} words that occur at least "
            f"{self.min_count} times",
            sections=(Section(tables=(self._table(),), brief=True),),
            data={
                "encoder": self.encoder,
                "texts": self.read.texts,
                "cut": self.read.cut,
                "hidden_states": self.hidden_states,
                "min_count": self.min_count,
                "words": self.words,
                **{name: list(map(asdict, group)) for name, group in self.groups.items()},
            },
            command=self.command,
            environment=environment(self.device),
        )

    def _table(self) -> Table:
        header: list[str] = []
        columns = []
        for name, group in self.groups.items():
            header += [name, "variance", "count"]
            columns.append(
                [(word.word, f"{word.variance:.2e}", f"{word.count:,}") for word in group]
            )
        rows = zip_longest(*columns, fillvalue=("", "", ""))
        cells = tuple(tuple(cell for part in row for cell in part) for row in rows)
        title = "variance of the adjacent-layer cosines, mean over occurrences"
        return Table(tuple(header), cells, title, left=(0, 3, 6))


def inspect_words(
    texts: Iterable[str],
    encoder: str = "",
    *,
    min_count: int = 5,
    top: int = 20,
    limit: int | None = None,
    loading: Loading | None = None,
    progress: Progress = silent,
    notify: Notify = ignore,
    command: str = "",
) -> WordInspection:
    """Find the words whose adjacent-layer cosines vary least, moderately and most.

    A word needs `min_count` occurrences, and a group has at most `top` words, both at least 1. The
    other arguments are as in `inspect_layers`.

    Raises:
        BadInputError: no word occurs often enough.
    """
    loading = loading or Loading()
    model = loading.load(encoder)
    inspection = Inspection(model, texts, limit, progress("reading texts", limit), notify)
    words = word_variances(inspection, min_count)
    if not words:
        raise BadInputError(
            f"expected words that occur at least {min_count} times in {inspection.read}, found "
            "none; set a smaller min-count or a greater limit (--set)"
        )
    groups = variance_groups(words, top)
    return WordInspection(
        str(model.spec),
        inspection.read,
        model.depth + 1,
        min_count,
        len(words),
        groups,
        device=loading.device,
        command=command,
    )


def adjacent_variance(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return (words,) variances of adjacent-layer cosines of (layers, words, width) vectors."""
    unit_vectors = scale_to_unit(vectors.astype(np.float64))
    cosines = np.stack([(lower * upper).sum(axis=-1) for lower, upper in pairwise(unit_vectors)])
    variance: NDArray[np.float64] = cosines.var(axis=0)
    return variance


def text_variances(text: str, states: TextStates) -> list[tuple[str, float]]:
    """Return the words of a text and their variances, without a word that was cut."""
    spans = word_spans(text)
    word_numbers = word_of_pieces(states.spans, spans)
    word_numbers[~states.is_pooled] = -1
    read_end = max(
        (states.spans[piece][1] for piece in np.flatnonzero(states.is_pooled)), default=0
    )
    words, vectors = word_vectors(states.states, word_numbers)
    variances = []
    for word, variance in zip(words, adjacent_variance(vectors).tolist(), strict=True):
        start, stop = spans[word]
        if stop <= read_end:
            surface = normalize("NFKC", text[start:stop]).lower()
            variances.append((surface, variance))
    return variances


def word_variances(texts: Iterable[tuple[str, TextStates]], min_count: int) -> list[WordVariance]:
    """Return words that occur at least `min_count` times, by ascending variance, then by word."""
    counts: dict[str, int] = {}
    totals: dict[str, float] = {}
    for text, states in texts:
        for word, variance in text_variances(text, states):
            counts[word] = counts.get(word, 0) + 1
            totals[word] = totals.get(word, 0.0) + variance
    words = [
        WordVariance(word, count, totals[word] / count)
        for word, count in counts.items()
        if count >= min_count
    ]
    return sorted(words, key=lambda word: (word.variance, word.word))


def variance_groups(words: Sequence[WordVariance], top: int) -> dict[str, Sequence[WordVariance]]:
    """Return at most `top` words of each third of `words`, which ascend by variance."""
    low = round(len(words) / 3)
    high = round(2 * len(words) / 3)
    middle = words[low:high]
    skipped = max(0, len(middle) - top) // 2
    return {
        "low": words[:low][:top],
        "middle": middle[skipped : skipped + top],
        "high": words[high:][::-1][:top],
    }


@dataclass(frozen=True, slots=True, eq=False)
class WeightInspection:
    """The result of `inspect_weights`.

    Attributes:
        cut: whether the text was longer than the window.
        first_layer: number of the first fused layer.
    """

    encoder: str
    passage: str
    cut: bool
    unit: Unit
    first_layer: int
    words: tuple[WeightedWord, ...]

    def to_json(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        facts = asdict(self)
        return {"text": facts.pop("passage"), **facts}

    def text(self) -> str:
        """Return the words on one line, each followed by its weight."""
        return " ".join(f"{on_one_line(word.text)}({word.weight:.3f})" for word in self.words)

    def figure(self) -> Figure:
        """Draw the weight of each word as a bar, and below it the weights of its layers."""
        width = min(max(6, 2 + _INCHES_PER_WORD * len(self.words)), _WIDEST_FIGURE)
        figure = new_figure(width, 5.5)
        top, bottom = figure.subplots(2, 1, sharex=True)
        positions = range(len(self.words))
        top.bar(positions, [word.weight for word in self.words])
        top.set_ylabel("weight in the text")
        layers = np.array([word.layers for word in self.words]).T
        image = bottom.imshow(layers, cmap="viridis", origin="lower", aspect="auto")
        figure.colorbar(image, ax=bottom, label="weight in the word")
        bottom.set_ylabel("hidden state")
        bottom.set_yticks(
            range(len(layers)), [str(self.first_layer + row) for row in range(len(layers))]
        )
        labels = [short_label(word.text, _LONGEST_LABEL) for word in self.words]
        bottom.set_xticks(positions, labels, rotation=90, fontsize=8)
        plain_text(*bottom.get_xticklabels())
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

    The fusion is SBERT-WK, whether or not `encoder` names it. `unit` says whether a word's pieces
    are joined.

    Raises:
        ConfigError: the encoder has another fusion, or layers that cannot be read one by one.
        BadInputError: the mask includes no piece of the text.
        Exception: see `Encoder.load`.
    """
    model = (loading or Loading()).load(sbert_wk_settings(encoder))
    settings = SBERTWKSettings.of(model.spec.settings, model.depth)
    inspection = Inspection(model, [text], notify=notify)
    ((_, states),) = inspection
    words = word_weights(text, states, settings, unit)
    return WeightInspection(
        encoder=str(model.spec),
        passage=text,
        cut=bool(inspection.read.cut),
        unit=unit,
        first_layer=settings.start_layer,
        words=tuple(words),
    )


def sbert_wk_form(form: str) -> str:
    """Add SBERT-WK to the text form of an encoder that names neither a fusion nor a preset."""
    _, *settings = form.split("::")
    has_fusion = any(setting.startswith("fusion=") or "=" not in setting for setting in settings)
    return form if has_fusion else f"{form}::fusion=sbert-wk"


def sbert_wk_settings(form: str) -> EncoderSettings:
    """Parse an encoder; its fusion is SBERT-WK, whether or not the text form names it.

    Raises:
        ConfigError: it names another fusion.
    """
    settings = parse_encoder(sbert_wk_form(form))
    if settings.fusion != "sbert-wk":
        raise ConfigError(f"fusion: expected sbert-wk, found {settings.fusion}; leave it out")
    return settings
