"""Rerankers in folders of their own, whose `reranker.json` says of which kind each one is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from retriever.encoders.model_folders import FolderForm, read_json
from retriever.errors import ConfigError, ModelError
from retriever.files import check_output

MANIFEST = "reranker.json"


def form_of(kind: str, **keys: type) -> FolderForm:
    """What the folder of a kind of rerankers holds; `keys` are those of this kind."""
    return FolderForm(
        what="the folder of a reranker",
        command="retriever train",
        again="train again",
        version=1,
        settings=MANIFEST,
        arrays="head.safetensors",
        keys={"format": int, "kind": str, "weights": str, **keys},
        choices={"kind": (kind,)},
    )


def is_reranker(path: str | Path) -> bool:
    """Whether a folder holds a reranker."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_target(folder: Path, kind: str) -> None:
    """Refuse a folder that a reranker of a kind cannot be written to."""
    check_output(
        folder, "the folder of a reranker", lambda names: None if MANIFEST in names else min(names)
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
            f"{folder}: expected a reranker's folder with {MANIFEST}, or a CrossEncoder of "
            "sentence-transformers, found neither; train one with `retriever train reranker` or "
            "`retriever train cross-encoder`"
        )
    value = read_json(folder / MANIFEST)
    return str(value.get("kind")) if isinstance(value, dict) else ""


def read_manifest(folder: Path, form: FolderForm) -> dict[str, Any]:
    """The manifest of a reranker of the kind that the form is of."""
    (kind,) = form.choices["kind"]
    if (found := kind_of(folder)) != kind:
        raise ModelError(
            f"{folder / MANIFEST}: expected a reranker of the kind {kind}, found {found!r}"
        )
    return form.read_settings(folder)
