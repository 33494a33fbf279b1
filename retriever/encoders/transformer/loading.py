"""Encoders that run a transformer, without torch where that pays."""

from __future__ import annotations

import copy
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import (
    Engine,
    describe_engine,
    describe_engines,
    engine_for,
    native_format,
    runs_on_cpu,
)
from retriever.encoders.fusion.pooling import Fuser
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.encoders.model_folders import ModelFolder, find_model, read_projections
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
from retriever.encoders.transformer.bert import (
    NumPyEngine,
    States,
    UnsupportedModelError,
    gelu,
    read_pooler,
    read_weights,
)
from retriever.encoders.transformer.openvino_engine import (
    OpenVINOEngine,
    calibrated,
    least_cosine,
)
from retriever.encoders.transformer.word_pieces import PieceModel, WordPieces
from retriever.errors import ConfigError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from retriever.encoders.registry import MakeBackbone
    from retriever.encoders.transformer.model import TransformerModel

Floats = NDArray[np.float32]
Layer = Callable[[Floats], Floats]
_UNLIMITED = 10**9
# The least cosine to vectors in float32 that another default format may have.
_FAITHFUL = 0.9995
# For a model without a limit of positions.
_USUAL_WINDOW = 512


def _sigmoid(values: Floats) -> Floats:
    # In double precision, where the exponential of a float32 does not overflow unnoticed.
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-values.astype(np.float64)))).astype(np.float32)


ACTIVATION_FUNCTIONS: Mapping[str, Layer] = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    "ReLU": lambda values: np.maximum(values, 0),
    "GELU": gelu,
    "Sigmoid": _sigmoid,
}


def _affine(weight: Floats, bias: Floats, activation: Layer) -> Layer:
    return lambda vectors: activation(vectors @ weight.T + bias)


