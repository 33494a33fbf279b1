"""Whether an encoder knows the words of a corpus, and the weight of its vectors beside BM25.

A word is unknown to an encoder that has no piece for it or breaks it into letters. If the corpus is
in another language than English, or many words are unknown, questions from the corpus determine the
default weight of the embeddings. Each question is a sentence that is taken out of its passage; the
rest of the passage is its answer among the rests of all passages. The weight is the least one whose
mean reciprocal rank is within a standard error of the best.

Questions of people share fewer words with the text, and embeddings in another language than English
answer them worse than these questions. If most passages are not English and the embeddings rank
worse than BM25 by more than a standard error, the weight is therefore at most 0.4. It is 0 if they
rank worse and the encoder does not know the language.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25 import BM25, Postings, SearchableSegment
from retriever.documents.analyzer import NO_LANGUAGE
from retriever.documents.languages import script_of
from retriever.documents.sentences import SENTENCE_END
from retriever.errors import SourceError
from retriever.search.fusion import ComponentScores
from retriever.search.settings import DEFAULT_WEIGHT, FusionSettings

if TYPE_CHECKING:
    from retriever.documents.analyzer import Analyzer
    from retriever.encoders.encoder import Encoder

# Number of passages in a sample, and of characters of each.
_PASSAGES = 256
CHARACTERS = 600
# A word is broken into letters if its pieces have fewer letters than this on average.
_LETTERS_PER_PIECE = 2.0
# Questions are asked from this share of unknown words, or of passages in other languages than
# English.
DOUBTFUL_SHARE = 0.1
# An encoder does not know the language of a text from this share of unknown words.
_UNKNOWN_SHARE = 0.25
# Known and unknown passages have their own weights if each group has at least this number of
# passages and this share of the sample. If more passages lie between them, there is one weight, as
# for a language that the encoder half knows.
_GROUP = 8
_GROUP_SHARE = 0.05
# The fit is measured again when the number of passages has changed by this factor, or the share of
# a language by this much.
_FACTOR = 2
_SHIFT = 0.1
# Least number of letters of a question.
_QUESTION_LETTERS = 20
# Least number of words for a reliable share.
_WORDS = 40
# Least number of questions for a decision against what the words say.
_QUESTIONS = 50
_ENGLISH = frozenset({"english", "porter", NO_LANGUAGE})
# Greatest weight of embeddings that rank worse than BM25 in another language than English; see the
# measurements in docs/measurements/ranking.md.
_MOST_FOREIGN_WEIGHT = 0.4
# A letter of a language that no encoder knows.
_UNKNOWN_LETTER = "\U00010380"
# Syllables of Ethiopic and Hangul, each of which counts as two letters.
_SYLLABLES = re.compile("[\u1200-\u139f\uac00-\ud7a3]")
# Indic scripts, whose vowel signs count as letters.
_INDIC = re.compile("[\u0900-\u0dff]")
_SPACELESS = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff]")


@dataclass(frozen=True, slots=True)
class LanguageFit:
    """How well an encoder fits the language of a corpus."""

    # Share of the words of a sample that are unknown to the encoder.
    strange: float
    # Number of words in the sample.
    words: int
    # Number of questions from the corpus; 0 if none were needed.
    questions: int = 0
    # Default weight of the embeddings in hybrid search, 0 to 0.6.
    weight: float = DEFAULT_WEIGHT
    # Mean reciprocal ranks of the questions' passages; the last one with that weight.
    bm25: float | None = None
    dense: float | None = None
    hybrid: float | None = None
    # Number of passages of the index when this was measured.
    passages: int = 0
    # Weight of the embeddings for queries in a language that the encoder does not know. None if all
    # passages share one weight; otherwise the other figures describe the passages that it knows.
    strange_weight: float | None = None
    # Number of passages of each language when this was measured.
    languages: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_dense_best(self) -> bool:
        """Whether the embeddings rank the questions' passages at least as well as BM25."""
        return self.dense is not None and self.bm25 is not None and self.dense >= self.bm25

    @property
    def warning(self) -> str | None:
        """The warning for an encoder that does not know the language; None if it does."""
        is_mixed = self.strange_weight is not None
        if not is_mixed and (self.strange < _UNKNOWN_SHARE or self.is_dense_best):
            return None
        texts = "some" if is_mixed else "these"
        queries = " for queries like them" if is_mixed else ""
        weight = self.strange_weight if is_mixed else self.weight
        return (
            f"the encoder does not know the language of {texts} texts: {self.strange:.0%} of "
            f"{self.words:,} words are unknown to it or broken to letters, so that embeddings "
            f"count {weight:g} in hybrid search{queries}"
        )


