"""The loop of a fine-tuning: steps, epochs, checkpoints; what is trained comes in as a `Task`.

The same seed gives the same weights on the same machine, interrupted or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from retriever.errors import BadInputError
from retriever.training.averaging import WeightAverage
from retriever.training.checkpoint import Checkpoint, TrainingState
from retriever.training.settings import Epoch, FineTuningSettings, Precision, Step, kept_epoch

if TYPE_CHECKING:
    import torch

B = TypeVar("B")
_NO_DECAY_BELOW = 2


class Task(Protocol[B]):
    """A model, its data and its loss.

    Attributes:
        device: of the model.
        weights: the parameters that change, by name.
        steps: of an epoch.
    """

    device: torch.device
    weights: dict[str, torch.Tensor]
    steps: int

    def optimizer(self) -> torch.optim.Optimizer:
        """An optimizer of the weights, as `adamw` makes it."""
        ...

    def train(self) -> None:
        """Put the model into training mode."""
        ...

    def batches(self, chance: np.random.Generator) -> Iterator[B]:
        """The batches of an epoch, one a step."""
        ...

    def losses(self, batch: B) -> torch.Tensor | None:
        """The loss of each example of a batch, (examples,) float32, and None if it has none."""
        ...

    def size(self, batch: B) -> int:
        """Pairs of a batch."""
        ...

    def dev(self) -> float:
        """The dev score of the model as it is; higher is better."""
        ...


def _silent(_: object) -> None:
    """Do nothing."""


def fine_tune(
    task: Task[Any],
    settings: FineTuningSettings,
    *,
    untrained: bool = False,
    checkpoint: Checkpoint | None = None,
    on_step: Callable[[Step], object] = _silent,
    on_epoch: Callable[[Epoch], object] = _silent,
) -> tuple[Epoch, ...]:
    """Train; the model ends with the weights of the epoch that `kept_epoch` says.

    Call it within `seeded`, which the task's first weights may depend on too.

    Args:
        task: what is trained.
        settings: how.
        untrained: whether the untrained model, epoch 0 of the curve, may be kept.
        checkpoint: the state to resume from, and where to save states; None saves nothing.
        on_step: called after each step.
        on_epoch: called after each epoch, and first for the epochs before a checkpoint.

    Returns:
        The learning curve, from epoch 0 on; from 1 if a checkpoint of an earlier release has no 0.

    Raises:
        ConfigError: the checkpoint is of other settings or data.
        BadInputError: the loss is not finite any more.
    """
    training = _Training(task, settings, untrained=untrained)
    if checkpoint is not None and (state := checkpoint.read()) is not None:
        training.restore(state)
    else:
        training.score_untrained()
    for epoch in training.curve:
        on_epoch(epoch)
    while not training.finished:
        for step in training.steps():
            on_step(step)
            if checkpoint is not None and checkpoint.due():
                checkpoint.write(training.state())
        training.end_epoch()
        on_epoch(training.curve[-1])
        if checkpoint is not None:
            checkpoint.write(training.state())
    training.use_kept()
    return tuple(training.curve)


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Torch's random numbers come from the seed inside the block, and are as before after it."""
    import torch

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def reset(module: torch.nn.Module) -> None:
    """Give a layer new random weights: for `Module.apply` within `seeded`."""
    method = getattr(module, "reset_parameters", None)
    if method is not None:
        method()