class LightModel(PieceModel):
    """Turns word pieces into vectors; the same as `TransformerModel` gives, within rounding.

    Few texts run in NumPy, many in OpenVINO or, where it is not installed, in torch. Threads may
    share it, and a forked child process can use it.
    """

    def __init__(self, folder: ModelFolder, fuser: Fuser, *, automatic: bool) -> None:
        settings = fuser.settings
        if settings.dtype == "float16":
            raise UnsupportedModelError("float16, which torch has for GPUs")
        self._weights = read_weights(folder)
        self._tokenizer: WordPieces = WordPieces(folder)
        if self._tokenizer.highest_id >= len(self._weights.words):
            raise UnsupportedModelError("a word piece that has no vector")
        self._settings = settings
        # None until the default format is chosen, when OpenVINO is first used.
        self._format: Dtype | None = None if automatic else settings.number_format
        self._is_automatic = automatic
        self._fuser = fuser
        self._head: list[Layer] = []
        self.dimensions = self._fuser.width(self._weights.width)
        if settings.head and folder.settings.projections:
            for weight, bias, activation in read_projections(folder, self.dimensions):
                self._head.append(_affine(weight, bias, ACTIVATION_FUNCTIONS[activation]))
                self.dimensions = len(weight)
        elif settings.head:
            self._head.append(_affine(*read_pooler(folder, self.dimensions), np.tanh))
        self._folder = folder
        self._loading = threading.Lock()
        self._torch: TransformerModel | None = None
        self._openvino: tuple[int, OpenVINOEngine] | None = None
        self._inherited: tuple[int, OpenVINOEngine] | None = None
        self._encoded = 0
        self.computed: set[tuple[Dtype, Engine]] = set()
        self.max_length = min(self._weights.longest, self._tokenizer.max_length)

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """One vector per text, (texts, dimensions) float32, not normalized."""
        batches = self.embed_batches(pieces)
        if batches is None:
            return self.in_torch().embed(pieces)
        return self._filled(len(pieces), batches)

    def _filled(self, texts: int, batches: Batches) -> Floats:
        vectors = np.zeros((texts, self.dimensions), np.float32)
        for rows, found in batches:
            vectors[rows] = found
        return vectors

    def embed_batches(self, pieces: Sequence[Sequence[int]]) -> Batches | None:
        """The vectors of any number of texts by NumPy or OpenVINO; None where torch computes."""
        engine = self._engine(sum(map(len, pieces)))
        return None if engine is None else self._vectors(engine.run(pieces))

    def _vectors(self, batches: Iterator[States]) -> Batches:
        for found in batches:
            longest = found.states[0].shape[1]
            padded = int(found.lengths.min()) < longest
            places = self._fuser.pieces(found.lengths, longest, padded=padded)
            vectors: Floats = self._fuser.vectors(found.states, places)
            for layer in self._head:
                vectors = layer(vectors)
            yield found.rows, vectors

    def _engine(self, pieces: int) -> NumPyEngine | OpenVINOEngine | None:
        """What runs the next texts, of so many word pieces in all; None for torch."""
        self._encoded = min(self._encoded + pieces, _UNLIMITED)
        engine = engine_for(self._settings, self._encoded)
        compiled = self._compiled() if engine == "openvino" else None
        if pieces:
            own = self._settings.number_format if compiled is None else compiled.dtype
            self.computed.add((own, engine))
        if engine == "numpy":
            return NumPyEngine(self._weights, self._fuser.layers)
        return compiled

    def piece_batches(self, pieces: Sequence[Sequence[int]]) -> Batches:
        """The vectors of all pieces, a batch after the other."""
        engine = self._engine(sum(map(len, pieces)))
        if engine is None:
            yield from self.in_torch().piece_batches(pieces)
            return
        for found in engine.run(pieces):
            states = dict(zip(self._fuser.layers, found.states, strict=True))
            yield found.rows, self._fuser.fuse(states)

    def expect_many(self) -> None:
        """Never start in NumPy where another engine is installed."""
        self._encoded = _UNLIMITED

    def in_float32(self) -> LightModel:
        """See `EncoderModel`; NumPy and torch have no other default."""
        if not self._is_automatic or self._format == "float32" or not find_spec("openvino"):
            return self
        twin = copy.copy(self)
        twin._is_automatic = False
        twin._format = "float32"
        twin._loading = threading.Lock()
        twin._openvino = None
        twin._inherited = None
        twin._encoded = 0
        twin.computed = set()
        return twin

    def in_torch(self) -> TransformerModel:
        """The same model in torch, loaded on first use."""
        with self._loading:
            if self._torch is None:
                own = "float32" if self._settings.dtype == "int8" else self._settings.dtype
                fuser = replace(self._fuser, settings=replace(self._settings, dtype=own))
                self._torch = _in_torch(self._folder, fuser, "cpu", None)
            return self._torch

    def _compiled(self) -> OpenVINOEngine:
        # The threads of an engine do not survive a fork.
        with self._loading:
            if self._openvino is None or self._openvino[0] != os.getpid():
                # The destructor of one that a parent process had would wait for its threads.
                self._inherited = self._openvino
                ranges = None
                if self._format is None:
                    self._format = self._faithful_format(native_format())
                if self._format == "int8":
                    identity = self._folder.weights
                    ranges = calibrated(self._weights, identity, self._tokenizer, self.max_length)
                engine = OpenVINOEngine(self._weights, self._fuser.layers, self._format, ranges)
                self._openvino = os.getpid(), engine
            return self._openvino[1]

    def _faithful_format(self, dtype: Dtype) -> Dtype:
        """A number format if it keeps vectors as they are in float32; else float32, with a warning.

        It is measured when a model is first used; see `least_cosine`.
        """
        if dtype == "float32":
            return dtype
        layers = self._fuser.layers
        engines = NumPyEngine(self._weights, layers), OpenVINOEngine(self._weights, layers, dtype)

        def both(texts: Sequence[str]) -> list[Floats]:
            pieces = self._tokenizer.tokenize(texts, self.max_length)
            return [self._filled(len(pieces), self._vectors(one.run(pieces))) for one in engines]

        settings = replace(self._settings, model=None)
        cosine = least_cosine(
            both, f"{self._folder.weights} {settings} {describe_engine(dtype, 'openvino')}"
        )
        if cosine >= _FAITHFUL:
            return dtype
        warnings.warn(
            f"{self._settings.model}: in {dtype} the cosine of a text's vector to that in float32 "
            f"is {cosine:.4f}, below {_FAITHFUL}: texts are encoded in float32; dtype={dtype} "
            "encodes in it all the same",
            stacklevel=2,
        )
        return "float32"


