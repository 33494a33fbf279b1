"""What an index was made with, and what all calls of one `Index` share."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from indexes import StructureSettings, type_mismatch
from retriever.documents.analyzer import PLAIN, Analyzer, AnalyzerSettings
from retriever.documents.passages import PassageSettings
from retriever.encoders.spec import EncoderSpec, same_vectors
from retriever.errors import ConfigError, EncoderMismatchError
from retriever.search.queries import unknown_fields

if TYPE_CHECKING:
    from indexes import Store, View, Where
    from retriever.encoders.encoder import Encoder, ModelChoice
    from retriever.encoders.settings import EncoderSettings
    from retriever.rerankers.head import QueryMap

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
        try:
            return cls(
                view.identity,
                EncoderSpec.from_json(view.setting("encoder")),
                view.setting("probes", []),
                Analyzer(
                    AnalyzerSettings(**PLAIN | view.setting("analyzer")), view.setting("stop_list")
                ),
                PassageSettings.from_json(view.setting("passages")),
            )
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise store.damaged(f"a setting is missing or altered ({error!r})") from error


def read_structures(view: View, store: Store) -> StructureSettings:
    """How large segments are searched, which `rebuild` changes; DamagedIndexError if altered."""
    try:
        # An index of an earlier release has no such setting.
        return StructureSettings(**view.setting("structures", {}))
    except (TypeError, ValueError, ConfigError) as error:
        raise store.damaged(f"a setting is altered ({error!r})") from error


class OpenedIndex:
    """An open index, the encoder that it must have or that a program gives; threads share it."""

    def __init__(self, store: Store, asked: ModelChoice, given: Encoder | None) -> None:
        self.store = store
        self.asked = asked
        self._given = given
        # By how they compute; all of them are the encoder of one index.
        self._loaded: dict[EncoderSettings, Encoder] = {}
        # That of the index with an identity, for passages or for queries.
        self._chosen: dict[tuple[Hashable, bool], Encoder] = {}
        self.query_map: QueryMap | None = None
        self._known: IndexState | None = None
        self._loading = threading.RLock()
        self._doubts: dict[tuple[object, ...], str] = {}
        self._reader = store.reader()
        try:
            self.state()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release files."""
        self._reader.close()

    def view(self) -> AbstractContextManager[View]:
        """One consistent view of the latest commit."""
        return self._reader.view()

    def state(self) -> IndexState:
        """The settings of the index."""
        with self.view() as view:
            return self.state_of(view)

    def last_state(self) -> IndexState:
        """The settings that the encoder of queries is of, which may have been replaced since."""
        known = self._known
        if known and (self._given or (known.identity, True) in self._chosen):
            return known
        return self.state()

    def state_of(self, view: View) -> IndexState:
        """The settings of the index that a view is of; EncoderMismatchError if not as expected."""
        known = self._known
        if known is not None and known.identity == view.identity:
            return known
        with self._loading:
            state = IndexState.read(view, self.store)
            self.asked.check(state.encoder, self.store)
            if self._given is not None:
                self._require_same(self._given, state)
            self._known = state
            return state

    def _require_same(self, given: Encoder, state: IndexState) -> None:
        made, own = state.encoder, given.spec
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

    def filter_doubt(self, view: View, where: Where) -> str | None:
        """What is doubtful about a filter, remembered until the next commit; None if nothing."""
        key = (view.identity, view.generation, where.text)
        known = self._doubts.get(key)
        if known is None:
            if len(self._doubts) >= _FILTERS:
                self._doubts.clear()
            mismatch = unknown_fields(view, where.fields) or type_mismatch(
                where.expression, view.has_type
            )
            known = self._doubts[key] = mismatch or ""
        return known or None

    def encoder(self, state: IndexState, *, query: bool = False) -> Encoder:
        """The encoder of an index, loaded on first use.

        Passages are computed as the index was made, unless the settings that were asked for say
        otherwise, and queries in the default format, but in float32 where the index was made so.
        """
        if self._given is not None:
            return self._given
        use = state.identity, query
        if (known := self._chosen.get(use)) is not None:
            return known
        asked, spec = self.asked.settings, state.encoder
        backend, dtype = asked.backend, asked.dtype
        if not query:
            backend = backend or spec.settings.backend
        if not query or spec.settings.dtype == "float32":
            dtype = dtype or spec.settings.dtype
        spec = replace(spec, settings=replace(spec.settings, backend=backend, dtype=dtype))
        with _LOADING:
            loaded = self._loaded.get(spec.settings)
            if loaded is None or loaded.spec.fingerprint != spec.fingerprint:
                key = spec, self.asked.device, self.asked.dtype
                loaded = _SHARED.get(key) or self._load(spec, state)
                self._loaded[spec.settings] = loaded
            self._chosen = {key: one for key, one in self._chosen.items() if key[0] == use[0]}
            self._chosen[use] = loaded
            return loaded

    def _load(self, spec: EncoderSpec, state: IndexState) -> Encoder:
        from retriever.encoders.encoder import Encoder

        asked = self.asked
        loaded = Encoder.from_spec(
            spec,
            device=asked.device,
            download=asked.download,
            asked=asked.settings.model,
            dtype=asked.dtype,
        )
        probes = getattr(loaded, "probes", None)
        if probes is None:
            _SHARED[spec, asked.device, asked.dtype] = loaded
        elif not same_vectors(state.probes, probes):
            raise EncoderMismatchError(
                f"{self.store}: {spec.model} gives other vectors than when the index was made: the "
                "model behind that name has changed; index again with --recreate"
            )
        return loaded

    def expect(self, given: Encoder | None) -> None:
        """Accept another encoder from now on: the one given, or any."""
        self.asked = replace(self.asked, encoder="")
        self._given = given
        self._chosen = {}
