"""Scores of the pairs of a question set: BM25, cosines of vectors, and both fused.

A pair is a question and a passage of its pool. Arrays over pairs are in the order of
`QuestionSet.pairs`: pool after pool, each in the order of `Question.candidates`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question, QuestionSet
from eval.metrics.correlation import RANKED_DECIMALS, cosines
from eval.vectors import embed_all
from retriever.documents.analyzer import Analyzer
from retriever.encoders.protocol import LoadedEncoder
from retriever.errors import require_extra
from retriever.search import BM25, BM25Settings, Postings, SearchableSegment
from retriever.search.fusion import FusionSettings, fuse

if TYPE_CHECKING:
    from rank_bm25 import BM25Okapi

Floats = NDArray[np.float64]

# The weights of the cosine that are tried on dev.
WEIGHTS = tuple(number / 20 for number in range(21))
_PAIRS_AT_ONCE = 65_536


class PoolBM25:
    """BM25 of pools, with the statistics of all passages of a data set.

    Args:
        passages: id to text; idf and mean length are over all of them.
        analyzer: of passages and questions.
        settings: variant and parameters.
    """

    def __init__(
        self,
        passages: Mapping[str, str],
        analyzer: Analyzer,
        settings: BM25Settings | None = None,
    ) -> None:
        self._ids = list(passages)
        self._row = {id_: row for row, id_ in enumerate(self._ids)}
        self._analyzer = analyzer
        segment = SearchableSegment(Postings.build(map(analyzer.tokens, passages.values())))
        self._bm25 = BM25([segment], settings)

    def scores(self, questions: Sequence[Question]) -> tuple[Floats, NDArray[np.bool_]]:
        """BM25 of each pair.

        Returns:
            (pairs,) scores, 0 where the passage holds no term of the question, and (pairs,) whether
            it holds one.
        """
        scores, matches = [np.zeros(0)], [np.zeros(0, np.bool_)]
        for question in questions:
            rows = np.array([self._row[one] for one in question.candidates], np.int64)
            query = self._bm25.query(self._analyzer.tokens(question.text))
            found, matched = query.at(0, rows)
            scores.append(found)
            matches.append(matched)
        return np.concatenate(scores), np.concatenate(matches)

    def hardest(self, question: str, count: int, answers: Collection[str]) -> list[str]:
        """Up to `count` passages with the highest scores that are not among `answers`."""
        query = self._bm25.query(self._analyzer.tokens(question))
        found = query.search(count + len(answers)).positions
        return [id_ for id_ in (self._ids[row] for row in found) if id_ not in answers][:count]


class RankBM25:
    """BM25Okapi of the package rank-bm25 with its own defaults, over the same analyzed terms.

    Args:
        texts: id to text, of the whole corpus.
        analyzer: of passages and questions.

    Attributes:
        note: the parameters, for a reader.

    Raises:
        MissingExtraError: rank-bm25 is not installed.
    """

    def __init__(self, texts: Mapping[str, str], analyzer: Analyzer) -> None:
        require_extra("baselines", "the system rank-bm25", "rank_bm25")
        from rank_bm25 import BM25Okapi

        self._ids = list(texts)
        self._row = {id_: row for row, id_ in enumerate(self._ids)}
        self._analyzer = analyzer
        tokens = [analyzer.tokens(text) for text in texts.values()]
        # It divides by the number of terms.
        self._bm25: BM25Okapi | None = BM25Okapi(tokens) if any(tokens) else None
        self.note = "BM25Okapi of rank-bm25"
        if self._bm25 is not None:
            one = self._bm25
            self.note += f" with k1 {one.k1:g}, b {one.b:g}, epsilon {one.epsilon:g}"

    def scores(self, questions: Sequence[Question]) -> Floats:
        """(pairs,) scores."""
        found = [np.zeros(0)]
        for question in questions:
            rows = [self._row[one] for one in question.candidates]
            scores = np.zeros(len(rows))
            if self._bm25 is not None and rows:
                terms = self._analyzer.tokens(question.text)
                scores = np.asarray(self._bm25.get_batch_scores(terms, rows), np.float64)
            found.append(scores)
        return np.concatenate(found)

    def best(self, question: str, count: int) -> tuple[list[str], Floats]:
        """The ids of the `count` best texts, by descending score, then id; and their scores."""
        scores = np.zeros(len(self._ids))
        if self._bm25 is not None:
            scores = self._bm25.get_scores(self._analyzer.tokens(question))
        order = sorted(range(len(self._ids)), key=lambda row: (-scores[row], self._ids[row]))
        return [self._ids[row] for row in order[:count]], scores[order[:count]]


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedPairs:
    """Vectors of questions and of the passages of their pools, each once.

    Attributes:
        questions: (q, d) float32, in the order of the set.
        passages: (p, d) float32.
        question_rows: (pairs,) int64.
        passage_rows: (pairs,) int64.
        cut: number of questions and passages that are longer than the encoder's window.
    """

    questions: NDArray[np.float32]
    passages: NDArray[np.float32]
    question_rows: NDArray[np.int64]
    passage_rows: NDArray[np.int64]
    cut: int

    def cosines(self) -> Floats:
        """(pairs,) cosines, rounded to six decimals so that noise does not rank."""
        found = np.empty(len(self.question_rows))
        for start in range(0, len(found), _PAIRS_AT_ONCE):
            rows = slice(start, start + _PAIRS_AT_ONCE)
            found[rows] = cosines(
                self.questions[self.question_rows[rows]], self.passages[self.passage_rows[rows]]
            )
        return np.round(found, RANKED_DECIMALS)


def embed_pairs(
    encoders: Sequence[LoadedEncoder],
    questions: QuestionSet,
    cache: Path | None,
    begin: Callable[[int], Callable[[int], object]] = lambda texts: lambda done: None,
) -> list[EmbeddedPairs]:
    """Encode the questions, and each passage of their pools once.

    Args:
        encoders: of both, one or more; those that `load_encoders` loaded together share the passes
            over the passages.
        questions: with pools.
        cache: a folder that keeps vectors; None keeps none.
        begin: called with the number of vectors; what it returns is called with the number done.

    Returns:
        One for each encoder.
    """
    passages, question_rows, passage_rows = pair_rows(questions)
    texts = [one.text for one in questions.questions]
    done = begin((len(texts) + len(passages)) * len(encoders))
    asked = embed_all(encoders, texts, cache, query=True, done=done)
    found = embed_all(encoders, passages, cache, done=done)
    return [
        EmbeddedPairs(
            left.vectors, right.vectors, question_rows, passage_rows, left.cut + right.cut
        )
        for left, right in zip(asked, found, strict=True)
    ]


def pair_rows(
    questions: QuestionSet,
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct texts of all candidates, and of each pair the rows of its two texts.

    Returns:
        Texts of passages, (pairs,) rows of questions, (pairs,) rows of these passages.
    """
    _, right = questions.pairs()
    texts = list(dict.fromkeys(right))
    row = {text: number for number, text in enumerate(texts)}
    sizes = [len(one.candidates) for one in questions.questions]
    places = [row[text] for text in right]
    return texts, np.repeat(np.arange(len(sizes)), sizes), np.array(places, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """Both scores of each pair, ready to be fused.

    Attributes:
        sizes: of the pools.
        dense: (pairs,) cosines.
        bm25: (pairs,) scores.
        matches: (pairs,) whether the passage holds a term of the question.
    """

    sizes: tuple[int, ...]
    dense: Floats
    bm25: Floats
    matches: NDArray[np.bool_]

    def fused(self, settings: FusionSettings) -> Floats:
        """(pairs,) fused scores; each pool is normalized separately."""
        found = np.empty(len(self.dense))
        stop = 0
        for size in self.sizes:
            rows = slice(stop, stop := stop + size)
            found[rows] = fuse(self.dense[rows], self.bm25[rows], self.matches[rows], settings)
        return found


def best_weight(quality: Callable[[float], float]) -> float:
    """The weight of the cosine, of `WEIGHTS`, with the best quality; the greatest of equal ones."""
    return max(WEIGHTS, key=lambda weight: (quality(weight), weight))


def fixed_weight(settings: FusionSettings, variant: str) -> FusionSettings:
    """The settings that the text after ``hybrid:`` asks for: ``rrf``, or a weight."""
    return settings.reciprocal() if variant == "rrf" else settings.convex(float(variant))
