"""The quality of pipelines on a collection of documents and questions, by arrays.

Passages, terms, vectors, BM25 and fusion are those of an index with the same settings. What
pipelines share is computed once. Values stay in the cache, so that an interrupted run continues.
"""

from __future__ import annotations

import hashlib

from eval.metrics.measures import PoolMeasures
from eval.progress import Progress
from eval.qa.pools import Floats
from eval.settings import Loading
from eval.tuning.budget import Budget
from eval.tuning.caches import PipelineCache
from eval.tuning.candidates import CandidateSearch, ranking_values
from eval.tuning.collection import JudgedCollection, QuestionMask
from eval.tuning.costs import Costs
from eval.tuning.encoders import PipelineEncoders
from eval.tuning.knobs import RANKING, RANKINGS
from eval.tuning.layers import LayerRanking
from eval.tuning.pipeline import Pipeline
from eval.tuning.query_maps import QueryMaps
from eval.tuning.reranking import Reranking
from eval.tuning.texts import CollectionTexts
from eval.tuning.vectors import CollectionVectors
from retriever.documents import Analyzer
from retriever.search import DEFAULT_WEIGHT, FusionSettings
from retriever.search.fit import PassageSample, measure_language_fit

# Part of the name of the cache. Raise it when a computation changes: old values are then ignored.
_VERSION = 1


class Evaluator:
    """The quality of pipelines on a collection, by one measure.

    Attributes:
        collection: the documents and questions.
        budget: the time limit of all computations.
        evaluated: number of candidate lists that were computed.
        encoders, texts, vectors, query_maps, candidates, reranking, layers, costs: what each
            pipeline computes, and what it costs.
    """

    def __init__(
        self,
        collection: JudgedCollection,
        measure: str,
        loading: Loading,
        progress: Progress,
        budget: Budget | None = None,
    ) -> None:
        self.collection = collection
        self.budget = budget = budget or Budget()
        self.evaluated = 0
        self._measure = measure
        name = f"{_VERSION}-{measure}-{collection.digest()[:32]}"
        self._cache = PipelineCache(loading.cache and loading.cache / "tune" / name)
        self.encoders = encoders = PipelineEncoders(loading)
        self.texts = texts = CollectionTexts(collection, encoders, budget)
        self.vectors = vectors = CollectionVectors(texts, encoders, loading, budget, progress)
        self.query_maps = QueryMaps(texts, vectors, budget)
        self.candidates = CandidateSearch(texts, vectors, self.query_maps, measure)
        self.reranking = Reranking(texts, loading, budget, progress)
        self.layers = LayerRanking(encoders, texts, vectors, self.candidates, measure, budget)
        self.costs = Costs(self._cache, encoders, texts, vectors, self.candidates, self.reranking)

    def values(self, pipeline: Pipeline, training: QuestionMask) -> Floats:
        """Return (questions,) values of a pipeline; a query map is trained on `training` alone."""
        if pipeline.rerank is not None:
            return self._cache.values(
                pipeline, training, lambda: self._reranked_values(pipeline, training)
            )
        ranking = RANKING.value(pipeline)
        if pipeline.search.mode != "hybrid":
            ranking = pipeline.search.mode, FusionSettings()
        values: Floats = self.table(pipeline, training)[RANKINGS.index(ranking)]
        return values

    def table(self, pipeline: Pipeline, training: QuestionMask) -> Floats:
        """Return (rankings, questions) values of the candidates of a pipeline, by `RANKINGS`."""
        pipeline = pipeline.candidates

        def evaluate() -> Floats:
            self.budget.check()
            self.evaluated += 1
            return ranking_values(self.candidates.find(pipeline, training), self._measure)

        return self._cache.values(pipeline, training, evaluate)

    def _reranked_values(self, pipeline: Pipeline, training: QuestionMask) -> Floats:
        # As many as an index searches for this number of hits.
        deep = {"search.depth": 2 * pipeline.search.depth}
        candidates = self.candidates.find(pipeline.candidates.put(**deep), training)
        scores = self.reranking.document_scores(candidates, pipeline)
        pools = candidates.pools
        if pipeline.search.mode == "bm25":
            matches, pools = candidates.matching_documents()
            scores = scores[matches]
        return PoolMeasures(pools, [self._measure])(scores)[self._measure]

    def default_weight(self, pipeline: Pipeline) -> float:
        """Return the weight of the cosine that an index of the documents has by default."""
        if self.collection.pooled:
            return DEFAULT_WEIGHT
        sample = PassageSample()
        texts = self.texts.passages(pipeline).texts
        for text in texts:
            sample.take(hashlib.blake2b(text.encode(), digest_size=16).digest(), text)
        encoder = self.encoders.encoder(pipeline.encoder)
        fit = measure_language_fit(sample.texts, encoder, Analyzer(pipeline.analyzer), len(texts))
        return DEFAULT_WEIGHT if fit is None else fit.weight
