"""Options of how an index divides, analyzes and searches its texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import click

from cli.options import Settings
from retriever import StructureSettings
from retriever.documents import AnalyzerSettings, PassageSettings
from retriever.documents.passages import Context, OnLong
from retriever.settings import Setting, optional_fields

if TYPE_CHECKING:
    from retriever.search.opened import IndexSettings

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _declared() -> Mapping[str, Setting]:
    """Return the settings of a new index that options can give."""
    passages = optional_fields(PassageSettings)
    passages["on_long"] = replace(
        passages["on_long"],
        description="What to do with a text longer than the encoder's window: split it into "
        "passages, cut it, or stop.",
        choices=get_args(OnLong),
    )
    analyzer = optional_fields(AnalyzerSettings)
    memory = Setting(
        "Memory limit of the search structure that auto chooses, such as 2GB.",
        words="no limit",
        name="memory",
        key="memory",
        optional=True,
    )
    return {
        **passages,
        **{name: analyzer[name] for name in ("language", "stemming", "stop_words")},
        **optional_fields(StructureSettings),
        "memory": memory,
    }


INDEX_FIELDS = _declared()


class IndexOptions:
    """The settings of an index that are given, by the names of `INDEX_FIELDS`."""

    def __init__(self, **values: Any) -> None:
        self.values = {name: value for name, value in values.items() if value is not None}

    @property
    def on_long(self) -> OnLong | None:
        """The treatment of texts beyond the encoder's window, if it is given."""
        return self.values.get("on_long")

    @property
    def context(self) -> Context | None:
        """The text before each passage, if it is given."""
        return self.values.get("context")

    def keywords(self) -> dict[str, Any]:
        """Return the given settings as `Index.create` takes them."""
        keywords = dict(self.values)
        if "memory" in keywords:
            keywords["memory_bytes"] = byte_size(keywords.pop("memory"))
        return keywords

    def parts(self) -> IndexSettings:
        """Return the given settings in the parts of an index: analyzer, passages, structures."""
        from retriever.search.opened import IndexSettings

        return IndexSettings.of(self.keywords())

    def analyzer(self) -> AnalyzerSettings | None:
        """Return the given settings of the analyzer; None if there are none."""
        names = AnalyzerSettings.__dataclass_fields__
        keywords = {name: value for name, value in self.values.items() if name in names}
        return AnalyzerSettings(**keywords) if keywords else None


def index_options(
    listed: str, unlisted: str, shown_defaults: Mapping[str, str] | None = None
) -> Settings:
    """Return options of an index; the command takes `index_settings: IndexOptions`.

    The settings in `listed` are options, those in `unlisted` are keys of --set. `shown_defaults`
    are the defaults that the help shows, in place of those of a new index.
    """
    names = {*listed.split(), *unlisted.split()}
    return Settings(
        "index_settings",
        IndexOptions,
        listed,
        declared=INDEX_FIELDS,
        metavars={"on_long": "HOW", "index_type": "TYPE"},
        leave_out=INDEX_FIELDS.keys() - names,
        shown_defaults=shown_defaults or {},
    )


def byte_size(text: str) -> int:
    """Parse a size such as 500MB or 2.5GB (powers of 1,000), or a number of bytes, at least 1."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)", text.strip().upper())
    size = int(float(match[1]) * _UNITS[match[2]]) if match and match[2] in _UNITS else 0
    if size < 1:
        raise click.UsageError(f"memory: expected a size such as 500MB or 2GB, found {text!r}")
    return size
