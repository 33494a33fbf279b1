"""The state of a training on disk: written whole or not at all, read by the same training."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexes import remove_abandoned, whole_folder
from retriever.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

_TENSORS = "state.safetensors"
_VALUES = "state.json"


# What a training resumes from: tensors by name, and JSON values.
TrainingState = tuple[dict[str, "torch.Tensor"], dict[str, Any]]


class Checkpoint:
    """The state of one training: only one of the same identity, as JSON values, resumes from it."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], seconds: float = 300.0) -> None:
        self.folder = folder
        self._identity = json.loads(json.dumps(identity))
        self._seconds = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether the last state is old enough for another."""
        return time.monotonic() - self._last >= self._seconds

    def read(self) -> TrainingState | None:
        """The state, or None if there is none yet; ConfigError if it is of another training."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not self.folder.is_dir():
            return None
        try:
            values = json.loads((self.folder / _VALUES).read_text(encoding="utf-8"))
            tensors = load_file(self.folder / _TENSORS)
            other = different(self._identity, values.pop("identity"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise ModelError(
                f"{self.folder}: the checkpoint cannot be read ({' '.join(str(error).split())}); "
                "remove the folder to start over"
            ) from error
        if other is not None:
            raise ConfigError(
                f"{self.folder}: expected the checkpoint of a run with {other}; give the options "
                "of the interrupted run, or start over: remove the folder, or train with --restart"
            )
        return tensors, values

    def write(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> None:
        """Replace the state; raises StorageError if the disk is full or cannot be written."""
        from safetensors.torch import save_file

        with whole_folder(self.folder) as new:
            # A frozen tensor may be shared, or be on another device.
            copies = {name: one.cpu().contiguous().clone() for name, one in tensors.items()}
            save_file(copies, new / _TENSORS)
            stored = {**values, "identity": self._identity}
            (new / _VALUES).write_text(json.dumps(stored), encoding="utf-8")
        self._last = time.monotonic()

    def remove(self) -> None:
        """Forget the state."""
        shutil.rmtree(self.folder, ignore_errors=True)
        remove_abandoned(self.folder)


def require_same(folder: Path, expected: Mapping[str, Any], found: Any) -> None:
    """Raise ConfigError if a folder is the result of a training of another identity."""
    other = different(expected, found if isinstance(found, dict) else {})
    if other is not None:
        raise ConfigError(
            f"{folder}: expected the result of a run with {other}; name another folder, or replace "
            "this one: remove it, or train with --restart"
        )


def different(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """The first value that differs as "NAME EXPECTED, found FOUND", settings first, or None."""
    here = dict(_flat(json.loads(json.dumps(expected))))
    there = dict(_flat(found))
    # A setting may decide a digest of the data too.
    names = sorted(here.keys() | there.keys(), key=lambda one: ("settings." not in one, one))
    for name in names:
        if name not in here or name not in there or here[name] != there[name]:
            return f"{name} {here.get(name)!r}, found {there.get(name)!r}"
    return None


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each single value by its name, after the names that it is nested in."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value
