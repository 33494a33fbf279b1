"""Cross-encoders of sentence-transformers: a transformer with its own classifier of one label.

The function that makes a score of the label's logit is in `config_sentence_transformers.json` or,
of older releases, in `config.json`; the logistic function where neither names one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.encoders.model_folders import ACTIVATIONS, ModelFolder, find_model, read_json
from retriever.encoders.settings import Backend, Dtype, EncoderSettings
from retriever.encoders.transformer.backbone import NO_LIMIT, Backbone, Batch
from retriever.encoders.transformer.bert import Floats, UnsupportedModelError, map_tensors
from retriever.encoders.transformer.loading import ACTIVATION_FUNCTIONS
from retriever.errors import ModelError
from retriever.rerankers.cross import (
    CLASSIFIERS,
    CrossEncoder,
    LightCrossEncoder,
    has_head_shapes,
    with_backend,
)

if TYPE_CHECKING:
    import torch

_TASK = "ForSequenceClassification"


class Classifier(CrossEncoder):
    """Scores pairs in torch; the head is the activation function."""

    def _states(self, batch: Batch) -> torch.Tensor:
        logits: torch.Tensor = self.backbone.model(**batch.inputs).logits[:, 0]
        return logits


def load_classifier(
    name: str,
    *,
    device: str | None = None,
    backend: Backend = "auto",
    dtype: Dtype = "float32",
    download: bool = False,
) -> CrossEncoder | LightCrossEncoder:
    """Load a folder or hub id, to give the scores of sentence-transformers' `predict`."""
    folder = find_model(name, download=download)
    activation = _check(folder)
    window = folder.settings.max_length or NO_LIMIT

    def in_torch() -> CrossEncoder:
        import torch

        backbone = Backbone(folder, device, dtype, auto=f"AutoModel{_TASK}")
        head: torch.nn.Module = getattr(torch.nn, activation)()
        model = Classifier(backbone, head, min(window, backbone.max_length), dtype)
        if backbone.pads_left:
            # The classifier reads the last piece: one pair at a time needs no padding.
            model.batch_pieces = 1
        return model

    return with_backend(
        name,
        device,
        EncoderSettings(backend=backend, dtype=dtype),
        lambda computing: LightCrossEncoder(
            folder, window, computing, _layers, ACTIVATION_FUNCTIONS[activation]
        ),
        in_torch,
    )


def _check(folder: ModelFolder) -> str:
    """The name of the activation function of a model whose scores can be computed."""
    config, file = folder.config, folder.path / "config_sentence_transformers.json"
    # Without modules.json sentence-transformers does not read it either.
    read = file.is_file() and (folder.path / "modules.json").is_file()
    saved: Any = read_json(file) if read else {}
    kinds = config.get("architectures") or ["no architecture"]
    if not str(kinds[0]).endswith(_TASK):
        raise ModelError(
            f"{folder.path}: expected a reranker's folder: of `retriever train`, or a CrossEncoder "
            f"of sentence-transformers (...{_TASK}), found {kinds[0]}; name another folder"
        )
    labels = len(config.get("id2label") or ()) or config.get("num_labels", 2)
    if labels != 1:
        raise ModelError(
            f"{folder.path}: expected a classifier of one label, whose score orders passages, "
            f"found {labels} labels; name another cross-encoder"
        )
    older = config.get("sentence_transformers") or {}
    activation = str(
        saved.get("activation_fn")
        or older.get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
        or "torch.nn.Sigmoid"
    )
    name = activation.rsplit(".", 1)[-1]
    for what, unsupported in (
        ("a module after the classifier", folder.settings.projections),
        (
            "a prompt before each text",
            (saved.get("prompts") or {}).get(saved.get("default_prompt_name")),
        ),
        (
            f"the activation function {activation}",
            name not in ACTIVATIONS or not activation.startswith("torch."),
        ),
    ):
        if unsupported:
            raise ModelError(
                f"{folder.path}: needs {what}, which is not supported: its scores would be wrong; "
                f"expected a classifier alone and {', '.join(ACTIVATIONS)} of torch"
            )
    return name


def _layers(folder: Path, width: int) -> dict[str, Floats]:
    """The layers of a classifier by the names that `CrossHead` has for them."""
    tensors = map_tensors(folder / "model.safetensors")
    for places in CLASSIFIERS.values():
        arrays = {
            f"{layer}.{part}": tensors[f"{place}.{part}"]
            for layer, place in places.items()
            for part in ("weight", "bias")
            if f"{place}.{part}" in tensors
        }
        if has_head_shapes(arrays, width):
            return arrays
    raise UnsupportedModelError(f"{folder}: another classifier than that of a BERT or an MPNet")
