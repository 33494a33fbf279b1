"""Statistics of a question set: numbers of questions, sizes of pools, lengths of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from eval.datasets.qa.question_set import QuestionSet


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, mean and maximum of counts."""

    least: int
    mean: float
    greatest: int

    @classmethod
    def of(cls, counts: Sequence[int]) -> Spread | None:
        """The spread of counts; None if there are none."""
        if not counts:
            return None
        return cls(min(counts), sum(counts) / len(counts), max(counts))


@dataclass(frozen=True, slots=True)
class SetStatistics:
    """Statistics of one split, as papers on such sets print them (Ma et al. 2019, appendix).

    Words are separated by white space.

    Attributes:
        questions: number of questions.
        answered: number of questions with a relevant passage.
        passages: number of passages of the set, in a pool or not; None where the whole corpus is
            ranked, which is not read for this.
        pool: candidates per question; None where there are no pools.
        question_words: words per question; None where there is no question.
        passage_words: words per passage, over `passages`; None where that is None.
        answers: mean number of relevant passages per question that has one, in its pool or not; 0
            where no question has one.
    """

    questions: int
    answered: int
    passages: int | None
    pool: Spread | None
    question_words: Spread | None
    passage_words: Spread | None
    answers: float

    def to_json(self) -> dict[str, object]:
        """The attributes by name; a spread as an object with least, mean and greatest."""
        return asdict(self)


def statistics(questions: QuestionSet) -> SetStatistics:
    """The statistics of a split."""
    asked = questions.questions
    answered = [question for question in asked if question.answered]
    correct = [sum(grade >= 1 for grade in question.grades.values()) for question in answered]
    pools = [len(question.candidates) for question in asked]
    return SetStatistics(
        questions=len(asked),
        answered=len(answered),
        passages=len(questions.passages) or None,
        pool=Spread.of(pools) if any(pools) else None,
        question_words=Spread.of([len(question.text.split()) for question in asked]),
        passage_words=Spread.of([len(text.split()) for text in questions.passages.values()]),
        answers=sum(correct) / len(answered) if answered else 0.0,
    )
