"""Questions, the passages to rank for each, judgments, and the statistics of a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its pool of candidates.

    Attributes:
        id: id of the question.
        text: text of the question.
        candidates: ids of its pool, descending, which is the order of equal scores in trec_eval;
            empty where the whole corpus is ranked.
        grades: passage to grade, for each judged passage, in the pool or not.
    """

    id: str
    text: str
    candidates: tuple[str, ...]
    grades: Mapping[str, int]

    @property
    def answered(self) -> bool:
        """Whether it has a relevant passage: one with a grade of at least 1."""
        return any(grade >= 1 for grade in self.grades.values())


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """One split of a data set.

    Attributes:
        name: name of the data set, with the variant if there are several ("TrecQA clean").
        split: name of the split, such as "test".
        questions: all questions, with or without a relevant passage, in the order of the set.
        passages: id to text of all passages of the set, in a pool or not; BM25 takes its
            statistics from them. Empty where there are no pools.
        corpus: where there are no pools, the files of the corpus, as
            `retriever.documents.reader.CorpusReader` reads them.
        answers_in_text: whether a passage is relevant because it contains an answer, without a
            judgment; papers report the share of questions with such a passage in the first k.
        shown: (question, passage) to text, where a question reads another text of the passage:
            each question reads the best part of a long document that an index found.
    """

    name: str
    split: str
    questions: tuple[Question, ...]
    passages: Mapping[str, str]
    corpus: tuple[Path, ...] = ()
    answers_in_text: bool = False
    shown: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.questions)

    def answered(self) -> QuestionSet:
        """Return the questions with a relevant passage."""
        answered = tuple(question for question in self.questions if question.answered)
        return replace(self, questions=answered)

    def text(self, question: Question, passage: str) -> str:
        """Return the text of a passage for a question."""
        return self.shown.get((question.id, passage)) or self.passages[passage]

    def pairs(self) -> tuple[list[str], list[str]]:
        """Return texts of questions and of candidates, pool after pool, in the order of pools."""
        left = [question.text for question in self.questions for _ in question.candidates]
        right = [
            self.text(question, id_) for question in self.questions for id_ in question.candidates
        ]
        return left, right


def statistics(questions: QuestionSet) -> dict[str, Any]:
    """Return statistics as in Ma et al. (2019, appendix); None where the whole corpus is ranked."""
    answered = questions.answered().questions
    relevant = sum(grade >= 1 for question in answered for grade in question.grades.values())
    pools = [len(question.candidates) for question in questions.questions]
    return {
        "questions": len(questions),
        "answered": len(answered),
        "passages": len(questions.passages) or None,
        "pool": _spread(pools if any(pools) else []),
        "question_words": _spread([len(question.text.split()) for question in questions.questions]),
        "passage_words": _spread([len(text.split()) for text in questions.passages.values()]),
        "answers": relevant / len(answered) if answered else 0.0,
    }


def _spread(counts: Sequence[int]) -> dict[str, float] | None:
    if not counts:
        return None
    return {"least": min(counts), "mean": sum(counts) / len(counts), "greatest": max(counts)}
