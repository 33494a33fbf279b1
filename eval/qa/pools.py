"""Scores of the pairs of a question set, and training data.

Arrays over pairs are in the order of `QuestionSet.pairs`: pool after pool.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question, QuestionSet
from eval.metrics.correlation import RANKED_DECIMALS, cosines
from eval.metrics.measures import PoolMeasures
from eval.progress import Progress, silent
from eval.vectors import distinct, embed_all
from retriever.documents import Analyzer, CorpusReader
from retriever.encoders import Encoder
from retriever.errors import BadInputError, ConfigError
from retriever.search import (
    BM25,
    BM25Settings,
    ComponentScores,
    FusionSettings,
    Postings,
    SearchableSegment,
)
from retriever.training import JudgedPools, NegativeSource, TrainingSet

Floats = NDArray[np.float64]

DEV_MEASURE = "AP"
WEIGHTS = tuple(number / 20 for number in range(21))
"""The weights of the cosine that are tried on dev."""
HARD = 50
"""Hard negatives of a question are drawn from this many passages."""
_PAIRS_AT_ONCE = 65_536


class PoolBM25:
    """BM25 scores of pools, with the statistics of all passages of a data set (id to text)."""

    def __init__(
        self, passages: Mapping[str, str], analyzer: Analyzer, settings: BM25Settings | None = None
    ) -> None:
        self._ids = list(passages)
        self._row = {id_: row for row, id_ in enumerate(self._ids)}
        self._analyzer = analyzer
        segment = SearchableSegment(Postings.build(map(analyzer.tokens, passages.values())))
        self._bm25 = BM25([segment], settings)

    def scores(self, questions: Sequence[Question]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return (pairs,) scores, and (pairs,) whether passage and question share a term."""
        scores = [np.zeros(0)]
        matches = [np.zeros(0, np.bool_)]
        for question in questions:
            rows = np.array([self._row[id_] for id_ in question.candidates], np.int64)
            query = self._bm25.query(self._analyzer.tokens(question.text))
            question_scores, question_matches = query.at(0, rows)
            scores.append(question_scores)
            matches.append(question_matches)
        return np.concatenate(scores), np.concatenate(matches)

    def hardest(self, question: str, count: int, answers: Collection[str]) -> list[str]:
        """Return up to `count` passages with the highest scores that are not among `answers`."""
        query = self._bm25.query(self._analyzer.tokens(question))
        rows = query.search(count + len(answers)).positions
        return [id_ for id_ in (self._ids[row] for row in rows) if id_ not in answers][:count]


class RankBM25:
    """BM25Okapi of the package rank-bm25 with its own defaults, over the terms of a corpus."""

    def __init__(self, texts: Mapping[str, str], analyzer: Analyzer) -> None:
        from rank_bm25 import BM25Okapi

        self._ids = list(texts)
        self._row = {id_: row for row, id_ in enumerate(self._ids)}
        self._analyzer = analyzer
        self._bm25 = bm25 = BM25Okapi([analyzer.tokens(text) for text in texts.values()])
        constants = f"k1 {bm25.k1:g}, b {bm25.b:g}, epsilon {bm25.epsilon:g}"
        self.note = f"BM25Okapi of rank-bm25 with {constants}"

    def scores(self, questions: Sequence[Question]) -> Floats:
        """Return (pairs,) scores."""
        scores: list[float] = []
        for question in questions:
            rows = [self._row[id_] for id_ in question.candidates]
            scores += self._bm25.get_batch_scores(self._analyzer.tokens(question.text), rows)
        return np.array(scores, np.float64)

    def best(self, question: str, count: int) -> list[tuple[str, float]]:
        """Return ids and scores of the `count` best texts, by descending score, then id."""
        scores = self._bm25.get_scores(self._analyzer.tokens(question))
        order = sorted(range(len(self._ids)), key=lambda row: (-scores[row], self._ids[row]))
        return [(self._ids[row], float(scores[row])) for row in order[:count]]


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedPairs:
    """Distinct vectors of questions and passages, and the rows of each pair.

    `cut` texts are longer than the window of the encoder.
    """

    questions: NDArray[np.float32]
    passages: NDArray[np.float32]
    question_rows: NDArray[np.int64]
    passage_rows: NDArray[np.int64]
    cut: int = 0

    def cosines(self) -> Floats:
        """Return (pairs,) cosines, rounded to six decimals so that noise does not rank."""
        cosine_scores = np.empty(len(self.question_rows))
        for start in range(0, len(cosine_scores), _PAIRS_AT_ONCE):
            rows = slice(start, start + _PAIRS_AT_ONCE)
            cosine_scores[rows] = cosines(
                self.questions[self.question_rows[rows]], self.passages[self.passage_rows[rows]]
            )
        return np.round(cosine_scores, RANKED_DECIMALS)


