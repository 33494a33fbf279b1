"""The part that each source has in the vectors of a meta-embedding, word by word of one text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from eval.progress import Notify, ignore
from eval.tables import Table, table_lines
from eval.vectors import Loading
from retriever.encoders.meta.folder import is_meta_folder
from retriever.encoders.settings import parse_encoder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class SourceWeight:
    """A source: its text form, and its weight in the sum."""

    encoder: str
    weight: float


@dataclass(frozen=True, slots=True)
class MetaWord:
    """A word of a text, or the text itself at the level of sentences.

    Attributes:
        text: as it is written in the text.
        start, stop: character offsets in the text.
        lengths: of each source's part of the word's meta-vector, at least 0; 0 if the source lacks
            the word.
    """

    text: str
    start: int
    stop: int
    lengths: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MetaInspection:
    """The result of `inspect_meta`.

    Attributes:
        encoder: text form.
        passage: the text.
        cut: whether it was longer than the window and lost its end.
        method: how the sources were combined.
        level: "word" or "sentence".
        sources: in the order of `lengths`.
        words: in the order of the text.
    """

    encoder: str
    passage: str
    cut: bool
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

    def to_json(self) -> dict[str, object]:
        """All numbers."""
        return {
            "encoder": self.encoder,
            "text": self.passage,
            "cut": self.cut,
            "method": self.method,
            "level": self.level,
            "sources": [asdict(one) for one in self.sources],
            "words": [asdict(one) for one in self.words],
        }

    def figure(self) -> Figure:
        """The lengths as a heat map; see `contributions_figure`."""
        from eval.inspect.figures import contributions_figure

        return contributions_figure(self.words)


def is_meta(encoder: str) -> bool:
    """Whether a text form names the folder of a meta-embedding.

    Raises:
        ConfigError: the text form is malformed.
    """
    return is_meta_folder(parse_encoder(encoder).model or "")


def inspect_meta(
    text: str, encoder: str, *, loading: Loading | None = None, notify: Notify = ignore
) -> MetaInspection:
    """Compute how long each source's part of each word's meta-vector is.

    Args:
        text: not blank.
        encoder: text form that names the folder of a meta-embedding.
        loading: where its sources come from.
        notify: called with a warning if the text is cut at the window.

    Raises:
        ConfigError: the encoder is another one.
        What `Encoder.load` raises.
    """
    model = (loading or Loading()).load(encoder)
    found = model.contributions(text)
    if found.cut:
        notify(
            f"warning: the text exceeded the window of {model.spec.max_length} word pieces; the "
            "excess was not read"
        )
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
