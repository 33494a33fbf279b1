"""From question sets to the data that rerankers are trained and chosen on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question, QuestionSet
from eval.metrics.measures import PoolMeasures
from eval.qa.scores import PoolBM25
from retriever.documents.reader import CorpusReader
from retriever.errors import BadInputError, ConfigError
from retriever.training.sampling import JudgedPools, NegativeSource, TrainingSet

DEV_MEASURE = "AP"
# Hard negatives of a question are drawn from this many passages.
HARD = 50


def training_set(
    questions: QuestionSet,
    negatives: NegativeSource,
    bm25: Callable[[], PoolBM25],
    *,
    unanswered: bool = False,
) -> TrainingSet:
    """The training data of a split.

    Args:
        questions: with pools.
        negatives: their source. With ``pool`` and ``hard`` only the passages that these name are
            rows, with ``random`` all passages of the set.
        bm25: of the set's passages; called with ``hard`` only.
        unanswered: whether questions without a relevant passage, which give no triple, are kept.

    Raises:
        BadInputError: no question has a relevant passage.
    """
    chosen = questions.answered().questions
    if not chosen:
        raise BadInputError(
            f"{questions.name} {questions.split}: expected a question with a relevant passage "
            "to train on, found none; name another split with --train-split"
        )
    if unanswered:
        chosen = questions.questions
    # A passage by its id, and by its text, which a question may have another of.
    positives: list[list[tuple[str, str]]] = []
    others: list[list[tuple[str, str]]] = []
    for question in chosen:
        right = [one for one, grade in question.grades.items() if grade >= 1]
        right = [one for one in right if one in questions.passages]
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
    """The questions that other sets do not have.

    A question goes if its text, or that of one of its relevant passages, is a question, a candidate
    or a relevant passage of another set; texts are equal that have the same words, whatever the
    case. Titles of documents are passed over.
    """
    known = {_words(question.text) for other in others for question in other.questions}
    known |= {_words(text) for other in others for text in _ranked_texts(other)}
    kept = [
        one
        for one in questions.questions
        if known.isdisjoint(
            [
                _words(one.text),
                *(
                    _words(questions.passages[id_])
                    for id_, grade in one.grades.items()
                    if grade >= 1 and id_ in questions.passages
                ),
            ]
        )
    ]
    return replace(questions, questions=tuple(kept))


def _ranked_texts(questions: QuestionSet) -> Iterator[str]:
    """The candidates and relevant passages of all questions, from the corpus where there is one."""
    wanted = {
        id_
        for question in questions.questions
        for id_ in (
            *question.candidates,
            *(one for one, grade in question.grades.items() if grade >= 1),
        )
    }
    yield from (text for id_, text in questions.passages.items() if id_ in wanted)
    if wanted - questions.passages.keys() and questions.corpus:
        yield from (one.text for one in CorpusReader(list(questions.corpus)) if one.id in wanted)


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.casefold()))


def _divided(question: Question) -> bool:
    """Whether some candidates of a question are relevant and others not."""
    relevant = [question.grades.get(one, 0) >= 1 for one in question.candidates]
    return any(relevant) and not all(relevant)


def hold_out(questions: QuestionSet, share: float) -> tuple[QuestionSet, QuestionSet]:
    """Divide a split into training and dev questions, always in the same way.

    Args:
        questions: the split.
        share: of the questions with a relevant passage that becomes dev, in (0, 1).

    Returns:
        The training questions, including those without a relevant passage, and dev.

    Raises:
        ConfigError: the share is out of range, or leaves no question on one side.
    """
    if not 0 < share < 1:
        raise ConfigError(f"dev-share: expected more than 0 and less than 1, found {share:g}")
    answered = questions.answered().questions
    chosen = np.random.default_rng(0).permutation(len(answered))[: round(share * len(answered))]
    if not 0 < len(chosen) < len(answered):
        raise ConfigError(
            f"dev-share: {share:g} of {len(answered)} questions leaves none on one side; "
            "choose another"
        )
    dev = {answered[place].id for place in chosen}
    return (
        replace(
            questions, questions=tuple(one for one in questions.questions if one.id not in dev)
        ),
        replace(
            questions,
            split=f"{questions.split}, {len(dev)} questions held out",
            questions=tuple(one for one in answered if one.id in dev),
        ),
    )


class DevScore:
    """Mean average precision of scores on the questions of a split with a relevant passage.

    Args:
        questions: with pools.

    Attributes:
        questions: those with a relevant passage.
        left, right: texts of the pairs to score, in order.

    Raises:
        BadInputError: no question has candidates of both kinds.
    """

    def __init__(self, questions: QuestionSet) -> None:
        self.questions = questions.answered()
        if not any(_divided(one) for one in self.questions.questions):
            raise BadInputError(
                f"{questions.name} {questions.split}: expected a question with a relevant and "
                "another passage among its candidates to choose on, found none; name another split "
                "with --dev-split"
            )
        self._measures = PoolMeasures(self.questions.questions, [DEV_MEASURE])
        self.left, self.right = self.questions.pairs()

    def digest(self) -> str:
        """SHA-256 over questions, pools and grades, in hexadecimal."""
        content = [
            [one.text, one.candidates, sorted(one.grades.items())]
            for one in self.questions.questions
        ]
        return hashlib.sha256(json.dumps([content, self.right]).encode()).hexdigest()

    def __call__(self, scores: NDArray[np.floating]) -> float:
        """Mean AP of (pairs,) scores, in [0, 1]."""
        return float(self._measures(scores)[DEV_MEASURE].mean())
