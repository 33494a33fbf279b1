"""What a protocol asks of a classifier: many small trainings over one table of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A classifier to train for each of several strengths of regularisation, and what to predict.

    Attributes:
        train: rows that it is trained on, of at least two classes.
        test: rows whose class it predicts.
        values: the strengths, at least one.
    """

    train: Rows
    test: Rows
    values: tuple[float, ...]


class Classifier(Protocol):
    """Trains and predicts."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    @property
    def seeded(self) -> bool:
        """Whether a seed changes what it predicts."""
        ...

    def grid(self, *, folded: bool) -> tuple[float, ...]:
        """The strengths of regularisation to choose from, in the order that decides ties.

        Args:
            folded: whether they are chosen by cross-validation on a training split beside a test
                split, for which SentEval has a grid of its own.
        """
        ...

    def predict(
        self,
        features: NDArray[np.float32],
        labels: Rows,
        jobs: Sequence[Job],
        seed: int,
        done: Callable[[int], object] = ...,
    ) -> list[Rows]:
        """The classes that each job predicts.

        Args:
            features: (examples, features) float32.
            labels: (examples,) int64; those of training rows from 0.
            jobs: all with as many values.
            seed: of what is random.
            done: called with the number of trained classifiers.

        Returns:
            For each job (values, test rows) int64.
        """
        ...
