"""What an index was made with or is to be made with, and what all calls of one `Index` share."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict
from weakref import WeakValueDictionary

from indexes import LANGUAGES, StructureSettings, type_mismatch
from retriever.documents.analyzer import PLAIN, Analyzer, AnalyzerSettings, as_held
from retriever.documents.passages import EARLIER, Context, PassageSettings
from retriever.encoders.encoder import Encoder
from retriever.encoders.spec import EncoderSpec, probe_lists, same_vectors
from retriever.errors import (
    ConfigError,
    DamagedIndexError,
    EncoderMismatchError,
    unexpected_keyword,
)
from retriever.search.queries import describe_unknown_fields
from retriever.search.settings import CALIBRATION, FIT

if TYPE_CHECKING:
    from indexes import Store, View, Where
    from retriever.encoders.encoder import ModelChoice
    from retriever.rerankers.head import QueryMap
    from retriever.search.synonyms import Synonyms

# Encoders that are in use, by specification, device and default number format, for the other
# indexes that have them. None is among them that a program passes or that is behind a URL, which
# each index asks for.
_SHARED: WeakValueDictionary[tuple[EncoderSpec, str | None, str], Encoder] = WeakValueDictionary()
_LOADING = threading.RLock()
# Filters whose doubts are remembered.
_FILTERS = 64


@dataclass(frozen=True)
class IndexState:
    """What an index was made with; `probes` are vectors that identify its encoder."""

    # Another after the index was replaced.
    identity: Hashable
    encoder: EncoderSpec
    probes: Any
    analyzer: Analyzer
    passages: PassageSettings

    @classmethod
    def read(cls, view: View, store: Store) -> Self:
        """Read it; DamagedIndexError if a setting is missing or altered."""
        view.check_settings()
        read_structures(view, store)
        try:
            _check_facts(view)
            return cls(
                view.identity,
                EncoderSpec.from_json(view.setting("encoder")),
                view.setting("probes", []),
                Analyzer(
                    AnalyzerSettings(**PLAIN | view.setting("analyzer")), view.setting("stop_list")
                ),
                PassageSettings(**EARLIER | view.setting("passages")),
            )
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise store.damaged(f"a setting is missing or altered ({error!r})") from error


def _check_facts(view: View) -> None:
    """Raise ValueError if what an index says of its passages is of another type."""
    for key, is_sound in _FACTS.items():
        value = view.setting(key, _ABSENT)
        if value is not _ABSENT and not is_sound(value):
            raise ValueError(f"{key} is {value!r:.60}")


# In place of a setting that an index lacks.
_ABSENT = object()


def _is_number(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and least <= value <= most


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(n) is int and n >= 0 for n in value.values())


def _is_fit(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_counts(value.get("languages", {})):
        return False
    weights = (value.get("weight", 0), value.get("strange_weight") or 0)
    numbers = (one for name, one in value.items() if name != "languages" and one is not None)
    return all(_is_number(one, 0, 1) for one in weights) and all(map(_is_number, numbers))


def _is_calibration(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(learned, dict)
        and isinstance(learned.get("mode"), str)
        and isinstance(learned.get("ranking", {}), dict)
        and all(_is_number(learned.get(name, 0)) for name in ("threshold", "passages"))
        and all(_is_number(learned.get(name)) for name in ("questions", "false_answers"))
        and all(
            isinstance(coefficients, dict) and all(map(_is_number, coefficients.values()))
            for coefficients in (learned.get("hit", {}), learned.get("query", {}))
        )
        for learned in value.values()
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_vectors(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(vector, list) and all(map(_is_number, vector)) for vector in value
    )


# What an index says of its passages and how it was made, without which it is usable.
_FACTS: dict[str, Callable[[Any], bool]] = {
    LANGUAGES: _is_counts,
    FIT: _is_fit,
    CALIBRATION: _is_calibration,
    "computed": _is_texts,
    "created": lambda value: isinstance(value, str),
    "probes": _is_vectors,
    "stop_list": _is_texts,
}


def verify_index(store: Store) -> list[str]:
    """Check every file, count, id and setting; one line for each problem, which names the file.

    Raises DamagedIndexError if the index cannot be read at all.
    """
    problems = store.verify()
    if not problems:
        with closing(store.reader()) as reader, reader.view() as view:
            try:
                IndexState.read(view, store)
            except DamagedIndexError as error:
                problems.append(str(error))
    return problems


def uncounted_passages(view: View) -> int:
    """How many passages an earlier release stored, where it counted their languages."""
    return int(view.describe()["uncounted_passages"]) if view.setting(LANGUAGES, {}) else 0


def earlier_terms(settings: AnalyzerSettings) -> str | None:
    """Describe the terms that an index of an earlier release lacks; None if it has all."""
    if settings.terms == "whole":
        return None
    return "an earlier release made it, without terms such as 3.11.2, C++ and IT"


def read_structures(view: View, store: Store) -> StructureSettings:
    """How large segments are searched, which `rebuild` changes; DamagedIndexError if altered."""
    try:
        # An index of an earlier release has no such setting.
        return StructureSettings(**view.setting("structures", {}))
    except (TypeError, ValueError, ConfigError) as error:
        raise store.damaged(f"a setting is altered ({error!r})") from error


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
    context: Context
    structure: bool
    tables: bool
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
            asked = getattr(self, name)
            kept = getattr(own, name)
            single = self.single.get(name)
            if isinstance(kept, AnalyzerSettings):
                default = AnalyzerSettings()
                newest = {name: getattr(default, name) for name in PLAIN}
                whole = replace(kept, **{**newest, **single}) if single else asked
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
            wanted = getattr(all_wanted, name)
            found = getattr(own, name)
            if wanted != found:
                raise ConfigError(
                    f"{store}: the index was made with {what} {listed(found)}, but "
                    f"{listed(wanted)} was asked for; leave the option out, or {remedy}"
                )


def initial_settings(
    encoder: Encoder | tuple[EncoderSpec, Any], asked: IndexSettings
) -> dict[str, Any]:
    """The settings of a new index as JSON values; the encoder is loaded, or `spec` and `probes`."""
    if not isinstance(encoder, tuple):
        encoder = encoder.spec, probe_lists(encoder)
    spec, probes = encoder
    structures = asked.structures or StructureSettings()
    structures.choice(0, spec.dimensions)
    analyzer = Analyzer(asked.analyzer)
    return {
        "encoder": spec.to_json(),
        "probes": probes,
        "analyzer": analyzer.settings.to_json(),
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
        state = IndexState.read(view, store)
        structures = read_structures(view, store)
    if encoder is None and choice.encoder:
        encoder = choice.completed(state.encoder).load()
    own = IndexSettings(state.analyzer.settings, state.passages, structures)
    return initial_settings(encoder or (state.encoder, state.probes), asked.completed(own))


def listed(settings: AnalyzerSettings | PassageSettings | StructureSettings) -> str:
    """Settings as messages name them: ``language=english, stemming=True``."""
    given = {name: value for name, value in asdict(settings).items() if value is not None}
    return ", ".join(f"{name}={value}" for name, value in given.items())


class OpenedIndex:
    """An open index, the encoder that it must have or that a program gives; threads share it."""

    def __init__(
        self,
        store: Store,
        asked: ModelChoice,
        given: Encoder | None,
        wanted: IndexSettings | None = None,
    ) -> None:
        self.store = store
        self.asked = asked
        self._given = given
        # That of the index with an identity, for passages or for queries.
        self._chosen: dict[tuple[Hashable, bool], Encoder] = {}
        self.query_map: QueryMap | None = None
        self.synonyms: Synonyms | None = None
        self._known: IndexState | None = None
        self._doubts: dict[tuple[object, ...], str] = {}
        reader = store.reader()
        # One consistent view of the latest commit.
        self.view: Callable[[], AbstractContextManager[View]] = reader.view
        # Releases files.
        self.close: Callable[[], None] = reader.close
        try:
            with self.view() as view:
                state = self.settings_of(view)
                if wanted is not None:
                    wanted.check(state, view, store)
        except BaseException:
            self.close()
            raise

    def state(self) -> IndexState:
        """The settings of the index."""
        with self.view() as view:
            return self.settings_of(view)

    def cached_settings(self) -> IndexState:
        """The settings that the encoder of queries is of, which may have been replaced since."""
        known = self._known
        if known and (self._given or (known.identity, True) in self._chosen):
            return known
        return self.state()

    def settings_of(self, view: View) -> IndexState:
        """The settings of the index that a view is of; EncoderMismatchError if not as expected."""
        known = self._known
        if known is not None and known.identity == view.identity:
            return known
        state = IndexState.read(view, self.store)
        if self.asked.encoder:
            self.asked.check(state.encoder, self.store)
        if self._given is not None:
            self._require_same(self._given, state)
        self._known = state
        return state

    def _require_same(self, given: Encoder, state: IndexState) -> None:
        made = state.encoder
        own = given.spec
        if own.is_given:
            if made.model != own.model or not same_vectors(state.probes, given.probes):
                raise EncoderMismatchError(
                    f"{self.store}: the index was made with the encoder {made.model!r} "
                    f"({made.dimensions} dimensions, {made.weights[:18]}), but {own.model!r} "
                    f"({own.dimensions} dimensions, {own.weights[:18]}) was given; open it with "
                    "the encoder that made it, or index into another folder"
                )
            given.spec = made
        elif given.spec.fingerprint != state.encoder.fingerprint:
            raise EncoderMismatchError(
                f"{self.store}: the index was made with {state.encoder} "
                f"({state.encoder.fingerprint}), but {given.spec} ({given.spec.fingerprint}) "
                "was given; give that encoder, or none"
            )

    def describe_doubt(self, view: View, where: Where) -> str | None:
        """What is doubtful about a filter, remembered until the next commit; None if nothing."""
        key = (view.identity, view.generation, where.text)
        known = self._doubts.get(key)
        if known is None:
            if len(self._doubts) >= _FILTERS:
                self._doubts.clear()
            mismatch = describe_unknown_fields(view, where.fields) or type_mismatch(
                where.expression, view.has_type
            )
            known = self._doubts[key] = mismatch or ""
        return known or None

    def encoder(self, state: IndexState, *, query: bool = False) -> Encoder:
        """The encoder of an index, loaded on first use.

        Passages are computed as the index was made, unless the settings that were asked for say
        otherwise. Queries are computed in float32, unless other settings were asked for.
        """
        if self._given is not None and not query:
            return self._given
        use = state.identity, query
        if (known := self._chosen.get(use)) is not None:
            return known
        if self._given is not None:
            self._chosen = {use: self._given.in_float32()}
            return self._chosen[use]
        asked = self.asked.settings
        spec = state.encoder
        backend = asked.backend
        dtype = asked.dtype
        if not query:
            backend = backend or spec.settings.backend
        if not query or spec.settings.dtype == "float32":
            dtype = dtype or spec.settings.dtype
        spec = replace(spec, settings=replace(spec.settings, backend=backend, dtype=dtype))
        device = self.asked.device
        download = self.asked.download
        number_format = self.asked.dtype
        with _LOADING:
            loaded = _SHARED.get((spec, device, number_format))
            # One that is not shared may serve passages and queries.
            other = self._chosen.get((state.identity, not query))
            if loaded is None and other is not None and other.spec == spec:
                loaded = other
            if loaded is None:
                loaded = Encoder.from_spec(
                    spec, device=device, download=download, asked=asked.model, dtype=number_format
                )
                probes = getattr(loaded, "probes", None)
                if probes is None:
                    _SHARED[spec, device, number_format] = loaded
                elif not same_vectors(state.probes, probes):
                    raise EncoderMismatchError(
                        f"{self.store}: {spec.model} gives other vectors than when the index was "
                        "made: the model behind that name has changed; index again with --recreate"
                    )
            if query:
                # A score does not depend on how many queries are searched for with it.
                loaded = loaded.in_float32()
            # Without those of an index that this one replaced.
            kept = {key: one for key, one in self._chosen.items() if key[0] == state.identity}
            self._chosen = {**kept, use: loaded}
            return loaded

    def expect(self, given: Encoder | None) -> None:
        """Accept another encoder from now on: the one given, or any."""
        self.asked = replace(self.asked, encoder="")
        self._given = given
        self._chosen = {}
