"""Vectors of the passages and questions of a collection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eval.progress import Progress
from eval.settings import Loading
from eval.tuning.budget import Budget
from eval.tuning.caches import RecentValues
from eval.tuning.collection import Rows
from eval.tuning.encoders import PipelineEncoders
from eval.tuning.pipeline import Pipeline
from eval.tuning.texts import CollectionTexts
from eval.vectors import embed, split_layers
from retriever.encoders import EncoderSettings, resolve_layers, scale_to_unit

Vectors = NDArray[np.float32]

_QUERIES_AT_ONCE = 256
# Encodings that stay in memory. Those of all layers are some ten times as large.
_REMEMBERED = 6
_REMEMBERED_LAYERED = 2


class CollectionVectors:
    """Vectors of passages and questions, by the settings of a pipeline."""

    def __init__(
        self,
        texts: CollectionTexts,
        encoders: PipelineEncoders,
        loading: Loading,
        budget: Budget,
        progress: Progress,
    ) -> None:
        self._texts = texts
        self._encoders = encoders
        self._cache = loading.cache
        self._budget = budget
        self._progress = progress
        self._recent = RecentValues(_REMEMBERED)
        self._recent_layered = RecentValues(_REMEMBERED_LAYERED)

    def encode(self, pipeline: Pipeline) -> tuple[Vectors, Vectors]:
        """Return (passages, d) vectors of passages and (questions, d) vectors of questions.

        Passages of pooled collections that no pool contains have zeros.
        """
        key = (str(pipeline.encoder), pipeline.passages)
        return self._recent.get_or_make(key, lambda: self._encode(pipeline))

    def _encode(self, pipeline: Pipeline) -> tuple[Vectors, Vectors]:
        settings = pipeline.encoder
        if self._encoders.layered(settings) is None:
            return self._embed(pipeline, settings)
        passages, questions = self.hidden_states(pipeline)
        return fuse_layers(passages, settings), fuse_layers(questions, settings)

    def hidden_states(self, pipeline: Pipeline) -> tuple[Vectors, Vectors]:
        """Return pooled hidden states of passages and of questions, (n, layers, width) each."""
        layered = self._encoders.layered(pipeline.encoder)
        assert layered is not None
        passages, questions = self._recent_layered.get_or_make(
            (str(layered), pipeline.passages), lambda: self._embed(pipeline, layered)
        )
        depth = self._encoders.depth(pipeline.encoder)
        return split_layers(passages, depth), split_layers(questions, depth)

    def _embed(self, pipeline: Pipeline, settings: EncoderSettings) -> tuple[Vectors, Vectors]:
        texts = self._texts.passages(pipeline).texts
        rows = list(range(len(texts)))
        collection = self._texts.collection
        if collection.pooled:
            ids = {id_ for question in collection.questions for id_ in question.candidates}
            rows = [row for row, document in enumerate(collection.documents) if document.id in ids]
        name = str(settings).partition("::layers=all")[0]
        done = self._budget.watch(self._progress(f"encoding with {name}", len(rows)))
        encoder = self._encoders.passage_encoder(settings)
        encoded = embed(encoder, [texts[row] for row in rows], self._cache, done=done).vectors
        vectors = np.zeros((len(texts), encoded.shape[1]), np.float32)
        vectors[rows] = encoded
        encoder = self._encoders.question_encoder(settings)
        return vectors, embed(encoder, self._texts.questions, self._cache, query=True).vectors


def nearest_rows(vectors: Vectors, queries: Vectors, count: int) -> list[Rows]:
    """Return for each query the `count` passages with the greatest products, in no order.

    Args:
        vectors: (passages, d).
        queries: (queries, d).
        count: number of passages; with fewer passages, all of them.
    """
    nearest: list[Rows] = []
    count = min(count, len(vectors))
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        scores = queries[start : start + _QUERIES_AT_ONCE] @ vectors.T
        nearest += list(np.argpartition(-scores, count - 1, axis=1)[:, :count].astype(np.int64))
    return nearest


def fuse_layers(states: Vectors, settings: EncoderSettings) -> Vectors:
    """Map (n, layers, width) hidden states to (n, d) vectors of an encoder with these settings."""
    layers = states[:, list(resolve_layers(settings.layers or "last", states.shape[1] - 1))]
    if settings.fusion == "concat":
        fused = layers.reshape(len(layers), -1)
    elif settings.fusion == "max":
        fused = layers.max(axis=1)
    else:
        fused = layers.mean(axis=1)
    vectors: Vectors = np.ascontiguousarray(fused, np.float32)
    return vectors if settings.normalize is False else scale_to_unit(vectors)