class PassageSample:
    """A sample of passages: those with the smallest digests, in whatever order they come."""

    def __init__(self) -> None:
        # A heap of negated digests, each with the beginning of its passage.
        self._passages: list[tuple[int, str]] = []

    def take(self, digest: bytes, text: str) -> None:
        """Add a passage if it belongs to the sample."""
        entry = (-int.from_bytes(digest), text[:CHARACTERS])
        if len(self._passages) < _PASSAGES:
            heapq.heappush(self._passages, entry)
        elif entry > self._passages[0]:
            heapq.heapreplace(self._passages, entry)

    @property
    def texts(self) -> list[str]:
        """The distinct texts, in the order of their digests."""
        return list(dict.fromkeys(text for _, text in sorted(self._passages, reverse=True)))


class WordCounts(NamedTuple):
    """Numbers of words of a text."""

    unknown: int
    words: int

    def is_unknown(self, share: float = _UNKNOWN_SHARE) -> bool:
        """Return whether at least this share of the words is unknown."""
        return self.unknown > 0 and self.unknown >= share * self.words


def is_due(measured: Mapping[str, Any], passages: int, languages: Mapping[str, int]) -> bool:
    """Return whether the fit of an index must be measured again.

    Args:
        measured: the stored `LanguageFit`; empty if there is none.
        passages: number of passages of the index now.
        languages: number of passages of each language now.
    """
    previous_passages = measured.get("passages", 0)
    previous_languages = measured.get("languages", {})
    if not passages or not previous_passages or (languages and not previous_languages):
        # An earlier release stored no languages.
        return passages > 0
    if passages >= _FACTOR * previous_passages or previous_passages >= _FACTOR * passages:
        return True
    shares = (
        (
            languages.get(language, 0) / passages,
            previous_languages.get(language, 0) / previous_passages,
        )
        for language in {*languages, *previous_languages}
    )
    return any(round(abs(share - previous), 9) >= _SHIFT for share, previous in shares)


def measure_language_fit(
    texts: Sequence[str], encoder: Encoder, analyzer: Analyzer, passages: int
) -> LanguageFit | None:
    """Measure the fit of an encoder and a sample of passages.

    Returns:
        The fit; None if the encoder cannot encode other texts.
    """
    try:
        counts = [count_words(encoder, analyzer, text) for text in texts]
    except SourceError:
        return None
    unknown_words = sum(count.unknown for count in counts)
    words = sum(count.words for count in counts)
    unknown_word_share = unknown_words / words if words >= _WORDS else 0.0
    fit = LanguageFit(unknown_word_share, words, passages=passages)
    pairs = list(zip(texts, counts, strict=True))
    known_texts = [text for text, count in pairs if not count.is_unknown()]
    unknown_texts = [text for text, count in pairs if count.is_unknown()]
    doubtful = sum(count.is_unknown(DOUBTFUL_SHARE) for count in counts) - len(unknown_texts)
    smaller = min(len(known_texts) - doubtful, len(unknown_texts))
    if smaller < max(_GROUP, doubtful, _GROUP_SHARE * len(texts)):
        return _with_measured_weight(fit, texts, encoder, analyzer)
    known_fit = _with_measured_weight(replace(fit, strange=0.0), known_texts, encoder, analyzer)
    unknown_fit = _with_measured_weight(replace(fit, strange=1.0), unknown_texts, encoder, analyzer)
    if unknown_fit.questions >= _QUESTIONS and unknown_fit.is_dense_best:
        return _with_measured_weight(fit, texts, encoder, analyzer)
    # A few questions are no evidence for an encoder that does not know the words.
    weight = unknown_fit.weight if unknown_fit.questions >= _QUESTIONS else 0.0
    return replace(known_fit, strange=unknown_word_share, strange_weight=weight)


def is_unknown_language(encoder: Encoder, analyzer: Analyzer, text: str) -> bool:
    """Return whether the encoder does not know the language of a text."""
    return count_words(encoder, analyzer, text).is_unknown()


def _with_measured_weight(
    fit: LanguageFit, texts: Sequence[str], encoder: Encoder, analyzer: Analyzer
) -> LanguageFit:
    """Return a fit with the weight by questions from these texts, if the fit is doubtful."""
    is_unknown = fit.strange >= _UNKNOWN_SHARE
    foreign = sum(is_foreign(analyzer, text) for text in texts)
    if fit.strange < DOUBTFUL_SHARE and foreign < DOUBTFUL_SHARE * len(texts):
        return fit
    pairs = [pair for text in texts if (pair := _question(text))]
    # A few questions are no evidence for an encoder that does not know the words of a language, and
    # none against an encoder that knows them. Unknown words of English texts may be codes.
    is_foreign_language = is_unknown and foreign > len(texts) / 2
    least = 2 if is_unknown and not is_foreign_language else _QUESTIONS
    if len(pairs) < least:
        return replace(fit, weight=0.0) if is_unknown else fit
    questions, rests = zip(*pairs, strict=True)
    dense = encoder.encode(questions, query=True) @ encoder.encode(rests).T
    bm25 = _bm25_scores(analyzer, questions, rests)
    # Every tenth up to the default, and the embeddings alone.
    weights = [tenths / 10 for tenths in range(round(DEFAULT_WEIGHT * 10) + 1)]
    ranks = {weight: _reciprocal_ranks(dense, bm25, weight) for weight in (*weights, 1.0)}
    best = max(weights, key=lambda weight: float(ranks[weight].mean()))
    losses = {weight: ranks[best] - ranks[weight] for weight in weights}
    # The least weight that is within a standard error of the best.
    weight = min(
        weight for weight, loss in losses.items() if loss.mean() <= loss.std() / len(pairs) ** 0.5
    )
    # A lead of BM25 within a standard error is no evidence against an encoder that knows the words.
    lead = ranks[0.0] - ranks[1.0]
    error = 0.0 if is_unknown else lead.std() / len(pairs) ** 0.5
    if lead.mean() > error and foreign > len(texts) / 2:
        weight = 0.0 if is_unknown else min(weight, _MOST_FOREIGN_WEIGHT)
    quality: dict[str, Any] = {
        name: round(float(ranks[component_weight].mean()), 4)
        for name, component_weight in (("bm25", 0.0), ("dense", 1.0), ("hybrid", weight))
    }
    return replace(fit, questions=len(pairs), weight=weight, **quality)


