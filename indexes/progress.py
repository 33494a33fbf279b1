"""How long work tells its caller how far it is."""

from __future__ import annotations

from collections.abc import Callable

# Called with the name of a step of the work and how many units it has; returns what is called
# with how many more units are done.
Stage = Callable[[str, int], Callable[[int], object]]


def no_progress(name: str, total: int) -> Callable[[int], object]:
    """A `Stage` that reports nothing."""
    del name, total
    return lambda done: None
