"""The settings of an index, requested and stored, and the state that all calls of `Index` share."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict
from weakref import WeakValueDictionary

from indexes import LANGUAGES, StructureSettings
from indexes.filters import type_mismatch
from retriever.documents.analyzer import PLAIN, Analyzer, AnalyzerSettings, reconcile_settings
from retriever.documents.passages import EARLIER, Context, PassageSettings
from retriever.encoders.encoder import Encoder, probe_lists
from retriever.encoders.spec import EncoderSpec, same_vectors
from retriever.errors import (
    ConfigError,
    DamagedIndexError,
    EncoderMismatchError,
    unexpected_keyword,
)
from retriever.search.settings import CALIBRATION, FIT, MODEL_REASON

if TYPE_CHECKING:
    from indexes import Store, View
    from indexes.filters import Where
    from retriever.encoders.encoder import ModelChoice
    from retriever.rerankers.head import QueryMap
    from retriever.search.synonyms import Synonyms

# Loaded encoders by specification, device and default number format, which indexes share. Encoders
# of a program, and encoders behind a URL, are not shared.
_SHARED: WeakValueDictionary[tuple[EncoderSpec, str | None, str], Encoder] = WeakValueDictionary()
_LOADING = threading.RLock()
# Number of filters whose descriptions are cached.
_MOST_FILTERS = 64
# Stands for a setting that an index lacks.
_ABSENT = object()
# The parts of `IndexSettings`.
_PARTS: dict[str, type[AnalyzerSettings | PassageSettings | StructureSettings]] = {
    "analyzer": AnalyzerSettings,
    "passages": PassageSettings,
    "structures": StructureSettings,
}


@dataclass(frozen=True)
class StoredSettings:
    """The settings that an index was made with."""

    # Changes when the index is replaced.
    identity: Hashable
    encoder: EncoderSpec
    # Vectors that identify the encoder.
    probes: Any
    analyzer: Analyzer
    passages: PassageSettings

    @classmethod
    def read(cls, view: View, store: Store) -> Self:
        """Read the settings; raise DamagedIndexError if one is missing or altered."""
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
    """Raise ValueError if a fact about the passages has the wrong type."""
    for key, is_valid in _FACTS.items():
        value = view.setting(key, _ABSENT)
        if value is not _ABSENT and not is_valid(value):
            raise ValueError(f"{key} is {value!r:.60}")


def _is_number(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and least <= value <= most


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(n) is int and n >= 0 for n in value.values())


def _is_fit(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_counts(value.get("languages", {})):
        return False
    weights = (value.get("weight", 0), value.get("strange_weight") or 0)
    numbers = [
        number for name, number in value.items() if name != "languages" and number is not None
    ]
    return all(_is_number(weight, 0, 1) for weight in weights) and all(map(_is_number, numbers))


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


# Optional facts about the passages and the creation of an index, each with its check.
_FACTS: dict[str, Callable[[Any], bool]] = {
    LANGUAGES: _is_counts,
    FIT: _is_fit,
    CALIBRATION: _is_calibration,
    MODEL_REASON: lambda value: isinstance(value, str),
    "computed": _is_texts,
    "created": lambda value: isinstance(value, str),
    "probes": _is_vectors,
    "stop_list": _is_texts,
}


def verify_index(store: Store) -> list[str]:
    """Check every file, count, id and setting of an index.

    Returns:
        One line for each problem, with the name of the file.

    Raises:
        DamagedIndexError: the index cannot be read at all.
    """
    problems = store.verify()
    if not problems:
        with closing(store.reader()) as reader, reader.view() as view:
            try:
                StoredSettings.read(view, store)
            except DamagedIndexError as error:
                problems.append(str(error))
    return problems


def uncounted_passages(view: View) -> int:
    """Return the number of passages that an earlier release stored without their languages."""
    return int(view.describe()["uncounted_passages"]) if view.setting(LANGUAGES, {}) else 0


def earlier_terms(settings: AnalyzerSettings) -> str | None:
    """Describe the terms that an index of an earlier release lacks; None if it has all."""
    if settings.terms == "whole":
        return None
    return "an earlier release made it, without terms such as 3.11.2, C++ and IT"


def read_structures(view: View, store: Store) -> StructureSettings:
    """Return the settings of search structures; raise DamagedIndexError if they are altered."""
    try:
        # An index of an earlier release lacks the setting.
        return StructureSettings(**view.setting("structures", {}))
    except (TypeError, ValueError, ConfigError) as error:
        raise store.damaged(f"a setting is altered ({error!r})") from error


class IndexKeywords(TypedDict, total=False):
    """Settings of a new index: each part as one value, or single fields of it."""

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
    """Requested settings of an index; None takes the default, or the stored settings."""

    analyzer: AnalyzerSettings | None = None
    passages: PassageSettings | None = None
    structures: StructureSettings | None = None
    # Requested single fields by part; an existing index keeps its other fields.
    single: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """Return the settings of keywords; raise TypeError if one is unknown or given twice."""
        values = dict(keywords)
        parts: dict[str, Any] = {"single": {}}
        for name, kind in _PARTS.items():
            part = values.pop(name, None)
            single = {
                field_.name: values.pop(field_.name)
                for field_ in fields(kind)
                if field_.name in values
            }
            if part is not None and single:
                raise TypeError(f"{name} and {min(single)} are both given: give one of them")
            parts[name] = kind(**single) if single else part
            parts["single"][name] = single
        if values:
            names = (*IndexKeywords.__annotations__, "model", "encoder")
            raise unexpected_keyword(min(values), names)
        return cls(**parts)

    def completed(self, stored: IndexSettings) -> IndexSettings:
        """Return these settings, with the stored value of each setting that is not requested."""
        parts: dict[str, Any] = {}
        for name in _PARTS:
            part = getattr(self, name)
            stored_part = getattr(stored, name)
            single = self.single.get(name)
            if isinstance(stored_part, AnalyzerSettings):
                default = AnalyzerSettings()
                newest = {key: getattr(default, key) for key in PLAIN}
                requested = replace(stored_part, **{**newest, **single}) if single else part
                parts[name] = reconcile_settings(requested, stored_part)
            elif single and stored_part:
                parts[name] = replace(stored_part, **single)
            else:
                parts[name] = part or stored_part
        return IndexSettings(**parts)

    def check(self, stored: StoredSettings, view: View, store: Store) -> None:
        """Raise ConfigError if the index has other settings than the requested ones."""
        recreate = "index again with --recreate"
        rebuild = "change it with `retriever compact --index-type`"
        structures = read_structures(view, store)
        stored_parts = IndexSettings(stored.analyzer.settings, stored.passages, structures)
        requested_parts = self.completed(stored_parts)
        for what, name, remedy in (
            ("analyzer", "analyzer", recreate),
            ("treatment of long texts", "passages", recreate),
            ("search structure", "structures", rebuild),
        ):
            requested_part = getattr(requested_parts, name)
            stored_part = getattr(stored_parts, name)
            if requested_part != stored_part:
                raise ConfigError(
                    f"{store}: the index was made with {what} {describe_settings(stored_part)}, "
                    f"but {describe_settings(requested_part)} was asked for; leave the option out, "
                    f"or {remedy}"
                )


def initial_settings(
    encoder: Encoder | tuple[EncoderSpec, Any], requested: IndexSettings
) -> dict[str, Any]:
    """Return the settings of a new index as JSON values.

    `encoder` is a loaded encoder, or its specification and probes.
    """
    if not isinstance(encoder, tuple):
        encoder = (encoder.spec, probe_lists(encoder))
    spec, probes = encoder
    structures = requested.structures or StructureSettings()
    structures.choice(0, spec.dimensions)
    analyzer = Analyzer(requested.analyzer)
    return {
        "encoder": spec.to_json(),
        "probes": probes,
        "analyzer": analyzer.settings.to_json(),
        "stop_list": sorted(analyzer.stop_list),
        "passages": (requested.passages or PassageSettings()).to_json(),
        "structures": asdict(structures),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def holds_documents(store: Store) -> bool:
    """Return whether an index holds any document."""
    with closing(store.reader()) as reader, reader.view() as view:
        return view.count_documents() > 0


def changed_settings(
    store: Store, requested: IndexSettings, choice: ModelChoice, encoder: Encoder | None
) -> dict[str, Any]:
    """Return the stored settings of an index as JSON values, replaced by the requested ones."""
    with closing(store.reader()) as reader, reader.view() as view:
        stored = StoredSettings.read(view, store)
        structures = read_structures(view, store)
    if encoder is None and choice.encoder:
        encoder = choice.completed(stored.encoder).load()
    parts = IndexSettings(stored.analyzer.settings, stored.passages, structures)
    return initial_settings(encoder or (stored.encoder, stored.probes), requested.completed(parts))


def describe_settings(settings: AnalyzerSettings | PassageSettings | StructureSettings) -> str:
    """Return settings as messages name them: ``language=english, stemming=True``."""
    values = asdict(settings).items()
    return ", ".join(f"{name}={value}" for name, value in values if value is not None)


def describe_unknown_fields(view: View, names: Iterable[str]) -> str | None:
    """Describe the first field that no document has; None if all are known."""
    for name, field_names in view.unknown_fields(names).items():
        from difflib import get_close_matches

        matches = get_close_matches(name, field_names, 1)
        guess = f"; did you mean {matches[0]!r}?" if matches else ""
        listed = f"fields: {', '.join(field_names)}" if field_names else "no document has metadata"
        return f"no document has the field {name!r}{guess} ({listed})"
    return None


class OpenedIndex:
    """An open index with its encoders, its query map and its synonyms; threads share it."""

    def __init__(
        self,
        store: Store,
        requested: ModelChoice,
        user_encoder: Encoder | None,
        settings: IndexSettings | None = None,
    ) -> None:
        """Open an index.

        Args:
            store: where the index is.
            requested: the encoder that the index must have, and how to load it.
            user_encoder: an encoder that a program passes; None loads the stored one.
            settings: settings that the index must have.

        Raises:
            ConfigError: the index has other settings.
            EncoderMismatchError: the index has another encoder.
        """
        self.store = store
        self.requested = requested
        self._user_encoder = user_encoder
        # By identity of the index, and whether they encode queries.
        self._loaded_encoders: dict[tuple[Hashable, bool], Encoder] = {}
        self.query_map: QueryMap | None = None
        self.synonyms: Synonyms | None = None
        self._cached_settings: StoredSettings | None = None
        # Descriptions of doubtful filters; empty if a filter is not doubtful.
        self._doubts: dict[tuple[object, ...], str] = {}
        reader = store.reader()
        # Opens a consistent view of the latest commit.
        self.view: Callable[[], AbstractContextManager[View]] = reader.view
        # Releases files.
        self.close: Callable[[], None] = reader.close
        try:
            with self.view() as view:
                stored = self.settings_of(view)
                if settings is not None:
                    settings.check(stored, view, store)
        except BaseException:
            self.close()
            raise

    def settings(self) -> StoredSettings:
        """Return the settings of the latest commit."""
        with self.view() as view:
            return self.settings_of(view)

    def cached_settings(self) -> StoredSettings:
        """Return the settings that belong to the loaded query encoder; they may be stale."""
        cached = self._cached_settings
        if cached and (self._user_encoder or (cached.identity, True) in self._loaded_encoders):
            return cached
        return self.settings()

    def settings_of(self, view: View) -> StoredSettings:
        """Return the settings in a view; raise EncoderMismatchError for another encoder."""
        cached = self._cached_settings
        if cached is not None and cached.identity == view.identity:
            return cached
        stored = StoredSettings.read(view, self.store)
        if self.requested.encoder:
            self.requested.check(stored.encoder, self.store)
        if self._user_encoder is not None:
            self._check_user_encoder(self._user_encoder, stored)
        self._cached_settings = stored
        return stored

    def describe_doubt(self, view: View, where: Where) -> str | None:
        """Describe what is doubtful about a filter; None if nothing is. Cached for a commit."""
        key = (view.identity, view.generation, where.text)
        doubt = self._doubts.get(key)
        if doubt is None:
            if len(self._doubts) >= _MOST_FILTERS:
                self._doubts.clear()
            doubt = describe_unknown_fields(view, where.fields) or type_mismatch(
                where.expression, view.has_type
            )
            self._doubts[key] = doubt or ""
        return doubt or None

    def encoder(self, stored: StoredSettings, *, query: bool = False) -> Encoder:
        """Return the encoder of passages, or of queries, and load it on first use.

        Passages are computed as they were when the index was made, queries in float32, unless
        other settings were requested.
        """
        if self._user_encoder is not None and not query:
            return self._user_encoder
        key = (stored.identity, query)
        if (encoder := self._loaded_encoders.get(key)) is not None:
            return encoder
        if self._user_encoder is not None:
            self._loaded_encoders = {key: self._user_encoder.in_float32()}
            return self._loaded_encoders[key]
        with _LOADING:
            encoder = self._load_encoder(stored, query)
            if query:
                # A score must not depend on how many queries are encoded with it.
                encoder = encoder.in_float32()
            # Encoders of a replaced index are dropped.
            current = {
                key: loaded
                for key, loaded in self._loaded_encoders.items()
                if key[0] == stored.identity
            }
            self._loaded_encoders = {**current, key: encoder}
            return encoder

    def replace_encoder(self, user_encoder: Encoder | None) -> None:
        """Use the encoder of a program from now on; None accepts any stored encoder."""
        self.requested = replace(self.requested, encoder="")
        self._user_encoder = user_encoder
        self._loaded_encoders = {}

    def _load_encoder(self, stored: StoredSettings, query: bool) -> Encoder:
        """Return a shared encoder with the requested backend and number format, or load it."""
        requested = self.requested
        spec = stored.encoder
        backend = requested.settings.backend
        dtype = requested.settings.dtype
        if not query:
            backend = backend or spec.settings.backend
        if not query or spec.settings.dtype == "float32":
            dtype = dtype or spec.settings.dtype
        spec = replace(spec, settings=replace(spec.settings, backend=backend, dtype=dtype))
        shared_key = (spec, requested.device, requested.dtype)
        if (shared := _SHARED.get(shared_key)) is not None:
            return shared
        # An encoder that is not shared may serve passages and queries.
        sibling = self._loaded_encoders.get((stored.identity, not query))
        if sibling is not None and sibling.spec == spec:
            return sibling
        encoder = Encoder.from_spec(
            spec,
            device=requested.device,
            download=requested.download,
            requested_model=requested.settings.model,
            dtype=requested.dtype,
        )
        probes = getattr(encoder, "probes", None)
        if probes is None:
            _SHARED[shared_key] = encoder
        elif not same_vectors(stored.probes, probes):
            raise EncoderMismatchError(
                f"{self.store}: {spec.model} gives other vectors than when the index was "
                "made: the model behind that name has changed; index again with --recreate"
            )
        return encoder

    def _check_user_encoder(self, user_encoder: Encoder, stored: StoredSettings) -> None:
        """Raise EncoderMismatchError if the index has another encoder."""
        stored_spec = stored.encoder
        spec = user_encoder.spec
        if spec.is_given:
            is_same = same_vectors(stored.probes, user_encoder.probes)
            if stored_spec.model != spec.model or not is_same:
                raise EncoderMismatchError(
                    f"{self.store}: the index was made with the encoder {stored_spec.model!r} "
                    f"({stored_spec.dimensions} dimensions, {stored_spec.weights[:18]}), but "
                    f"{spec.model!r} ({spec.dimensions} dimensions, {spec.weights[:18]}) was "
                    "given; open it with its own encoder, or index into another folder"
                )
            user_encoder.spec = stored_spec
        elif spec.fingerprint != stored_spec.fingerprint:
            raise EncoderMismatchError(
                f"{self.store}: the index was made with {stored_spec} "
                f"({stored_spec.fingerprint}), but {spec} ({spec.fingerprint}) "
                "was given; give that encoder, or none"
            )
