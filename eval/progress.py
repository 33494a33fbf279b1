"""Callbacks that follow long work: progress of stages, and lines for a person."""

from __future__ import annotations

from collections.abc import Callable

Done = Callable[[int], object]
"""Called with the number of steps that were done since the last call."""

Notify = Callable[[str], object]
"""Called with lines that a person should read, such as a warning or the loss of an epoch."""

Progress = Callable[[str, int | None], Done]
"""Called at the beginning of each stage with its name and number of steps, None if unknown.

The stage before it is then over. Returns a `Done` for its steps.
"""


def ignore(_: object) -> None:
    """A `Done` or a `Notify` that does nothing."""


def silent(name: str, total: int | None) -> Done:
    """A `Progress` that shows nothing."""
    return ignore
