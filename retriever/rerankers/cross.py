"""Cross-encoders: question and passage through one transformer together (Ma et al. 2019).

A two-layer MLP reads the top layer's [CLS]. It is stored in `head.safetensors` beside the files of
the transformer; `reranker.json`, written last, describes the training. If transformers has a
classifier of this form, `model.safetensors` holds the MLP, too, and sentence-transformers'
CrossEncoder reads the folder.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_folder
from retriever.encoders.computing import (
    BATCH_PIECES,
    MANY_PIECES,
    engine_for,
    runs_on_cpu,
    token_batches,
)
from retriever.encoders.model_folders import ModelFolder, find_model
from retriever.encoders.settings import SHORTEST_WINDOW, Backend, Dtype, EncoderSettings
from retriever.encoders.transformer.architectures.registry import read_network
from retriever.encoders.transformer.backbone import Backbone, Batch
from retriever.encoders.transformer.numpy_engine import ACTIVATION_FUNCTIONS, NumPyEngine
from retriever.encoders.transformer.openvino_engine import OpenVINOEngine
from retriever.encoders.transformer.quantization import calibrate
from retriever.encoders.transformer.tensors import Floats, UnsupportedModelError
from retriever.encoders.transformer.tokenizer import PiecePairs, Tokenizer
from retriever.encoders.transformer.tokenizer_classes import NO_LIMIT, PROBE
from retriever.errors import ConfigError, ModelError, require_torch
from retriever.rerankers.classifier_heads import (
    CLASSIFIERS,
    TASK,
    ReadHead,
    read_activation,
    read_chain,
    read_classifier,
    read_modules,
    read_settings,
    require_classifier,
)
from retriever.rerankers.folders import (
    check_target,
    file_digest,
    form_of,
    is_reranker,
    read_manifest,
    reranker_kind,
)
from retriever.rerankers.scoring_head import ScoringHead, mlp_head
from retriever.training.loop import silent

if TYPE_CHECKING:
    import torch

    from retriever.rerankers.scorers import CrossHead

KIND = "cross-encoder"
_FORM = form_of(KIND, max_length=int, training=dict)
# Configuration for a tanh, and for a summary by [CLS], by model type.
_CLASSIFIER_CONFIG: Mapping[str, Mapping[str, Any]] = {
    "deberta-v2": {"pooler_hidden_act": "tanh"},
    "xlnet": {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"},
}
# Configuration for sentence-transformers: a score is the logit.
_SCORE = {"activation_fn": "torch.nn.modules.linear.Identity"}


class CrossEncoder:
    """A scorer of pairs of texts; higher is better, in no fixed range.

    Attributes:
        max_length: window in word pieces of both texts together.
        cut: number of pairs so far that were longer than the window.
        autocast: whether the transformer multiplies in bfloat16 with float32 weights.
    """

    def __init__(
        self, backbone: Backbone, head: torch.nn.Module, max_length: int, dtype: Dtype = "float32"
    ) -> None:
        self.backbone = backbone
        self.head: Any = head
        self.max_length = max_length
        self.cut = 0
        self.autocast = False
        self.batch_pieces = BATCH_PIECES[dtype]

    def score(
        self,
        questions: Sequence[str],
        passages: Sequence[str],
        done: Callable[[int], object] = silent,
    ) -> NDArray[np.float32]:
        """Return one score for each question and its passage, (pairs,) float32.

        A score depends on the other pairs only by rounding. In a pair that is longer than the
        window, the longer text loses its end. `done` is called with the number of pairs of each
        batch.
        """
        import torch

        pairs = self.backbone.tokenize_pairs(questions, passages, self.max_length)
        self.cut += pairs.cut
        scores = np.zeros(len(questions), np.float32)
        was_training = self.head.training
        self.backbone.model.eval()
        self.head.eval()
        with torch.inference_mode():
            for rows in token_batches([len(ids) for ids in pairs.ids], self.batch_pieces):
                scores[rows] = self.forward(pairs, rows).cpu().numpy()
                done(len(rows))
        self.backbone.model.train(was_training)
        self.head.train(was_training)
        return scores

    def forward(self, pairs: PiecePairs, rows: NDArray[np.int64]) -> torch.Tensor:
        """Return the scores of the pairs `rows` as one batch, (rows,) float32."""
        import torch

        types = [pairs.types[row] for row in rows] if pairs.types else []
        batch = self.backbone.batch([pairs.ids[row] for row in rows], types)
        with torch.autocast(self.backbone.device.type, torch.bfloat16, enabled=self.autocast):
            inputs = self._head_inputs(batch)
        scores: torch.Tensor = self.head(inputs.float())
        return scores

    def _head_inputs(self, batch: Batch) -> torch.Tensor:
        """Return the input of the head: the top layer's [CLS], (rows, width)."""
        return self.backbone.top_cls(batch)


