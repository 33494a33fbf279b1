"""Settings of a new index, and whether an existing one has the same."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, TypedDict

from indexes import Store, StructureSettings, View
from retriever.documents.analyzer import Analyzer, AnalyzerSettings
from retriever.documents.passages import PassageSettings
from retriever.encoders.encoder import ModelChoice
from retriever.encoders.spec import EncoderSpec, LoadedEncoder, probe_lists
from retriever.errors import ConfigError, unexpected_keyword

# The setting that lists how the vectors of an index were computed.
COMPUTED = "computed"

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
    index_type: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings for an index that is created or opened; None takes the default or its own.

    Attributes:
        analyzer: language of the BM25 side; English by default.
        passages: how long texts are treated; split by default.
        structures: how large segments are searched; chosen by size by default.
    """

    analyzer: AnalyzerSettings | None = None
    passages: PassageSettings | None = None
    structures: StructureSettings | None = None

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """The settings that keywords ask for; see `IndexKeywords`.

        Raises:
            TypeError: an unknown keyword, or a part given both as a whole and field by field.
            ConfigError: a value that is out of range.
        """
        given = dict(keywords)
        parts: dict[str, Any] = {}
        for name, kind in _PARTS.items():
            whole = given.pop(name, None)
            single = {one.name: given.pop(one.name) for one in fields(kind) if one.name in given}
            if whole is not None and single:
                raise TypeError(f"{name} and {min(single)} are both given: give one of them")
            parts[name] = kind(**single) if single else whole
        if given:
            raise unexpected_keyword(
                min(given), (*IndexKeywords.__annotations__, "model", "encoder")
            )
        return cls(**parts)


@dataclass(frozen=True)
class IndexState:
    """What an index was made with, as stored in it.

    Attributes:
        identity: which index it is; another after it was replaced.
        encoder: the specification of its encoder.
        probes: vectors that identify an encoder that a program passes or that is behind a URL; see
            `AdoptedEncoder`.
    """

    identity: Hashable
    encoder: EncoderSpec
    probes: Any
    analyzer: Analyzer
    passages: PassageSettings

    @classmethod
    def read(cls, view: View, store: Store) -> Self:
        """Read it from an index.

        Raises:
            DamagedIndexError: a setting is missing or altered.
        """
        view.check_settings()
        try:
            return cls(
                view.identity,
                EncoderSpec.from_json(view.setting("encoder")),
                view.setting("probes", []),
                Analyzer(
                    AnalyzerSettings.from_json(view.setting("analyzer")), view.setting("stop_list")
                ),
                PassageSettings(**view.setting("passages")),
            )
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise store.damaged(f"a setting is missing or altered ({error!r})") from error


def read_structures(view: View, store: Store) -> StructureSettings:
    """How large segments of an index are searched, which `rebuild` changes.

    Raises:
        DamagedIndexError: the setting was altered.
    """
    try:
        # An index of an earlier release has no such setting.
        return StructureSettings.from_json(view.setting("structures", {}))
    except (TypeError, ValueError, ConfigError) as error:
        raise store.damaged(f"a setting is altered ({error!r})") from error


def initial_settings(spec: EncoderSpec, probes: Any, asked: IndexSettings) -> dict[str, Any]:
    """The settings of a new index, as JSON values.

    Args:
        spec: of the encoder.
        probes: its vectors of fixed texts, as nested lists; see `IndexState`.
        asked: the other settings.

    Raises:
        ConfigError: FAISS does not know the structure.
        MissingExtraError: FAISS is not installed, and a factory string is given.
    """
    structures = asked.structures or StructureSettings()
    structures.choice(0, spec.dimensions)
    analyzer = Analyzer(asked.analyzer)
    return {
        "encoder": spec.to_json(),
        "probes": probes,
        "analyzer": analyzer.settings.to_json(),
        "stop_list": sorted(analyzer.stop_list),
        "passages": asdict(asked.passages or PassageSettings()),
        "structures": structures.to_json(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def holds_documents(store: Store) -> bool:
    """Whether an index holds any document."""
    with closing(store.reader()) as reader, reader.view() as view:
        return view.count_documents() > 0


def changed_settings(
    store: Store, asked: IndexSettings, choice: ModelChoice, encoder: LoadedEncoder | None
) -> dict[str, Any]:
    """The settings of an existing index, with what is asked for in their place.

    Args:
        store: the index.
        asked: the other settings.
        choice: its encoder; where it names none, that of the index.
        encoder: its encoder, loaded.

    Raises:
        What `Encoder.load` and `initial_settings` raise.
    """
    with closing(store.reader()) as reader, reader.view() as view:
        state, structures = IndexState.read(view, store), read_structures(view, store)
    if encoder is None and choice.encoder:
        encoder = choice.completed(state.encoder).load()
    spec, probes = state.encoder, state.probes
    if encoder is not None:
        spec, probes = encoder.spec, probe_lists(encoder)
    whole = IndexSettings(
        asked.analyzer or state.analyzer.settings,
        asked.passages or state.passages,
        asked.structures or structures,
    )
    return initial_settings(spec, probes, whole)


def require_same(
    asked: IndexSettings, state: IndexState, structures: StructureSettings, store: Store
) -> None:
    """Check that an index has the given settings, if any are given.

    Raises:
        ConfigError: it has others.
    """
    again = "index again with --recreate"
    for what, wanted, found, remedy in (
        ("analyzer", asked.analyzer, state.analyzer.settings, again),
        ("treatment of long texts", asked.passages, state.passages, again),
        (
            "search structure",
            asked.structures,
            structures,
            "change it with `retriever compact --index-type`",
        ),
    ):
        if wanted is not None and wanted != found:
            raise ConfigError(
                f"{store}: the index was made with {what} {listed(found)}, but "
                f"{listed(wanted)} was asked for; leave the option out, or {remedy}"
            )


def listed(settings: AnalyzerSettings | PassageSettings | StructureSettings) -> str:
    """Settings as messages name them: ``language=english, stemming=True``."""
    given = {name: value for name, value in asdict(settings).items() if value is not None}
    return ", ".join(f"{name}={value}" for name, value in given.items())
