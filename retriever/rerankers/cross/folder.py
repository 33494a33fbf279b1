"""A cross-encoder in a folder of its own.

::

    reranker.json      what it is and how it was trained; written last
    head.safetensors   the MLP on [CLS]
    config.json, model.safetensors, tokenizer.json, ...   as transformers writes them
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexes import whole_folder
from retriever.encoders.computing import check_computing, runs_on_cpu
from retriever.encoders.models.finding import ModelFolder, find_model
from retriever.encoders.settings import Backend, Dtype, EncoderSettings
from retriever.encoders.transformer.backbone import Backbone
from retriever.encoders.transformer.backends.weights import UnsupportedModelError
from retriever.errors import ConfigError, ModelError
from retriever.rerankers.cross.light import LightCrossEncoder
from retriever.rerankers.cross.model import CrossEncoder
from retriever.rerankers.manifest import (
    MANIFEST,
    altered,
    check_target,
    is_reranker,
    kind_of,
    read_manifest,
    write_manifest,
)

if TYPE_CHECKING:
    from retriever.rerankers.cross.head import CrossHead

KIND = "cross-encoder"
_HEAD = "head.safetensors"
_KEYS = {"max_length": int, "training": dict}


def write_cross_encoder(folder: Path, model: CrossEncoder, training: Mapping[str, Any]) -> None:
    """Write a cross-encoder; the folder appears complete, or not at all.

    Raises:
        ConfigError: the folder holds something else.
        StorageError: the disk is full or cannot be written.
    """
    from safetensors.torch import save_file

    check_target(folder, KIND)
    with whole_folder(folder) as new:
        model.backbone.save(new)
        state = {name: value.detach().cpu() for name, value in model.head.state_dict().items()}
        save_file(state, new / _HEAD)
        weights = find_model(str(new)).weights
        values = {"max_length": model.max_length, "training": dict(training)}
        write_manifest(new, KIND, weights, values)
        readable = (new / MANIFEST).stat().st_mode
        for path in new.glob("*.safetensors"):
            # safetensors writes files that only their owner can read; use the usual permissions.
            path.chmod(readable)


def read_training(folder: Path) -> dict[str, Any]:
    """How a cross-encoder was trained; decides nothing. Raises what `read_cross_encoder` raises."""
    training: dict[str, Any] = read_manifest(folder, KIND, _KEYS)["training"]
    return training


def load_cross_encoder(
    folder: Path,
    *,
    device: str | None = None,
    backend: Backend = "auto",
    dtype: Dtype = "float32",
) -> CrossEncoder | LightCrossEncoder:
    """Read what `write_cross_encoder` wrote, to score with the backend that pays.

    Args:
        folder: of the cross-encoder.
        device: a torch device; None uses a GPU if there is one.
        backend: what runs the transformer; ``auto`` takes OpenVINO where it is installed.
        dtype: of the transformer's matrix products.

    Raises:
        ConfigError: the backend cannot run it.
        MissingExtraError: OpenVINO is asked for and not installed.
        What `read_cross_encoder` raises.
    """
    computing = EncoderSettings(backend=backend, dtype=dtype)
    check_computing(computing)
    reason = "only the processor has it"
    if backend != "torch" and runs_on_cpu(device):
        found, max_length = _found(folder)
        try:
            return LightCrossEncoder(found, folder / _HEAD, max_length, computing)
        except UnsupportedModelError as error:
            reason = str(error)
    if backend in ("openvino", "numpy") or dtype == "int8":
        raise ConfigError(f"backend: {folder} cannot run with {backend}, {dtype} ({reason})")
    return read_cross_encoder(folder, device=device, dtype=dtype)


def _found(folder: Path) -> tuple[ModelFolder, int]:
    """The transformer of a cross-encoder, and the window of both texts."""
    manifest = read_manifest(folder, KIND, _KEYS)
    found = find_model(str(folder))
    if found.weights != manifest["weights"]:
        raise ModelError(f"{folder}: {altered('weights of another SHA-256')}")
    return found, manifest["max_length"]


def read_cross_encoder(
    folder: Path, *, device: str | None = None, dtype: Dtype = "float32"
) -> CrossEncoder:
    """Read what `write_cross_encoder` wrote, ready to score.

    Raises:
        ModelError: a file is missing, altered or of another form, or written by a newer release.
        ConfigError: the device does not exist.
    """
    found, max_length = _found(folder)
    backbone = Backbone(found, device, dtype)
    head = read_head(folder, backbone.width).to(backbone.device).eval()
    return CrossEncoder(backbone, head, max_length, dtype)


def is_cross_encoder(path: str | Path) -> bool:
    """Whether a folder holds a cross-encoder."""
    return is_reranker(path) and kind_of(Path(path)) == KIND


def read_head(folder: Path, width: int) -> CrossHead:
    """The MLP of a cross-encoder, on the CPU, in training mode.

    Args:
        folder: what `write_cross_encoder` wrote.
        width: of its transformer.

    Raises:
        ModelError: the file is missing, altered or of another form.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from retriever.rerankers.cross.head import CrossHead

    head = CrossHead(width)
    try:
        head.load_state_dict(load_file(folder / _HEAD))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{folder / _HEAD}: {altered(reason)}") from error
    return head


def head_digest(folder: Path) -> str:
    """SHA-256 of the MLP's file, in hexadecimal."""
    return hashlib.sha256((folder / _HEAD).read_bytes()).hexdigest()
