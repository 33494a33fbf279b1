"""Folders of rerankers; `reranker.json` names the kind of reranker."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from retriever.encoders.folder_form import FolderForm
from retriever.encoders.model_folders import read_json
from retriever.errors import ConfigError, ModelError
from retriever.files import check_output

MANIFEST = "reranker.json"


def form_of(kind: str, **keys: type) -> FolderForm:
    """Return the form of a reranker's folder; `keys` are the additional keys of its kind."""
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
    """Return whether a folder holds a reranker."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_target(folder: Path, kind: str) -> None:
    """Raise ConfigError if a reranker of a kind cannot be written to a folder."""
    check_output(
        folder, "the folder of a reranker", lambda names: None if MANIFEST in names else min(names)
    )
    if is_reranker(folder) and (actual := reranker_kind(folder)) != kind:
        raise ConfigError(
            f"{folder}: expected nothing or a reranker of the kind {kind}, found one of the kind "
            f"{actual}; name another folder, or remove this one"
        )


def reranker_kind(folder: Path) -> str:
    """Return the kind of the reranker in a folder; raise ModelError if there is none."""
    if not is_reranker(folder):
        raise ModelError(
            f"{folder}: expected a reranker's folder with {MANIFEST}, or a CrossEncoder of "
            "sentence-transformers, found neither; train one with `retriever train reranker` or "
            "`retriever train cross-encoder`"
        )
    value = read_json(folder / MANIFEST)
    return str(value.get("kind")) if isinstance(value, dict) else ""


def read_manifest(folder: Path, form: FolderForm) -> dict[str, Any]:
    """Return the manifest of a reranker with a form."""
    (kind,) = form.choices["kind"]
    if (actual := reranker_kind(folder)) != kind:
        raise ModelError(
            f"{folder / MANIFEST}: expected a reranker of the kind {kind}, found {actual!r}"
        )
    return form.read_settings(folder)
