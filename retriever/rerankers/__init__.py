"""Rerankers in folders of their own, whose `reranker.json` says of which kind each one is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retriever.encoders.model_folders import read_json
from retriever.errors import ConfigError, ModelError
from retriever.files import check_output

MANIFEST = "reranker.json"
FORMAT = 1
_COMMON = {"format": int, "kind": str, "weights": str}


def is_reranker(path: str | Path) -> bool:
    """Whether a folder holds a reranker."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def check_target(folder: Path, kind: str) -> None:
    """Refuse a folder that a reranker of a kind cannot be written to.

    Raises:
        ConfigError: it holds a reranker of another kind.
        What `check_output` raises: it holds something other than a reranker, among others.
    """
    check_output(
        folder,
        "the folder of a reranker",
        lambda names: None if MANIFEST in names else min(names),
    )
    if is_reranker(folder) and (found := kind_of(folder)) != kind:
        raise ConfigError(
            f"{folder}: expected nothing or a reranker of the kind {kind}, found one of the kind "
            f"{found}; name another folder, or remove this one"
        )


def kind_of(folder: Path) -> str:
    """The kind of reranker a folder holds; raises ModelError if it holds none."""
    if not is_reranker(folder):
        raise ModelError(
            f"{folder}: expected a reranker's folder with {MANIFEST}, found none; train one with "
            "`retriever train reranker` or `retriever train cross-encoder`"
        )
    value = read_json(folder / MANIFEST)
    return str(value.get("kind")) if isinstance(value, dict) else ""


def write_manifest(folder: Path, kind: str, weights: str, values: Mapping[str, Any]) -> None:
    """Write `reranker.json`, the last file of a folder; `weights` is the SHA-256 of the others."""
    content = {"format": FORMAT, "kind": kind, "weights": weights, **values}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path, kind: str, keys: Mapping[str, type]) -> dict[str, Any]:
    """Read what `write_manifest` wrote; `keys` has the types of the values of this kind.

    Raises:
        ModelError: it is missing, of another kind or form, or written by a newer release.
    """
    path = folder / MANIFEST
    found = kind_of(folder)
    if found != kind:
        raise ModelError(f"{path}: expected a reranker of the kind {kind}, found {found!r}")
    value: dict[str, Any] = read_json(path)
    number = value.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise ModelError(
            f"{path}: expected format {FORMAT} or older, found {number}; upgrade layer-retriever"
        )
    expected = {**_COMMON, **keys}
    for what, names in (
        ("an unknown key", value.keys() - expected.keys()),
        ("no key", expected.keys() - value.keys()),
    ):
        if names:
            raise altered(path, f"{what} {min(names)!r}")
    for name, type_ in expected.items():
        # True is an int, but not in JSON.
        if type(value[name]) is not type_:
            raise altered(path, f"{value[name]!r} as {name}")
    return value


def altered(path: Path, found: object) -> ModelError:
    """The error about an altered file."""
    reason = " ".join(str(found).split())
    return ModelError(
        f"{path}: expected what `retriever train` wrote, found {reason}; copy the folder again or "
        "train"
    )
