"""From question sets to the data that rerankers are trained and chosen on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from eval.datasets.qa.question_set import QuestionSet
from eval.metrics.pools import PoolMeasures
from eval.qa.scores import PoolBM25
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
    positives = [
        [one for one in question.grades if question.grades[one] >= 1 and one in questions.passages]
        for question in chosen
    ]
    others: list[list[str]] = []
    for question, right in zip(chosen, positives, strict=True):
        if negatives == "pool":
            others.append([one for one in question.candidates if question.grades.get(one, 0) < 1])
        elif negatives == "hard":
            others.append(bm25().hardest(question.text, HARD, set(right)))
        else:
            others.append([])
    used = (one for lists in (positives, others) for ids in lists for one in ids)
    ids = list(questions.passages if negatives == "random" else dict.fromkeys(used))
    row = {id_: number for number, id_ in enumerate(ids)}
    pools = JudgedPools.of(
        [[row[one] for one in ids] for ids in positives],
        [[row[one] for one in ids] for ids in others],
        len(ids),
    )
    return TrainingSet(
        [question.text for question in chosen], [questions.passages[one] for one in ids], pools
    )


def without_overlap(questions: QuestionSet, others: Sequence[QuestionSet]) -> QuestionSet:
    """The questions that other sets do not have.

    A question goes if its text, or that of one of its relevant passages, is a question or a passage
    of another set; texts are equal that have the same words, whatever the case.
    """
    known = {_words(question.text) for other in others for question in other.questions}
    known |= {_words(text) for other in others for text in other.passages.values()}
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


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.casefold()))


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
        BadInputError: no question has a relevant passage.
    """

    def __init__(self, questions: QuestionSet) -> None:
        self.questions = questions.answered()
        if not self.questions.questions:
            raise BadInputError(
                f"{questions.name} {questions.split}: expected a question with a relevant "
                "passage to choose on, found none; name another split with --dev-split"
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
