"""What a model's own files say about making sentence vectors with it.

``modules.json`` and the files that it names are those of sentence-transformers; a model without
them was not made for sentences, and gets the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retriever.encoders.settings import Pooling
from retriever.errors import ModelError

_POOLING: dict[str, Pooling] = {
    "mean": "mean",
    "max": "max",
    "cls": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_cls_token": "cls",
}
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid")
_QUERY_PROMPTS = ("query",)
_PASSAGE_PROMPTS = ("document", "passage", "corpus")


@dataclass(frozen=True, slots=True)
class Projection:
    """A dense layer after pooling: the folder of its weights, and its activation's name."""

    folder: Path
    activation: str


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a model's own files say.

    Attributes:
        max_length: the window that its sentence settings name, or None.
        pooling: what it was trained with.
        projections: the dense layers after pooling, in order.
        query_prompt, passage_prompt: what goes before a text; empty if nothing.
    """

    max_length: int | None = None
    pooling: Pooling = "mean"
    projections: tuple[Projection, ...] = ()
    query_prompt: str = ""
    passage_prompt: str = ""


def read_model_settings(path: Path) -> ModelSettings:
    """Read the sentence settings in a model's folder, if it has some.

    Raises:
        ModelError: they are not of the form that sentence-transformers writes, or ask for what is
            not supported, so that vectors would be wrong.
    """
    try:
        pooling, projections = _modules(path)
        prompts = _prompts(path)
        return ModelSettings(
            _window(path),
            pooling,
            projections,
            next((prompts[name] for name in _QUERY_PROMPTS if name in prompts), ""),
            next((prompts[name] for name in _PASSAGE_PROMPTS if name in prompts), ""),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: its modules.json, pooling or sentence_bert_config.json is not of the form "
            f"that sentence-transformers writes ({error!r}); download or save the model again"
        ) from error


def _modules(path: Path) -> tuple[Pooling, tuple[Projection, ...]]:
    pooling: Pooling = "mean"
    projections: list[Projection] = []
    if not (path / "modules.json").is_file():
        return pooling, ()
    ended = False
    for module in read_json(path / "modules.json"):
        kind = str(module["type"]).rsplit(".", 1)[-1]
        if ended:
            raise ModelError(
                f"{path / 'modules.json'}: a {kind} module after Normalize is not supported: its "
                "vectors would be wrong"
            )
        ended = kind == "Normalize"
        if kind == "Pooling":
            pooling = _pooling(path / module["path"] / "config.json")
        elif kind == "Dense":
            projections.append(_projection(path / module["path"]))
        elif kind not in ("Transformer", "Normalize"):
            raise ModelError(
                f"{path / 'modules.json'}: the model needs a {kind} module, which is not "
                "supported: its vectors would be wrong without it"
            )
    return pooling, tuple(projections)


def _pooling(path: Path) -> Pooling:
    settings = read_json(path)
    modes = {key for key, on in settings.items() if key.startswith("pooling_mode_") and on is True}
    found = settings.get("pooling_mode") or ", ".join(sorted(modes))
    if found not in _POOLING:
        raise ModelError(
            f"{path}: the model was trained for {found or 'no'} pooling, which is not supported; "
            "expected mean, max or cls"
        )
    if settings.get("include_prompt") is False:
        raise ModelError(
            f"{path}: the model leaves its prompt out of pooling (include_prompt), which is not "
            "supported: its vectors would be wrong"
        )
    return _POOLING[found]


def _projection(folder: Path) -> Projection:
    settings = read_json(folder / "config.json")
    activation = str(settings.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    names = {settings.get(f"module_{end}_name") for end in ("input", "output")}
    if (
        activation not in ACTIVATIONS
        or settings.get("use_residual")
        or not names
        <= {
            None,
            "sentence_embedding",
        }
    ):
        raise ModelError(
            f"{folder / 'config.json'}: expected a dense layer on the sentence embedding, without "
            f"residual, and one of {', '.join(ACTIVATIONS)} after it; this one is not supported"
        )
    if not (folder / "model.safetensors").is_file():
        raise ModelError(
            f"{folder}: no model.safetensors; other formats are not loaded because they can run "
            "code: save the model again with safetensors"
        )
    return Projection(folder, activation)


def _window(path: Path) -> int | None:
    if not (path / "sentence_bert_config.json").is_file():
        return None
    window = read_json(path / "sentence_bert_config.json").get("max_seq_length")
    return int(window) if window else None


def _prompts(path: Path) -> Mapping[str, str]:
    file = path / "config_sentence_transformers.json"
    if not file.is_file():
        return {}
    settings = read_json(file)
    return {name: text for name, text in (settings.get("prompts") or {}).items() if text}


def read_json(path: Path) -> Any:
    """The JSON value in a file of a model.

    Raises:
        ModelError: it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error})") from error