class Classifier(CrossEncoder):
    """A transformer with its own classifier of one label; the head is an activation function."""

    def _head_inputs(self, batch: Batch) -> torch.Tensor:
        logits: torch.Tensor = self.backbone.model(**batch.inputs).logits[:, 0]
        return logits


class ModularCrossEncoder(CrossEncoder):
    """A transformer in torch with modules of sentence-transformers after it."""

    def __init__(
        self,
        backbone: Backbone,
        modules: ScoringHead,
        activation: torch.nn.Module,
        max_length: int,
        dtype: Dtype = "float32",
    ) -> None:
        super().__init__(backbone, activation, max_length, dtype)
        self._modules = modules

    def _head_inputs(self, batch: Batch) -> torch.Tensor:
        import torch

        states = self.backbone.model(**batch.inputs).last_hidden_state
        return torch.from_numpy(self._modules.score(states, batch.lengths))


class LightCrossEncoder:
    """A cross-encoder without torch, with the scores of `CrossEncoder`.

    Raises:
        UnsupportedModelError: only torch runs the model.
    """

    def __init__(
        self,
        folder: ModelFolder,
        max_length: int,
        computing: EncoderSettings,
        read_head: ReadHead,
    ) -> None:
        if computing.dtype == "float16":
            raise UnsupportedModelError("float16, which torch has for GPUs")
        # A pair is long, so NumPy is used only on request.
        self._engine_name = engine_for(computing, MANY_PIECES)
        if self._engine_name == "torch":
            raise UnsupportedModelError("OpenVINO is not installed")
        self._network = read_network(folder)
        self._tokenizer = Tokenizer(folder)
        if self._tokenizer.highest_id >= len(self._network.words):
            raise UnsupportedModelError("a token that has no vector")
        if self._tokenizer.special.cls not in (0, None):
            raise UnsupportedModelError("a [CLS] that does not begin a text")
        self._identity = folder.weights
        self._path = folder.path
        self._dtype = computing.number_format
        self._require_types()
        self._head = read_head(folder, self._network.width)
        self._engine: NumPyEngine | OpenVINOEngine | None = None
        self.max_length = min(max_length, self._network.max_pieces, self._tokenizer.max_length)
        _require_window(folder, self.max_length)
        self.cut = 0

    def _require_types(self) -> None:
        """Raise ModelError unless the network has a vector for each token type of a pair."""
        types = self._tokenizer.tokenize_pairs([PROBE], [PROBE], NO_LIMIT).types
        highest = max(map(max, types))
        count = self._network.type_count
        if count and highest >= count:
            raise ModelError(
                f"{self._path}: a pair has the token type {highest:,}, but the model has vectors "
                f"of {count:,}; copy, download or save the model again"
            )

    def score(
        self,
        questions: Sequence[str],
        passages: Sequence[str],
        done: Callable[[int], object] = silent,
    ) -> NDArray[np.float32]:
        """Return scores; see `CrossEncoder.score`."""
        pairs = self._tokenizer.tokenize_pairs(questions, passages, self.max_length)
        self.cut += pairs.cut
        scores = np.zeros(len(questions), np.float32)
        for batch in self._load_engine().run(pairs.ids, pairs.types):
            scores[batch.rows] = self._head.score(batch.states[0], batch.lengths)
            done(len(batch.rows))
        return scores

    def _load_engine(self) -> NumPyEngine | OpenVINOEngine:
        """Return the engine of the last hidden state, made on first use."""
        depth = self._network.depth
        if self._engine is None and self._engine_name == "numpy":
            self._engine = NumPyEngine(self._network, [depth])
        elif self._engine is None:
            ranges = None
            if self._dtype == "int8":
                ranges = calibrate(self._network, self._identity, self._tokenizer, self.max_length)
            self._engine = OpenVINOEngine(self._network, [depth], self._dtype, ranges)
        return self._engine


