"""An encoder in training, and its folder.

::

    config.json, model.safetensors, tokenizer.json, ...   in the format of transformers
    modules.json, 1_Pooling/config.json, ...              in the format of sentence-transformers
    sentence_bert_config.json                             the window
    config_sentence_transformers.json                     the prompts
    training.json                                         the training; written last
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_folder
from retriever.encoders.computing import apply_by_length, scale_to_unit
from retriever.encoders.encoder import Encoder
from retriever.encoders.model_folders import ModelFolder, find_model, read_json
from retriever.encoders.registry import LoadContext, kind_of
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.transformer.backbone import Backbone
from retriever.encoders.transformer.model import TransformerModel
from retriever.errors import ConfigError, ModelError
from retriever.files import check_output

if TYPE_CHECKING:
    import torch

TRAINING = "training.json"
FORMAT = 1
_MODULE = "sentence_transformers.models."
_POOLING_KEYS = {
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "cls": "pooling_mode_cls_token",
}
# Pairs of texts that are classified together.
_PAIRS_AT_ONCE = 256
# Numbers in the hidden states of a step, whose activations take about 100 bytes each.
_MOST_STATES = 2**24
# Settings that the files of a sentence-transformers model can express.
_EXPRESSIBLE = (
    "model",
    "pooling",
    "head",
    "normalize",
    "query_prompt",
    "passage_prompt",
    "max_length",
)


def check_target(folder: Path) -> None:
    """Refuse an output folder that holds other files."""
    check_output(
        folder,
        "the folder of a trained encoder",
        lambda names: None if TRAINING in names else min(names),
    )


def write_encoder(folder: Path, encoder: TrainableEncoder, training: Mapping[str, Any]) -> None:
    """Write an encoder into a folder, which appears complete or not at all."""
    check_target(folder)
    with whole_folder(folder) as new:
        encoder.backbone.save(new)
        _write_modules(new, encoder)
        content = {"format": FORMAT, "weights": find_model(str(new)).weights, **training}
        _write_json(new / TRAINING, content)


def read_training(folder: Path) -> dict[str, Any] | None:
    """Return the training record of a folder; None without an unchanged trained encoder."""
    if not os.path.isfile(folder / TRAINING):
        return None
    value = read_json(folder / TRAINING)
    if not isinstance(value, dict) or not isinstance(value.get("format"), int):
        raise ModelError(
            f"{folder / TRAINING}: expected what `retriever train encoder` wrote; train again with "
            "--restart"
        )
    if value["format"] > FORMAT:
        raise ModelError(
            f"{folder / TRAINING}: expected format {FORMAT} or older, found {value['format']}; "
            "upgrade layer-retriever"
        )
    return value if find_model(str(folder)).weights == value.get("weights") else None


def _write_modules(folder: Path, encoder: TrainableEncoder) -> None:
    settings = encoder.spec.settings
    pooling = encoder.spec.effective_value("pooling")
    modules = [("Transformer", "")]

    def add(kind: str) -> Path:
        modules.append((kind, f"{len(modules)}_{kind}"))
        module_folder = folder / modules[-1][1]
        module_folder.mkdir()
        return module_folder

    pooling_modes = {key: name == pooling for name, key in _POOLING_KEYS.items()}
    width = {"word_embedding_dimension": encoder.backbone.width}
    _write_json(add("Pooling") / "config.json", {**width, **pooling_modes})
    if settings.head:
        for projection in encoder.base.settings.projections:
            module_folder = add("Dense")
            for name in ("config.json", "model.safetensors"):
                shutil.copyfile(projection.folder / name, module_folder / name)
    if settings.normalize is not False:
        add("Normalize")
    _write_json(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": _MODULE + kind}
            for number, (kind, path) in enumerate(modules)
        ],
    )
    window = {"max_seq_length": encoder.spec.max_length, "do_lower_case": False}
    _write_json(folder / "sentence_bert_config.json", window)
    prompts = {"query": settings.query_prompt or "", "document": settings.passage_prompt or ""}
    _write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class TrainableEncoder:
    """An encoder in training, made with `load`.

    `spec` is the specification before training. `classifier` is the softmax classifier of the
    objective ``nli``.
    """

    def __init__(self, spec: EncoderSpec, model: TransformerModel, base: ModelFolder) -> None:
        self.spec = spec
        self.base = base
        self.backbone = model.backbone
        self.dimensions = model.dimensions
        self.classifier: torch.nn.Module | None = None
        self._model = model
        self._encoder = Encoder(spec, model)

    @classmethod
    def load(
        cls,
        encoder: str | EncoderSettings = "",
        *,
        device: str | None = None,
        download: bool = False,
    ) -> TrainableEncoder:
        """Load an encoder for training."""
        requested = parse_encoder(encoder)
        trainable = partial(Backbone, training=True)
        context = LoadContext(device, download, make_backbone=trainable)
        spec, loaded = kind_of(requested).load(requested, context)
        model = loaded.in_torch()
        if model is None:
            raise ConfigError(f"{spec}: a static encoder has no weights to train; name another")
        _require_plain(spec.settings)
        return cls(spec, model, find_model(spec.model))

    def tokenize(self, texts: Sequence[str], window: int, *, query: bool) -> list[list[int]]:
        """Return word-piece ids with prompt and special tokens, cut to `window` pieces."""
        settings = self.spec.settings
        prompt = (settings.query_prompt if query else settings.passage_prompt) or ""
        return self._model.tokenize([prompt + text for text in texts], window)

    def vectors(self, pieces: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return (texts, dimensions) float32 with gradients, not normalized.

        They are computed in batches of similar length. If the activations of all batches would take
        too much memory, each batch is computed again for its gradient, with the same dropout.
        """
        import torch
        from torch.utils.checkpoint import checkpoint

        lengths = [len(ids) for ids in pieces]
        size = sum(lengths) * self.backbone.depth * self.backbone.width
        forward: Any = self._model.forward
        if torch.is_grad_enabled() and size > _MOST_STATES:
            forward = partial(checkpoint, forward, use_reentrant=False)
        vectors: torch.Tensor = apply_by_length(
            lengths, lambda rows: forward([pieces[row] for row in rows])
        )
        return vectors

    def encode(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return (texts, dimensions) float32 of length 1, without dropout; cut long texts."""
        was_training = self.backbone.model.training
        self.backbone.model.eval()
        vectors = self._encoder.encode_pieces(self._encoder.truncate(texts, query=query))
        self.backbone.model.train(was_training)
        return scale_to_unit(vectors)

    def classify(self, left: Sequence[str], right: Sequence[str]) -> NDArray[np.int64]:
        """Return the most probable class of each pair, (pairs,) int64."""
        import torch

        assert self.classifier is not None
        self.backbone.model.eval()
        window = self.spec.max_length
        with torch.no_grad():
            predictions = []
            for start in range(0, len(left), _PAIRS_AT_ONCE):
                texts = [
                    *left[start : start + _PAIRS_AT_ONCE],
                    *right[start : start + _PAIRS_AT_ONCE],
                ]
                u, v = self.vectors(self.tokenize(texts, window, query=False)).chunk(2)
                predictions.append(self.classifier(pair_features(u, v)).argmax(dim=1))
        self.backbone.model.train()
        classes: NDArray[np.int64] = torch.cat(predictions).cpu().numpy()
        return classes


def _require_plain(settings: EncoderSettings) -> None:
    plain = replace(EncoderSettings(), **{name: getattr(settings, name) for name in _EXPRESSIBLE})
    if settings != plain:
        raise ConfigError(
            f"model: expected an encoder of the last layer in float32, found {settings}; train "
            "with pooling, window and prompts alone, and choose layers after training"
        )
    if settings.pooling == "sep":
        raise ConfigError("pooling: a trained encoder pools by mean, max or cls, found sep")


def pair_features(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return (n, 3 d) features [u; v; |u - v|] of pairs (Reimers and Gurevych 2019)."""
    import torch

    return torch.cat([left, right, (left - right).abs()], dim=1)
