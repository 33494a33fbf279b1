"""The choice of an encoder, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from retriever.encoders.encoder import Encoder
from retriever.encoders.loading.load import find_weights
from retriever.encoders.loading.resolution import same_layers
from retriever.encoders.meta.folder import is_meta_folder
from retriever.encoders.models.finding import find_model
from retriever.encoders.ready import is_ready_file
from retriever.encoders.remote.address import is_url, require_asked
from retriever.encoders.settings import (
    COMPUTING,
    EncoderSettings,
    format_setting,
    parse_encoder,
    section_names,
)
from retriever.encoders.spec import EncoderSpec
from retriever.errors import EncoderMismatchError


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which encoder an index is to use, and how to load it.

    Attributes:
        encoder: the given settings in their text form (see `retriever.encoders.settings`); the rest
            is the index's own if there is one.
        device: torch device; None uses a GPU if there is one.
        download: allow downloads of a hub id that is not in the cache.

    Raises:
        ConfigError: the text form is not one.
    """

    encoder: str = ""
    device: str | None = None
    download: bool = False

    def __post_init__(self) -> None:
        parse_encoder(self.encoder)

    @property
    def settings(self) -> EncoderSettings:
        """The settings that are given."""
        return parse_encoder(self.encoder)

    def load(self) -> Encoder:
        """Load it for a new index; raises what `Encoder.load` raises."""
        return Encoder.load(self.settings, device=self.device, download=self.download)

    def weights(self) -> str:
        """The identity of the model's files; raises what `Encoder.load` raises."""
        return find_weights(self.settings, download=self.download)

    def completed(self, spec: EncoderSpec) -> ModelChoice:
        """The given settings; those of `spec` for the rest, if no model is named.

        Raises:
            ConfigError: `spec` has a model behind a URL, which is used only if it is named.
        """
        asked = self.settings
        if asked.model is not None:
            return self
        if is_url(spec.model):
            require_asked(spec.model, None)
        return replace(self, encoder=str(replace(spec.settings, **asked.named)))

    def check(self, spec: EncoderSpec, folder: object) -> None:
        """Refuse an encoder that is not the one an index was made with.

        Raises:
            EncoderMismatchError: naming both.
            What `find_model` raises; ConfigError: a layer that does not exist.
        """
        settings, asked = self.settings, {}
        outside = ("model", *section_names(COMPUTING))
        for name, value in settings.named.items():
            if name not in outside and value != spec.meaning(name):
                asked[name] = value
        # The same layers can be written in several ways.
        if "layers" in asked and self._same_layers(spec):
            del asked["layers"]
        if "fusion" in asked and self._fuses_one_layer(spec):
            del asked["fusion"]
        wanted = [format_setting(name, value) for name, value in asked.items()]
        if settings.model is not None:
            weights = find_weights(
                EncoderSettings(model=settings.model, static=spec.settings.static),
                download=self.download,
            )
            if weights != spec.weights:
                wanted.insert(0, f"the model {settings.model} with weights {weights[:12]}")
        if wanted:
            raise EncoderMismatchError(
                f"{folder}: the index was made with {spec} with weights {spec.weights[:12]}, but "
                f"{' and '.join(wanted)} was asked for; leave the option out, or make the index "
                "again with --recreate"
            )

    def _fuses_one_layer(self, spec: EncoderSpec) -> bool:
        """Whether mean, maximum and concatenation are the same, there being one layer."""
        fusions = {self.settings.fusion, spec.meaning("fusion")}
        layers = spec.meaning("layers")
        return fusions <= {"mean", "max", "concat"} and (layers == "last" or layers.isdecimal())

    def _same_layers(self, spec: EncoderSpec) -> bool:
        static = spec.settings.static is not None
        if static or is_meta_folder(spec.model) or is_ready_file(spec.model):
            return False
        if is_url(spec.model) or is_url(self.settings.model):
            return False
        folder = find_model(self.settings.model or spec.model, download=self.download)
        return same_layers(self.settings, spec, folder)
