"""From settings to a model that runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from retriever.encoders.meta.folder import is_meta_folder, read_folder
from retriever.encoders.meta.model import MetaModel
from retriever.encoders.models import DEFAULT_MODEL, ModelFolder, find_model
from retriever.encoders.protocol import AdoptedEncoder, PieceEncoder
from retriever.encoders.remote.address import Address, is_url
from retriever.encoders.remote.client import Client
from retriever.encoders.remote.model import RemoteModel
from retriever.encoders.resolution import fuse, resolve
from retriever.encoders.settings import SHORTEST_WINDOW, Dtype, EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.static.model import StaticModel, is_static_folder
from retriever.encoders.transformer.backbone import Backbone
from retriever.encoders.transformer.model import TransformerModel
from retriever.encoders.transformer.shared import sharing
from retriever.errors import ConfigError

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
        SourceError: a file of word vectors is malformed.
    """
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
    backbone = backbone_of(folder, device, settings.dtype or "float32")
    window = asked.max_length or min(
        folder.settings.max_length or _USUAL_WINDOW, backbone.max_length
    )
    if not SHORTEST_WINDOW <= window <= backbone.max_length:
        raise ConfigError(
            f"max-length: the model {folder.name} reads at least {SHORTEST_WINDOW} and at most "
            f"{backbone.max_length} pieces, found {window}"
        )
    settings = replace(settings, max_length=window)
    model = TransformerModel(backbone, folder, settings, fuse(settings, folder))
    return EncoderSpec(settings, folder.weights, model.dimensions), model


def find_weights(asked: EncoderSettings, *, download: bool) -> str:
    """The identity of the files that `load_model` would load; raises what it raises.

    Of a meta-embedding it is that of its folder, which names its sources; they are not looked for.
    """
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
    # Sources over one model share its forward pass, whoever else does.
    shared = sharing(()) if backbone_of is Backbone else backbone_of

    def load_source(source: EncoderSettings) -> tuple[EncoderSpec, PieceEncoder]:
        if is_url(source.model):
            raise ConfigError(f"{asked.model}: expected sources on this machine, found a URL")
        return load_model(source, device=device, download=download, backbone_of=shared)

    return MetaModel.load(asked.model or "", load_source, given)


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
