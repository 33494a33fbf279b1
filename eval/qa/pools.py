"""Scores of the pairs of a question set, and the data to train on.

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
from retriever.search import BM25, BM25Settings, FusionSettings, Postings, SearchableSegment
from retriever.search.fusion import ComponentScores
from retriever.training import JudgedPools, NegativeSource, TrainingSet

Floats = NDArray[np.float64]

DEV_MEASURE = "AP"
WEIGHTS = tuple(number / 20 for number in range(21))
"""The weights of the cosine that are tried on dev."""
HARD = 50
"""Hard negatives of a question are drawn from this many passages."""
_PAIRS_AT_ONCE = 65_536


class PoolBM25:
    """BM25 of pools, with the statistics of all passages of a data set (id to text)."""

    def __init__(
        self, passages: Mapping[str, str], analyzer: Analyzer, settings: BM25Settings | None = None
    ) -> None:
        self._ids = list(passages)
        self._row = {id_: row for row, id_ in enumerate(self._ids)}
        self._analyzer = analyzer
        segment = SearchableSegment(Postings.build(map(analyzer.tokens, passages.values())))
        self._bm25 = BM25([segment], settings)

    def scores(self, questions: Sequence[Question]) -> tuple[Floats, NDArray[np.bool_]]:
        """(pairs,) BM25, and (pairs,) whether the passage holds a term of the question."""
        scores = [np.zeros(0)]
        matches = [np.zeros(0, np.bool_)]
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
        """(pairs,) scores."""
        found: list[float] = []
        for question in questions:
            rows = [self._row[one] for one in question.candidates]
            found += self._bm25.get_batch_scores(self._analyzer.tokens(question.text), rows)
        return np.array(found, np.float64)

    def best(self, question: str, count: int) -> list[tuple[str, float]]:
        """The `count` best texts by descending score, then id: ids and scores."""
        scores = self._bm25.get_scores(self._analyzer.tokens(question))
        order = sorted(range(len(self._ids)), key=lambda row: (-scores[row], self._ids[row]))
        return [(self._ids[row], float(scores[row])) for row in order[:count]]


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedPairs:
    """Vectors of questions and passages, each once; `cut` texts are longer than the window."""

    questions: NDArray[np.float32]
    passages: NDArray[np.float32]
    question_rows: NDArray[np.int64]
    passage_rows: NDArray[np.int64]
    cut: int = 0

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
    encoders: Sequence[Encoder],
    questions: QuestionSet,
    cache: Path | None,
    progress: Progress = silent,
) -> list[EmbeddedPairs]:
    """Encode questions and passages with each encoder."""
    passages, question_rows, passage_rows = pair_rows(questions)
    texts = [one.text for one in questions.questions]
    vectors = (len(texts) + len(passages)) * len(encoders)
    done = progress(f"encoding {questions.split}", vectors)
    asked = embed_all(encoders, texts, cache, query=True, done=done)
    found = embed_all(encoders, passages, cache, done=done)
    return [
        EmbeddedPairs(
            left.vectors, right.vectors, question_rows, passage_rows, left.cut + right.cut
        )
        for left, right in zip(asked, found, strict=True)
    ]


def pair_rows(questions: QuestionSet) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct texts of all candidates, the (pairs,) rows of questions, and those of texts."""
    texts, rows = distinct(questions.pairs()[1])
    sizes = [len(one.candidates) for one in questions.questions]
    return texts, np.repeat(np.arange(len(sizes)), sizes), rows


def tuned(quality: Callable[[FusionSettings], float]) -> FusionSettings:
    """The convex fusion with the best of `WEIGHTS`, the greatest of equally good ones."""
    best = max(WEIGHTS, key=lambda alpha: (quality(FusionSettings(alpha=alpha)), alpha))
    return FusionSettings(alpha=best)


