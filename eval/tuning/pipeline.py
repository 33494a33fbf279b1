"""A whole pipeline as one value, the knobs that `tune` turns, and the file of chosen settings.

The file is TOML: `model`, what an index is made with in the table `index`, and how it ranks in the
table `search`, by the names of the command line.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from eval.qa.pools import WEIGHTS
from retriever.documents import AnalyzerSettings, PassageSettings
from retriever.encoders import DEFAULT_MODEL, EncoderSettings, parse_encoder
from retriever.errors import ConfigError, SourceError
from retriever.search import FusionSettings, SearchSettings, search_settings
from retriever.search.settings import USED_BY_METHOD, search_fields
from retriever.settings import declared_settings

Cost = Literal["candidates", "map", "vectors", "reranker"]
"""What a new value of a knob computes again at most: the candidates of each question, a map that is
trained, vectors of all passages, or the scores of a reranker."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """From a document to its rank.

    Attributes:
        encoder: a model and its settings.
        passages, analyzer: what an index is made with.
        search: how it ranks; a weight of None is what the encoder's fit says.
        query_map: whether a map of the vectors of questions is learned from judged ones.
        rerank: the cross-encoder that scores the first `search.depth` documents again, if any.
        synonyms: a file of synonyms, if any; relative to the folder of the file of settings.
    """

    encoder: EncoderSettings = field(default_factory=lambda: EncoderSettings(DEFAULT_MODEL))
    passages: PassageSettings = field(default_factory=PassageSettings)
    analyzer: AnalyzerSettings = field(default_factory=AnalyzerSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    query_map: bool = False
    rerank: str | None = None
    synonyms: str | None = None

    def put(self, **values: Any) -> Pipeline:
        """The same with other values of fields, by path such as ``search.bm25.k1``; ConfigError if
        they go with no other.
        """
        changed: Pipeline = _changed(self, values)
        return changed

    @property
    def candidates(self) -> Pipeline:
        """The pipeline up to the candidates of a question, which no fusion changes."""
        plain = {"search.mode": "hybrid", "search.fusion": FusionSettings(), "rerank": None}
        return self.put(**plain)

    def to_json(self) -> dict[str, Any]:
        """As the file of settings has it."""
        search, fusion, bm25 = self.search, self.search.fusion, self.search.bm25
        ranking: dict[str, Any] = {"mode": search.mode}
        if search.mode == "hybrid":
            ranking |= {"depth": search.depth, "fusion": fusion.method}
            ranking |= {name: getattr(fusion, name) for name in USED_BY_METHOD[fusion.method]}
        if search.mode != "dense":
            ranking |= {name: getattr(bm25, name) for name in ("variant", "k1", "b")}
        passages = {name: getattr(self.passages, name) for name in _PASSAGES}
        analyzer = {name: getattr(self.analyzer, name) for name in _ANALYZER}
        if self.query_map and search.mode != "bm25":
            ranking["query_map"] = QUERY_MAP
        ranking["rerank"] = self.rerank
        ranking["synonyms"] = self.synonyms
        tables = {"index": passages | analyzer, "search": ranking}
        return {"model": str(self.encoder)} | {
            name: {_key(key): one for key, one in table.items() if one is not None}
            for name, table in tables.items()
        }

    def toml(self, comment: str = "") -> str:
        """The file of settings, whose first lines are a comment."""
        found = self.to_json()
        lines = [f"# {line}" for line in comment.splitlines()]
        lines.append(f"model = {_in_toml(found.pop('model'))}")
        for name, table in found.items():
            lines += ["", f"[{name}]", *(f"{key} = {_in_toml(one)}" for key, one in table.items())]
        return "\n".join([*lines, ""])


# The folder of a query map, beside the file of settings.
QUERY_MAP = "query-map"
_PASSAGES = tuple(declared_settings(PassageSettings))
_ANALYZER = ("language", "stemming", "stop_words")
_TABLES: Mapping[str, tuple[str, ...]] = {
    "index": (*_PASSAGES, *_ANALYZER),
    "search": (
        *(name for name in search_fields() if name not in ("k", "recall")),
        *("query_map", "rerank", "synonyms"),
    ),
}


def _in_toml(value: Any) -> str:
    # JSON's strings, numbers and booleans are TOML's.
    return json.dumps(value, ensure_ascii=False)


def read_pipeline(path: Path) -> Pipeline:
    """Read a file of settings; what it leaves out has the default.

    Raises:
        SourceError: the file cannot be read, is no TOML, or has an unknown table, key or value.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise SourceError(
            f"{path}: expected settings in TOML ({reason}); check the file"
        ) from error
    model = found.pop("model", DEFAULT_MODEL)
    tables = {name: found.pop(name, {}) for name in _TABLES}
    for name, table in [("", dict.fromkeys(found)), *tables.items()]:
        known = ["model", *_TABLES] if not name else [_key(one) for one in _TABLES[name]]
        strange = [key for key in table if key not in known] if isinstance(table, dict) else [name]
        if strange:
            where = f" in [{name}]" if name else ""
            raise SourceError(
                f"{path}: expected {', '.join(known)}{where}, found {strange[0]!r}; remove it or "
                "correct its name"
            )
    try:
        if not isinstance(model, str):
            raise ConfigError(f"model: expected text, found {model!r}")
        given = {
            name: {key.replace("-", "_"): value for key, value in table.items()}
            for name, table in tables.items()
        }
        analyzer = {name: given["index"].pop(name) for name in _ANALYZER if name in given["index"]}
        folder = given["search"].pop("query_map", None)
        if folder not in (None, QUERY_MAP):
            raise ConfigError(f"query-map: expected {QUERY_MAP}, found {folder!r}")
        paths = {name: given["search"].pop(name, None) for name in ("rerank", "synonyms")}
        for name, path_text in paths.items():
            if not isinstance(path_text, str | None):
                raise ConfigError(f"{name}: expected text, found {path_text!r}")
        search = search_settings(None, given["search"])
        return Pipeline(
            parse_encoder(model),
            PassageSettings(**given["index"]),
            AnalyzerSettings(**analyzer),
            search,
            folder is not None,
            **paths,
        )
    except (ConfigError, TypeError) as error:
        raise SourceError(f"{path}: {error}; correct the value") from error