def _bm25_scores(
    analyzer: Analyzer, questions: Sequence[str], passages: Sequence[str]
) -> NDArray[np.float64]:
    """Return (questions, passages) scores."""
    search = BM25([SearchableSegment(Postings.build(map(analyzer.tokens, passages)))])
    rows = np.arange(len(passages))
    queries = [search.query(analyzer.tokens(question)) for question in questions]
    return np.stack([query.at(0, rows)[0] for query in queries])


def is_foreign(analyzer: Analyzer, text: str) -> bool:
    """Return whether no language of a text is English, or most letters are not Latin."""
    languages = analyzer.languages(text) or (analyzer.settings.language,)
    scripts = Counter[str | None]()
    for word in analyzer.words(text):
        scripts[script_of(word)] += sum(map(str.isalpha, word))
    return _ENGLISH.isdisjoint(languages) or 2 * scripts["latin"] < scripts.total()


def count_words(encoder: Encoder, analyzer: Analyzer, text: str) -> WordCounts:
    """Count the words of a text, and those that the encoder does not know."""
    probes = encoder.tokenize(["", _UNKNOWN_LETTER, "a", f"a{_UNKNOWN_LETTER}"])
    if not all(isinstance(row, list) for row in probes):
        return WordCounts(0, 0)
    empty, alone, letter, inside = map(set, probes)
    # SentencePiece puts a mark before a word; before an unknown letter it is a piece of its own.
    unknown = inside - letter or alone - empty
    marks = alone - empty - unknown
    words = [word for word in analyzer.words(text) if any(map(str.isalpha, word))]
    # Byte-level tokenizers know every letter: a rare one becomes several bytes.
    has_bytes = len(inside - letter) > 1
    if has_bytes:
        pieces_of_words = _count_byte_pieces(encoder, words)
    else:
        rows = encoder.tokenize(words)
        pieces_of_words = [
            0 if unknown & {*row} else sum(piece not in marks for piece in row) - len(probes[0])
            for row in rows
        ]
    unknown_words = 0
    all_words = 0
    for word, pieces in zip(words, pieces_of_words, strict=True):
        letters = _count_letters(word)
        is_spaceless = _SPACELESS.search(word) is not None
        # A run without spaces counts as words of two letters.
        count = max(letters // 2, 1) if is_spaceless else 1
        all_words += count
        is_broken = letters > 2 and letters < _LETTERS_PER_PIECE * pieces
        if is_spaceless:
            is_broken = has_bytes and len(word) < pieces
        if pieces <= 0 or is_broken:
            unknown_words += count
    return WordCounts(unknown_words, all_words)


def _count_byte_pieces(encoder: Encoder, words: Sequence[str]) -> list[int]:
    """Count the pieces of each word, at the beginning of a text or after a space.

    A vocabulary has most words with a space before them. After a prompt, "a" has one piece too.
    """
    counts = []
    for start in ("", " "):
        letter, *rows = encoder.tokenize([f"{start}{word}" for word in ("a", *words)])
        counts.append([max(len(row) - len(letter) + 1, 1) for row in rows])
    return [min(pair) for pair in zip(*counts, strict=True)]


def _count_letters(word: str) -> int:
    """Count the letters of a word, as an alphabet would have them."""
    signs = sum(unicodedata.category(sign)[0] == "M" for sign in _INDIC.findall(word))
    return sum(map(str.isalpha, word)) + signs + len(_SYLLABLES.findall(word))


def _question(text: str) -> tuple[str, str] | None:
    """Return the middle sentence of a text, and the rest; None if either is too short."""
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    sentences = [text[start:stop] for start, stop in pairwise(ends)]
    if len(sentences) < 2:
        half = len(text) // 2
        sentences = [text[:half], text[half:]]
    middle = len(sentences) // 2
    rest = "".join(sentences[:middle] + sentences[middle + 1 :])
    if min(len(sentences[middle]), len(rest)) < _QUESTION_LETTERS:
        return None
    return sentences[middle].strip(), rest.strip()


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
