"""Encoders that run a transformer, without torch if that is faster."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.encoders.computing import (
    MANY_PIECES,
    Engine,
    describe_engine,
    describe_engines,
    engine_for,
    native_format,
    runs_on_cpu,
)
from retriever.encoders.fusion.pooling import Fuser
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.encoders.model_folders import (
    DEFAULT_WINDOW,
    ModelFolder,
    find_model,
)
from retriever.encoders.registry import Batches, EncoderKind, EncoderModel, LoadContext
from retriever.encoders.settings import (
    DEFAULT_MODEL,
    SHORTEST_WINDOW,
    Dtype,
    EncoderSettings,
    format_layers,
    resolve_layers,
)
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.transformer.head_weights import read_pooler, read_projections
from retriever.encoders.transformer.light_backbone import SHARED_PIECES, LightBackbone
from retriever.encoders.transformer.numpy_engine import (
    ACTIVATION_FUNCTIONS,
    HeadLayer,
    HiddenStates,
    NumPyEngine,
)
from retriever.encoders.transformer.openvino_engine import OpenVINOEngine
from retriever.encoders.transformer.piece_model import PieceModel
from retriever.encoders.transformer.quantization import least_cosine
from retriever.encoders.transformer.tensors import Floats, UnsupportedModelError
from retriever.errors import ConfigError, MissingExtraError, ModelError, require_torch

if TYPE_CHECKING:
    from retriever.encoders.registry import MakeBackbone
    from retriever.encoders.transformer.model import TransformerModel
    from retriever.encoders.transformer.sharing import BackboneSharing

# Another default number format is used only if its vectors have this cosine to float32.
_LEAST_COSINE = 0.9995


def _dense_layer(weight: Floats, bias: Floats, activation: HeadLayer) -> HeadLayer:
    return lambda vectors: activation(vectors @ weight.T + bias)


class LightModel(PieceModel):
    """A transformer without torch; its vectors equal `TransformerModel` within rounding.

    Few texts run in NumPy. Many run in OpenVINO, or in torch if it is not installed. Threads may
    share the model, and a forked child process can use it.
    """

    def __init__(
        self,
        folder: ModelFolder,
        fuser: Fuser,
        *,
        automatic: bool,
        sharing: BackboneSharing | None = None,
    ) -> None:
        settings = fuser.settings
        if settings.dtype == "float16":
            raise UnsupportedModelError("float16, which torch has for GPUs")
        self.backbone = sharing.light(folder) if sharing else LightBackbone(folder)
        self._sharing = sharing
        self._tokenizer = self.backbone.tokenizer
        self._settings = settings
        # The number format; None until OpenVINO is first used and the default is chosen.
        self._format: Dtype | None = None if automatic else settings.number_format
        self._is_automatic = automatic
        special = self._tokenizer.special
        special.require(settings.pooling)
        self._fuser = replace(fuser, special=special)
        self._head: list[HeadLayer] = []
        self.dimensions = self._fuser.width(self.backbone.network.width)
        if settings.head and folder.settings.projections:
            for weight, bias, activation in read_projections(folder, self.dimensions):
                self._head.append(_dense_layer(weight, bias, ACTIVATION_FUNCTIONS[activation]))
                self.dimensions = len(weight)
        elif settings.head:
            self._head.append(_dense_layer(*read_pooler(folder, self.dimensions), np.tanh))
        self._folder = folder
        # Protects the choice of the format, and the loading of the model in torch.
        self._lock = threading.Lock()
        self._torch: TransformerModel | None = None
        self._encoded_pieces = 0
        self.computed: set[tuple[Dtype, Engine]] = set()
        self.max_length = self.backbone.max_length
        self.backbone.register_model(fuser.layers)
        if sharing:
            self.batch_pieces = SHARED_PIECES

    @property
    def depth(self) -> int:
        """Number L of layers; hidden states are 0 (embeddings) to L."""
        return self.backbone.network.depth

    def embed(self, pieces: Sequence[Sequence[int]]) -> Floats:
        """Return (texts, dimensions) float32 vectors, not normalized."""
        batches = self.embed_batches(pieces)
        if batches is None:
            return self.in_torch().embed(pieces)
        return self._fill_vectors(len(pieces), batches)

    def _fill_vectors(self, texts: int, batches: Batches) -> Floats:
        vectors = np.zeros((texts, self.dimensions), np.float32)
        for rows, batch_vectors in batches:
            vectors[rows] = batch_vectors
        return vectors

    def embed_batches(self, pieces: Sequence[Sequence[int]]) -> Batches | None:
        """Yield vectors by NumPy or OpenVINO; return None if torch computes them."""
        batches = self._run(pieces)
        return None if batches is None else self._pool(batches)

    def _pool(self, batches: Iterator[HiddenStates]) -> Batches:
        for batch in batches:
            longest = batch.states[0].shape[1]
            padded = int(batch.lengths.min()) < longest
            pieces = self._fuser.pieces(batch.lengths, longest, padded=padded)
            yield batch.rows, self.project(self._fuser.vectors(batch.states, pieces))

    def project(self, vectors: Floats) -> Floats:
        """Apply the head, if there is one, to (texts, width) vectors."""
        for layer in self._head:
            vectors = layer(vectors)
        return vectors

    def _run(self, pieces: Sequence[Sequence[int]]) -> Iterator[HiddenStates] | None:
        """Return the hidden states that are fused, batch by batch; None if torch runs them."""
        dtype, engine = self._choose_engine(sum(map(len, pieces)))
        if engine == "torch":
            return None
        return self.backbone.run(pieces, self._fuser.layers, engine, dtype)

    def _choose_engine(self, pieces: int) -> tuple[Dtype, Engine]:
        """Return number format and engine for the next texts, `pieces` word pieces in all."""
        self._encoded_pieces = min(self._encoded_pieces + pieces, MANY_PIECES)
        engine = engine_for(self._settings, self._encoded_pieces)
        dtype = self._settings.number_format
        if engine == "openvino":
            dtype = self._openvino_format()
        if pieces:
            self.computed.add((dtype, engine))
        return dtype, engine

    def piece_batches(self, pieces: Sequence[Sequence[int]]) -> Batches:
        """Yield the vectors of all pieces, one batch after the other."""
        batches = self._run(pieces)
        if batches is None:
            yield from self.in_torch().piece_batches(pieces)
            return
        for batch in batches:
            states = dict(zip(self._fuser.layers, batch.states, strict=True))
            yield batch.rows, self._fuser.fuse(states)

    def all_states(self, pieces: Sequence[Sequence[int]]) -> list[Floats]:
        """Return for each text its hidden states, (layers, pieces, width), not padded.

        A model in int8 has its states in float32.
        """
        dtype, engine_name = self._choose_engine(sum(map(len, pieces)))
        if engine_name == "torch":
            return self.in_torch().all_states(pieces)
        dtype = "float32" if dtype == "int8" else dtype
        engine = self.backbone.load_engine(engine_name, dtype, range(self.depth + 1))
        states_of_texts: dict[int, Floats] = {}
        for batch in engine.run(pieces):
            for place, row in enumerate(batch.rows.tolist()):
                states = [state[place, : len(pieces[row])] for state in batch.states]
                states_of_texts[row] = np.stack(states)
        return [states_of_texts[row] for row in range(len(pieces))]

    def expect_many(self) -> None:
        """Use the bulk engine from the first text on."""
        self._encoded_pieces = MANY_PIECES

    def in_float32(self) -> LightModel:
        """Return the model with float32 as default; NumPy and torch have no other default."""
        if not self._is_automatic or self._format == "float32" or not find_spec("openvino"):
            return self
        copied_model = copy.copy(self)
        copied_model._is_automatic = False
        copied_model._format = "float32"
        copied_model._lock = threading.Lock()
        copied_model._encoded_pieces = 0
        copied_model.computed = set()
        return copied_model

    def in_torch(self) -> TransformerModel:
        """Return the same model in torch, loaded on first use."""
        with self._lock:
            if self._torch is None:
                dtype = "float32" if self._settings.dtype == "int8" else self._settings.dtype
                fuser = replace(self._fuser, settings=replace(self._settings, dtype=dtype))
                make_backbone = self._sharing.in_torch if self._sharing else None
                self._torch = _load_in_torch(self._folder, fuser, "cpu", make_backbone)
            return self._torch

    def _openvino_format(self) -> Dtype:
        with self._lock:
            if self._format is None:
                self._format = self._choose_format(native_format())
            return self._format

    def _choose_format(self, dtype: Dtype) -> Dtype:
        """Return `dtype` if its vectors agree with those in float32; else warn, and return float32.

        Agreement is measured when a model is first used; see `least_cosine`.
        """
        if dtype == "float32":
            return dtype
        layers = self._fuser.layers
        network = self.backbone.network
        engines = NumPyEngine(network, layers), OpenVINOEngine(network, layers, dtype)

        def encode_with_both(texts: Sequence[str]) -> list[Floats]:
            pieces = self._tokenizer.tokenize(texts, self.max_length)
            return [
                self._fill_vectors(len(pieces), self._pool(engine.run(pieces)))
                for engine in engines
            ]

        settings = replace(self._settings, model=None)
        cosine = least_cosine(
            encode_with_both,
            f"{self._folder.weights} {settings} {describe_engine(dtype, 'openvino')}",
        )
        if cosine >= _LEAST_COSINE:
            return dtype
        warnings.warn(
            f"{self._settings.model}: the cosine between the vectors of a text in {dtype} and in "
            f"float32 is {cosine:.4f}, below {_LEAST_COSINE}: texts are encoded in float32; give "
            f"dtype={dtype} to force it",
            stacklevel=2,
        )
        return "float32"


def _require_last_layer(requested: EncoderSettings, folder: ModelFolder) -> None:
    if requested.layers not in (None, "last", "-1") or requested.fusion not in (None, "mean"):
        raise ConfigError(
            f"layers: the layers of a {folder.config.get('model_type')} model cannot be read "
            "one by one; leave layers and fusion out, or name another model"
        )


def resolve(requested: EncoderSettings, folder: ModelFolder) -> Fuser:
    """Resolve requested settings against a model's files; return the fusion of its layers.

    The resolved settings name a value only if it differs from the permanent default or from the
    model's own value. Their text form therefore means the same encoder everywhere. The window is
    named only if requested. Only the last layer of an unknown architecture can be read.
    """
    model_settings = folder.settings
    architecture = folder.architecture
    depth = None if architecture is None else folder.config.get(architecture.depth)
    head = bool(model_settings.projections) if requested.head is None else requested.head
    resolved: dict[str, Any] = {
        "model": folder.name,
        "special_tokens": None if requested.special_tokens == "keep" else requested.special_tokens,
        "head": head if head or model_settings.projections else None,
        "normalize": False if requested.normalize is False else None,
        "backend": None if requested.backend == "auto" else requested.backend,
    }
    for name in ("query_prompt", "passage_prompt"):
        model_prompt = getattr(model_settings, name)
        prompt = model_prompt if getattr(requested, name) is None else getattr(requested, name)
        # None if neither the settings nor the model name a prompt.
        resolved[name] = prompt if prompt or model_prompt else None
    sbert_wk = None
    if not isinstance(depth, int) or depth <= 0:
        _require_last_layer(requested, folder)
        fused_layers: tuple[int, ...] = (1,)
        resolved["layers"] = None
    elif requested.fusion == "sbert-wk":
        sbert_wk = SBERTWKSettings.of(requested, depth)
        fused_layers = tuple(range(sbert_wk.first_state, depth + 1))
        resolved |= sbert_wk.named()
    elif requested.layers is None:
        fused_layers = (depth,)
    else:
        fused_layers = resolve_layers(requested.layers, depth)
        fused_layers = fused_layers if requested.fusion == "concat" else tuple(sorted(fused_layers))
        canonical = format_layers(fused_layers, depth)
        resolved["layers"] = None if canonical == "last" else canonical
    if sbert_wk is None:
        pooling = requested.pooling or model_settings.pooling
        resolved["pooling"] = None if pooling == model_settings.pooling == "mean" else pooling
    if requested.fusion == "mean" or len(fused_layers) == 1:
        resolved["fusion"] = None
    return Fuser(
        replace(requested, **resolved), fused_layers, tuple(sorted(fused_layers)), sbert_wk
    )


def _load(requested: EncoderSettings, context: LoadContext) -> tuple[EncoderSpec, EncoderModel]:
    folder = find_model(requested.model or DEFAULT_MODEL, download=context.download)
    fuser = resolve(requested, folder)
    settings = fuser.settings
    model: LightModel | TransformerModel | None = None
    reason = "it runs in torch here"
    if (
        context.make_backbone is None
        and settings.backend != "torch"
        and runs_on_cpu(context.device)
    ):
        automatic = (settings.dtype or context.dtype) == "auto"
        try:
            model = LightModel(folder, fuser, automatic=automatic, sharing=context.sharing)
        except UnsupportedModelError as error:
            reason = str(error)
    if model is None:
        if settings.dtype == "int8" or settings.backend not in (None, "torch"):
            unsupported = "int8" if settings.dtype == "int8" else f"the backend {settings.backend}"
            raise ConfigError(
                f"backend: {folder.name} cannot run with {unsupported} ({reason}); leave "
                "backend and dtype out"
            )
        require_torch(f"the model {folder.name} ({reason})")
        shared_backbone = context.sharing.in_torch if context.sharing else None
        make_backbone = context.make_backbone or shared_backbone
        model = _load_in_torch(folder, fuser, context.device, make_backbone)
    max_pieces = model.max_length
    window = settings.max_length or min(folder.settings.max_length or DEFAULT_WINDOW, max_pieces)
    if not SHORTEST_WINDOW <= window <= max_pieces:
        raise ConfigError(
            f"max-length: the model {folder.name} reads at least {SHORTEST_WINDOW} and at most "
            f"{max_pieces} pieces, found {window}"
        )
    settings = replace(settings, max_length=window)
    return EncoderSpec(settings, folder.weights, model.dimensions), model


def _load_in_torch(
    folder: ModelFolder, fuser: Fuser, device: str | None, make_backbone: MakeBackbone | None
) -> TransformerModel:
    from retriever.encoders.transformer.backbone import Backbone
    from retriever.encoders.transformer.model import TransformerModel

    backbone = (make_backbone or Backbone)(folder, device, fuser.settings.number_format)
    return TransformerModel(backbone, folder, replace(fuser, special=backbone.special))


def _describe(spec: EncoderSpec) -> dict[str, Any]:
    """Return the backend that runs the model on this machine; empty if it is unknown."""
    with suppress(ModelError, MissingExtraError):
        folder = find_model(spec.model)
        if spec.settings.backend == "torch" or not runs_on_cpu(None):
            return {"backend": "torch"}
        try:
            LightModel(folder, resolve(spec.settings, folder), automatic=False)
        except UnsupportedModelError as error:
            return {"backend": f"torch ({error})"}
        return {"backend": describe_engines(spec.settings)}
    return {}


def _resolve_settings(requested: EncoderSettings, download: bool) -> EncoderSettings:
    folder = find_model(requested.model or DEFAULT_MODEL, download=download)
    return resolve(requested, folder).settings


KIND = EncoderKind(
    _load,
    weights=lambda requested, download: (
        find_model(requested.model or DEFAULT_MODEL, download=download).weights
    ),
    describe=_describe,
    resolve=_resolve_settings,
)
