"""Heads of sentence-transformers' CrossEncoders, read from the files of a folder.

A CrossEncoder is a classifier of transformers with one label, or a chain of modules in
`modules.json`: Transformer, Pooling, then Dense and LayerNorm, such as Ettin's rerankers. The file
`config_sentence_transformers.json` or, in older releases, `config.json` names the activation
function of the scores. The default is the logistic function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from retriever.encoders.model_folders import (
    ACTIVATIONS,
    MALFORMED,
    REMEDY,
    WEIGHTS_FILE,
    WIDTHS,
    ModelFolder,
    ModelSettings,
    module_folder,
    read_json,
    read_pooling,
    read_window,
    require_safetensors,
)
from retriever.encoders.transformer.network import Affine, WeightsReader
from retriever.encoders.transformer.numpy_engine import ACTIVATION_FUNCTIONS, HeadLayer
from retriever.encoders.transformer.tensors import (
    UnsupportedModelError,
    WeightsMismatchError,
    map_tensors,
    read_tensors,
)
from retriever.errors import ModelError
from retriever.rerankers.scoring_head import ScoringHead, linear_layer, norm_layer

# Reads the head of a folder, for hidden states of a width.
ReadHead = Callable[[ModelFolder, int], ScoringHead]

# The end of the name of a classifier's class in transformers.
TASK = "ForSequenceClassification"
_NAMESPACE = "sentence_transformers."
_SETTINGS_FILE = "config_sentence_transformers.json"
_MODULES_FILE = "modules.json"
_POOLED = "sentence_embedding"
_SCORES = "scores"
# Settings of a Transformer module, and the only values that are supported.
_TRANSFORMER_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "module_output_name": (None, "token_embeddings"),
    "processing_kwargs": (None, {}),
    "do_lower_case": (None, False),
}
_FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}
# The defaults of sentence-transformers, and of torch's LayerNorm.
_SCORE_ACTIVATION = "torch.nn.Sigmoid"
_DENSE_ACTIVATION = "torch.nn.Tanh"
_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class ClassifierLayers:
    """The names of the layers of a classifier in transformers, and the activation between them.

    A ModernBERT has a layer norm too. Its configuration names pooling, activation and biases.
    """

    dense: str
    out: str = "classifier"
    activation: str = "Tanh"
    norm: str = ""


_PROJECTED = ClassifierLayers("classifier.dense", "classifier.out_proj")
# By model type.
CLASSIFIERS: Mapping[str, ClassifierLayers] = {
    "bert": ClassifierLayers("bert.pooler.dense"),
    "albert": ClassifierLayers("albert.pooler"),
    "deberta-v2": ClassifierLayers("pooler.dense"),
    "xlnet": ClassifierLayers("sequence_summary.summary", "logits_proj"),
    "mpnet": _PROJECTED,
    "roberta": _PROJECTED,
    "xlm-roberta": _PROJECTED,
    "camembert": _PROJECTED,
    "distilbert": ClassifierLayers("pre_classifier", activation="ReLU"),
    "modernbert": ClassifierLayers("head.dense", norm="head.norm"),
}
# Activation functions of a ModernBERT's classifier, by their names in config.json.
_ACTIVATIONS = {"gelu": "GELU", "relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid"}


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a CrossEncoder: its class, its folder and its settings."""

    kind: str
    folder: Path
    settings: Mapping[str, Any]


def read_classifier(folder: ModelFolder, width: int) -> ScoringHead:
    """Read the layers of a classifier of transformers.

    Raises:
        UnsupportedModelError: a classifier that only torch computes.
        ModelError: layers that are missing or have another shape.
    """
    config = folder.config
    model_type = str(config.get("model_type"))
    if model_type not in CLASSIFIERS:
        raise UnsupportedModelError(f"the classifier of a {model_type}")
    names = CLASSIFIERS[model_type]
    pooling = "cls"
    activation = names.activation
    if names.norm:
        pooling = config.get("classifier_pooling", "cls")
        activation = _ACTIVATIONS.get(str(config.get("classifier_activation", "gelu")), "")
    if pooling not in ("cls", "mean") or not activation:
        raise UnsupportedModelError("another pooling or activation function of its classifier")
    reader = WeightsReader(read_tensors(folder), config)
    has_bias = not names.norm or bool(config.get("classifier_bias"))
    try:
        dense = _read_affine(reader, names.dense, width, width, has_bias=has_bias)
        layers = [linear_layer(dense), ACTIVATION_FUNCTIONS[activation]]
        if names.norm:
            norm = _read_affine(reader, names.norm, width, has_bias=bool(config.get("norm_bias")))
            layers.append(norm_layer(norm, reader.number("norm_eps", _EPSILON)))
        out = _read_affine(reader, names.out, 1, width)
    except (UnsupportedModelError, WeightsMismatchError) as error:
        raise ModelError(f"{folder.path}: its classifier: {error}; {REMEDY}") from error
    return ScoringHead("cls" if pooling == "cls" else "mean", (*layers, linear_layer(out)))