def resolve(asked: EncoderSettings, folder: ModelFolder) -> Fuser:
    """What is read of one transformer, with the settings that decide its vectors.

    A setting is named only if it differs from the plain meaning that `retriever.encoders.settings`
    fixes forever, or from what the model would do if it were not named; so pasted anywhere, it is
    the same encoder. The window is named only if it is given. Of an unknown architecture only the
    last layer is read.
    """
    own = folder.settings
    architecture = folder.architecture
    depth = None if architecture is None else folder.config.get(architecture.depth)
    head = bool(own.projections) if asked.head is None else asked.head
    chosen: dict[str, Any] = {
        "model": folder.name,
        "special_tokens": None if asked.special_tokens == "keep" else asked.special_tokens,
        "head": head if head or own.projections else None,
        "normalize": False if asked.normalize is False else None,
        "backend": None if asked.backend == "auto" else asked.backend,
    }
    for name in ("query_prompt", "passage_prompt"):
        usual = getattr(own, name)
        prompt = usual if getattr(asked, name) is None else getattr(asked, name)
        # None if there is no prompt, and would be none if none were named.
        chosen[name] = prompt if prompt or usual else None
    sbert_wk = None
    if not isinstance(depth, int) or depth <= 0:
        if asked.layers not in (None, "last", "-1") or asked.fusion not in (None, "mean"):
            raise ConfigError(
                f"layers: the layers of a {folder.config.get('model_type')} model cannot be read "
                "one by one; leave layers and fusion out, or name another model"
            )
        fused: tuple[int, ...] = (1,)
        chosen["layers"] = None
    elif asked.fusion == "sbert-wk":
        sbert_wk = SBERTWKSettings.of(asked, depth)
        fused = tuple(range(sbert_wk.first_state, depth + 1))
        chosen |= sbert_wk.named()
    elif asked.layers is None:
        fused = (depth,)
    else:
        fused = resolve_layers(asked.layers, depth)
        fused = fused if asked.fusion == "concat" else tuple(sorted(fused))
        canonical = format_layers(fused, depth)
        chosen["layers"] = None if canonical == "last" else canonical
    if sbert_wk is None:
        pooling = asked.pooling or own.pooling
        chosen["pooling"] = None if pooling == own.pooling == "mean" else pooling
    if asked.fusion == "mean" or len(fused) == 1:
        chosen["fusion"] = None
    return Fuser(replace(asked, **chosen), fused, tuple(sorted(fused)), sbert_wk)


def _load(asked: EncoderSettings, loading: LoadContext) -> tuple[EncoderSpec, EncoderModel]:
    folder = find_model(asked.model or DEFAULT_MODEL, download=loading.download)
    fuser = resolve(asked, folder)
    settings = fuser.settings
    model: LightModel | TransformerModel | None = None
    reason = "it runs in torch alone here"
    if loading.backbone_of is None and settings.backend != "torch" and runs_on_cpu(loading.device):
        automatic = (settings.dtype or loading.dtype) == "auto"
        try:
            model = LightModel(folder, fuser, automatic=automatic)
        except UnsupportedModelError as error:
            reason = str(error)
    if model is None:
        if settings.dtype == "int8" or settings.backend not in (None, "torch"):
            asked_for = "int8" if settings.dtype == "int8" else f"the backend {settings.backend}"
            raise ConfigError(
                f"backend: {folder.name} cannot run with {asked_for} ({reason}); leave backend and "
                "dtype out"
            )
        model = _in_torch(folder, fuser, loading.device, loading.backbone_of)
    longest = model.max_length
    window = settings.max_length or min(folder.settings.max_length or _USUAL_WINDOW, longest)
    if not SHORTEST_WINDOW <= window <= longest:
        raise ConfigError(
            f"max-length: the model {folder.name} reads at least {SHORTEST_WINDOW} and at most "
            f"{longest} pieces, found {window}"
        )
    settings = replace(settings, max_length=window)
    return EncoderSpec(settings, folder.weights, model.dimensions), model


def _in_torch(
    folder: ModelFolder, fuser: Fuser, device: str | None, backbone_of: MakeBackbone | None
) -> TransformerModel:
    from retriever.encoders.transformer.backbone import Backbone
    from retriever.encoders.transformer.model import TransformerModel

    backbone = (backbone_of or Backbone)(folder, device, fuser.settings.number_format)
    return TransformerModel(backbone, folder, replace(fuser, special=backbone.special))


def _describe(spec: EncoderSpec) -> dict[str, Any]:
    """What runs the model on this machine, if that can be said."""
    with suppress(ModelError, MissingExtraError):
        folder = find_model(spec.model)
        if spec.settings.backend == "torch" or not runs_on_cpu(None):
            return {"backend": "torch"}
        try:
            LightModel(folder, resolve(spec.settings, folder), automatic=False)
        except UnsupportedModelError:
            return {"backend": "torch"}
        return {"backend": describe_engines(spec.settings)}
    return {}


def _resolved(asked: EncoderSettings, download: bool) -> EncoderSettings:
    return resolve(asked, find_model(asked.model or DEFAULT_MODEL, download=download)).settings


KIND = EncoderKind(
    _load,
    weights=lambda asked, download: (
        find_model(asked.model or DEFAULT_MODEL, download=download).weights
    ),
    describe=_describe,
    resolve=_resolved,
)