def write_cross_encoder(folder: Path, model: CrossEncoder, training: Mapping[str, Any]) -> None:
    """Write a cross-encoder; the folder appears complete, or not at all."""
    check_target(folder, KIND)
    with whole_folder(folder) as new:
        model.backbone.save(new, _as_classifier(model), model.max_length)
        state = model.head.state_dict()
        _FORM.write_arrays(new, {name: value.cpu().numpy() for name, value in state.items()})
        settings = {
            "format": _FORM.version,
            "kind": KIND,
            "weights": find_model(str(new)).weights,
            "max_length": model.max_length,
            "training": dict(training),
        }
        _FORM.write_settings(new, settings)


def _as_classifier(model: CrossEncoder) -> Any:
    """Return a classifier of transformers with the same scores; None if there is none."""
    import torch
    from transformers import AutoModelForSequenceClassification

    config: Any = copy.deepcopy(model.backbone.model.config)
    names = CLASSIFIERS.get(config.model_type)
    if names is None or names.activation != "Tanh" or names.norm:
        return None
    config.num_labels = 1
    config.sentence_transformers = _SCORE
    config.update(_CLASSIFIER_CONFIG.get(config.model_type, {}))
    # The device "meta" allocates no memory for weights, which are assigned below.
    with torch.device("meta"):
        classifier: Any = AutoModelForSequenceClassification.from_config(config)
    # Some classifiers have no pooler.
    state = {
        f"{classifier.base_model_prefix}.{name}": weight
        for name, weight in model.backbone.model.state_dict().items()
        if not name.startswith("pooler.")
    }
    for name, weight in model.head.state_dict().items():
        layer, part = name.split(".")
        state[f"{getattr(names, layer)}.{part}"] = weight
    classifier.load_state_dict(state, assign=True)
    return classifier


def load_cross_encoder(
    folder: Path, *, device: str | None = None, backend: Backend = "auto", dtype: Dtype = "float32"
) -> CrossEncoder | LightCrossEncoder:
    """Read the folder of a cross-encoder; ``auto`` takes the fastest backend."""
    manifest = read_manifest(folder, _FORM)
    model = find_model(str(folder))
    if model.weights != manifest["weights"]:
        raise _FORM.altered(folder, "weights of another SHA-256")
    max_length = manifest["max_length"]
    _require_window(model, max_length)
    computing = EncoderSettings(backend=backend, dtype=dtype)
    light = _load_light(model, max_length, device, computing, _read_own_head)
    if light is not None:
        return light
    backbone = Backbone(model, device, dtype)
    head = read_head(folder, backbone.width).to(backbone.device).eval()
    return CrossEncoder(backbone, head, max_length, dtype)


def _require_window(folder: ModelFolder, window: int) -> None:
    """Raise ModelError for a window without room for both texts."""
    if window < SHORTEST_WINDOW:
        raise ModelError(
            f"{folder.path}: expected a window of {SHORTEST_WINDOW} tokens or more, found "
            f"{window}; copy, download or save the model again"
        )