def training_set(
    questions: QuestionSet, negatives: NegativeSource, bm25: Callable[[], PoolBM25]
) -> TrainingSet:
    """The training data of a split with pools; `random` negatives are of all its passages."""
    chosen = questions.answered().questions
    if not chosen:
        raise BadInputError(
            f"{questions.name} {questions.split}: expected a question with a relevant passage "
            "to train on, found none; name another split with --train-split"
        )
    # A passage by its id, and by its text, which a question may have another of.
    positives: list[list[tuple[str, str]]] = []
    others: list[list[tuple[str, str]]] = []
    for question in chosen:
        right = [one for one in relevant_ids(question) if one in questions.passages]
        wrong: Sequence[str] = ()
        if negatives == "pool":
            wrong = [one for one in question.candidates if question.grades.get(one, 0) < 1]
        elif negatives == "hard":
            wrong = bm25().hardest(question.text, HARD, set(right))
        positives.append([(one, questions.text(question, one)) for one in right])
        others.append([(one, questions.text(question, one)) for one in wrong])
    used = [one for lists in (positives, others) for passages in lists for one in passages]
    everything = questions.passages.items() if negatives == "random" else ()
    rows = {one: row for row, one in enumerate(dict.fromkeys([*everything, *used]))}
    pools = JudgedPools.of(
        [[rows[one] for one in passages] for passages in positives],
        [[rows[one] for one in passages] for passages in others],
        len(rows),
    )
    return TrainingSet([one.text for one in chosen], [text for _, text in rows], pools)


def without_overlap(questions: QuestionSet, others: Sequence[QuestionSet]) -> QuestionSet:
    """The questions whose text or relevant passages no other set asks, ranks or judges."""
    known = {_words(question.text) for other in others for question in other.questions}
    known |= {_words(text) for other in others for text in _ranked_texts(other)}
    kept = []
    for one in questions.questions:
        relevant = [id_ for id_ in relevant_ids(one) if id_ in questions.passages]
        texts = [one.text, *(questions.passages[id_] for id_ in relevant)]
        if known.isdisjoint(map(_words, texts)):
            kept.append(one)
    return replace(questions, questions=tuple(kept))


def _ranked_texts(questions: QuestionSet) -> Iterator[str]:
    wanted = {id_ for one in questions.questions for id_ in (*one.candidates, *relevant_ids(one))}
    yield from (text for id_, text in questions.passages.items() if id_ in wanted)
    if wanted - questions.passages.keys() and questions.corpus:
        yield from (one.text for one in CorpusReader(list(questions.corpus)) if one.id in wanted)


def relevant_ids(question: Question) -> list[str]:
    """The passages with a grade of 1 or more."""
    return [one for one, grade in question.grades.items() if grade >= 1]


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.casefold()))


def hold_out(questions: QuestionSet, share: float) -> tuple[QuestionSet, QuestionSet]:
    """Divide a split, always in the same way: training questions, and a share as dev."""
    answered = questions.answered().questions
    chosen = np.random.default_rng(0).permutation(len(answered))[: round(share * len(answered))]
    if not 0 < len(chosen) < len(answered):
        raise ConfigError(
            f"dev-share: {share:g} of {len(answered)} questions leaves none on one side; "
            "choose another"
        )
    dev = {answered[place].id for place in chosen}
    train = tuple(one for one in questions.questions if one.id not in dev)
    held = tuple(one for one in answered if one.id in dev)
    split = f"{questions.split}, {len(dev)} questions held out"
    return replace(questions, questions=train), replace(questions, split=split, questions=held)


class DevScore:
    """Mean average precision of scores on the questions of a split with a relevant passage."""

    def __init__(self, questions: QuestionSet) -> None:
        self.questions = questions.answered()
        kinds = [
            {one.grades.get(id_, 0) >= 1 for id_ in one.candidates}
            for one in self.questions.questions
        ]
        if not any(len(found) == 2 for found in kinds):
            raise BadInputError(
                f"{questions.name} {questions.split}: expected a question with a relevant and "
                "another passage among its candidates to choose on, found none; name another split "
                "with --set dev-split"
            )
        self._measures = PoolMeasures(self.questions.questions, [DEV_MEASURE])
        self.left, self.right = self.questions.pairs()

    def digest(self) -> str:
        """SHA-256 over questions, pools and grades."""
        content = [
            [one.text, one.candidates, sorted(one.grades.items())]
            for one in self.questions.questions
        ]
        return hashlib.sha256(json.dumps([content, self.right]).encode()).hexdigest()

    def __call__(self, scores: NDArray[np.floating]) -> float:
        """Mean AP of (pairs,) scores, in [0, 1]."""
        return float(self._measures(scores)[DEV_MEASURE].mean())

    def tuned(self, components: ComponentScores) -> FusionSettings:
        """The convex fusion of components on these questions with the best AP."""
        return tuned(lambda one: self(components.fused(one)))
