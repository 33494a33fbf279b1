"""Classifiers for many small trainings on one table of features.

They are the logistic regressions of SentEval and of Hosseini et al. (2023), and SentEval's MLP as
Wang and Kuo (2020) use it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eval.sentences.parallel_training import epoch_batches, first_weights, scaling_of

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.int64]
Recipe = Literal["scaled", "senteval", "bert-lc"]

# Each recipe: options of scikit-learn; inverse strengths, strongest regularization first; and
# inverse strengths where the folds of a split choose. SentEval's are for unscaled features.
_SCALED = tuple(4.0**power for power in range(-5, 1))
_SENTEVAL = tuple(2.0**power for power in range(-2, 6))
_RECIPES: Mapping[Recipe, tuple[dict[str, Any], tuple[float, ...], tuple[float, ...]]] = {
    "scaled": ({"max_iter": 100, "tol": 1e-3, "warm_start": True}, _SCALED, _SCALED),
    "senteval": ({"max_iter": 1000}, _SENTEVAL[:6], _SENTEVAL[1:]),
    # SAGA visits the rows in random order.
    "bert-lc": ({"solver": "saga", "max_iter": 200, "tol": 0.01}, (10.0,), (10.0,)),
}
_MLP = tuple(10.0**power for power in range(-5, -1))
# Jobs trained together: their weights and batches fit into the processor's caches.
_JOBS_AT_ONCE = 10
# Rows predicted together.
_PREDICTED_AT_ONCE = 4096


class Job(NamedTuple):
    """Rows to train on and rows to predict, with several strengths of regularization."""

    train: Rows
    test: Rows
    values: tuple[float, ...]


@dataclass(slots=True)
class LogisticRegressions:
    """Linear softmax classifiers with a quadratic penalty.

    Attributes:
        recipe: ``scaled`` scales the features; the other recipes do not.
        unconverged: number of fits that reached the maximum number of steps.
    """

    recipe: Recipe = "scaled"
    unconverged: int = 0

    @property
    def seeded(self) -> bool:
        """Whether a seed makes a difference."""
        return self.recipe == "bert-lc"

    def grid(self, *, folded: bool) -> tuple[float, ...]:
        """Return the strengths of regularization; `folded` if the folds of a split choose."""
        _, strengths, fold_strengths = _RECIPES[self.recipe]
        return fold_strengths if folded else strengths

    def predict(
        self, features: NDArray[np.float32], labels: Rows, jobs: Sequence[Job], seed: int
    ) -> list[Rows]:
        """Return the classes of each job, (values, test rows); all jobs have as many values."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        predictions = []
        for job in jobs:
            train = features[job.train]
            test = features[job.test]
            if self.recipe == "scaled":
                scaling = scaling_of(train)
                train = scaling(train)
                test = scaling(test)
            model = LogisticRegression(random_state=seed, **_RECIPES[self.recipe][0])
            job_predictions = []
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ConvergenceWarning)
                for value in job.values:
                    model.set_params(C=value).fit(train, labels[job.train])
                    job_predictions.append(model.predict(test))
            self.unconverged += sum(
                issubclass(warning.category, ConvergenceWarning) for warning in caught
            )
            predictions.append(np.stack(job_predictions))
        return predictions


@dataclass(frozen=True, slots=True)
class MLPs:
    """MLPs with one layer of sigmoid units and 4 epochs of Adam, as in the paper."""

    # Features are scaled: four epochs learn nothing from the small features of unit vectors.
    hidden: int = 50
    epochs: int = 4
    batch: int = 64
    rate: float = 0.001
    seeded: ClassVar[bool] = True

    def grid(self, *, folded: bool) -> tuple[float, ...]:
        """Return the strengths of weight decay."""
        return _MLP

    def predict(
        self, features: NDArray[np.float32], labels: Rows, jobs: Sequence[Job], seed: int
    ) -> list[Rows]:
        """Return the classes of each job, (values, test rows).

        Jobs are trained together; a job with fewer steps ends an epoch with idle steps.
        """
        classes = 1 + max(int(labels[job.train].max()) for job in jobs)
        predictions = []
        for start in range(0, len(jobs), _JOBS_AT_ONCE):
            group = jobs[start : start + _JOBS_AT_ONCE]
            networks = _Networks.start(features, group, self.hidden, classes, seed)
            self._train(networks, features, labels, group, seed)
            predictions += [
                networks.predict(place, features[job.test]) for place, job in enumerate(group)
            ]
        return predictions

    def _train(
        self,
        networks: _Networks,
        features: NDArray[np.float32],
        labels: Rows,
        jobs: Sequence[Job],
        seed: int,
    ) -> None:
        import torch

        x = torch.from_numpy(features)
        y = torch.from_numpy(labels)
        decay = torch.tensor([job.values for job in jobs], dtype=torch.float32)
        optimizer = torch.optim.Adam(networks.weights, lr=self.rate, fused=True)
        rows = [job.train for job in jobs]
        randoms = [np.random.default_rng([seed, 1]) for _ in jobs]
        for _ in range(self.epochs):
            for places, real in epoch_batches(rows, self.batch, randoms):
                logits = networks.logits(x[places])
                losses = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 2),
                    y[places][:, :, None].expand(logits.shape[:3]).flatten(),
                    reduction="none",
                ).view(logits.shape[:3])
                share = real / real.sum(dim=1, keepdim=True).clamp(min=1)
                optimizer.zero_grad()
                torch.autograd.backward((losses * share[:, :, None]).sum())
                networks.add_decay(decay)
                optimizer.step()


