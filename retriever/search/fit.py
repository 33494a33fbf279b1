"""Whether an encoder knows the words of a corpus, and what its vectors are worth beside BM25.

Words are strange to an encoder that does not know them or breaks them into letters. Where the
corpus is in another language than English, or many of its words are strange, questions made from
it decide the default weight of the embeddings: sentences, each taken out of its passage, search
for the rest of it among the rests of others. It is the least weight whose mean reciprocal rank is
within a standard error of the best.

Questions of people share fewer words with the text, and embeddings in another language than English
answer them worse than these. So where most passages are not English and the embeddings rank worse
than BM25, the weight is at most 0.4, and 0 if the encoder does not know the language.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes import BM25, Postings, SearchableSegment
from retriever.documents.analyzer import NO_LANGUAGE
from retriever.documents.languages import script_of
from retriever.documents.sentences import SENTENCE_END
from retriever.errors import SourceError
from retriever.search.fusion import ComponentScores
from retriever.search.settings import DEFAULT_WEIGHT, FusionSettings

if TYPE_CHECKING:
    from retriever.documents.analyzer import Analyzer
    from retriever.encoders.encoder import Encoder

# Passages that are looked at, and their characters that are read.
_PASSAGES = 256
_CHARACTERS = 600
# Words whose pieces have fewer letters than this on average are broken into letters.
_LETTERS = 2.0
# From this share of strange words, or of passages in other languages than English, questions are
# asked; from this share of strange words, the encoder does not know the language.
_DOUBTFUL = 0.1
_STRANGE = 0.25
# If so many passages, and this share of them, are strange and as many known, both groups have their
# own weight, unless more lie between them, as in a corpus of one half-known language.
_GROUP = 8
_GROUP_SHARE = 0.05
# The fit is measured again when an index has this many times the passages, or that part of them,
# or when the share of a language has moved by so much.
_TIMES = 2
_SHIFT = 0.1
# Fewer letters make no question.
_QUESTION = 20
# Fewer words say nothing.
_WORDS = 40
# Fewer questions do not speak against an encoder that knows the words.
_QUESTIONS = 50
_ENGLISH = frozenset({"english", "porter", NO_LANGUAGE})
MULTILINGUAL = "paraphrase-multilingual-MiniLM-L12-v2"
# The greatest weight of embeddings that rank worse than BM25 in another language than English:
# docs/ranking.md has the measurements.
_HIGHEST = 0.4
# A letter of no language that an encoder could know.
_UNKNOWN = "\U00010380"
_SPACELESS = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff]")


@dataclass(frozen=True, slots=True)
class Fit:
    """How an encoder and a corpus fit."""

    strange: float  # share of the words of a sample that are unknown or broken into letters
    words: int  # of the sample
    questions: int = 0  # made up from the corpus; 0 where none were needed
    weight: float = DEFAULT_WEIGHT  # default of the embeddings in hybrid search, 0 to 0.6
    # Mean reciprocal ranks of the questions' passages, the last one with that weight.
    bm25: float | None = None
    dense: float | None = None
    hybrid: float | None = None
    passages: int = 0  # of the index when this was measured
    # The weight for queries that are strange to the encoder, where only some passages are; the
    # other figures are then of the passages that it knows.
    strange_weight: float | None = None
    # Passages of each language, as the index counted them then.
    languages: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_dense_best(self) -> bool:
        """Whether the embeddings rank the questions' passages no worse than BM25."""
        return self.dense is not None and self.bm25 is not None and self.dense >= self.bm25

    @property
    def warning(self) -> str | None:
        """What to tell a user whose encoder does not know the language; None if it does."""
        is_mixed = self.strange_weight is not None
        if not is_mixed and (self.strange < _STRANGE or self.is_dense_best):
            return None
        found = f"{self.strange:.0%} of {self.words:,} words are unknown to it or broken to letters"
        if self.questions and not is_mixed:
            found += (
                f"; of {self.questions} sentences as questions it ranks the passage with a mean "
                f"reciprocal rank of {self.dense:.2f}, BM25 with {self.bm25:.2f}"
            )
        texts = "some" if is_mixed else "these"
        weight = f"{self.weight:g} in hybrid search"
        if is_mixed:
            weight = f"{self.strange_weight:g} in hybrid search for queries like them"
        return (
            f"the encoder does not know the language of {texts} texts: {found}. Embeddings count "
            f"{weight} unless you say --alpha; use a multilingual model "
            f"such as --model {MULTILINGUAL} with --recreate, or --mode bm25"
        )


