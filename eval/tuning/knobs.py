"""The knobs that `tune` turns: fields of a pipeline, and the values to try."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Any, Literal

from eval.qa.pools import WEIGHTS
from eval.tuning.pipeline import Pipeline, option_name
from retriever.errors import ConfigError
from retriever.search import USED_BY_METHOD, FusionSettings

Cost = Literal["candidates", "map", "vectors", "reranker"]
"""The most expensive computation that a new value of a knob repeats: the candidates of questions,
the training of a query map, the vectors of all passages, or the scores of a reranker."""


@dataclass(frozen=True, slots=True)
class Knob:
    """Fields of a pipeline that are turned together.

    Attributes:
        name: name in reports.
        paths: paths of the fields, such as ``search.bm25.k1``.
        values: values to try, each a tuple with the values of all fields; None if they depend on
            the data.
        cost: the most expensive computation that a new value repeats.
        corpus_only: whether it has no effect where questions have pools.
    """

    name: str
    paths: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...] | None = None
    cost: Cost = "candidates"
    corpus_only: bool = False

    def value(self, pipeline: Pipeline) -> tuple[Any, ...]:
        """Return the values of the fields in a pipeline."""
        return tuple(attrgetter(path)(pipeline) for path in self.paths)

    def set_value(self, pipeline: Pipeline, value: tuple[Any, ...]) -> Pipeline:
        """Return the pipeline with other values of the fields."""
        return pipeline.put(**dict(zip(self.paths, value, strict=True)))

    def choices(
        self, pipeline: Pipeline, values: tuple[tuple[Any, ...], ...]
    ) -> Iterator[Pipeline]:
        """Yield the pipeline with each other value that the other settings allow."""
        for value in values:
            try:
                changed = self.set_value(pipeline, value)
            except ConfigError:
                continue
            if changed != pipeline:
                yield changed


# All modes and fusions; each list of candidates is ranked by all of them.
RANKINGS: tuple[tuple[Any, ...], ...] = (
    *(("hybrid", FusionSettings(alpha=alpha)) for alpha in WEIGHTS),
    *(("hybrid", FusionSettings(alpha=alpha, normalization="z-score")) for alpha in WEIGHTS),
    *(("hybrid", FusionSettings("rrf", rrf_k=constant)) for constant in (10.0, 60.0)),
    ("bm25", FusionSettings()),
    ("dense", FusionSettings()),
)
RANKING = Knob("fusion and weight", ("search.mode", "search.fusion"), RANKINGS)


def _singles(*values: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple((value,) for value in values)


# Prompts for queries and passages from the cards of models: e5, nomic, bge.
_PROMPTS = (
    (None, None),
    ("", ""),
    ("query: ", "passage: "),
    ("search_query: ", "search_document: "),
    ("Represent this sentence for searching relevant passages: ", ""),
)
_VARIANTS = _singles("lucene", "robertson", "bm25+", "bm25l")
_CONTEXTS = _singles("headings", "title", "none")
_SWITCHES = tuple(product((True, False), repeat=2))
KNOBS: tuple[Knob, ...] = (
    RANKING,
    Knob("encoder", ("encoder",), cost="vectors"),
    Knob("query map", ("query_map",), _singles(False, True), "map"),
    Knob("k1", ("search.bm25.k1",), _singles(1.2, 0.3, 0.6, 0.9, 1.6, 2.0, 3.0, 5.0)),
    Knob("b", ("search.bm25.b",), _singles(0.75, 0.0, 0.2, 0.4, 0.6, 0.9, 1.0)),
    Knob("BM25 formula", ("search.bm25.variant",), _VARIANTS),
    Knob("depth", ("search.depth",), _singles(100, 20, 50, 200, 400), corpus_only=True),
    Knob("stemming and stop words", ("analyzer.stemming", "analyzer.stop_words"), _SWITCHES),
    Knob("layers", ("encoder.layers", "encoder.fusion")),
    Knob("reranker", ("rerank",), cost="reranker"),
    Knob("prompts", ("encoder.query_prompt", "encoder.passage_prompt"), _PROMPTS, "vectors"),
    Knob("window", ("encoder.max_length",), _singles(None, 64, 128, 192, 256, 384, 512), "vectors"),
    Knob("overlap", ("passages.overlap",), _singles(48, 0, 96), "vectors", corpus_only=True),
    Knob("context", ("passages.context",), _CONTEXTS, "vectors", corpus_only=True),
    Knob("pooling", ("encoder.pooling",), _singles(None, "mean", "cls", "max"), "vectors"),
    Knob("number format", ("encoder.dtype",), _singles(None, "int8"), "vectors"),
)
"""The knobs in the order in which they are tried; the first value of each is the simplest."""


def turned_knobs(pipeline: Pipeline, defaults: Pipeline) -> list[Knob]:
    """Return the knobs whose values are not those of `defaults`."""
    return [knob for knob in KNOBS if _setting(knob, pipeline) != _setting(knob, defaults)]


def _setting(knob: Knob, pipeline: Pipeline) -> object:
    if knob.name != "encoder":
        return knob.value(pipeline)
    # The settings that no other knob turns.
    encoder = pipeline.encoder
    return encoder.model, encoder.static, encoder.fusion == "sbert-wk", encoder.wk_preset


def describe_value(knob: Knob, pipeline: Pipeline) -> str:
    """Return the values of a knob as text."""
    settings = []
    for path, value in zip(knob.paths, knob.value(pipeline), strict=True):
        if isinstance(value, FusionSettings):
            if pipeline.search.mode == "hybrid":
                method = ("method",) if value.method == "rrf" else ()
                names = (*method, *USED_BY_METHOD[value.method])
                settings += [f"{option_name(name)}={getattr(value, name)}" for name in names]
        else:
            name = option_name(path.rpartition(".")[2])
            settings.append(f"{name}={'default' if value is None else value}")
    return ", ".join(settings)