def embed_pairs(
    encoders: Sequence[Encoder],
    questions: QuestionSet,
    cache: Path | None,
    progress: Progress = silent,
) -> list[EmbeddedPairs]:
    """Encode questions and passages with each encoder."""
    passages, question_rows, passage_rows = pair_rows(questions)
    texts = [question.text for question in questions.questions]
    vectors = (len(texts) + len(passages)) * len(encoders)
    done = progress(f"encoding {questions.split}", vectors)
    question_vectors = embed_all(encoders, texts, cache, query=True, done=done)
    passage_vectors = embed_all(encoders, passages, cache, done=done)
    return [
        EmbeddedPairs(
            left.vectors, right.vectors, question_rows, passage_rows, left.cut + right.cut
        )
        for left, right in zip(question_vectors, passage_vectors, strict=True)
    ]


def pair_rows(questions: QuestionSet) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct texts of all candidates, and (pairs,) rows of questions and of texts."""
    texts, rows = distinct(questions.pairs()[1])
    sizes = [len(question.candidates) for question in questions.questions]
    return texts, np.repeat(np.arange(len(sizes)), sizes), rows


def best_fusion(quality: Callable[[FusionSettings], float]) -> FusionSettings:
    """Return the convex fusion with the best of `WEIGHTS`; of equally good ones the greatest."""
    best = max(WEIGHTS, key=lambda alpha: (quality(FusionSettings(alpha=alpha)), alpha))
    return FusionSettings(alpha=best)


def training_set(
    questions: QuestionSet, negatives: NegativeSource, bm25: Callable[[], PoolBM25]
) -> TrainingSet:
    """Return the training data of a split with pools.

    Negatives of the source ``random`` are drawn from all passages of the set.
    """
    answered = questions.answered().questions
    if not answered:
        raise BadInputError(
            f"{questions.name} {questions.split}: expected a question with a relevant passage "
            "to train on, found none; name another split with --train-split"
        )
    # Passages as (id, text): questions may read different texts of one passage.
    positives: list[list[tuple[str, str]]] = []
    irrelevant: list[list[tuple[str, str]]] = []
    for question in answered:
        relevant_passages = [id_ for id_ in relevant_ids(question) if id_ in questions.passages]
        other_passages: Sequence[str] = ()
        if negatives == "pool":
            other_passages = [id_ for id_ in question.candidates if question.grades.get(id_, 0) < 1]
        elif negatives == "hard":
            other_passages = bm25().hardest(question.text, HARD, set(relevant_passages))
        positives.append([(id_, questions.text(question, id_)) for id_ in relevant_passages])
        irrelevant.append([(id_, questions.text(question, id_)) for id_ in other_passages])
    used = [
        passage for lists in (positives, irrelevant) for passages in lists for passage in passages
    ]
    everything = questions.passages.items() if negatives == "random" else ()
    rows = {passage: row for row, passage in enumerate(dict.fromkeys([*everything, *used]))}
    pools = JudgedPools.of(
        [[rows[passage] for passage in passages] for passages in positives],
        [[rows[passage] for passage in passages] for passages in irrelevant],
        len(rows),
    )
    return TrainingSet([question.text for question in answered], [text for _, text in rows], pools)


def without_overlap(questions: QuestionSet, other_sets: Sequence[QuestionSet]) -> QuestionSet:
    """Return the questions that have no text and no relevant passage in common with other sets."""
    other_texts = {_words(question.text) for other in other_sets for question in other.questions}
    other_texts |= {_words(text) for other in other_sets for text in _ranked_texts(other)}
    disjoint = []
    for question in questions.questions:
        relevant = [id_ for id_ in relevant_ids(question) if id_ in questions.passages]
        texts = [question.text, *(questions.passages[id_] for id_ in relevant)]
        if other_texts.isdisjoint(map(_words, texts)):
            disjoint.append(question)
    return replace(questions, questions=tuple(disjoint))


def _ranked_texts(questions: QuestionSet) -> Iterator[str]:
    ids = {
        id_
        for question in questions.questions
        for id_ in (*question.candidates, *relevant_ids(question))
    }
    yield from (text for id_, text in questions.passages.items() if id_ in ids)
    if ids - questions.passages.keys() and questions.corpus:
        yield from (
            document.text for document in CorpusReader(list(questions.corpus)) if document.id in ids
        )


def relevant_ids(question: Question) -> list[str]:
    """Return the ids of passages with a grade of 1 or more."""
    return [id_ for id_, grade in question.grades.items() if grade >= 1]


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.casefold()))


def hold_out(questions: QuestionSet, share: float) -> tuple[QuestionSet, QuestionSet]:
    """Divide a split, always in the same way, into training questions and a share of dev."""
    answered = questions.answered().questions
    positions = np.random.default_rng(0).permutation(len(answered))[: round(share * len(answered))]
    if not 0 < len(positions) < len(answered):
        raise ConfigError(
            f"dev-share: {share:g} of {len(answered)} questions leaves none on one side; "
            "choose another"
        )
    dev_ids = {answered[position].id for position in positions}
    train = tuple(question for question in questions.questions if question.id not in dev_ids)
    dev = tuple(question for question in answered if question.id in dev_ids)
    split = f"{questions.split}, {len(dev_ids)} questions held out"
    return replace(questions, questions=train), replace(questions, split=split, questions=dev)


class DevScore:
    """Mean average precision on the questions of a split with a relevant passage.

    Attributes:
        questions: the questions with a relevant passage.
        left, right: (pairs,) texts of questions and of candidates.
    """

    def __init__(self, questions: QuestionSet) -> None:
        self.questions = questions.answered()
        kinds = [
            {question.grades.get(id_, 0) >= 1 for id_ in question.candidates}
            for question in self.questions.questions
        ]
        if not any(len(kinds_of_question) == 2 for kinds_of_question in kinds):
            raise BadInputError(
                f"{questions.name} {questions.split}: expected a question with a relevant and "
                "another passage among its candidates to choose on, found none; name another split "
                "with --set dev-split"
            )
        self._measures = PoolMeasures(self.questions.questions, [DEV_MEASURE])
        self.left, self.right = self.questions.pairs()

    def digest(self) -> str:
        """Return the SHA-256 of questions, pools and grades."""
        content = [
            [question.text, question.candidates, sorted(question.grades.items())]
            for question in self.questions.questions
        ]
        return hashlib.sha256(json.dumps([content, self.right]).encode()).hexdigest()

    def __call__(self, scores: NDArray[np.floating]) -> float:
        """Return the mean AP of (pairs,) scores, in [0, 1]."""
        return float(self._measures(scores)[DEV_MEASURE].mean())

    def best_fusion(self, components: ComponentScores) -> FusionSettings:
        """Return the convex fusion of components with the best AP on these questions."""
        return best_fusion(lambda fusion: self(components.fused(fusion)))
