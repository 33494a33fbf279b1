"""How long work is followed: stages of known length, and lines for a person on the way."""

from __future__ import annotations

from collections.abc import Callable

Done = Callable[[int], object]
"""Called with the number of steps that were done since the last call."""

Notify = Callable[[str], object]
"""Called with lines that a person should read, such as a warning or the loss of an epoch."""


Progress = Callable[[str, int | None], Done]
"""Called at the beginning of each stage of the work with its name and its number of steps, None if
that is not known; the stage before it is over. Returns what is called with the steps done."""


def ignore(_: object) -> None:
    """A `Done` or a `Notify` that does nothing."""


def silent(name: str, total: int | None) -> Done:
    """A `Progress` that shows nothing."""
    return ignore
