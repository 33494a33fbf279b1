"""The sets of layers that are worth trying in a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from eval.layers.search import PoolObjective
from eval.layers.subsets import LayerSubsets, PairGrams, layer_subsets, pair_grams
from eval.qa.pools import Floats
from eval.tuning.budget import Budget
from eval.tuning.candidates import CandidateLists, CandidateSearch
from eval.tuning.collection import QuestionMask, Rows
from eval.tuning.encoders import PipelineEncoders
from eval.tuning.pipeline import Pipeline
from eval.tuning.query_maps import graded_question
from eval.tuning.texts import CollectionTexts
from eval.tuning.vectors import CollectionVectors, Vectors
from retriever.encoders import resolve_layers
from retriever.encoders.settings import format_layers
from retriever.search import FusionSettings

# Questions that rank the sets, and candidates of each.
_QUESTIONS = 600
_POOL = 30
# Models with fewer layers have all their sets tried, others those of up to three layers.
_ALL_SETS = 13
_FEW_LAYERS = 3
_CONCATENATIONS = 2
_PAIRS_AT_ONCE = 4096
_SETS_AT_ONCE = 256


class LayerRanking:
    """Sets of layers, ranked by how well their means rank candidates by cosine."""

    def __init__(
        self,
        encoders: PipelineEncoders,
        texts: CollectionTexts,
        vectors: CollectionVectors,
        candidates: CandidateSearch,
        measure: str,
        budget: Budget,
    ) -> None:
        self._encoders = encoders
        self._texts = texts
        self._vectors = vectors
        self._candidates = candidates
        self._measure = measure
        self._budget = budget
        self._values: dict[object, tuple[Rows, Floats]] = {}

    def choices(self, pipeline: Pipeline, training: QuestionMask, best: int) -> tuple[Any, ...]:
        """Return values of the knob of layers: the `best` sets, and two as concatenations.

        Sets are ranked by their values on `training`. A model without layers has no choices.
        """
        layered = self._encoders.layered(pipeline.encoder)
        if layered is None:
            return ()
        depth = self._encoders.depth(pipeline.encoder)
        key = (str(layered), pipeline.passages)
        if key not in self._values:
            self._values[key] = self._measure_sets(pipeline, training)
        questions, values = self._values[key]
        subsets = _subsets(depth)
        means = np.round(values[:, training[questions]].mean(axis=1), 12)
        order = np.argsort(-means, kind="stable")[:best].tolist()
        sets = [format_layers(subsets.layers(position), depth) for position in order]
        several = [layers for layers in sets if len(resolve_layers(layers, depth)) > 1]
        return (
            *((layers, None) for layers in sets),
            *((layers, "concat") for layers in several[:_CONCATENATIONS]),
        )

    def _measure_sets(self, pipeline: Pipeline, training: QuestionMask) -> tuple[Rows, Floats]:
        """Return positions of some questions, and (sets, questions) values of the candidates."""
        states, queries = self._vectors.hidden_states(pipeline)
        candidates = self._candidates.find(pipeline, training)
        questions = np.arange(len(queries))[:_QUESTIONS]
        positions = _first_candidates(candidates, len(questions))
        objective = PoolObjective(
            [
                graded_question(self._grades(question, candidates, question_positions))
                for question, question_positions in enumerate(positions)
            ],
            self._measure,
        )
        question_rows = np.repeat(questions, [len(part) for part in positions])
        passage_rows = candidates.rows[np.concatenate(positions)]
        grams = self._grams(queries, states, question_rows, passage_rows)
        masks = _subsets(states.shape[1] - 1).masks
        values = []
        for start in range(0, len(masks), _SETS_AT_ONCE):
            self._budget.check()
            cosines = grams.cosines(masks[start : start + _SETS_AT_ONCE])
            values.append(objective.per_question(cosines))
        return questions, np.concatenate(values)

    def _grades(self, question: int, candidates: CandidateLists, positions: Rows) -> list[int]:
        collection = self._texts.collection
        grades = collection.questions[question].grades
        documents = candidates.documents[positions].tolist()
        return [grades.get(collection.documents[document].id, 0) for document in documents]

    def _grams(
        self, queries: Vectors, states: Vectors, question_rows: Rows, passage_rows: Rows
    ) -> PairGrams:
        triangles = []
        for start in range(0, len(passage_rows), _PAIRS_AT_ONCE):
            self._budget.check()
            pairs = slice(start, start + _PAIRS_AT_ONCE)
            grams = pair_grams(queries[question_rows[pairs]], states[passage_rows[pairs]])
            triangles.append(grams.triangles)
        return PairGrams(states.shape[1], np.concatenate(triangles, axis=2))


def _subsets(depth: int) -> LayerSubsets:
    return layer_subsets(depth + 1, None if depth < _ALL_SETS else _FEW_LAYERS)


def _first_candidates(candidates: CandidateLists, questions: int) -> list[Rows]:
    """Return the positions of the first candidates of each question by the default fusion."""
    scores = candidates.components.fused(FusionSettings())
    sizes = candidates.components.sizes[:questions]
    first_candidates = []
    start = 0
    for size in sizes:
        part = np.arange(start, start + size)
        first_candidates.append(part[np.argsort(-scores[part], kind="stable")[:_POOL]])
        start += size
    return first_candidates