class PassageSample:
    """The passages with the smallest digests, a sample that does not depend on their order."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, str]] = []

    def take(self, digest: bytes, text: str) -> None:
        """Keep a passage if it belongs to the sample."""
        entry = -int.from_bytes(digest), text[:_CHARACTERS]
        if len(self._kept) < _PASSAGES:
            heapq.heappush(self._kept, entry)
        elif entry > self._kept[0]:
            heapq.heapreplace(self._kept, entry)

    @property
    def texts(self) -> list[str]:
        """The texts, distinct, in the order of their digests."""
        return list(dict.fromkeys(text for _, text in sorted(self._kept, reverse=True)))


def is_due(measured: Mapping[str, Any], passages: int, languages: Mapping[str, int]) -> bool:
    """Whether an index may have another fit than the one that was measured.

    Args:
        measured: a `Fit` as it is stored; empty if there is none.
        passages: of the index now.
        languages: passages of each language now.
    """
    before = measured.get("passages", 0)
    counted = measured.get("languages", {})
    if not passages or not before or (languages and not counted):
        # An earlier release stored no languages.
        return passages > 0
    if passages >= _TIMES * before or before >= _TIMES * passages:
        return True
    shares = (
        (languages.get(language, 0) / passages, counted.get(language, 0) / before)
        for language in {*languages, *counted}
    )
    return any(round(abs(now - then), 9) >= _SHIFT for now, then in shares)


def measured_fit(
    texts: Sequence[str], encoder: Encoder, analyzer: Analyzer, passages: int
) -> Fit | None:
    """The fit of an encoder and a sample of passages; None if it encodes no other texts."""
    try:
        counts = [_strange_words(encoder, analyzer, text) for text in texts]
    except SourceError:
        return None
    strange, words = (sum(one[place] for one in counts) for place in (0, 1))
    fit = Fit(strange / words if words >= _WORDS else 0.0, words, passages=passages)
    known = [text for text, one in zip(texts, counts, strict=True) if not _is_strange(*one)]
    other = [text for text, one in zip(texts, counts, strict=True) if _is_strange(*one)]
    between = sum(_is_strange(*one, _DOUBTFUL) for one in counts) - len(other)
    if min(len(known) - between, len(other)) < max(_GROUP, between, _GROUP_SHARE * len(texts)):
        return _weighed(fit, texts, encoder, analyzer)
    found = _weighed(replace(fit, strange=0.0), known, encoder, analyzer)
    measured = _weighed(replace(fit, strange=1.0), other, encoder, analyzer)
    if measured.questions >= _QUESTIONS and measured.is_dense_best:
        return _weighed(fit, texts, encoder, analyzer)
    # Few questions do not speak for an encoder that does not know the words.
    weight = measured.weight if measured.questions >= _QUESTIONS else 0.0
    return replace(found, strange=fit.strange, strange_weight=weight)


def is_strange(encoder: Encoder, analyzer: Analyzer, text: str) -> bool:
    """Whether the encoder does not know the language of a text."""
    return _is_strange(*_strange_words(encoder, analyzer, text))


def _is_strange(strange: int, words: int, share: float = _STRANGE) -> bool:
    return strange > 0 and strange >= share * words


def _weighed(fit: Fit, texts: Sequence[str], encoder: Encoder, analyzer: Analyzer) -> Fit:
    """A fit with the weight that questions made from these texts say, where it is doubtful."""
    share = fit.strange
    foreign = sum(_is_foreign(analyzer, text) for text in texts)
    if share < _DOUBTFUL and foreign < _DOUBTFUL * len(texts):
        return fit
    pairs = [pair for text in texts if (pair := _question(text))]
    if len(pairs) < (2 if share >= _STRANGE else _QUESTIONS):
        return replace(fit, weight=0.0) if share >= _STRANGE else fit
    questions, rests = zip(*pairs, strict=True)
    dense = encoder.encode(questions, query=True) @ encoder.encode(rests).T
    search = BM25([SearchableSegment(Postings.build(map(analyzer.tokens, rests)))])
    rows = np.arange(len(rests))
    bm25 = np.stack([search.query(analyzer.tokens(one)).at(0, rows)[0] for one in questions])
    weights = [tenths / 10 for tenths in (*range(round(DEFAULT_WEIGHT * 10) + 1), 10)]
    ranks = {one: _reciprocal_ranks(dense, bm25, one) for one in weights}
    best = max(weights[:-1], key=lambda one: float(ranks[one].mean()))
    losses = {one: ranks[best] - ranks[one] for one in weights[:-1]}
    # The least one that is within a standard error of the best.
    error = {one: loss.std() / len(pairs) ** 0.5 for one, loss in losses.items()}
    weight = min(one for one, loss in losses.items() if loss.mean() <= error[one])
    if ranks[1.0].mean() < ranks[0.0].mean() and foreign > len(texts) / 2:
        weight = 0.0 if share >= _STRANGE else min(weight, _HIGHEST)
    sides = {"bm25": 0.0, "dense": 1.0, "hybrid": weight}
    quality: dict[str, Any] = {
        name: round(float(ranks[one].mean()), 4) for name, one in sides.items()
    }
    return replace(fit, questions=len(pairs), weight=weight, **quality)


def _is_foreign(analyzer: Analyzer, text: str) -> bool:
    """Whether a text is in another language than English, which may stand among others in it."""
    languages = analyzer.languages(text) or (analyzer.settings.language,)
    scripts = Counter[str | None]()
    for word in analyzer.words(text):
        scripts[script_of(word)] += sum(map(str.isalpha, word))
    return _ENGLISH.isdisjoint(languages) or 2 * scripts["latin"] < scripts.total()


def _strange_words(encoder: Encoder, analyzer: Analyzer, text: str) -> tuple[int, int]:
    """The number of words that the encoder does not know or breaks into letters, and of all."""
    probes = encoder.tokenize(["", _UNKNOWN, "a", f"a{_UNKNOWN}"])
    if not all(isinstance(row, list) for row in probes):
        return 0, 0
    empty, alone, letter, inside = map(set, probes)
    # SentencePiece puts a mark before a word, which is a piece of its own before an unknown letter.
    unknown = inside - letter or alone - empty
    marks = alone - empty - unknown
    words = [word for word in analyzer.words(text) if any(map(str.isalpha, word))]
    strange = number = 0
    for word, row in zip(words, encoder.tokenize(words), strict=True):
        pieces = sum(piece not in marks for piece in row) - len(probes[0])
        letters = sum(map(str.isalpha, word))
        spaceless = _SPACELESS.search(word)
        # A run without spaces counts as words of two letters.
        counted = max(letters // 2, 1) if spaceless else 1
        number += counted
        broken = letters > 2 and not spaceless and letters < _LETTERS * pieces
        if pieces <= 0 or broken or not unknown.isdisjoint(row):
            strange += counted
    return strange, number


def _question(text: str) -> tuple[str, str] | None:
    """The middle sentence of a text, and the rest; None if there is not enough of both."""
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    sentences = [text[start:stop] for start, stop in pairwise(ends)]
    if len(sentences) < 2:
        half = len(text) // 2
        sentences = [text[:half], text[half:]]
    place = len(sentences) // 2
    rest = "".join(sentences[:place] + sentences[place + 1 :])
    if min(len(sentences[place]), len(rest)) < _QUESTION:
        return None
    return sentences[place].strip(), rest.strip()


def _reciprocal_ranks(
    dense: NDArray[np.float32], bm25: NDArray[np.float64], weight: float
) -> NDArray[np.float64]:
    """Return the reciprocal rank of the diagonal in each row, where ties count as lost."""
    components = ComponentScores(
        sizes=[dense.shape[1]] * len(dense),
        dense=dense.ravel().astype(np.float64),
        bm25=bm25.ravel(),
        matches=bm25.ravel() > 0,
    )
    scores = components.fused(FusionSettings(alpha=weight)).reshape(dense.shape)
    ranks: NDArray[np.int64] = (scores >= scores.diagonal()[:, None]).sum(axis=1)
    return 1 / ranks
