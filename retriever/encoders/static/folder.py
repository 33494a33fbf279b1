"""A static encoder in a folder of its own.

::

    static.json           method, parameters, where it comes from; written last
    vectors.safetensors   vectors and, if fitted, weights, components and shares
    vocabulary.txt        one word per line, or, for a model's word pieces, tokenizer.json
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from indexes import whole_folder
from retriever.encoders.model_settings import read_json
from retriever.encoders.settings import Static
from retriever.encoders.static.methods import Fitted, Floats
from retriever.encoders.static.words import FileTokenizer, Lexicon, PieceTokenizer, words_digest
from retriever.errors import ModelError, StorageError
from retriever.output_files import check_output

FORMAT = 1
FITTED = ("sif", "usif")
_SETTINGS, _VECTORS = "static.json", "vectors.safetensors"
_CONTENT = {"words": "vocabulary.txt", "word-pieces": "tokenizer.json"}
_FILES = {_SETTINGS, _VECTORS, *_CONTENT.values()}
_KEYS = {
    "format": int,
    "method": str,
    "kind": str,
    "parameters": dict,
    "provenance": dict,
    "vocabulary": str,
    "tokenizer": str | None,
    "unknown": int | None,
    "weights": str,
}


@dataclass(frozen=True, slots=True)
class StaticParts:
    """What a static encoder consists of.

    Attributes:
        lexicon: words and vectors.
        method: how they become one vector.
        fitted: what `sif` and `usif` need; None for the others.
        provenance: what it was made from, for a person; decides nothing.
    """

    lexicon: Lexicon
    method: Static
    fitted: Fitted | None
    provenance: Mapping[str, Any]

    def identity(self) -> str:
        """SHA-256 over everything that decides a vector, in hexadecimal."""
        lexicon, fitted = self.lexicon, self.fitted
        content: dict[str, Any] = {
            "vocabulary": lexicon.digest,
            "method": self.method,
            "vectors": _digest(lexicon.vectors),
        }
        if fitted is not None:
            content["parameters"] = dict(fitted.parameters)
            for name in ("weights", "components", "shares"):
                content[name] = _digest(getattr(fitted, name))
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def is_static_folder(path: str | Path) -> bool:
    """Whether a folder holds a static encoder."""
    return os.path.isfile(os.path.join(path, _SETTINGS))


def check_target(folder: Path) -> None:
    """Refuse a folder that a static encoder cannot be written to.

    Raises:
        ConfigError: it holds something else, is a file, or is in a folder that does not exist.
    """

    def strange(names: set[str]) -> str | None:
        if _SETTINGS in names and names <= _FILES:
            return None
        return min(names - _FILES, default=min(names))

    check_output(folder, "a static encoder's folder", strange)


def write_folder(folder: Path, parts: StaticParts) -> None:
    """Write a static encoder; the folder appears complete, or not at all.

    Raises:
        ConfigError: what `check_target` raises.
        StorageError: the disk is full or cannot be written.
    """
    check_target(folder)
    with whole_folder(folder) as new:
        _write_files(new, parts)


def read_folder(folder: Path) -> StaticParts:
    """Read what `write_folder` wrote.

    Raises:
        ModelError: a file is missing, altered or of another form, or written by a newer release.
    """
    settings = read_json(folder / _SETTINGS)
    _check_settings(settings, folder / _SETTINGS)
    tensors = _read_tensors(folder / _VECTORS)
    content_file = folder / _CONTENT[settings["kind"]]
    content = _read_content(content_file)
    digest, name = settings["vocabulary"], str(folder)
    tokenizer: FileTokenizer | PieceTokenizer
    try:
        if settings["kind"] == "words":
            # Not splitlines: a word may hold what other programs take for a line's end.
            tokenizer = FileTokenizer(content.split("\n")[:-1])
            whole = words_digest(tokenizer) == digest
        else:
            whole = hashlib.sha256(content.encode()).hexdigest() == settings["tokenizer"]
            tokenizer = PieceTokenizer(content, len(tensors["vectors"]), settings["unknown"])
        fitted = None
        if settings["method"] in FITTED:
            fitted = Fitted(
                tensors["weights"], tensors["components"], tensors["shares"], settings["parameters"]
            )
        parts = StaticParts(
            Lexicon(name, tokenizer, tensors["vectors"], digest),
            settings["method"],
            fitted,
            settings["provenance"],
        )
    except (KeyError, ValueError) as error:
        raise ModelError(f"{folder}: {_altered(str(error))}") from error
    for path, same in (
        (content_file, whole),
        (folder / _VECTORS, parts.identity() == settings["weights"]),
    ):
        if not same:
            raise ModelError(f"{path}: {_altered('another SHA-256 than static.json says')}")
    return parts


def _altered(found: str) -> str:
    return (
        f"expected what `retriever fit static` wrote, found {found}; copy the folder again or make "
        "it again"
    )


def _write_files(folder: Path, parts: StaticParts) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    lexicon, fitted = parts.lexicon, parts.fitted
    tensors = {"vectors": lexicon.vectors}
    if fitted is not None:
        tensors |= {name: getattr(fitted, name) for name in ("weights", "components", "shares")}
    try:
        save_file(tensors, folder / _VECTORS)
    except SafetensorError as error:
        reason = " ".join(str(error).split())
        raise StorageError(
            f"{folder.parent}: cannot be written ({reason}): free some space"
        ) from error
    tokenizer = lexicon.tokenizer
    content = tokenizer.content.encode()
    (folder / _CONTENT[tokenizer.kind]).write_bytes(content)
    pieces = tokenizer if isinstance(tokenizer, PieceTokenizer) else None
    settings = {
        "format": FORMAT,
        "method": parts.method,
        "kind": tokenizer.kind,
        "parameters": dict(fitted.parameters) if fitted else {},
        "provenance": dict(parts.provenance),
        "vocabulary": lexicon.digest,
        "tokenizer": hashlib.sha256(content).hexdigest() if pieces else None,
        "unknown": pieces.unknown if pieces else None,
        "weights": parts.identity(),
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    (folder / _SETTINGS).write_text(text, encoding="utf-8")
    # safetensors writes files that only their owner can read; the usual permissions apply here.
    (folder / _VECTORS).chmod((folder / _SETTINGS).stat().st_mode)


def _check_settings(settings: Any, path: Path) -> None:
    if not isinstance(settings, dict):
        raise ModelError(f"{path}: {_altered('a file that is not a JSON object')}")
    number = settings.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise ModelError(
            f"{path}: expected format {FORMAT} or older, found {number}; upgrade layer-retriever"
        )
    for what, keys in (
        ("an unknown key", settings.keys() - _KEYS.keys()),
        ("no key", _KEYS.keys() - settings.keys()),
    ):
        if keys:
            raise ModelError(f"{path}: {_altered(f'{what} {min(keys)!r}')}")
    for key, kind in _KEYS.items():
        if not isinstance(settings[key], kind):
            raise ModelError(f"{path}: {_altered(f'{settings[key]!r} as {key}')}")
    for key, choices in (("method", get_args(Static)), ("kind", tuple(_CONTENT))):
        if settings[key] not in choices:
            raise ModelError(f"{path}: {_altered(f'{settings[key]!r} as {key}')}")


def _read_tensors(path: Path) -> dict[str, Floats]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors: dict[str, Floats] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: {_altered(' '.join(str(error).split()))}") from error
    if any(tensor.dtype != np.float32 for tensor in tensors.values()):
        raise ModelError(f"{path}: {_altered('numbers of another type than float32')}")
    return tensors


def _read_content(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: {_altered(str(error))}") from error


def _digest(array: Floats) -> str:
    digest = hashlib.sha256(f"{array.shape}\n".encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
