"""Settings of a new index, and whether an existing one has the same."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self, TypedDict

from indexes import Store, StructureSettings, View
from retriever.documents.analyzer import Analyzer, AnalyzerSettings, as_held
from retriever.documents.passages import PassageSettings
from retriever.encoders.encoder import Encoder, ModelChoice
from retriever.encoders.spec import EncoderSpec, probe_lists
from retriever.errors import ConfigError, unexpected_keyword
from retriever.index.opened import IndexState, read_structures

_PARTS: dict[str, type[AnalyzerSettings | PassageSettings | StructureSettings]] = {
    "analyzer": AnalyzerSettings,
    "passages": PassageSettings,
    "structures": StructureSettings,
}


class IndexKeywords(TypedDict, total=False):
    """Settings of a new index, each part as a whole or field by field."""

    analyzer: AnalyzerSettings | None
    passages: PassageSettings | None
    structures: StructureSettings | None
    language: str
    stemming: bool
    stop_words: bool
    on_long: Literal["split", "truncate"]
    overlap: int
    context: Literal["title", "headings", "none"]
    structure: bool
    index_type: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings for an index that is created or opened; None takes the default or its own."""

    analyzer: AnalyzerSettings | None = None
    passages: PassageSettings | None = None
    structures: StructureSettings | None = None
    # Single values that are asked for, by part: an existing index keeps its other ones.
    single: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """The settings that `IndexKeywords` ask for; TypeError if one is unknown or given twice."""
        given = dict(keywords)
        parts: dict[str, Any] = {"single": {}}
        for name, kind in _PARTS.items():
            whole = given.pop(name, None)
            single = {one.name: given.pop(one.name) for one in fields(kind) if one.name in given}
            if whole is not None and single:
                raise TypeError(f"{name} and {min(single)} are both given: give one of them")
            parts[name] = kind(**single) if single else whole
            parts["single"][name] = single
        if given:
            known = (*IndexKeywords.__annotations__, "model", "encoder")
            raise unexpected_keyword(min(given), known)
        return cls(**parts)

    def completed(self, own: IndexSettings) -> IndexSettings:
        """These settings, and where none is asked for, those of `own`."""
        parts: dict[str, Any] = {}
        for name in _PARTS:
            asked, kept = getattr(self, name), getattr(own, name)
            single = self.single.get(name)
            if isinstance(kept, AnalyzerSettings):
                whole = replace(kept, **{"division": "auto", **single}) if single else asked
                parts[name] = as_held(whole, kept)
            else:
                parts[name] = replace(kept, **single) if single and kept else asked or kept
        return IndexSettings(**parts)

    def check(self, state: IndexState, view: View, store: Store) -> None:
        """Refuse an index that has other settings, with a ConfigError."""
        again = "index again with --recreate"
        rebuilt = "change it with `retriever compact --index-type`"
        own = IndexSettings(state.analyzer.settings, state.passages, read_structures(view, store))
        all_wanted = self.completed(own)
        for what, name, remedy in (
            ("analyzer", "analyzer", again),
            ("treatment of long texts", "passages", again),
            ("search structure", "structures", rebuilt),
        ):
            wanted, found = getattr(all_wanted, name), getattr(own, name)
            if wanted != found:
                raise ConfigError(
                    f"{store}: the index was made with {what} {listed(found)}, but "
                    f"{listed(wanted)} was asked for; leave the option out, or {remedy}"
                )


def initial_settings(
    encoder: Encoder | tuple[EncoderSpec, Any], asked: IndexSettings
) -> dict[str, Any]:
    """The settings of a new index, as JSON values.

    The encoder is loaded, or its specification and its vectors of fixed texts as nested lists.
    """
    if not isinstance(encoder, tuple):
        encoder = encoder.spec, probe_lists(encoder)
    spec, probes = encoder
    structures = asked.structures or StructureSettings()
    structures.choice(0, spec.dimensions)
    analyzer = Analyzer(asked.analyzer)
    return {
        "encoder": spec.to_json(),
        "probes": probes,
        "analyzer": asdict(analyzer.settings),
        "stop_list": sorted(analyzer.stop_list),
        "passages": (asked.passages or PassageSettings()).to_json(),
        "structures": asdict(structures),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def holds_documents(store: Store) -> bool:
    """Whether an index holds any document."""
    with closing(store.reader()) as reader, reader.view() as view:
        return view.count_documents() > 0


def changed_settings(
    store: Store, asked: IndexSettings, choice: ModelChoice, encoder: Encoder | None
) -> dict[str, Any]:
    """The settings of an existing index, with what is asked for in their place."""
    with closing(store.reader()) as reader, reader.view() as view:
        state, structures = IndexState.read(view, store), read_structures(view, store)
    if encoder is None and choice.encoder:
        encoder = choice.completed(state.encoder).load()
    own = IndexSettings(state.analyzer.settings, state.passages, structures)
    return initial_settings(encoder or (state.encoder, state.probes), asked.completed(own))


def listed(settings: AnalyzerSettings | PassageSettings | StructureSettings) -> str:
    """Settings as messages name them: ``language=english, stemming=True``."""
    given = {name: value for name, value in asdict(settings).items() if value is not None}
    return ", ".join(f"{name}={value}" for name, value in given.items())
