"""The folder of a trained encoder: a sentence-transformers model, and how it was trained.

::

    config.json, model.safetensors, tokenizer.json, ...   as transformers writes them
    modules.json, 1_Pooling/config.json, ...              as sentence-transformers reads them
    sentence_bert_config.json                             the window
    config_sentence_transformers.json                     the prompts
    training.json                                         how it was trained; written last
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indexes import whole_folder
from retriever.encoders.models.finding import find_model
from retriever.encoders.models.settings import read_json
from retriever.encoders.training.model import TrainableEncoder
from retriever.errors import ModelError
from retriever.files import check_output

TRAINING = "training.json"
FORMAT = 1
_MODULE = "sentence_transformers.models."
_POOLING_KEYS = {
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "cls": "pooling_mode_cls_token",
}


def check_target(folder: Path) -> None:
    """Refuse a folder that an encoder cannot be written to.

    Raises:
        What `check_output` raises: it holds something other than a trained encoder, among others.
    """
    check_output(
        folder,
        "the folder of a trained encoder",
        lambda names: None if TRAINING in names else min(names),
    )


def write_encoder(folder: Path, encoder: TrainableEncoder, training: Mapping[str, Any]) -> None:
    """Write an encoder; the folder appears complete, or not at all.

    Args:
        folder: see `check_target`.
        encoder: after training.
        training: how it was trained, as JSON values.

    Raises:
        ConfigError: the folder holds something else.
        StorageError: the disk is full or cannot be written.
    """
    check_target(folder)
    with whole_folder(folder) as new:
        encoder.backbone.save(new)
        _write_modules(new, encoder)
        content = {"format": FORMAT, "weights": find_model(str(new)).weights, **training}
        _write_json(new / TRAINING, content)
        readable = (new / TRAINING).stat().st_mode
        for path in new.glob("*.safetensors"):
            # safetensors writes files that only their owner can read; use the usual permissions.
            path.chmod(readable)


def read_training(folder: Path) -> dict[str, Any] | None:
    """How the encoder in a folder was trained; None if the folder has none that is unchanged.

    Raises:
        ModelError: the model or its record cannot be read, or is of a newer release.
    """
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
    pooling = encoder.spec.meaning("pooling")
    modules = [("Transformer", "")]

    def add(kind: str) -> Path:
        modules.append((kind, f"{len(modules)}_{kind}"))
        below = folder / modules[-1][1]
        below.mkdir()
        return below

    modes = {key: name == pooling for name, key in _POOLING_KEYS.items()}
    width = {"word_embedding_dimension": encoder.backbone.width}
    _write_json(add("Pooling") / "config.json", {**width, **modes})
    if settings.head:
        for projection in encoder.base.settings.projections:
            below = add("Dense")
            for name in ("config.json", "model.safetensors"):
                shutil.copyfile(projection.folder / name, below / name)
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
