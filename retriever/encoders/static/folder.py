"""A static encoder in a folder of its own.

::

    static.json           method, parameters, where it comes from; written last
    vectors.safetensors   vectors and, if fitted, weights, components and shares
    vocabulary.txt        one word per line, or, for a model's word pieces, tokenizer.json
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from indexes import whole_folder
from retriever.encoders.models.folder_form import FolderForm, array_digest
from retriever.encoders.registry import STATIC_FILE
from retriever.encoders.settings import Static
from retriever.encoders.static.methods import Fitted
from retriever.encoders.static.words import FileTokenizer, Lexicon, PieceTokenizer, words_digest

FITTED = ("sif", "usif")
_CONTENT = {"words": "vocabulary.txt", "word-pieces": "tokenizer.json"}
_FORM = FolderForm(
    what="a static encoder's folder",
    command="retriever train static",
    again="make it again",
    version=1,
    settings=STATIC_FILE,
    arrays="vectors.safetensors",
    others=tuple(_CONTENT.values()),
    keys={
        "format": int,
        "method": str,
        "kind": str,
        "parameters": dict,
        "provenance": dict,
        "vocabulary": str,
        "tokenizer": str | None,
        "unknown": int | None,
        "weights": str,
    },
    choices={"method": get_args(Static), "kind": tuple(_CONTENT)},
)


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
            "vectors": array_digest(lexicon.vectors),
        }
        if fitted is not None:
            content["parameters"] = dict(fitted.parameters)
            for name in ("weights", "components", "shares"):
                content[name] = array_digest(getattr(fitted, name))
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_target(folder: Path) -> None:
    """Refuse a folder that a static encoder cannot be written to.

    Raises:
        ConfigError: it holds something else, is a file, or is in a folder that does not exist.
    """
    _FORM.check_target(folder)


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
    settings = _FORM.read_settings(folder)
    tensors = _FORM.read_arrays(folder)
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
        raise _FORM.altered(folder, str(error)) from error
    for path, same in (
        (content_file, whole),
        (folder / _FORM.arrays, parts.identity() == settings["weights"]),
    ):
        if not same:
            raise _FORM.altered(path, "another SHA-256 than static.json says")
    return parts


def _write_files(folder: Path, parts: StaticParts) -> None:
    lexicon, fitted = parts.lexicon, parts.fitted
    tensors = {"vectors": lexicon.vectors}
    if fitted is not None:
        tensors |= {name: getattr(fitted, name) for name in ("weights", "components", "shares")}
    _FORM.write_arrays(folder, tensors)
    tokenizer = lexicon.tokenizer
    content = tokenizer.content.encode()
    (folder / _CONTENT[tokenizer.kind]).write_bytes(content)
    pieces = tokenizer if isinstance(tokenizer, PieceTokenizer) else None
    settings = {
        "format": _FORM.version,
        "method": parts.method,
        "kind": tokenizer.kind,
        "parameters": dict(fitted.parameters) if fitted else {},
        "provenance": dict(parts.provenance),
        "vocabulary": lexicon.digest,
        "tokenizer": hashlib.sha256(content).hexdigest() if pieces else None,
        "unknown": pieces.unknown if pieces else None,
        "weights": parts.identity(),
    }
    _FORM.write_settings(folder, settings)


def _read_content(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _FORM.altered(path, str(error)) from error