def uses_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Whether products are computed in bfloat16; ``auto`` is yes where it is the faster one."""
    import torch

    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(
        torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    )


def adamw(
    weights: Mapping[str, torch.Tensor], rate: Callable[[str], float], weight_decay: float
) -> torch.optim.Optimizer:
    """AdamW with a rate for each weight by its name as the `peak` of a group; vectors do not decay.

    Args:
        weights: by name.
        rate: the learning rate of a weight.
        weight_decay: of matrices.
    """
    import torch

    groups: dict[tuple[float, float], list[torch.Tensor]] = {}
    for name, weight in weights.items():
        decay = weight_decay if weight.ndim >= _NO_DECAY_BELOW else 0.0
        groups.setdefault((rate(name), decay), []).append(weight)
    return torch.optim.AdamW(
        [
            {"params": params, "lr": peak, "peak": peak, "weight_decay": decay}
            for (peak, decay), params in groups.items()
        ]
    )


class _Training:
    """A task, its optimizer and its progress."""

    def __init__(self, task: Task[Any], settings: FineTuningSettings, *, untrained: bool) -> None:
        self._task = task
        self._settings = settings
        self._untrained = untrained
        self._total = settings.epochs * task.steps
        self._weights = task.weights
        self._optimizer = task.optimizer()
        self._average = WeightAverage(self._weights, settings.averaging)
        self._kept: dict[str, torch.Tensor] = {}
        self.curve: list[Epoch] = []
        self._done = 0
        self._losses: list[float] = []
        self._active: list[float] = []

    @property
    def _epochs(self) -> int:
        """Number of epochs that are complete."""
        return self.curve[-1].epoch if self.curve else 0

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or the last ones were worse."""
        kept = self._kept_epoch()
        return self._epochs >= self._settings.epochs or (
            kept is not None and self._epochs - kept.epoch >= self._settings.patience
        )

    def steps(self) -> Iterator[Step]:
        """The rest of the current epoch."""
        self._task.train()
        chance = np.random.default_rng([self._settings.seed, self._epochs])
        skipped = self._done - self._epochs * self._task.steps
        for number, batch in enumerate(self._task.batches(chance)):
            if number >= skipped:
                self._step(batch)
                self._done += 1
                self._average.follow(self._done)
                yield Step(self._done, self._total, self._task.size(batch))

    def _step(self, batch: Any) -> None:
        import torch

        factor = self._rate()
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        losses = self._task.losses(batch)
        if losses is None:
            return
        loss = losses.mean()
        if not torch.isfinite(loss):
            raise BadInputError(
                f"training: expected a finite loss, found {float(loss.detach()):g} at step "
                f"{self._done + 1}; lower the learning rate (--learning-rate)"
            )
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._weights.values(), self._settings.clip)
        self._optimizer.step()
        self._losses.append(float(loss.detach()))
        self._active.append(float((losses > 0).float().mean()))

    def _rate(self) -> float:
        """Linear warm-up, then linear decay: the factor of the learning rates."""
        warm = max(1.0, self._settings.warmup * self._total)
        return min(1.0, (self._done + 1) / warm) * (1 - self._done / self._total)

    def score_untrained(self) -> None:
        """Begin the curve with the model as it is."""
        self._record(0)

    def end_epoch(self) -> None:
        """Continue the curve, and keep the averaged weights unless dev is worse."""
        self._record(self._epochs + 1)

    def _record(self, epoch: int) -> None:
        with self._average.applied():
            dev = self._task.dev()
        losses, active = self._losses or [0.0], self._active or [0.0]
        record = Epoch(epoch, float(np.mean(losses)), float(np.mean(active)), dev)
        self.curve.append(record)
        self._losses, self._active = [], []
        if self._kept_epoch() == record:
            self._kept = {name: one.clone() for name, one in self._average.values.items()}

    def _kept_epoch(self) -> Epoch | None:
        return kept_epoch(self.curve, self._settings.tolerance, untrained=self._untrained)

    def use_kept(self) -> None:
        """Give the model the weights that are kept."""
        self._average.write(self._kept)

    def state(self) -> TrainingState:
        """Everything that the rest of the training depends on."""
        import torch

        tensors = {f"weights/{name}": one.detach() for name, one in self._weights.items()}
        tensors |= {f"average/{name}": one for name, one in self._average.values.items()}
        tensors |= {f"kept/{name}": one for name, one in self._kept.items()}
        for name, weight in self._weights.items():
            for key, value in self._optimizer.state.get(weight, {}).items():
                tensors[f"optimizer/{key}/{name}"] = value
        tensors["chance"] = torch.get_rng_state()
        if self._task.device.type == "cuda":
            tensors["chance/cuda"] = torch.cuda.get_rng_state(self._task.device)
        values = {
            "done": self._done,
            "curve": [asdict(one) for one in self.curve],
            "losses": self._losses,
            "active": self._active,
        }
        return TrainingState(tensors, values)

    def restore(self, state: TrainingState) -> None:
        """Resume from a state of the same training."""
        import torch

        device, values = self._task.device, state.values
        self._done = values["done"]
        self.curve = [Epoch(**one) for one in values["curve"]]
        self._losses, self._active = list(values["losses"]), list(values["active"])
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(state.tensors[f"weights/{name}"])
        kept: dict[str, dict[str, Any]] = {}
        for path, value in state.tensors.items():
            kind, _, rest = path.partition("/")
            if kind == "kept":
                self._kept[rest] = value.to(device)
            elif kind == "average":
                self._average.values[rest].copy_(value)
            elif kind == "optimizer":
                key, _, name = rest.partition("/")
                # Adam counts its steps on the CPU.
                kept.setdefault(name, {})[key] = value if key == "step" else value.to(device)
        for name, one in kept.items():
            self._optimizer.state[self._weights[name]] = one
        torch.set_rng_state(state.tensors["chance"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(state.tensors["chance/cuda"], device)
