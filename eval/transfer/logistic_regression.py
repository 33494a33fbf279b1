"""Logistic regression by scikit-learn, as SentEval and as Hosseini et al. (2023) train it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from eval.extras import require_classifiers
from eval.sentences.batched_training import no_scaling, scaling_of
from eval.transfer.classifiers import Job, Rows
from retriever.errors import ConfigError

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

# Inverse strengths, the strongest regularisation first. SentEval's are for features as they are.
_SENTEVAL = tuple(2.0**power for power in range(-2, 4))
_SENTEVAL_FOLDED = tuple(2.0**power for power in range(-1, 6))
_SCALED = tuple(4.0**power for power in range(-5, 1))
_BERT_LC = (10.0,)

Recipe = Literal["scaled", "senteval", "bert-lc"]


@dataclass(slots=True)
class LogisticRegressions:
    """A linear softmax classifier with a quadratic penalty.

    ``scaled`` scales every feature to mean 0 and deviation 1 on the training rows, so that encoders
    whose vectors have other lengths meet the same penalty, and chooses C from 4^-5 to 1; lbfgs
    stops at a gradient of 1e-3 or after 100 steps, and goes on from one C to the next larger.
    ``senteval`` takes features as they are and C from 2^-2 to 2^3 (2^-1 to 2^5 where it is chosen
    by folds of a training split), by lbfgs with scikit-learn's own tolerance. With unit vectors its
    best C lies at the end of that grid. ``bert-lc`` is SAGA with tolerance 0.01, at most 200 steps
    and C = 10, features as they are.

    Attributes:
        recipe: which of these.
        unconverged: how many fits ended at the most steps.

    Raises:
        ConfigError: there is no such recipe.
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
        """SAGA goes through the rows in a random order."""
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
