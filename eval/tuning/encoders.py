"""The encoders of pipelines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eval.settings import Loading
from eval.tuning.caches import RecentValues
from eval.vectors import layer_form
from retriever.encoders import Encoder, EncoderSettings, Pooling, parse_encoder
from retriever.errors import ConfigError

if TYPE_CHECKING:
    from retriever.encoders import EncoderSpec

# Encoders that stay loaded.
_LOADED = 6


class PipelineEncoders:
    """The encoders of pipelines, each loaded when it is first used."""

    def __init__(self, loading: Loading) -> None:
        self._loading = loading
        self._encoders = RecentValues(_LOADED)
        self._layered: dict[str, EncoderSettings | None] = {}

    def encoder(self, settings: EncoderSettings) -> Encoder:
        """Return the encoder of these settings; ConfigError if it cannot have them."""
        form = str(settings)
        return self._encoders.get_or_make(form, lambda: self._loading.load(form))

    def passage_encoder(self, settings: EncoderSettings) -> Encoder:
        """Return the encoder of passages, for which the prompt of queries makes no difference."""
        return self.encoder(replace(settings, query_prompt=None))

    def question_encoder(self, settings: EncoderSettings) -> Encoder:
        """Return the encoder of questions, for which the prompt of passages makes no difference."""
        return self.encoder(replace(settings, passage_prompt=None))

    def spec(self, settings: EncoderSettings) -> EncoderSpec:
        """Return the specification of an encoder; ConfigError if it cannot have the settings."""
        return self.encoder(settings).spec

    def layered(self, settings: EncoderSettings) -> EncoderSettings | None:
        """Return the encoder of all hidden states of the same model; None if it has no layers."""
        if settings.static or settings.head or settings.fusion == "sbert-wk":
            return None
        plain = replace(settings, layers=None, fusion=None, normalize=None)
        form = str(plain)
        if form not in self._layered:
            self._layered[form] = self._find_layered(plain)
        return self._layered[form]

    def _find_layered(self, plain: EncoderSettings) -> EncoderSettings | None:
        try:
            spec = self.spec(plain)
            pooling: Pooling | None = spec.effective_value("pooling")
            if spec.settings.head or pooling is None:
                return None
            without_pooling = EncoderSettings(**{**plain.named, "pooling": None})
            layered = parse_encoder(layer_form(str(without_pooling), pooling))
            self.encoder(layered)
        except ConfigError:
            return None
        return layered

    def depth(self, settings: EncoderSettings) -> int:
        """Return the number of transformer layers of a model with hidden states."""
        layered = self.layered(settings)
        assert layered is not None
        return self.encoder(layered).depth
