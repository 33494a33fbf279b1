"""From settings to a model that runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from retriever.encoders.loading.resolution import fuse, resolve
from retriever.encoders.meta.folder import is_meta_folder, read_folder
from retriever.encoders.meta.model import MetaModel
from retriever.encoders.models.finding import DEFAULT_MODEL, ModelFolder, find_model
from retriever.encoders.protocol import AdoptedEncoder, PieceEncoder
from retriever.encoders.ready import ReadyModel, is_ready_file
from retriever.encoders.remote.address import Address, is_url
from retriever.encoders.remote.client import Client
from retriever.encoders.remote.model import RemoteModel
from retriever.encoders.settings import SHORTEST_WINDOW, Dtype, EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.static.model import StaticModel, is_static_folder
from retriever.encoders.transformer.backbone import Backbone
from retriever.encoders.transformer.backends.choice import (
    check_computing,
    describe_choice,
    faster_format,
    runs_on_cpu,
)
from retriever.encoders.transformer.backends.model import LightModel
from retriever.encoders.transformer.backends.weights import UnsupportedModelError
from retriever.encoders.transformer.model import TransformerModel
from retriever.encoders.transformer.shared import sharing
from retriever.errors import ConfigError, MissingExtraError, ModelError

# For a model without a limit of positions.
_USUAL_WINDOW = 512

MakeBackbone = Callable[[ModelFolder, str | None, Dtype], Backbone]


def load_model(
    asked: EncoderSettings,
    *,
    device: str | None,
    download: bool,
    backbone_of: MakeBackbone = Backbone,
    given: Sequence[AdoptedEncoder] = (),
) -> tuple[EncoderSpec, PieceEncoder]:
    """Load a model, and return the specification of its vectors with it.

    Args:
        asked: see `Encoder.load`, as for the others.
        device: of the backbone.
        download: whether the network may be used.
        backbone_of: makes a backbone, or gives one of the same folder, device and dtype that
            another encoder has.
        given: sources of a meta-embedding that a program passes.

    Raises:
        ModelError, MissingExtraError, ConfigError: see `Encoder.load`.
        SourceError: a file of word vectors or of ready vectors is malformed.
    """
    if is_ready_file(asked.model or ""):
        ready = ReadyModel(asked.model or "")
        return ready.spec(asked), ready
    if is_url(asked.model):
        remote = RemoteModel(Client(Address.parse(asked.model or "")))
        return remote.spec(asked), remote
    if is_meta_folder(asked.model or ""):
        meta = _meta(asked, device, download, backbone_of, given)
        return meta.spec(asked), meta
    static = _static(asked, download)
    if static is not None:
        return _static_spec(asked, static), static
    folder = find_model(asked.model or DEFAULT_MODEL, download=download)
    settings = resolve(asked, folder)
    check_computing(settings)
    if backbone_of is Backbone and settings.backend != "torch" and runs_on_cpu(device):
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
    settings, model = _in_torch(settings, folder, device, backbone_of)
    return EncoderSpec(settings, folder.weights, model.dimensions), model


def _light(settings: EncoderSettings, folder: ModelFolder) -> tuple[EncoderSpec, LightModel]:
    def load_torch() -> TransformerModel:
        own = "float32" if settings.dtype == "int8" else settings.dtype
        return _in_torch(replace(settings, dtype=own), folder, "cpu", Backbone)[1]

    model = LightModel(folder, settings, fuse(settings, folder), load_torch)
    settings = _windowed(settings, folder, model.max_length)
    return EncoderSpec(settings, folder.weights, model.dimensions), model


def _in_torch(
    settings: EncoderSettings, folder: ModelFolder, device: str | None, backbone_of: MakeBackbone
) -> tuple[EncoderSettings, TransformerModel]:
    backbone = backbone_of(folder, device, settings.dtype or "float32")
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


def describe_backend(spec: EncoderSpec) -> str | None:
    """What runs the model of an encoder on this machine; None if that cannot be said.

    Static encoders, meta-embeddings, ready vectors, models behind a URL and objects that a program
    passes have no backend.
    """
    settings = spec.settings
    if not _runs_a_model(spec):
        return None
    with suppress(ModelError, MissingExtraError):
        folder = find_model(spec.model)
        if settings.backend == "torch" or not runs_on_cpu(None):
            return "torch"
        try:
            _light(settings, folder)
        except UnsupportedModelError:
            return "torch"
        return describe_choice(settings)
    return None


def describe_faster(spec: EncoderSpec) -> str | None:
    """What would encode faster on this machine than an encoder in float32 does; None if nothing."""
    dtype = faster_format(spec.settings) if _runs_a_model(spec) else None
    return f"--dtype {dtype} would encode in half the time or less" if dtype else None


def _runs_a_model(spec: EncoderSpec) -> bool:
    elsewhere = spec.is_given or is_ready_file(spec.model) or is_url(spec.model)
    return not (elsewhere or spec.settings.static is not None or is_meta_folder(spec.model))


def find_weights(asked: EncoderSettings, *, download: bool) -> str:
    """The identity of the files that `load_model` would load; raises what it raises.

    Of a meta-embedding it is that of its folder, which names its sources; they are not looked for.
    """
    if is_ready_file(asked.model or ""):
        return ReadyModel(asked.model or "").weights
    if is_url(asked.model):
        return Address.parse(asked.model or "").identity
    if is_meta_folder(asked.model or ""):
        return read_folder(Path(asked.model or "")).identity()
    static = _static(asked, download)
    if static is not None:
        return static.weights
    return find_model(asked.model or DEFAULT_MODEL, download=download).weights


def _meta(
    asked: EncoderSettings,
    device: str | None,
    download: bool,
    backbone_of: MakeBackbone,
    given: Sequence[AdoptedEncoder],
) -> MetaModel:
    name = asked.model or ""
    # Sources over one model share its forward pass in torch, whoever else does.
    shared = sharing(()) if backbone_of is Backbone else backbone_of
    weights = Counter(spec.weights for spec in read_folder(Path(name)).sources)

    def load_source(source: EncoderSettings) -> tuple[EncoderSpec, PieceEncoder]:
        if is_url(source.model):
            raise ConfigError(f"{name}: expected sources on this machine, found a URL")
        alone = weights[find_weights(source, download=download)] == 1
        return load_model(
            source,
            device=device,
            download=download,
            backbone_of=backbone_of if alone else shared,
        )

    return MetaModel.load(name, load_source, given)


def _static(asked: EncoderSettings, download: bool) -> StaticModel | None:
    """The static encoder that the settings name, or None for a transformer."""
    name = asked.model or DEFAULT_MODEL
    if is_static_folder(name):
        static = StaticModel.load(name)
        if asked.static not in (None, static.method):
            raise ConfigError(
                f"static: {name} was fitted for {static.method}, but {asked.static} was asked for; "
                "leave static out, or fit another with `retriever fit static`"
            )
        return static
    if os.path.isfile(name):
        return StaticModel.from_file(name, asked.static or "average")
    if asked.static is None:
        return None
    return StaticModel.from_model(find_model(name, download=download), asked.static)


def _static_spec(asked: EncoderSettings, static: StaticModel) -> EncoderSpec:
    settings = replace(
        asked,
        model=asked.model or DEFAULT_MODEL,
        static=static.method,
        normalize=False if asked.normalize is False else None,
        query_prompt=asked.query_prompt or None,
        passage_prompt=asked.passage_prompt or None,
        max_length=asked.max_length or static.max_length,
    )
    return EncoderSpec(settings, static.weights, static.dimensions)
