"""The time that a search over pipelines may take."""

from __future__ import annotations

import time

from eval.progress import Done


class OutOfTimeError(Exception):
    """The budget ended during a computation."""


class Budget:
    """A deadline by the clock `time.monotonic`, which computations check."""

    def __init__(self) -> None:
        self.deadline = float("inf")

    def check(self) -> None:
        """Raise OutOfTimeError if the deadline has passed."""
        if time.monotonic() > self.deadline:
            raise OutOfTimeError

    def watch(self, done: Done) -> Done:
        """Return a counter of progress that also checks the deadline at each step."""

        def count(steps: int) -> None:
            done(steps)
            self.check()

        return count
