"""How long work is followed: stages of known length, and notes on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Is called at the beginning of each stage of the work."""

    def __call__(self, name: str, total: int | None) -> Callable[[int], object]:
        """Begin a stage; the stage before it is over.

        Args:
            name: of the stage.
            total: number of steps; None if it is not known.

        Returns:
            Called with the number of steps done since the last call.
        """
        ...


def silent(name: str, total: int | None) -> Callable[[int], object]:
    """A `Progress` that shows nothing."""
    return lambda steps: None


Notify = Callable[[str], object]
"""Called with lines that a person should read, such as a warning or the loss of an epoch."""


def ignore(line: str) -> None:
    """A `Notify` that drops the line."""
