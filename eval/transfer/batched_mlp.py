"""MLP classifiers: all folds and strengths of a task are trained side by side.

The MLP of SentEval as Wang and Kuo (2020) use it: 50 sigmoid units, softmax, Adam with a learning
rate of 0.001, the strength as weight decay in its gradient, batches of 64, 4 epochs, and the best
strength from 1e-5 to 1e-2. SentEval's code checks dev every 4 epochs and continues until five
checks bring no gain; the paper trains for 4 epochs in all experiments, and so does this module.

So few epochs learn nothing from the features of unit vectors, which are small: for every encoder
each feature is scaled to mean 0 and deviation 1 on the training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.sentences.batched_training import Scaling, epoch_batches, first_weights, scaling_of
from eval.transfer.classifiers import Job, Rows
from retriever.errors import ConfigError

if TYPE_CHECKING:
    import torch

_STRENGTHS = tuple(10.0**power for power in range(-5, -1))
# Folds whose weights and batches fit into the processor's caches.
_JOBS_AT_ONCE = 10
_PREDICTED_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class MLPs:
    """See the module.

    Attributes:
        hidden: units.
        epochs: passes over the training rows.
        batch: rows in a step.
        rate: of Adam.

    Raises:
        ConfigError: one of them is less than 1, or the rate not above 0.
    """

    hidden: int = 50
    epochs: int = 4
    batch: int = 64
    rate: float = 0.001
    name: str = field(default="mlp", init=False)
    seeded: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        for name in ("hidden", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if not self.rate > 0:
            raise ConfigError(f"rate: expected a number above 0, found {self.rate}")

    def grid(self, *, folded: bool) -> tuple[float, ...]:
        """See `Classifier`; the same for all protocols."""
        return _STRENGTHS

    def predict(
        self,
        features: NDArray[np.float32],
        labels: Rows,
        jobs: Sequence[Job],
        seed: int,
        done: Callable[[int], object] = lambda trained: None,
    ) -> list[Rows]:
        """See `Classifier`.

        A job's result depends on the others only by rounding, with one exception: a job with fewer
        steps per epoch than others beside it makes idle steps of Adam at the end.
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
            done(sum(len(job.values) for job in group))
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

        x, y = torch.from_numpy(features), torch.from_numpy(labels)
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
        mean, deviation: (J, 1, features), the scaling of each job.
        weights: into the units (J, features, V * H) and (J, 1, V * H), out of them (J, V, H,
            classes) and (J, V, 1, classes).
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
        """The same first weights for all, as with SentEval's single seed."""
        import torch

        random = np.random.default_rng([seed, 0])
        inputs, values = features.shape[1], len(jobs[0].values)
        into = first_weights(inputs, (inputs, hidden), random)
        into_bias = first_weights(inputs, (1, hidden), random)
        out = first_weights(hidden, (hidden, classes), random)
        out_bias = first_weights(hidden, (1, classes), random)
        scalings: list[Scaling] = [scaling_of(features[job.train]) for job in jobs]
        count = len(jobs)
        weights = (
            torch.from_numpy(into).repeat(count, 1, values),
            torch.from_numpy(into_bias).repeat(count, 1, values),
            torch.from_numpy(out).repeat(count, values, 1, 1),
            torch.from_numpy(out_bias).repeat(count, values, 1, 1),
        )
        return cls(
            torch.from_numpy(np.stack([one.mean for one in scalings])[:, None]),
            torch.from_numpy(np.stack([one.deviation for one in scalings])[:, None]),
            tuple(one.requires_grad_() for one in weights),
            values,
        )

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """(J, rows, features) to (J, rows, V, classes)."""
        import torch

        into, into_bias, out, out_bias = self.weights
        scaled = (x - self.mean) / self.deviation
        units = torch.sigmoid(torch.baddbmm(into_bias, scaled, into))
        split = units.view(*units.shape[:2], self.values, -1).transpose(1, 2)
        logits: torch.Tensor = (split @ out + out_bias).transpose(1, 2)
        return logits

    def add_decay(self, decay: torch.Tensor) -> None:
        """Add the gradient of half the squared weights times `decay` (J, V): Adam's decay."""
        into, into_bias, out, out_bias = self.weights
        hidden = out.shape[2]
        columns = decay.repeat_interleave(hidden, dim=1)[:, None]
        for weight in (into, into_bias):
            if weight.grad is not None:
                weight.grad.addcmul_(columns, weight.detach())
        for weight in (out, out_bias):
            if weight.grad is not None:
                weight.grad.addcmul_(decay[:, :, None, None], weight.detach())

    def predict(self, job: int, features: NDArray[np.float32]) -> Rows:
        """(V, rows) the class with the highest logit."""
        import torch

        one = _Networks(
            self.mean[job : job + 1],
            self.deviation[job : job + 1],
            tuple(weight[job : job + 1] for weight in self.weights),
            self.values,
        )
        found = []
        with torch.inference_mode():
            for start in range(0, len(features), _PREDICTED_AT_ONCE):
                rows = torch.from_numpy(features[start : start + _PREDICTED_AT_ONCE])
                found.append(one.logits(rows[None])[0].argmax(dim=-1))
        best: Rows = torch.cat(found).T.numpy()
        return best
