"""BM25 within pools of candidates, with the statistics of all passages of a data set."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from eval.datasets.qa.question_set import QuestionSet
from indexes import BM25, BM25Settings, SearchableSegment
from indexes.bm25.postings import Postings
from retriever.analyzer import Analyzer


class PoolBM25:
    """The passages of a data set, ready to be scored for questions.

    Args:
        passages: id to text: idf and mean length are over all of them.
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

    def scores(self, questions: QuestionSet) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """BM25 of each pair, in the order of `QuestionSet.pairs`.

        Returns:
            (pairs,) scores, 0 where the passage holds no term of the question, and (pairs,) whether
            it holds one.
        """
        scores, matches = [np.zeros(0)], [np.zeros(0, np.bool_)]
        for question in questions.questions:
            rows = np.array([self._row[one] for one in question.candidates], np.int64)
            query = self._bm25.query(self._analyzer.tokens(question.text))
            found, matched = query.at(0, rows)
            scores.append(found)
            matches.append(matched)
        return np.concatenate(scores), np.concatenate(matches)

    def hardest(self, question: str, count: int, answers: Collection[str]) -> list[str]:
        """The passages that score highest and are not among `answers`, at most `count`."""
        query = self._bm25.query(self._analyzer.tokens(question))
        found = query.search(count + len(answers)).positions
        return [id_ for id_ in (self._ids[row] for row in found) if id_ not in answers][:count]
