"""The state of a training on disk, written atomically and read only by the same training."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from indexes.files import remove_abandoned, whole_folder
from retriever.errors import ConfigError, ModelError

_TENSORS = "state.safetensors"
_VALUES = "state.json"


# Tensors of torch, or arrays, by name; and JSON values.
TrainingState = tuple[dict[str, Any], dict[str, Any]]


class Checkpoint:
    """The stored state of a training. Only one of equal `identity` (JSON values) resumes it."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], seconds: float = 300.0) -> None:
        self.folder = folder
        self._identity = json.loads(json.dumps(identity))
        self._seconds = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """Return whether the last state is older than the interval."""
        return time.monotonic() - self._last >= self._seconds

    def read(self) -> TrainingState | None:
        """Read the state; return None without one.

        Raises:
            ConfigError: the state belongs to another training.
            ModelError: it cannot be read.
        """
        from safetensors import SafetensorError

        if not self.folder.is_dir():
            return None
        try:
            values = json.loads((self.folder / _VALUES).read_text(encoding="utf-8"))
            tensors = self._load_tensors(self.folder / _TENSORS)
            difference = find_difference(self._identity, values.pop("identity"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise ModelError(
                f"{self.folder}: the checkpoint cannot be read ({' '.join(str(error).split())}); "
                "remove the folder to start over"
            ) from error
        if difference is not None:
            raise ConfigError(
                f"{self.folder}: expected the checkpoint of a run with {difference}; give the "
                "options of the interrupted run, or start over: remove the folder, or train with "
                "--restart"
            )
        return tensors, values

    def write(self, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Replace the state.

        Raises:
            StorageError: the disk is full or cannot be written.
        """
        with whole_folder(self.folder) as new:
            self._save_tensors(tensors, new / _TENSORS)
            stored = {**values, "identity": self._identity}
            (new / _VALUES).write_text(json.dumps(stored), encoding="utf-8")
        self._last = time.monotonic()

    def _load_tensors(self, file: Path) -> dict[str, Any]:
        from safetensors.torch import load_file

        tensors: dict[str, Any] = load_file(file)
        return tensors

    def _save_tensors(self, tensors: Mapping[str, Any], file: Path) -> None:
        from safetensors.torch import save_file

        # safetensors needs tensors in memory of their own.
        copies = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
        save_file(copies, file)

    def remove(self) -> None:
        """Remove the state."""
        shutil.rmtree(self.folder, ignore_errors=True)
        remove_abandoned(self.folder)


class ArrayCheckpoint(Checkpoint):
    """The state of a computation without torch: arrays in place of tensors."""

    def _load_tensors(self, file: Path) -> dict[str, Any]:
        from safetensors.numpy import load_file

        arrays: dict[str, Any] = load_file(file)
        return arrays

    def _save_tensors(self, tensors: Mapping[str, Any], file: Path) -> None:
        from safetensors.numpy import save_file

        save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, file)


def require_same(folder: Path, expected: Mapping[str, Any], stored: Any) -> None:
    """Raise ConfigError if a folder is the result of another training."""
    difference = find_difference(expected, stored if isinstance(stored, dict) else {})
    if difference is not None:
        raise ConfigError(
            f"{folder}: expected the result of a run with {difference}; name another folder, or "
            "replace this one: remove it, or train with --restart"
        )


def find_difference(expected: Mapping[str, Any], stored: Mapping[str, Any]) -> str | None:
    """Return the first difference as "NAME EXPECTED, found FOUND", settings first, or None."""
    expected_values = dict(_flatten(json.loads(json.dumps(expected))))
    stored_values = dict(_flatten(stored))
    # Settings first, since they may also change a digest of the data.
    names = sorted(
        expected_values.keys() | stored_values.keys(),
        key=lambda name: ("settings." not in name, name),
    )
    for name in names:
        is_common = name in expected_values and name in stored_values
        if not is_common or expected_values[name] != stored_values[name]:
            return f"{name} {expected_values.get(name)!r}, found {stored_values.get(name)!r}"
    return None


def _flatten(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each single value with its dotted name."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{name}.")
        else:
            yield above + name, value
