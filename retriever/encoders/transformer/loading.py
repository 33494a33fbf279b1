"""The kind of encoders that run a transformer, without torch where that pays."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retriever.encoders.computing import (
    check_computing,
    describe_engines,
    faster_format,
    runs_on_cpu,
)
from retriever.encoders.models.finding import ModelFolder, find_model
from retriever.encoders.registry import EncoderModel, Kind, LoadContext
from retriever.encoders.settings import DEFAULT_MODEL, SHORTEST_WINDOW, EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.transformer.backends.model import LightModel
from retriever.encoders.transformer.backends.weights import UnsupportedModelError
from retriever.encoders.transformer.resolution import fuse, resolve, same_layers
from retriever.errors import ConfigError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from retriever.encoders.registry import MakeBackbone
    from retriever.encoders.transformer.model import TransformerModel

# For a model without a limit of positions.
_USUAL_WINDOW = 512


def _load(asked: EncoderSettings, loading: LoadContext) -> tuple[EncoderSpec, EncoderModel]:
    folder = find_model(asked.model or DEFAULT_MODEL, download=loading.download)
    settings = resolve(asked, folder)
    check_computing(settings)
    if loading.backbone_of is None and settings.backend != "torch" and runs_on_cpu(loading.device):
        try:
            return _light(settings, folder)
        except UnsupportedModelError as error:
            reason = str(error)
    else:
        reason = "it runs in torch alone here"
    if settings.dtype == "int8" or settings.backend not in (None, "torch"):
        asked_for = "int8" if settings.dtype == "int8" else f"the backend {settings.backend}"
        raise ConfigError(
            f"backend: {folder.name} cannot run with {asked_for} ({reason}); leave backend and "
            "dtype out"
        )
    settings, model = _in_torch(settings, folder, loading.device, loading.backbone_of)
    return EncoderSpec(settings, folder.weights, model.dimensions), model


def _light(settings: EncoderSettings, folder: ModelFolder) -> tuple[EncoderSpec, LightModel]:
    def load_torch() -> TransformerModel:
        own = "float32" if settings.dtype == "int8" else settings.dtype
        return _in_torch(replace(settings, dtype=own), folder, "cpu", None)[1]

    model = LightModel(folder, settings, fuse(settings, folder), load_torch)
    settings = _windowed(settings, folder, model.max_length)
    return EncoderSpec(settings, folder.weights, model.dimensions), model


def _in_torch(
    settings: EncoderSettings,
    folder: ModelFolder,
    device: str | None,
    backbone_of: MakeBackbone | None,
) -> tuple[EncoderSettings, TransformerModel]:
    from retriever.encoders.transformer.backbone import Backbone
    from retriever.encoders.transformer.model import TransformerModel

    backbone = (backbone_of or Backbone)(folder, device, settings.dtype or "float32")
    settings = _windowed(settings, folder, backbone.max_length)
    return settings, TransformerModel(backbone, folder, settings, fuse(settings, folder))


def _windowed(settings: EncoderSettings, folder: ModelFolder, longest: int) -> EncoderSettings:
    """The settings with a window that a model with `longest` positions has."""
    window = settings.max_length or min(folder.settings.max_length or _USUAL_WINDOW, longest)
    if not SHORTEST_WINDOW <= window <= longest:
        raise ConfigError(
            f"max-length: the model {folder.name} reads at least {SHORTEST_WINDOW} and at most "
            f"{longest} pieces, found {window}"
        )
    return replace(settings, max_length=window)


def _describe(spec: EncoderSpec) -> dict[str, Any]:
    """What runs the model on this machine, if that can be said."""
    with suppress(ModelError, MissingExtraError):
        folder = find_model(spec.model)
        if spec.settings.backend == "torch" or not runs_on_cpu(None):
            return {"backend": "torch"}
        try:
            _light(spec.settings, folder)
        except UnsupportedModelError:
            return {"backend": "torch"}
        return {"backend": describe_engines(spec.settings)}
    return {}


def _faster(spec: EncoderSpec) -> str | None:
    dtype = faster_format(spec.settings)
    return f"--dtype {dtype} would encode in half the time or less" if dtype else None


def _same_layers(asked: EncoderSettings, spec: EncoderSpec, download: bool) -> bool:
    return same_layers(asked, spec, find_model(asked.model or spec.model, download=download))


def _weights(asked: EncoderSettings, download: bool) -> str:
    return find_model(asked.model or DEFAULT_MODEL, download=download).weights


KIND = Kind(_load, _weights, _describe, _faster, _same_layers)
