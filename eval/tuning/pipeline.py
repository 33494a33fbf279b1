"""A whole pipeline as one value, and the file of its settings.

The file is TOML: `model`, a table `index` with settings of an index, and a table `search` with
settings of ranking. Keys are the names of the command line.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from retriever.documents import AnalyzerSettings, PassageSettings
from retriever.encoders import DEFAULT_MODEL, EncoderSettings, parse_encoder
from retriever.errors import ConfigError, SourceError
from retriever.search import (
    USED_BY_METHOD,
    FusionSettings,
    SearchSettings,
    search_fields,
    search_settings,
)
from retriever.settings import declared_settings

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


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All settings from a document to its rank.

    Attributes:
        encoder: a model and its settings.
        passages, analyzer: the settings of an index.
        search: the settings of ranking; a weight of None is the fitted weight of the index.
        query_map: whether a map of query vectors is learned from judged questions.
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
        """Return a copy with other values of fields, by path such as ``search.bm25.k1``.

        Raises:
            ConfigError: a value is invalid, or contradicts another.
        """
        pipeline: Pipeline = _replace_paths(self, values)
        return pipeline

    @property
    def candidates(self) -> Pipeline:
        """The pipeline up to the candidates of a question, with the default ranking."""
        ranking = {"search.mode": "hybrid", "search.fusion": FusionSettings(), "rerank": None}
        return self.put(**ranking)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file of settings."""
        search = self.search
        fusion = search.fusion
        ranking: dict[str, Any] = {"mode": search.mode}
        if search.mode == "hybrid":
            ranking |= {"depth": search.depth, "fusion": fusion.method}
            ranking |= {name: getattr(fusion, name) for name in USED_BY_METHOD[fusion.method]}
        if search.mode != "dense":
            ranking |= {name: getattr(search.bm25, name) for name in ("variant", "k1", "b")}
        ranking |= {"recency": search.recency, "date_field": search.date_field}
        ranking["sort"] = None if search.sort == "score" else search.sort
        passages = {name: getattr(self.passages, name) for name in _PASSAGES}
        analyzer = {name: getattr(self.analyzer, name) for name in _ANALYZER}
        if self.query_map and search.mode != "bm25":
            ranking["query_map"] = QUERY_MAP
        ranking["rerank"] = self.rerank
        ranking["synonyms"] = self.synonyms
        tables = {"index": passages | analyzer, "search": ranking}
        return {"model": str(self.encoder)} | {
            name: {option_name(key): value for key, value in table.items() if value is not None}
            for name, table in tables.items()
        }

    def toml(self, comment: str = "") -> str:
        """Return the file of settings, which begins with a comment."""
        tables = self.to_json()
        lines = [f"# {line}" for line in comment.splitlines()]
        lines.append(f"model = {_in_toml(tables.pop('model'))}")
        for name, table in tables.items():
            lines += ["", f"[{name}]"]
            lines += [f"{key} = {_in_toml(value)}" for key, value in table.items()]
        return "\n".join([*lines, ""])


def _in_toml(value: Any) -> str:
    # Strings, numbers and booleans have one form in JSON and TOML.
    return json.dumps(value, ensure_ascii=False)


def read_pipeline(path: Path) -> Pipeline:
    """Read a file of settings; missing settings have their defaults.

    Raises:
        SourceError: the file cannot be read, is no TOML, or has an unknown table, key or value.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise SourceError(
            f"{path}: expected settings in TOML ({reason}); check the file"
        ) from error
    model = content.pop("model", DEFAULT_MODEL)
    tables = {name: content.pop(name, {}) for name in _TABLES}
    _check_keys(path, "", dict.fromkeys(content), ["model", *_TABLES])
    for name, table in tables.items():
        _check_keys(path, name, table, [option_name(key) for key in _TABLES[name]])
    try:
        return _make_pipeline(model, tables)
    except (ConfigError, TypeError) as error:
        raise SourceError(f"{path}: {error}; correct the value") from error


def _check_keys(path: Path, name: str, table: Any, keys: Sequence[str]) -> None:
    unknown = [key for key in table if key not in keys] if isinstance(table, dict) else [name]
    if unknown:
        where = f" in [{name}]" if name else ""
        raise SourceError(
            f"{path}: expected {', '.join(keys)}{where}, found {unknown[0]!r}; remove it or "
            "correct its name"
        )


def _make_pipeline(model: Any, tables: Mapping[str, Mapping[str, Any]]) -> Pipeline:
    if not isinstance(model, str):
        raise ConfigError(f"model: expected text, found {model!r}")
    index, search = (
        {key.replace("-", "_"): value for key, value in tables[name].items()} for name in _TABLES
    )
    analyzer = {name: index.pop(name) for name in _ANALYZER if name in index}
    folder = search.pop("query_map", None)
    if folder not in (None, QUERY_MAP):
        raise ConfigError(f"query-map: expected {QUERY_MAP}, found {folder!r}")
    paths = {name: search.pop(name, None) for name in ("rerank", "synonyms")}
    for name, path in paths.items():
        if not isinstance(path, str | None):
            raise ConfigError(f"{name}: expected text, found {path!r}")
    settings = search_settings(None, search)
    return Pipeline(
        parse_encoder(model),
        PassageSettings(**index),
        AnalyzerSettings(**analyzer),
        settings,
        folder is not None,
        **paths,
    )


def option_name(name: str) -> str:
    """Return the name of a setting as the command line has it."""
    return name.replace("_", "-")


def _replace_paths(settings: Any, values: Mapping[str, Any]) -> Any:
    fields = {path: value for path, value in values.items() if "." not in path}
    nested: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, dot, rest = path.partition(".")
        if dot:
            nested.setdefault(name, {})[rest] = value
    for name, changes in nested.items():
        fields[name] = _replace_paths(fields.get(name, getattr(settings, name)), changes)
    return replace(settings, **fields)
