"""Cross-encoders: question and passage through one transformer together (Ma et al. 2019).

A two-layer MLP reads the top layer's [CLS]. It is stored in `head.safetensors` beside the files of
the transformer; `reranker.json`, written last, describes the training. If transformers has a
classifier of this form, `model.safetensors` holds the MLP, too, and sentence-transformers'
CrossEncoder reads the folder.

A CrossEncoder of sentence-transformers names the activation function of its scores in
`config_sentence_transformers.json` or, in older releases, in `config.json`. The default is the
logistic function.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_folder
from retriever.encoders.computing import (
    BATCH_PIECES,
    engine_for,
    runs_on_cpu,
    token_batches,
)
from retriever.encoders.model_folders import ACTIVATIONS, ModelFolder, find_model, read_json
from retriever.encoders.settings import Backend, Dtype, EncoderSettings
from retriever.encoders.transformer.architectures.registry import read_network
from retriever.encoders.transformer.backbone import NO_LIMIT, Backbone, Batch
from retriever.encoders.transformer.loading import ACTIVATION_FUNCTIONS
from retriever.encoders.transformer.numpy_engine import NumPyEngine
from retriever.encoders.transformer.openvino_engine import OpenVINOEngine, calibrate
from retriever.encoders.transformer.tensors import Floats, UnsupportedModelError, map_arrays
from retriever.encoders.transformer.tokenizer import PiecePairs, Tokenizer
from retriever.errors import ConfigError, ModelError
from retriever.rerankers.folders import (
    check_target,
    file_digest,
    form_of,
    is_reranker,
    read_manifest,
    reranker_kind,
)
from retriever.training.loop import silent

if TYPE_CHECKING:
    import torch

    from retriever.rerankers.scorers import CrossHead

KIND = "cross-encoder"
_FORM = form_of(KIND, max_length=int, training=dict)
# Names of the two layers of a classifier with a tanh between them, by model type.
_PROJECTED = {"dense": "classifier.dense", "out": "classifier.out_proj"}
_CLASSIFIERS: Mapping[str, Mapping[str, str]] = {
    "bert": {"dense": "bert.pooler.dense", "out": "classifier"},
    "albert": {"dense": "albert.pooler", "out": "classifier"},
    "deberta-v2": {"dense": "pooler.dense", "out": "classifier"},
    "xlnet": {"dense": "sequence_summary.summary", "out": "logits_proj"},
    "mpnet": _PROJECTED,
    "roberta": _PROJECTED,
    "xlm-roberta": _PROJECTED,
    "camembert": _PROJECTED,
}
# Configuration for a tanh, and for a summary by [CLS], by model type.
_CLASSIFIER_CONFIG: Mapping[str, Mapping[str, Any]] = {
    "deberta-v2": {"pooler_hidden_act": "tanh"},
    "xlnet": {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"},
}
# Configuration for sentence-transformers: a score is the logit.
_SCORE = {"activation_fn": "torch.nn.modules.linear.Identity"}
_TASK = "ForSequenceClassification"


class CrossEncoder:
    """Scores pairs of texts; higher is better, in no fixed range.

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


class LightCrossEncoder:
    """Computes the scores of `CrossEncoder` without torch; may raise UnsupportedModelError."""

    def __init__(
        self,
        folder: ModelFolder,
        max_length: int,
        computing: EncoderSettings,
        read_head: Callable[[Path, int], Mapping[str, Floats]],
        activation: Callable[[Floats], Floats],
    ) -> None:
        # A pair is long, so NumPy is used only on request.
        self._engine = engine_for(computing, 10**9)
        if self._engine == "torch":
            raise UnsupportedModelError("OpenVINO is not installed")
        self._network = read_network(folder)
        self._pieces = Tokenizer(folder)
        if self._pieces.highest_id >= len(self._network.words):
            raise UnsupportedModelError("a word piece that has no vector")
        self._identity = folder.weights
        self._dtype = computing.number_format
        self._head = read_head(folder.path, self._network.width)
        self._activation = activation
        self._runner: NumPyEngine | OpenVINOEngine | None = None
        self.max_length = min(max_length, self._network.max_pieces, self._pieces.max_length)
        self.cut = 0

    def score(
        self,
        questions: Sequence[str],
        passages: Sequence[str],
        done: Callable[[int], object] = silent,
    ) -> NDArray[np.float32]:
        """Return scores; see `CrossEncoder.score`."""
        pairs = self._pieces.tokenize_pairs(questions, passages, self.max_length)
        self.cut += pairs.cut
        scores = np.zeros(len(questions), np.float32)
        head = self._head
        for rows, cls in self._top_cls(pairs.ids, pairs.types):
            hidden = np.tanh(cls @ head["dense.weight"].T + head["dense.bias"])
            scores[rows] = self._activation(hidden @ head["out.weight"].T + head["out.bias"])[:, 0]
            done(len(rows))
        return scores

    def _top_cls(
        self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
    ) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Yield the rows and the top layer's [CLS] of each batch of pairs."""
        depth = self._network.depth
        if self._runner is None and self._engine == "numpy":
            self._runner = NumPyEngine(self._network, [depth])
        elif self._runner is None:
            ranges = None
            if self._dtype == "int8":
                ranges = calibrate(self._network, self._identity, self._pieces, self.max_length)
            self._runner = OpenVINOEngine(self._network, [depth], self._dtype, ranges)
        for batch in self._runner.run(ids, types):
            yield batch.rows, batch.states[0][:, 0]


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
    if config.model_type not in _CLASSIFIERS:
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
        state[f"{_CLASSIFIERS[config.model_type][layer]}.{part}"] = weight
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
    computing = EncoderSettings(backend=backend, dtype=dtype)
    light = _load_light(model, max_length, device, computing, _head_arrays, np.asarray)
    if light is not None:
        return light
    backbone = Backbone(model, device, dtype)
    head = read_head(folder, backbone.width).to(backbone.device).eval()
    return CrossEncoder(backbone, head, max_length, dtype)


