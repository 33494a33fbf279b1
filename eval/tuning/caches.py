"""Caches of what pipelines have in common: in memory, and on disk so that a run continues."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from cachetools import LRUCache

from eval.qa.pools import Floats
from retriever.encoders import ModelChoice
from retriever.encoders.model_folders import find_path
from retriever.files import whole_file

if TYPE_CHECKING:
    from eval.tuning.collection import QuestionMask
    from eval.tuning.pipeline import Pipeline

_T = TypeVar("_T")


class RecentValues(LRUCache[Hashable, Any]):
    """The values that were used last, by key."""

    def get_or_make(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the value of a key; make it if there is none."""
        if key not in self:
            self[key] = make()
        value: _T = self[key]
        return value


class PipelineCache:
    """Values and costs of pipelines, in a folder if there is one, and in memory.

    The key has all settings of a pipeline and the weights of its models.
    """

    def __init__(self, folder: Path | None) -> None:
        self._arrays = _ArrayCache(folder)
        self._weights: dict[Hashable, str] = {}

    def values(
        self, pipeline: Pipeline, training: QuestionMask, make: Callable[[], Floats]
    ) -> Floats:
        """Return the values of a pipeline on the questions; make them if there are none."""
        key = self._key(pipeline)
        if pipeline.query_map:
            key = self._key(pipeline, hashlib.sha256(training.tobytes()).hexdigest())
        return self._arrays.get(key, make)

    def number(self, name: str, pipeline: Pipeline, make: Callable[[Pipeline], float]) -> float:
        """Return a number of a pipeline by name; make it if there is none."""
        key = f"{name} {self._key(pipeline)}"
        return float(self._arrays.get(key, lambda: np.array(make(pipeline))))

    def _key(self, pipeline: Pipeline, training_digest: str = "") -> str:
        model = ("encoder", pipeline.encoder.model)
        if model not in self._weights:
            self._weights[model] = ModelChoice(str(pipeline.encoder)).weights()
        key = f"{self._weights[model]} {pipeline}{training_digest}"
        if pipeline.rerank is not None:
            reranker = ("reranker", pipeline.rerank)
            if reranker not in self._weights:
                self._weights[reranker] = _reranker_digest(pipeline.rerank)
            key += self._weights[reranker]
        return key


class _ArrayCache:
    """Arrays by key, in a folder if there is one, and in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._loaded: dict[str, Floats] = {}

    def get(self, key: str, make: Callable[[], Floats]) -> Floats:
        """Return the array of a key; make it if there is none."""
        if key in self._loaded:
            return self._loaded[key]
        path = self._folder and self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.npy"
        array = None
        if path is not None:
            with suppress(OSError, ValueError, EOFError):
                array = np.load(path, allow_pickle=False)
        if array is None:
            array = make()
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(path, "the cache") as new, new.open("wb") as file:
                    np.save(file, array)
        self._loaded[key] = array
        return array


def _reranker_digest(name: str) -> str:
    """Return the SHA-256 of the weights of a reranker."""
    digest = hashlib.sha256()
    for file in sorted(find_path(name).glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
