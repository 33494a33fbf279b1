"""A collection of documents, questions and judgments, which pipelines are compared on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question
from retriever.documents import Document

Rows = NDArray[np.int64]
QuestionMask = NDArray[np.bool_]
"""(questions,) whether a question belongs to a part, such as the training questions."""


@dataclass(frozen=True, slots=True, eq=False)
class JudgedCollection:
    """Documents by descending id, and questions that each have a relevant one among them.

    Attributes:
        name: name of the data.
        documents: the documents.
        questions: the questions with their judgments.
        pooled: whether each question ranks its own candidates instead of all documents.
        rows: (questions,) position of each question in the full collection, if this is a sample.
    """

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    pooled: bool
    rows: Rows

    @classmethod
    def of(
        cls, name: str, documents: Sequence[Document], questions: Sequence[Question], pooled: bool
    ) -> JudgedCollection:
        """Make a collection of all these documents and questions."""
        ordered = tuple(sorted(documents, key=lambda document: document.id, reverse=True))
        return cls(name, ordered, tuple(questions), pooled, np.arange(len(questions)))

    def sample(self, documents: int, questions: int) -> JudgedCollection:
        """Return random questions, their relevant documents, and random documents beside these."""
        random = np.random.default_rng(0)
        rows = np.sort(random.permutation(len(self.questions))[:questions])
        sampled = tuple(self.questions[row] for row in rows)
        if self.pooled:
            return replace(self, questions=sampled, rows=self.rows[rows])
        ids = {id_ for question in sampled for id_, grade in question.grades.items() if grade >= 1}
        other_documents = random.permutation(len(self.documents))[: max(0, documents - len(ids))]
        ids |= {self.documents[position].id for position in other_documents}
        return replace(
            self,
            documents=tuple(document for document in self.documents if document.id in ids),
            questions=sampled,
            rows=self.rows[rows],
        )

    def digest(self) -> str:
        """Return the SHA-256 of documents, questions, pools and grades; it names cached values."""
        hasher = hashlib.sha256()
        for document in self.documents:
            hasher.update(repr((document.id, document.title, document.text)).encode())
        for question in self.questions:
            grades = sorted(question.grades.items())
            hasher.update(repr((question.id, question.text, question.candidates, grades)).encode())
        return hasher.hexdigest()
