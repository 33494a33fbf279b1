"""From settings to a model that runs."""

from __future__ import annotations

from dataclasses import replace

from retriever.encoders.backbone import Backbone
from retriever.encoders.encoder import PieceEncoder
from retriever.encoders.models import DEFAULT_MODEL, find_model
from retriever.encoders.resolution import fuse, resolve
from retriever.encoders.settings import SHORTEST_WINDOW, EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.transformer import TransformerModel
from retriever.errors import ConfigError


def load_model(
    asked: EncoderSettings, *, device: str | None, download: bool
) -> tuple[EncoderSpec, PieceEncoder]:
    """Load what is asked for, and say everything that decides its vectors.

    Raises:
        ModelError, MissingExtraError, ConfigError: see `Encoder.load`.
    """
    folder = find_model(asked.model or DEFAULT_MODEL, download=download)
    settings = resolve(asked, folder)
    backbone = Backbone(folder, device, settings.dtype or "float32")
    window = asked.max_length or min(
        folder.settings.max_length or backbone.max_length, backbone.max_length
    )
    if not SHORTEST_WINDOW <= window <= backbone.max_length:
        raise ConfigError(
            f"max-length: the model {folder.name} reads at least {SHORTEST_WINDOW} and at most "
            f"{backbone.max_length} pieces, found {window}"
        )
    settings = replace(settings, max_length=window)
    model = TransformerModel(backbone, folder, settings, fuse(settings, folder))
    return EncoderSpec(settings, folder.weights, model.dimensions), model
