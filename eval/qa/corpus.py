"""Question sets without pools: the whole corpus is ranked through an index.

What ranks pools of candidates ranks the best hits of a hybrid search there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eval.datasets.qa.question_set import QuestionSet
from eval.metrics.comparison import Run
from retriever.corpus import CorpusReader
from retriever.index import Index
from retriever.search.settings import SearchSettings


class CorpusSearch:
    """Answers the questions of a set from an index of its corpus.

    Args:
        index: of the corpus, with the documents' own ids.
        depth: hits of a question, at least 1.
    """

    def __init__(self, index: Index, depth: int) -> None:
        self.index = index
        self.depth = depth

    def run(self, questions: QuestionSet, settings: SearchSettings) -> Run:
        """The first `depth` hits of each question, with their scores."""
        settings = replace(settings, k=self.depth)
        found = self.index.search_many([one.text for one in questions.questions], settings)
        return {
            question.id: {hit.id: hit.score for hit in hits}
            for question, hits in zip(questions.questions, found, strict=True)
        }

    def pools(self, questions: QuestionSet) -> QuestionSet:
        """The same questions with the hits of a hybrid search as pools.

        A passage is the best passage of a hit; of a document that answers a question but was not
        found, which only training reads, it is the whole text.
        """
        settings = SearchSettings(k=self.depth)
        found = self.index.search_many([one.text for one in questions.questions], settings)
        passages: dict[str, str] = {}
        pooled = []
        for question, hits in zip(questions.questions, found, strict=True):
            for hit in hits:
                passages.setdefault(hit.id, _text(hit.title, hit.passage))
            ids = sorted((hit.id for hit in hits), reverse=True)
            pooled.append(replace(question, candidates=tuple(ids)))
        answers = {
            id_
            for question in questions.questions
            for id_, grade in question.grades.items()
            if grade >= 1
        }
        passages |= self._texts(questions, answers - passages.keys())
        return replace(questions, questions=tuple(pooled), passages=passages)

    def _texts(self, questions: QuestionSet, wanted: Iterable[str]) -> dict[str, str]:
        left = set(wanted)
        if not left:
            return {}
        return {
            document.id: _text(document.title, document.text)
            for document in CorpusReader(list(questions.corpus))
            if document.id in left
        }


def _text(title: str | None, text: str) -> str:
    return f"{title} {text}" if title else text
