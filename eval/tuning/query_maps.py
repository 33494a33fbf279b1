"""Query maps of pipelines: learned from judged questions, applied to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eval.datasets.question_set import Question
from eval.metrics.measures import PoolMeasures
from eval.qa.pools import HARD
from eval.tuning.budget import Budget
from eval.tuning.caches import RecentValues
from eval.tuning.collection import QuestionMask, Rows
from eval.tuning.pipeline import Pipeline
from eval.tuning.texts import CollectionTexts
from eval.tuning.vectors import CollectionVectors, Vectors, nearest_rows
from retriever.training import HeadSettings, HeadTrainingSettings, JudgedPools

if TYPE_CHECKING:
    from retriever.rerankers import Scorer, TrainedHead

# Number of folds of the training questions. A map trained on the others maps each fold.
_FOLDS = 3
# One in this many training questions is a dev question; these choose the epoch.
_DEV_SHARE = 5
# Number of results that stay in memory: mapped questions, and lists of negatives.
_REMEMBERED = 6


class QueryMaps:
    """Maps of the vectors of questions, by the settings of a pipeline."""

    def __init__(self, texts: CollectionTexts, vectors: CollectionVectors, budget: Budget) -> None:
        self._collection = texts.collection
        self._texts = texts
        self._vectors = vectors
        self._budget = budget
        self._recent = RecentValues(_REMEMBERED)

    def map_questions(self, pipeline: Pipeline, training: QuestionMask) -> Vectors:
        """Return (questions, d) vectors, each mapped by a map that was not trained on it.

        A question in `training` is mapped by a map trained on the other folds of `training`, any
        other question by a map trained on all of `training`.
        """
        unmapped_pipeline = pipeline.put(query_map=False)
        key = (
            "mapped",
            str(unmapped_pipeline.encoder),
            unmapped_pipeline.passages,
            training.tobytes(),
        )
        return self._recent.get_or_make(
            key, lambda: self._map_questions(unmapped_pipeline, training)
        )

    def _map_questions(self, unmapped_pipeline: Pipeline, training: QuestionMask) -> Vectors:
        from retriever.rerankers import QueryMap

        _, queries = self._vectors.encode(unmapped_pipeline)
        mapped_queries = np.array(queries)
        rows = np.flatnonzero(training)
        fold_numbers = np.random.default_rng(0).permutation(len(rows)) % _FOLDS
        splits = [
            (rows[fold_numbers != number], rows[fold_numbers == number]) for number in range(_FOLDS)
        ]
        for train_rows, test_rows in [*splits, (rows, np.flatnonzero(~training))]:
            if len(test_rows):
                self._budget.check()
                matrix = self.train(unmapped_pipeline, train_rows).head.matrix.detach().numpy()
                mapped_queries[test_rows] = QueryMap(matrix)(queries[test_rows])
        return mapped_queries

    def train(self, pipeline: Pipeline, rows: Rows) -> TrainedHead:
        """Train a bilinear head on the questions at `rows`; a fifth of them chooses the epoch."""
        from retriever.rerankers import train_head

        vectors, queries = self._vectors.encode(pipeline)
        positives, negatives = self._training_passages(pipeline, rows)
        dev_positions = np.arange(0, len(rows), _DEV_SHARE)
        train_positions = np.flatnonzero(np.arange(len(rows)) % _DEV_SHARE)
        dev_pools = [positives[number] + negatives[number] for number in dev_positions]
        question_rows = np.repeat(rows[dev_positions], [len(passages) for passages in dev_pools])
        passage_rows = np.concatenate(dev_pools).astype(np.int64)
        grades = [
            [1] * len(positives[number]) + [0] * len(negatives[number]) for number in dev_positions
        ]
        measures = PoolMeasures([graded_question(pool) for pool in grades], ["AP"])

        def dev_score(scorer: Scorer) -> float:
            self._budget.check()
            scores = scorer(queries, vectors, question_rows, passage_rows)
            return float(measures(scores.astype(np.float64))["AP"].mean())

        return train_head(
            HeadTrainingSettings(),
            HeadSettings(),
            queries[rows[train_positions]],
            vectors,
            JudgedPools.of(positives, negatives, len(vectors)).part(train_positions),
            dev_score,
        )

    def _training_passages(
        self, pipeline: Pipeline, rows: Rows
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return for each question the nearest passage of each relevant document, and negatives."""
        vectors, queries = self._vectors.encode(pipeline)
        documents = self._texts.passages(pipeline).documents
        positions = self._texts.positions
        nearest: list[Rows] | None = None
        if not self._collection.pooled:
            nearest = self._recent.get_or_make(
                ("negatives", str(pipeline.encoder), pipeline.passages),
                lambda: nearest_rows(vectors, queries, HARD),
            )
        positives = []
        negatives = []
        for row in rows.tolist():
            question = self._collection.questions[row]
            relevant_documents = [
                positions[id_]
                for id_, grade in question.grades.items()
                if grade > 0 and id_ in positions
            ]
            if nearest is None:
                candidate_passages = [positions[id_] for id_ in question.candidates]
            else:
                candidate_passages = nearest[row].tolist()
            negatives.append(
                [
                    passage
                    for passage in candidate_passages
                    if documents[passage] not in relevant_documents
                ]
            )
            nearest_passages = []
            for document in relevant_documents:
                passages = np.flatnonzero(documents == document)
                if len(passages):
                    nearest_passages.append(
                        int(passages[(vectors[passages] @ queries[row]).argmax()])
                    )
            positives.append(nearest_passages)
        return positives, negatives


def graded_question(grades: list[int]) -> Question:
    """Make a question with candidates of these grades, in their order."""
    ids = tuple(f"{len(grades) - position:06}" for position in range(len(grades)))
    return Question("", "", ids, dict(zip(ids, grades, strict=True)))