def _key(name: str) -> str:
    return name.replace("_", "-")


def _changed(value: Any, changes: Mapping[str, Any]) -> Any:
    own = {path: one for path, one in changes.items() if "." not in path}
    below: dict[str, dict[str, Any]] = {}
    for path, one in changes.items():
        name, dot, rest = path.partition(".")
        if dot:
            below.setdefault(name, {})[rest] = one
    parts = {
        name: _changed(own.get(name, getattr(value, name)), one) for name, one in below.items()
    }
    return replace(value, **own | parts)


@dataclass(frozen=True, slots=True)
class Knob:
    """Fields of a pipeline that are turned together."""

    name: str
    paths: tuple[str, ...]
    # Of all of these fields, each a tuple; None where they are found from the data.
    values: tuple[tuple[Any, ...], ...] | None = None
    cost: Cost = "candidates"
    # Whether it changes nothing where pools of passages are given.
    of_corpus: bool = False

    def value(self, pipeline: Pipeline) -> tuple[Any, ...]:
        """The values of its fields."""
        return tuple(attrgetter(path)(pipeline) for path in self.paths)

    def turned(self, pipeline: Pipeline, value: tuple[Any, ...]) -> Pipeline:
        """The pipeline with other values of the fields."""
        return pipeline.put(**dict(zip(self.paths, value, strict=True)))

    def choices(
        self, pipeline: Pipeline, values: tuple[tuple[Any, ...], ...]
    ) -> Iterator[Pipeline]:
        """The pipelines with every other value that goes with the other settings."""
        for value in values:
            try:
                changed = self.turned(pipeline, value)
            except ConfigError:
                continue
            if changed != pipeline:
                yield changed


# Every mode and fusion: all of them are tried for each list of candidates.
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


# What models are told before a text, as their cards say: e5, bge, nomic.
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
    Knob("depth", ("search.depth",), _singles(100, 20, 50, 200, 400), of_corpus=True),
    Knob("stemming and stop words", ("analyzer.stemming", "analyzer.stop_words"), _SWITCHES),
    Knob("layers", ("encoder.layers", "encoder.fusion")),
    Knob("reranker", ("rerank",), cost="reranker"),
    Knob("prompts", ("encoder.query_prompt", "encoder.passage_prompt"), _PROMPTS, "vectors"),
    Knob("window", ("encoder.max_length",), _singles(None, 64, 128, 192, 256, 384, 512), "vectors"),
    Knob("overlap", ("passages.overlap",), _singles(48, 0, 96), "vectors", of_corpus=True),
    Knob("context", ("passages.context",), _CONTEXTS, "vectors", of_corpus=True),
    Knob("pooling", ("encoder.pooling",), _singles(None, "mean", "cls", "max"), "vectors"),
    Knob("number format", ("encoder.dtype",), _singles(None, "int8"), "vectors"),
)
"""In the order in which they are tried; the first value of each is the simplest."""


def turned_knobs(pipeline: Pipeline, defaults: Pipeline) -> list[Knob]:
    """The knobs that are not as in `defaults`."""
    return [knob for knob in KNOBS if _place(knob, pipeline) != _place(knob, defaults)]


def _place(knob: Knob, pipeline: Pipeline) -> object:
    if knob.name != "encoder":
        return knob.value(pipeline)
    # What no other knob turns.
    encoder = pipeline.encoder
    return encoder.model, encoder.static, encoder.fusion == "sbert-wk", encoder.wk_preset


def described(knob: Knob, pipeline: Pipeline) -> str:
    """The values of a knob in words."""
    found = []
    for path, value in zip(knob.paths, knob.value(pipeline), strict=True):
        if isinstance(value, FusionSettings):
            if pipeline.search.mode == "hybrid":
                method = ("method",) if value.method == "rrf" else ()
                names = (*method, *USED_BY_METHOD[value.method])
                found += [f"{_key(name)}={getattr(value, name)}" for name in names]
        else:
            found.append(f"{_key(path.rpartition('.')[2])}={'default' if value is None else value}")
    return ", ".join(found)