@dataclass(frozen=True, slots=True, eq=False)
class _Networks:
    """J jobs times V strengths of networks with H units.

    Attributes:
        mean, deviation: (J, 1, features) scaling of each job.
        weights: (J, features, V * H), (J, 1, V * H), (J, V, H, classes) and (J, V, 1, classes).
        values: V.
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    weights: tuple[torch.Tensor, ...]
    values: int

    @classmethod
    def start(
        cls,
        features: NDArray[np.float32],
        jobs: Sequence[Job],
        hidden: int,
        classes: int,
        seed: int,
    ) -> _Networks:
        """Return networks with the same first weights, as with SentEval's single seed."""
        import torch

        random = np.random.default_rng([seed, 0])
        inputs = features.shape[1]
        values = len(jobs[0].values)
        weights = []
        for fan_in, shape, repeats in (
            (inputs, (inputs, hidden), (len(jobs), 1, values)),
            (inputs, (1, hidden), (len(jobs), 1, values)),
            (hidden, (hidden, classes), (len(jobs), values, 1, 1)),
            (hidden, (1, classes), (len(jobs), values, 1, 1)),
        ):
            first = torch.from_numpy(first_weights(fan_in, shape, random))
            weights.append(first.repeat(repeats).requires_grad_())
        scalings = [scaling_of(features[job.train]) for job in jobs]
        return cls(
            torch.from_numpy(np.stack([scaling.mean for scaling in scalings])[:, None]),
            torch.from_numpy(np.stack([scaling.deviation for scaling in scalings])[:, None]),
            tuple(weights),
            values,
        )

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return (J, rows, V, classes) logits of (J, rows, features)."""
        import torch

        into, into_bias, out, out_bias = self.weights
        scaled = (x - self.mean) / self.deviation
        units = torch.sigmoid(torch.baddbmm(into_bias, scaled, into))
        split = units.view(*units.shape[:2], self.values, -1).transpose(1, 2)
        logits: torch.Tensor = (split @ out + out_bias).transpose(1, 2)
        return logits

    def add_decay(self, decay: torch.Tensor) -> None:
        """Add Adam's decay: the gradient of half the squared weights times `decay` (J, V)."""
        hidden = self.weights[2].shape[2]
        columns = decay.repeat_interleave(hidden, dim=1)[:, None]
        blocks = decay[:, :, None, None]
        factors = (columns, columns, blocks, blocks)
        for weight, factor in zip(self.weights, factors, strict=True):
            assert weight.grad is not None
            weight.grad.addcmul_(factor, weight.detach())

    def predict(self, job: int, features: NDArray[np.float32]) -> Rows:
        """Return (V, rows) classes with the highest logit."""
        import torch

        network = _Networks(
            self.mean[job : job + 1],
            self.deviation[job : job + 1],
            tuple(weight[job : job + 1] for weight in self.weights),
            self.values,
        )
        classes = []
        with torch.inference_mode():
            for start in range(0, len(features), _PREDICTED_AT_ONCE):
                rows = torch.from_numpy(features[start : start + _PREDICTED_AT_ONCE])
                classes.append(network.logits(rows[None])[0].argmax(dim=-1))
        best: Rows = torch.cat(classes).T.numpy()
        return best


Classifier: TypeAlias = LogisticRegressions | MLPs
