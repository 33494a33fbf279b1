"""A folder of an encoder that is made here: settings in JSON, arrays in safetensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.models.settings import read_json
from retriever.errors import ModelError, StorageError
from retriever.files import check_output

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FolderForm:
    """What the folders of one kind of encoder hold.

    Attributes:
        what: such a folder, for a person.
        command: that writes it.
        again: what to do if it was altered, besides copying it again.
        version: the newest that can be read; the settings have it as ``format``.
        settings: name of the JSON file; its presence tells the kind.
        arrays: name of the safetensors file, all of float32.
        others: names of other files.
        keys: of the settings, and their types.
        choices: of some keys, the values that exist.
    """

    what: str
    command: str
    again: str
    version: int
    settings: str
    arrays: str
    keys: Mapping[str, type | UnionType]
    choices: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...] = ()

    def check_target(self, folder: Path) -> None:
        """Refuse a folder that cannot be written to.

        Raises:
            ConfigError: it holds something else, is a file, or is in a folder that does not exist.
        """
        own = {self.settings, self.arrays, *self.others}

        def strange(names: set[str]) -> str | None:
            if self.settings in names and names <= own:
                return None
            return min(names - own, default=min(names))

        check_output(folder, self.what, strange)

    def write_arrays(self, folder: Path, arrays: Mapping[str, Floats]) -> None:
        """Write the arrays into a folder that is not in its place yet.

        Raises:
            StorageError: the disk is full or cannot be written.
        """
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
        """Read the settings.

        Raises:
            ModelError: they are missing, altered, or written by a newer release.
        """
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
        """Read the arrays.

        Raises:
            ModelError: the file is missing or altered.
        """
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
