"""Which encoder a person asks for, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from retriever.encoders.encoder import Encoder
from retriever.encoders.models import DEFAULT_MODEL, find_model
from retriever.encoders.resolution import same_layers
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import EncoderMismatchError


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which encoder an index is to use, and how to load it.

    Attributes:
        encoder: the text form of what is asked for (see `retriever.encoders.settings`); the rest
            is the index's own where there is one.
        device: a torch device; None takes a GPU where there is one.
        download: allow the network for a hub id that is not in the cache.

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
        """What is asked for."""
        return parse_encoder(self.encoder)

    def load(self) -> Encoder:
        """Load it for a new index; raises what `Encoder.load` raises."""
        return Encoder.load(self.settings, device=self.device, download=self.download)

    def weights(self) -> str:
        """The identity of the model's files; raises what `find_model` raises."""
        return find_model(self.settings.model or DEFAULT_MODEL, download=self.download).weights

    def check(self, spec: EncoderSpec, folder: Path) -> None:
        """Refuse an encoder that is not the one an index was made with.

        Raises:
            EncoderMismatchError: naming both.
            What `find_model` raises; ConfigError: a layer that does not exist.
        """
        settings, asked = self.settings, {}
        for one in fields(EncoderSettings):
            value = getattr(settings, one.name)
            if one.name != "model" and value not in (None, spec.meaning(one.name)):
                asked[one.name] = value
        found = None
        if settings.model is not None or "layers" in asked:
            found = find_model(settings.model or spec.model, download=self.download)
        # The same layers can be written in several ways.
        if found is not None and "layers" in asked and same_layers(settings, spec, found):
            del asked["layers"]
        wanted = [f"{name.replace('_', '-')}={value}" for name, value in asked.items()]
        if found is not None and found.weights != spec.weights:
            wanted.insert(0, f"the model {found.name} with weights {found.weights[:12]}")
        if wanted:
            raise EncoderMismatchError(
                f"{folder}: the index was made with {spec} with weights {spec.weights[:12]}, but "
                f"{' and '.join(wanted)} was asked for; leave the option out, or make the index "
                "again with --recreate"
            )