def _read_affine(reader: WeightsReader, name: str, *shape: int, has_bias: bool = True) -> Affine:
    """Return a layer that has a bias, or none."""
    layer = reader.affine(name, *shape)
    if has_bias and layer.bias is None:
        raise UnsupportedModelError(f"{name}: expected a bias, found none")
    return layer if has_bias else replace(layer, bias=None)


def read_settings(path: Path) -> ModelSettings:
    """Read the settings of a CrossEncoder that its transformer needs: the window."""
    if not _read_saved_settings(path):
        return ModelSettings()
    try:
        return ModelSettings(read_window(path))
    except MALFORMED as error:
        raise _malformed(path / "sentence_bert_config.json", error) from error


def read_modules(path: Path) -> list[Module]:
    """Return the modules of a CrossEncoder; empty for a classifier of transformers."""
    if not _read_saved_settings(path):
        return []
    file = path / _MODULES_FILE
    try:
        modules = [_read_module(path, entry) for entry in read_json(file)]
        tasks = [module.settings.get("transformer_task") for module in modules]
    except MALFORMED as error:
        raise _malformed(file, error) from error
    return [] if tasks == ["sequence-classification"] else modules


def _read_saved_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a CrossEncoder; empty if sentence-transformers ignores them."""
    file = path / _SETTINGS_FILE
    if not (path / _MODULES_FILE).is_file():
        return {}
    settings = read_json(file, {})
    if not isinstance(settings, dict):
        raise _malformed(file, TypeError("no JSON object"))
    return settings if settings.get("model_type") == "CrossEncoder" else {}


def _read_module(path: Path, entry: Mapping[str, Any]) -> Module:
    full_name = str(entry["type"])
    # A class of another package keeps its whole name, and is refused by it.
    kind = full_name.rsplit(".", 1)[-1] if full_name.startswith(_NAMESPACE) else full_name
    folder = module_folder(path, entry)
    file = "sentence_bert_config.json" if kind == "Transformer" else "config.json"
    return Module(kind, folder, read_json(folder / file, {}))


def _malformed(file: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{file}: not of the form that sentence-transformers writes ({error!r:.120}); {REMEDY}"
    )


def read_chain(folder: ModelFolder, modules: list[Module]) -> ScoringHead:
    """Read the modules after a transformer: Pooling, then Dense and LayerNorm.

    Raises:
        ModelError: another module, or weights that do not fit its settings.
    """
    file = folder.path / _MODULES_FILE
    expected = [{"Transformer"}, {"Pooling"}, *[{"Dense", "LayerNorm"}] * len(modules)]
    for number, (module, kinds) in enumerate(zip(modules, expected, strict=False), 1):
        if module.kind not in kinds:
            raise ModelError(
                f"{file}: expected Transformer, Pooling, then Dense and LayerNorm, found "
                f"{module.kind} as module {number}, which is not supported: the scores would be "
                "wrong; name another cross-encoder"
            )
    if len(modules) < 3 or modules[-1].kind != "Dense":
        raise ModelError(
            f"{file}: expected a Dense module at the end, which writes the {_SCORES}, found "
            f"{modules[-1].kind}; name another cross-encoder"
        )
    width = next((folder.config[name] for name in WIDTHS if folder.config.get(name)), 0)
    try:
        _check_transformer(modules[0])
        head = ScoringHead(read_pooling(modules[1].folder / "config.json"), ())
        for module in modules[2:]:
            layers, width = _READERS[module.kind](module, width, module is modules[-1])
            head = head.add(*layers)
    except MALFORMED as error:
        raise _malformed(file, error) from error
    return head


def _check_transformer(module: Module) -> None:
    """Raise ModelError unless a Transformer module returns hidden states of plain texts."""
    text_settings = (module.settings.get("modality_config") or {}).get("text", _FORWARD)
    task = module.settings.get("transformer_task", "feature-extraction")
    names = [
        name
        for name, values in _TRANSFORMER_SETTINGS.items()
        if module.settings.get(name) not in values
    ]
    names += ["modality_config"] * (text_settings != _FORWARD)
    names += ["transformer_task"] * (task != "feature-extraction")
    if names:
        raise ModelError(
            f"{module.folder / 'sentence_bert_config.json'}: expected a transformer of the last "
            f"hidden states, found another {names[0]}, which is not supported: the scores would "
            "be wrong; name another cross-encoder"
        )


def _read_dense(module: Module, width: int, is_last: bool) -> tuple[list[HeadLayer], int]:
    """Return the functions of a Dense module, and the width of its output."""
    settings = module.settings
    file = module.folder / "config.json"
    source = settings.get("module_input_name", _POOLED)
    target = settings.get("module_output_name") or source
    expected_target = _SCORES if is_last else _POOLED
    if source != _POOLED or target != expected_target or settings.get("use_residual"):
        raise ModelError(
            f"{file}: expected a dense layer from {_POOLED} to {expected_target} without residual, "
            f"found one from {source!r:.40} to {target!r:.40}"
            f"{' with residual' if settings.get('use_residual') else ''}; name another "
            "cross-encoder"
        )
    outputs = settings["out_features"]
    if is_last:
        _require_one_label(file, outputs)
    function = str(settings.get("activation_function", _DENSE_ACTIVATION))
    activation = ACTIVATION_FUNCTIONS[_activation_name(file, function)]
    has_bias = bool(settings.get("bias", True))
    layer = _read_weights(module, "linear", outputs, width, has_bias=has_bias)
    return [linear_layer(layer), activation], outputs


def _read_norm(module: Module, width: int, is_last: bool) -> tuple[list[HeadLayer], int]:
    """Return the function of a LayerNorm module, and the width of its output."""
    return [norm_layer(_read_weights(module, "norm", width), _EPSILON)], width


_READERS = {"Dense": _read_dense, "LayerNorm": _read_norm}


def _read_weights(module: Module, name: str, *shape: int, has_bias: bool = True) -> Affine:
    """Return the layer of a module."""
    require_safetensors(module.folder)
    try:
        reader = WeightsReader(map_tensors(module.folder / WEIGHTS_FILE), {})
        return _read_affine(reader, name, *shape, has_bias=has_bias)
    except (UnsupportedModelError, WeightsMismatchError) as error:
        raise ModelError(f"{module.folder}: {error}; {REMEDY}") from error


def read_activation(folder: ModelFolder) -> str:
    """Return the name of the activation function of a CrossEncoder's scores.

    Raises:
        ModelError: another function, or a prompt before each text.
    """
    settings = _read_saved_settings(folder.path)
    older_settings = folder.config.get("sentence_transformers") or {}
    try:
        function = (
            settings.get("activation_fn")
            or older_settings.get("activation_fn")
            or folder.config.get("sbert_ce_default_activation_function")
            or _SCORE_ACTIVATION
        )
        prompts = settings.get("prompts") or {}
        prompt = prompts.get(settings.get("default_prompt_name"))
    except MALFORMED as error:
        raise _malformed(folder.path / _SETTINGS_FILE, error) from error
    if prompt:
        raise ModelError(
            f"{folder.path}: needs a prompt before each text, which is not supported: the scores "
            "would be wrong; name another cross-encoder"
        )
    return _activation_name(folder.path, str(function))


def _activation_name(path: Path, function: str) -> str:
    """Return the name of a function of torch that is supported."""
    name = function.rsplit(".", 1)[-1]
    if name not in ACTIVATIONS or not function.startswith("torch."):
        raise ModelError(
            f"{path}: needs the activation function {function:.80}, which is not supported: the "
            f"scores would be wrong; expected {', '.join(ACTIVATIONS)} of torch"
        )
    return name


def require_classifier(folder: ModelFolder) -> None:
    """Raise ModelError unless a model is a classifier of transformers with one label."""
    config = folder.config
    architectures = config.get("architectures") or "no architecture"
    if isinstance(architectures, list):
        architectures = architectures[0]
    if not str(architectures).endswith(TASK):
        raise ModelError(
            f"{folder.path}: expected a reranker's folder: of `retriever train`, or a CrossEncoder "
            f"of sentence-transformers (...{TASK}), found "
            f"{architectures!s:.60}; name another folder"
        )
    names = config.get("id2label")
    labels = len(names) if names and isinstance(names, dict) else config.get("num_labels", 2)
    _require_one_label(folder.path, labels)


def _require_one_label(path: Path, labels: object) -> None:
    if labels != 1:
        raise ModelError(
            f"{path}: expected a classifier of one label, whose score orders passages, found "
            f"{labels!r:.40} labels; name another cross-encoder"
        )