def _load_light(
    folder: ModelFolder,
    max_length: int,
    device: str | None,
    computing: EncoderSettings,
    read_head: ReadHead,
) -> LightCrossEncoder | None:
    """Return a cross-encoder without torch; None if torch is faster or necessary."""
    backend = computing.backend
    dtype = computing.number_format
    reason = "it runs in torch here"
    if backend != "torch" and runs_on_cpu(device):
        try:
            return LightCrossEncoder(folder, max_length, computing, read_head)
        except UnsupportedModelError as error:
            reason = str(error)
    if backend in ("openvino", "numpy") or dtype == "int8":
        raise ConfigError(f"backend: {folder.path} cannot run with {backend}, {dtype} ({reason})")
    require_torch(f"the cross-encoder {folder.path} ({reason})")
    return None


def read_training(folder: Path) -> dict[str, Any]:
    """Return the description of a cross-encoder's training, which is for information only."""
    training: dict[str, Any] = read_manifest(folder, _FORM)["training"]
    return training


def is_cross_encoder(path: str | Path) -> bool:
    """Return whether a folder holds a cross-encoder."""
    return is_reranker(path) and reranker_kind(Path(path)) == KIND


def _has_head_shapes(arrays: Mapping[str, Floats], width: int) -> bool:
    """Return whether arrays have the names and shapes of a `CrossHead`."""
    shapes = {"dense.weight": (width, width), "dense.bias": (width,)}
    shapes |= {"out.weight": (1, width), "out.bias": (1,)}
    return {name: array.shape for name, array in arrays.items()} == shapes


def _head_arrays(folder: Path, width: int) -> dict[str, Floats]:
    """Return weight and bias of both layers of the MLP, by name."""
    arrays = _FORM.read_arrays(folder)
    if not _has_head_shapes(arrays, width):
        raise _FORM.altered(folder / _FORM.arrays, "arrays of other shapes")
    return arrays


def _read_own_head(folder: ModelFolder, width: int) -> ScoringHead:
    return mlp_head(_head_arrays(folder.path, width))


def read_head(folder: Path, width: int) -> CrossHead:
    """Return the MLP of a cross-encoder of a width, on the CPU, in training mode."""
    import torch

    from retriever.rerankers.scorers import CrossHead

    head = CrossHead(width)
    arrays = _head_arrays(folder, width)
    head.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return head


def head_digest(folder: Path) -> str:
    """Return the SHA-256 of the MLP's file, in hexadecimal."""
    return file_digest(folder / _FORM.arrays)


def load_classifier(
    name: str,
    *,
    device: str | None = None,
    backend: Backend = "auto",
    dtype: Dtype = "float32",
    download: bool = False,
) -> CrossEncoder | LightCrossEncoder:
    """Load a folder or hub id; scores equal sentence-transformers' `predict`."""
    folder = find_model(name, download=download, read_settings=read_settings)
    modules = read_modules(folder.path)
    if not modules:
        require_classifier(folder)
    activation = read_activation(folder)

    chain = read_chain(folder, modules) if modules else None

    def read_scoring_head(folder: ModelFolder, width: int) -> ScoringHead:
        head = read_classifier(folder, width) if chain is None else chain
        return head.add(ACTIVATION_FUNCTIONS[activation])

    window = folder.settings.max_length or NO_LIMIT
    computing = EncoderSettings(backend=backend, dtype=dtype)
    light = _load_light(folder, window, device, computing, read_scoring_head)
    if light is not None:
        return light
    import torch

    function: torch.nn.Module = getattr(torch.nn, activation)()
    backbone = Backbone(
        folder, device, dtype, auto=f"AutoModel{TASK}" if chain is None else "AutoModel"
    )
    window = min(window, backbone.max_length)
    _require_window(folder, window)
    if chain is None:
        model: CrossEncoder = Classifier(backbone, function, window, dtype)
    else:
        model = ModularCrossEncoder(backbone, chain, function, window, dtype)
    if backbone.pads_left:
        # The classifier reads the last word piece, so a pair must not be padded.
        model.batch_pieces = 1
    return model
