"""The size and latency of pipelines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eval.tuning.caches import PipelineCache
from eval.tuning.candidates import CandidateSearch
from eval.tuning.encoders import PipelineEncoders
from eval.tuning.pipeline import Pipeline
from eval.tuning.reranking import Reranking
from eval.tuning.texts import CollectionTexts
from eval.tuning.vectors import CollectionVectors, nearest_rows
from retriever.encoders import resolve_layers
from retriever.search import BM25, SearchSettings

# Questions whose times are measured, with and without a reranker.
_TIMED = 8
_TIMED_RERANKED = 3
# Bytes of an index for each dimension of a vector, and for each posting.
_DIMENSION_BYTES = 4
_POSTING_BYTES = 5


class Costs:
    """Sizes and latencies of pipelines, which stay in the cache."""

    def __init__(
        self,
        cache: PipelineCache,
        encoders: PipelineEncoders,
        texts: CollectionTexts,
        vectors: CollectionVectors,
        candidates: CandidateSearch,
        reranking: Reranking,
    ) -> None:
        self._cache = cache
        self._encoders = encoders
        self._texts = texts
        self._vectors = vectors
        self._candidates = candidates
        self._reranking = reranking
        # Of parts that several pipelines share, by what they depend on.
        self._latencies: dict[object, float] = {}

    def megabytes(self, pipeline: Pipeline) -> float:
        """Return the size of an index: vectors, postings and texts, in 10^6 bytes."""
        plain = pipeline.put(search=SearchSettings())
        return self._cache.number("size", plain, self._measure_size)

    def milliseconds(self, pipeline: Pipeline) -> float:
        """Return the median time of a question, in a process that has loaded the encoder."""
        return self._cache.number("time", pipeline, self._measure_latency)

    def _measure_size(self, pipeline: Pipeline) -> float:
        dimensions = self._encoders.spec(pipeline.encoder).dimensions
        passages = len(self._texts.passages(pipeline).texts)
        segment, _ = self._texts.lexicon(pipeline)
        postings = int(segment.postings.document_frequencies().sum())
        documents = self._texts.collection.documents
        text = sum(len(document.text.encode()) for document in documents)
        return (_DIMENSION_BYTES * dimensions * passages + _POSTING_BYTES * postings + text) / 1e6

    def _measure_latency(self, pipeline: Pipeline) -> float:
        total = 0.0
        if pipeline.search.mode != "bm25":
            total += self._encoding_latency(pipeline)
        total += self._search_latency(pipeline)
        if pipeline.rerank is not None:
            total += self._reranking_latency(pipeline, pipeline.rerank)
        return total

    def _encoding_latency(self, pipeline: Pipeline) -> float:
        settings = pipeline.encoder
        share = 1.0
        if self._encoders.layered(settings) is not None:
            # An encoder runs its model up to the last of its layers.
            depth = self._encoders.depth(settings)
            share = max(*resolve_layers(settings.layers or "last", depth), 0.5) / depth
            settings = replace(settings, layers=None, fusion=None)
        encoder = self._encoders.question_encoder(settings)
        latency = self._median_ms(
            ("encode", str(settings)),
            lambda text: encoder.encode([text], query=True),
            self._texts.questions[:_TIMED],
        )
        return share * latency

    def _search_latency(self, pipeline: Pipeline) -> float:
        mode = pipeline.search.mode
        vectors, queries = self._vectors.encode(pipeline)
        segment, question_terms = self._texts.lexicon(pipeline)
        depth = self._candidates.depth(pipeline)

        def search(number: int) -> None:
            if mode != "bm25":
                nearest_rows(vectors, queries[number : number + 1], depth)
            if mode != "dense":
                BM25([segment], pipeline.search.bm25).query(question_terms[number]).search(depth)

        key = ("search", vectors.shape, pipeline.analyzer, depth, mode, pipeline.passages)
        return self._median_ms(key, search, range(len(self._texts.questions[:_TIMED])))

    def _reranking_latency(self, pipeline: Pipeline, name: str) -> float:
        passages = self._texts.passages(pipeline)
        depth = self._candidates.depth(pipeline)
        rows = range(min(depth, len(passages.texts)))
        return self._median_ms(
            ("rerank", name, depth, self._texts.passage_key(pipeline)),
            lambda question: self._reranking.score_pairs(name, question, passages, rows),
            range(_TIMED_RERANKED),
        )

    def _median_ms(
        self, key: object, call: Callable[[Any], object], arguments: Sequence[Any]
    ) -> float:
        if key not in self._latencies:
            self._latencies[key] = _median_ms(call, arguments)
        return self._latencies[key]


def _median_ms(call: Callable[[Any], object], arguments: Sequence[Any]) -> float:
    """Return the median time of calls, after one that is not counted."""
    call(arguments[0])
    times = []
    for argument in arguments:
        start = time.perf_counter()
        call(argument)
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))
