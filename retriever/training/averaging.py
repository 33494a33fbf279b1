"""A moving average of the weights during training.

Its end depends less on the last batches than the last weights do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class WeightAverage:
    """Follows weights: after step n the average is a * average + (1 - a) * weights.

    a is the smaller of `decay` and (n - 1) / n, so that the first 1 / (1 - decay) steps count alike
    and the weights before the first one not at all.

    Args:
        weights: the parameters, by name; read, and exchanged while `applied`.
        decay: from 0, which takes the last weights, to below 1.

    Attributes:
        values: the average of each parameter, by name.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], decay: float) -> None:
        self._weights = weights
        self._decay = decay
        self.values = {name: one.detach().clone() for name, one in weights.items()}

    def follow(self, step: int) -> None:
        """Update the average with the weights after a step, numbered from 1."""
        import torch

        kept = min(self._decay, (step - 1) / step)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.values.values()), list(self._weights.values()), 1 - kept)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The weights are the average inside the block, and what they were after it."""
        last = {name: one.detach().clone() for name, one in self._weights.items()}
        self.write(self.values)
        try:
            yield
        finally:
            self.write(last)

    def write(self, values: Mapping[str, torch.Tensor]) -> None:
        """Give the weights these values."""
        import torch

        with torch.no_grad():
            for name, value in values.items():
                self._weights[name].copy_(value)