def _load_light(
    folder: ModelFolder,
    max_length: int,
    device: str | None,
    computing: EncoderSettings,
    read_head: Callable[[Path, int], Mapping[str, Floats]],
    activation: Callable[[Floats], Floats],
) -> LightCrossEncoder | None:
    """Return a cross-encoder without torch; None if torch is faster or necessary."""
    backend = computing.backend
    dtype = computing.number_format
    reason = "only the processor has it"
    if backend != "torch" and runs_on_cpu(device):
        try:
            return LightCrossEncoder(folder, max_length, computing, read_head, activation)
        except UnsupportedModelError as error:
            reason = str(error)
    if backend in ("openvino", "numpy") or dtype == "int8":
        raise ConfigError(f"backend: {folder.path} cannot run with {backend}, {dtype} ({reason})")
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
    folder = find_model(name, download=download)
    activation = _activation(folder)
    window = folder.settings.max_length or NO_LIMIT
    function = ACTIVATION_FUNCTIONS[activation]
    computing = EncoderSettings(backend=backend, dtype=dtype)
    light = _load_light(folder, window, device, computing, _classifier_arrays, function)
    if light is not None:
        return light
    import torch

    backbone = Backbone(folder, device, dtype, auto=f"AutoModel{_TASK}")
    head: torch.nn.Module = getattr(torch.nn, activation)()
    model = Classifier(backbone, head, min(window, backbone.max_length), dtype)
    if backbone.pads_left:
        # The classifier reads the last word piece, so a pair must not be padded.
        model.batch_pieces = 1
    return model


def _activation(folder: ModelFolder) -> str:
    """Return the name of a model's activation function; raise ModelError for unsupported models."""
    config = folder.config
    file = folder.path / "config_sentence_transformers.json"
    # sentence-transformers ignores the file if there is no modules.json.
    is_read = file.is_file() and (folder.path / "modules.json").is_file()
    settings: Any = read_json(file) if is_read else {}
    _check_one_label(folder)
    older_settings = config.get("sentence_transformers") or {}
    activation = str(
        settings.get("activation_fn")
        or older_settings.get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
        or "torch.nn.Sigmoid"
    )
    name = activation.rsplit(".", 1)[-1]
    prompts = settings.get("prompts") or {}
    for what, is_needed in (
        ("a module after the classifier", folder.settings.projections),
        ("a prompt before each text", prompts.get(settings.get("default_prompt_name"))),
        (
            f"the activation function {activation}",
            name not in ACTIVATIONS or not activation.startswith("torch."),
        ),
    ):
        if is_needed:
            raise ModelError(
                f"{folder.path}: needs {what}, which is not supported: its scores would be wrong; "
                f"expected a classifier alone and {', '.join(ACTIVATIONS)} of torch"
            )
    return name


def _check_one_label(folder: ModelFolder) -> None:
    """Raise ModelError unless a model is a classifier of one label."""
    config = folder.config
    architectures = config.get("architectures") or ["no architecture"]
    if not str(architectures[0]).endswith(_TASK):
        raise ModelError(
            f"{folder.path}: expected a reranker's folder: of `retriever train`, or a CrossEncoder "
            f"of sentence-transformers (...{_TASK}), found {architectures[0]}; name another folder"
        )
    names = config.get("id2label")
    labels = len(names) if names and isinstance(names, dict) else config.get("num_labels", 2)
    if labels != 1:
        raise ModelError(
            f"{folder.path}: expected a classifier of one label, whose score orders passages, "
            f"found {labels} labels; name another cross-encoder"
        )


def _classifier_arrays(folder: Path, width: int) -> dict[str, Floats]:
    """Return the layers of a classifier under the names of `CrossHead`."""
    tensors = map_arrays(folder / "model.safetensors")
    for names in _CLASSIFIERS.values():
        arrays = {
            f"{layer}.{part}": tensors[f"{name}.{part}"]
            for layer, name in names.items()
            for part in ("weight", "bias")
            if f"{name}.{part}" in tensors
        }
        if _has_head_shapes(arrays, width):
            return arrays
    raise UnsupportedModelError(f"{folder}: another classifier than that of a BERT or an MPNet")
