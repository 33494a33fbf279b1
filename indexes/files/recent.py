"""What was made for the keys that were asked for last."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, of which those not asked for the longest time are forgotten.

    Args:
        most: how many are kept, at least 1.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[K, V] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made where it is not there; raises what `make` raises."""
        value = self._values.pop(key) if key in self._values else make()
        while len(self._values) >= self._most:
            del self._values[next(iter(self._values))]
        self._values[key] = value
        return value
