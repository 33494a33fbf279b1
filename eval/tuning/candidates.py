"""Candidate passages of questions, and the values of all rankings of them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question
from eval.metrics.measures import PoolMeasures
from eval.qa.pools import Floats
from eval.tuning.caches import RecentValues
from eval.tuning.collection import JudgedCollection, QuestionMask, Rows
from eval.tuning.knobs import RANKINGS
from eval.tuning.pipeline import Pipeline
from eval.tuning.query_maps import QueryMaps
from eval.tuning.texts import CollectionTexts
from eval.tuning.vectors import CollectionVectors, nearest_rows
from retriever.search import BM25, ComponentScores, FusionSettings

# Lists of nearest passages that stay in memory.
_REMEMBERED = 12
# Candidates that a measure without a cutoff reads at least.
_FULL_DEPTH = 200


class CandidateLists(NamedTuple):
    """Candidate passages of all questions, by question, then document by descending id."""

    components: ComponentScores
    # (candidates,) rows of passages.
    rows: Rows
    # (candidates,) positions of their documents in the collection.
    documents: Rows
    # (ranked documents,) first candidate of each document of each question.
    starts: Rows
    # The questions with their ranked documents as candidates.
    pools: list[Question]

    def document_scores(self, scores: Floats) -> Floats:
        """Map (candidates,) scores to (ranked documents,) scores of the best passages."""
        best: Floats = np.maximum.reduceat(scores, self.starts)
        return best

    def matching_documents(self) -> tuple[NDArray[np.bool_], list[Question]]:
        """Return which documents share a term with their question, and pools of only these."""
        matches = np.logical_or.reduceat(self.components.matches, self.starts)
        pools = []
        start = 0
        for question in self.pools:
            stop = start + len(question.candidates)
            documents = zip(question.candidates, matches[start:stop].tolist(), strict=True)
            ids = tuple(id_ for id_, is_match in documents if is_match)
            pools.append(replace(question, candidates=ids))
            start = stop
        return matches, pools


class CandidateSearch:
    """Finds the candidates of questions as an index finds them before fusion."""

    def __init__(
        self,
        texts: CollectionTexts,
        vectors: CollectionVectors,
        query_maps: QueryMaps,
        measure: str,
    ) -> None:
        self._collection = texts.collection
        self._texts = texts
        self._vectors = vectors
        self._query_maps = query_maps
        self._measure = measure
        self._recent = RecentValues(_REMEMBERED)

    def depth(self, pipeline: Pipeline) -> int:
        """Return the number of candidates of each component, enough for the ranks measured."""
        _, at, cutoff = self._measure.partition("@")
        return max(2 * int(cutoff) if at else _FULL_DEPTH, pipeline.search.depth)

    def find(self, pipeline: Pipeline, training: QuestionMask) -> CandidateLists:
        """Return the candidates of all questions; a query map is trained on `training` alone."""
        vectors, queries = self._vectors.encode(pipeline)
        if pipeline.query_map:
            queries = self._query_maps.map_questions(pipeline, training)
        segment, question_terms = self._texts.lexicon(pipeline)
        bm25 = BM25([segment], pipeline.search.bm25)
        depth = self.depth(pipeline)
        nearest: list[Rows] = []
        if not self._collection.pooled:
            trained_on = training.tobytes() if pipeline.query_map else None
            nearest = self._recent.get_or_make(
                (str(pipeline.encoder), pipeline.passages, depth, trained_on),
                lambda: nearest_rows(vectors, queries, depth),
            )
        rows = []
        dense_scores = []
        bm25_scores = []
        matches = []
        for number, terms in enumerate(question_terms):
            query = bm25.query(terms)
            if self._collection.pooled:
                pool = self._collection.questions[number].candidates
                question_rows = np.array([self._texts.positions[id_] for id_ in pool], np.int64)
            else:
                question_rows = np.union1d(nearest[number], query.search(depth).positions)
            scores, matched = query.at(0, question_rows)
            rows.append(question_rows)
            dense_scores.append(vectors[question_rows] @ queries[number])
            bm25_scores.append(scores)
            matches.append(matched)
        components = ComponentScores(
            tuple(map(len, rows)),
            np.concatenate(dense_scores).astype(np.float64),
            np.concatenate(bm25_scores),
            np.concatenate(matches),
        )
        all_rows = np.concatenate(rows)
        documents = self._texts.passages(pipeline).documents[all_rows]
        return _group_by_document(self._collection, components, all_rows, documents)


def _group_by_document(
    collection: JudgedCollection, components: ComponentScores, rows: Rows, documents: Rows
) -> CandidateLists:
    questions = np.repeat(np.arange(len(components.sizes)), components.sizes)
    is_start = np.ones(len(rows), np.bool_)
    is_start[1:] = (documents[1:] != documents[:-1]) | (questions[1:] != questions[:-1])
    starts = np.flatnonzero(is_start)
    ids: list[list[str]] = [[] for _ in components.sizes]
    for question, document in zip(
        questions[starts].tolist(), documents[starts].tolist(), strict=True
    ):
        ids[question].append(collection.documents[document].id)
    pools = [
        replace(question, candidates=tuple(question_ids))
        for question, question_ids in zip(collection.questions, ids, strict=True)
    ]
    return CandidateLists(components, rows, documents, starts, pools)


def ranking_values(candidates: CandidateLists, measure: str) -> Floats:
    """Return (rankings, questions) values of the candidates under each of `RANKINGS`."""
    components = candidates.components
    measures = PoolMeasures(candidates.pools, [measure])
    matches, pools = candidates.matching_documents()
    bm25_measures = PoolMeasures(pools, [measure])
    # Convex fusions with the weights 0 and 1, of which all others are sums.
    normalized = {
        (normalization, alpha): components.fused(
            FusionSettings(alpha=alpha, normalization=normalization)
        )
        for normalization in ("min-max", "z-score")
        for alpha in (0.0, 1.0)
    }
    values = []
    for mode, fusion in RANKINGS:
        if mode == "bm25":
            scores = candidates.document_scores(components.bm25)[matches]
            values.append(bm25_measures(scores)[measure])
            continue
        if mode == "dense":
            scores = components.dense
        elif fusion.method == "rrf":
            scores = components.fused(fusion)
        else:
            dense = normalized[fusion.normalization, 1.0]
            bm25 = normalized[fusion.normalization, 0.0]
            scores = fusion.alpha * dense + (1 - fusion.alpha) * bm25
        values.append(measures(candidates.document_scores(scores))[measure])
    return np.stack(values)
