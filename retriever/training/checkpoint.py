"""The state of a training on disk: written whole or not at all, read by the same training."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexes import whole_folder
from retriever.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

_TENSORS, _VALUES = "state.safetensors", "state.json"


@dataclass(frozen=True, slots=True)
class TrainingState:
    """What a training resumes from.

    Attributes:
        tensors: weights, optimizer and random state, by name.
        values: JSON values.
    """

    tensors: dict[str, torch.Tensor]
    values: dict[str, Any]


class Checkpoint:
    """A folder that holds the state of one training.

    Args:
        folder: is made when a state is written.
        identity: settings and data, as JSON values: only the same training resumes from it.
        seconds: how often a state is due.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], seconds: float = 300.0) -> None:
        self.folder = folder
        self._identity = json.loads(json.dumps(identity))
        self._seconds = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether the last state is old enough for another."""
        return time.monotonic() - self._last >= self._seconds

    def read(self) -> TrainingState | None:
        """The state, or None if there is none yet.

        Raises:
            ConfigError: it is of a training with other settings or data.
            ModelError: it cannot be read.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not self.folder.is_dir():
            return None
        try:
            values = json.loads((self.folder / _VALUES).read_text(encoding="utf-8"))
            tensors = load_file(self.folder / _TENSORS)
            identity = values.pop("identity")
            expected, found = dict(_flat(self._identity)), dict(_flat(identity))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise ModelError(
                f"{self.folder}: the checkpoint cannot be read ({reason}); remove the folder to "
                "start over"
            ) from error
        if found != expected:
            other = min(
                name
                for name in expected.keys() | found.keys()
                if name not in expected or name not in found or expected[name] != found[name]
            )
            raise ConfigError(
                f"{self.folder}: expected the checkpoint of a run with {other} "
                f"{expected.get(other)!r}, found {found.get(other)!r}; give the options of the "
                "interrupted run, or --restart"
            )
        return TrainingState(tensors, values)

    def write(self, state: TrainingState) -> None:
        """Replace the state.

        Raises:
            StorageError: the disk is full or cannot be written.
        """
        from safetensors.torch import save_file

        with whole_folder(self.folder) as new:
            # A frozen tensor may be shared, or be on another device.
            tensors = {name: one.cpu().contiguous().clone() for name, one in state.tensors.items()}
            save_file(tensors, new / _TENSORS)
            values = {**state.values, "identity": self._identity}
            (new / _VALUES).write_text(json.dumps(values), encoding="utf-8")
        self._last = time.monotonic()

    def remove(self) -> None:
        """Forget the state."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each single value by its name, after the names that it is nested in."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value
