"""Classifiers for many small trainings on one table of features: what protocols call, and the
logistic regression of SentEval and of Hosseini et al. (2023), by scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from eval.sentences.batched_training import no_scaling, scaling_of
from retriever.errors import ConfigError, require_classifiers

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

Rows = NDArray[np.int64]
Recipe = Literal["scaled", "senteval", "bert-lc"]

# Inverse strengths, from the strongest regularization. SentEval's are for features as they are.
_SENTEVAL = tuple(2.0**power for power in range(-2, 4))
_SENTEVAL_FOLDED = tuple(2.0**power for power in range(-1, 6))
_SCALED = tuple(4.0**power for power in range(-5, 1))
_BERT_LC = (10.0,)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A classifier to train with each of several strengths of regularization, and its predictions.

    Attributes:
        train: rows to train on, of at least two classes.
        test: rows to predict the class of.
        values: the strengths, at least one.
    """

    train: Rows
    test: Rows
    values: tuple[float, ...]


class Classifier(Protocol):
    """Trains and predicts."""

    @property
    def name(self) -> str:
        """Its name in results."""
        ...

    @property
    def seeded(self) -> bool:
        """Whether a seed changes what it predicts."""
        ...

    def grid(self, *, folded: bool) -> tuple[float, ...]:
        """The strengths of regularization to choose from, in the order that decides ties.

        Args:
            folded: whether they are chosen by cross-validation on a training split beside a test
                split, for which SentEval has another grid.
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
        """The predicted classes of each job.

        Args:
            features: (examples, features) float32.
            labels: (examples,) int64; those of training rows are from 0.
            jobs: all with the same number of values.
            seed: of everything random.
            done: called with the number of trained classifiers.

        Returns:
            For each job (values, test rows) int64.
        """
        ...


@dataclass(slots=True)
class LogisticRegressions:
    """A linear softmax classifier with a quadratic penalty.

    ``scaled`` scales every feature to mean 0 and deviation 1 on the training rows, so that encoders
    with vectors of different lengths meet the same penalty, and chooses C from 4^-5 to 1; lbfgs
    stops at a gradient of 1e-3 or after 100 steps, and starts each C from the result of the one
    before. ``senteval`` takes features as they are and C from 2^-2 to 2^3 (2^-1 to 2^5 where it is
    chosen by folds of a training split), by lbfgs with scikit-learn's own tolerance; with unit
    vectors the best C is at the end of that grid. ``bert-lc`` is SAGA with tolerance 0.01, at most
    200 steps and C = 10, features as they are.

    Attributes:
        recipe: one of these.
        unconverged: number of fits that reached the maximum number of steps.

    Raises:
        ConfigError: the recipe is unknown.
        MissingExtraError: scikit-learn is not installed.
    """

    recipe: Recipe = "scaled"
    unconverged: int = field(default=0, init=False)
    name: str = field(default="logistic", init=False)

    def __post_init__(self) -> None:
        if self.recipe not in ("scaled", "senteval", "bert-lc"):
            raise ConfigError(
                f"logistic: expected scaled, senteval or bert-lc, found {self.recipe!r}"
            )
        require_classifiers()

    @property
    def seeded(self) -> bool:
        """SAGA visits the rows in random order."""
        return self.recipe == "bert-lc"

    def grid(self, *, folded: bool) -> tuple[float, ...]:
        """See `Classifier`."""
        if self.recipe == "senteval":
            return _SENTEVAL_FOLDED if folded else _SENTEVAL
        return _SCALED if self.recipe == "scaled" else _BERT_LC

    def predict(
        self,
        features: NDArray[np.float32],
        labels: Rows,
        jobs: Sequence[Job],
        seed: int,
        done: Callable[[int], object] = lambda trained: None,
    ) -> list[Rows]:
        """See `Classifier`."""
        predictions = []
        for job in jobs:
            predictions.append(self._predict(features, labels, job, seed))
            done(len(job.values))
        return predictions

    def _predict(self, features: NDArray[np.float32], labels: Rows, job: Job, seed: int) -> Rows:
        from sklearn.exceptions import ConvergenceWarning

        train, test = features[job.train], features[job.test]
        scaled = self.recipe == "scaled"
        scaling = scaling_of(train) if scaled else no_scaling(train.shape[1])
        train, test = scaling(train), scaling(test)
        model = self._model(seed)
        found = np.zeros((len(job.values), len(job.test)), np.int64)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            for place, value in enumerate(job.values):
                found[place] = model.set_params(C=value).fit(train, labels[job.train]).predict(test)
        self.unconverged += sum(issubclass(one.category, ConvergenceWarning) for one in caught)
        return found

    def _model(self, seed: int) -> LogisticRegression:
        from sklearn.linear_model import LogisticRegression

        if self.recipe == "bert-lc":
            return LogisticRegression(solver="saga", tol=0.01, max_iter=200, random_state=seed)
        if self.recipe == "senteval":
            return LogisticRegression(max_iter=1000)
        return LogisticRegression(max_iter=100, tol=1e-3, warm_start=True)
