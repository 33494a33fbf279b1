"""Pairs of texts from a corpus alone: no question, no judgment.

- ``title``: the title of a document and its text.
- ``neighbors``: a sentence and the next one.
- ``cloze``: a sentence, and the rest of its passage after the title (the inverse cloze task of Lee,
  Chang and Toutanova 2019, Sec. 4, which keeps the sentence in a tenth of the passages; here it is
  always removed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from eval.progress import Done, ignore
from retriever.documents import Document
from retriever.documents.passages import sentence_spans, taken_out
from retriever.errors import BadInputError
from retriever.settings import check_settings, setting
from retriever.training.sampling import Reservoir

PairKind = Literal["title", "neighbors", "cloze"]

# Shorter sentences, such as headings, say too little about their neighbors.
_SHORTEST = 4
# About 128 word pieces; where no spaces are, a word counts for so many characters.
_PASSAGE_WORDS, _WORD_CHARACTERS = 90, 8


class TextPair(NamedTuple):
    """Two texts, what is known of them, and a group, such as a document, that is held out whole."""

    left: str
    right: str
    # A score, a label, or a text that does not belong to the left one, unlike the right one.
    value: Any = None
    group: object = None


@dataclass(frozen=True, slots=True)
class CorpusPairs:
    """Pairs to be drawn uniformly from a corpus, whose documents are read once as a stream."""

    documents: Iterable[Document]
    kind: PairKind = setting("title", "Pairs to make of a document.")
    sample: int = setting(10_000, "Maximum number of pairs; all are in memory.", low=2)
    seed: int = setting(0, "Random seed of what is drawn.", low=0)

    def __post_init__(self) -> None:
        check_settings(self)

    def draw(self, done: Done = ignore) -> list[TextPair]:
        """The sample, in random order; BadInputError if the corpus has fewer than two pairs."""
        chance = np.random.default_rng(self.seed)
        make, needs = _PAIRS[self.kind]
        drawn = Reservoir[TextPair](self.sample, self.seed)
        for number, document in enumerate(self.documents):
            for left, right in make(document, chance):
                drawn.add(TextPair(left, right, None, number))
            done(1)
        if drawn.seen < 2:
            raise BadInputError(
                f"pairs: expected documents with {needs}, found {drawn.seen} in the corpus; choose "
                "another kind of pairs"
            )
        return [drawn.items[place] for place in chance.permutation(len(drawn.items))]


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, each on one line."""
    return [_line(text[slice(*span)]) for span in sentence_spans(text)]


def _line(text: str) -> str:
    return " ".join(text.split())


Pairs = Iterator[tuple[str, str]]


def _titles(document: Document, chance: np.random.Generator) -> Pairs:
    title, text = (document.title or "").strip(), document.text.strip()
    if title and text and title != text:
        yield title, text


def _neighbors(document: Document, chance: np.random.Generator) -> Pairs:
    sentences = sentences_of(document.text)
    for first, second in pairwise(sentences):
        if min(len(first.split()), len(second.split())) >= _SHORTEST and first != second:
            yield first, second


def _cloze(document: Document, chance: np.random.Generator) -> Pairs:
    text = document.text
    for passage in sentence_runs(text):
        long = [span for span in passage if len(text[slice(*span)].split()) >= _SHORTEST]
        if len(passage) < 2 or not long:
            continue
        start, stop = long[int(chance.integers(len(long)))]
        first = passage[0][0]
        sentence, rest = taken_out(text[first : passage[-1][1]], (start - first, stop - first))
        yield _line(sentence), _line(f"{document.title or ''} {rest}")


def sentence_runs(text: str) -> Iterator[list[tuple[int, int]]]:
    """Spans of sentences by passage of at most `_PASSAGE_WORDS`, unless the first one is longer."""
    passage: list[tuple[int, int]] = []
    words = 0
    for start, stop in sentence_spans(text):
        size = max(len(text[start:stop].split()), (stop - start) // _WORD_CHARACTERS)
        if len(passage) > 1 and words + size > _PASSAGE_WORDS:
            yield passage
            passage, words = [], 0
        passage.append((start, stop))
        words += size
    if passage:
        yield passage


# Each with what it needs of a document.
_PAIRS: Mapping[PairKind, tuple[Callable[[Document, np.random.Generator], Pairs], str]] = {
    "title": (_titles, "both title and text"),
    "neighbors": (_neighbors, "two sentences in a row"),
    "cloze": (_cloze, "passages of two sentences"),
}
