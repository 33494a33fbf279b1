"""The form of folders that commands write: static encoders, meta-embeddings and rerankers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from retriever.encoders.model_folders import Floats, read_json
from retriever.errors import ModelError, StorageError
from retriever.files import check_output


@dataclass(frozen=True, slots=True)
class FolderForm:
    """The form of an encoder's folder: settings, float32 arrays, other files."""

    what: str
    command: str  # The command that writes it.
    again: str  # The remedy for an altered folder, besides copying it again.
    version: int  # The newest format that can be read.
    settings: str  # The file whose presence decides the kind.
    arrays: str
    keys: Mapping[str, type | UnionType]
    choices: Mapping[str, tuple[str, ...]]
    other_files: tuple[str, ...] = ()

    def check_target(self, folder: Path) -> None:
        """Refuse an output folder that holds other files."""
        form_files = {self.settings, self.arrays, *self.other_files}

        def find_foreign_file(names: set[str]) -> str | None:
            if self.settings in names and names <= form_files:
                return None
            return min(names - form_files, default=min(names))

        check_output(folder, self.what, find_foreign_file)

    def write_arrays(self, folder: Path, arrays: Mapping[str, Floats]) -> None:
        """Write the arrays into a temporary folder, before the settings."""
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
        # safetensors makes files readable by their owner only; use the usual permissions.
        (folder / self.arrays).chmod((folder / self.settings).stat().st_mode)

    def read_settings(self, folder: Path) -> dict[str, Any]:
        """Read the settings and check them against `keys` and `choices`."""
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
        """Read the arrays by name."""
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

    def altered(self, path: Path, content: str) -> ModelError:
        """Return the error for a file that was altered."""
        return ModelError(
            f"{path}: expected what `{self.command}` wrote, found {content}; copy the folder again "
            f"or {self.again}"
        )


def array_digest(array: Floats) -> str:
    """Return the SHA-256 of an array's shape and content, in hexadecimal."""
    digest = hashlib.sha256(f"{array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
