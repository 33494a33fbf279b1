"""Fine-tuning of a transformer: steps and epochs of a `TrainingTask`.

The same seed gives the same weights on the same machine, even after an interruption.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from retriever.errors import BadInputError, ConfigError
from retriever.training.checkpoint import Checkpoint, TrainingState
from retriever.training.settings import FineTuningSettings, Precision, trained_layers

if TYPE_CHECKING:
    import torch

    from retriever.encoders.transformer.backbone import Backbone

# A batch, whose length is the number of its pairs.
B = TypeVar("B", bound=Sized)


@dataclass(frozen=True, slots=True)
class Epoch:
    """Result of an epoch; epoch 0 is before training. `active` is the share of losses above 0."""

    epoch: int
    loss: float
    active: float
    dev: float


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its number, the total without early stopping, and its number of pairs."""

    number: int
    total: int
    size: int


def select_epoch(curve: Sequence[Epoch], tolerance: float, *, untrained: bool) -> Epoch | None:
    """Return the last epoch within `tolerance` of the best so far; None without one.

    With `untrained`, epoch 0 may be selected, and later epochs have to be better.
    """
    best = untrained_dev = -math.inf
    selected = None
    for epoch in curve:
        if epoch.epoch == 0 and not untrained:
            continue
        best = max(best, epoch.dev)
        if epoch.epoch == 0:
            selected = epoch
            untrained_dev = epoch.dev
        elif epoch.dev >= best - tolerance and epoch.dev > untrained_dev:
            selected = epoch
    return selected


E = TypeVar("E")


class EarlyStopping(Generic[E]):
    """The epochs of a training, and the weights of the selected epoch."""

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor],
        choose: Callable[[Sequence[E]], E | None],
        epochs: int,
        patience: int,
    ) -> None:
        self.weights = weights
        self.curve: list[E] = []
        self._selected_weights: dict[str, torch.Tensor] = {}
        self._choose = choose
        self._epochs = epochs
        self._patience = patience

    @property
    def selected(self) -> E | None:
        """The selected epoch."""
        return self._choose(self.curve)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or `patience` epochs were not selected."""
        done = len(self.curve) - 1
        selected = self.selected
        if done >= self._epochs:
            return True
        return selected is not None and done - self.curve.index(selected) >= self._patience

    def record(self, epoch: E, values: Mapping[str, torch.Tensor] | None = None) -> None:
        """Add an epoch; if it is selected, copy `values`, by default the parameters."""
        self.curve.append(epoch)
        if self.selected is epoch:
            values = self.weights if values is None else values
            self._selected_weights = {
                name: value.detach().clone() for name, value in values.items()
            }

    def restore_selected(self) -> None:
        """Assign the weights of the selected epoch to the parameters."""
        assign(self.weights, self._selected_weights)

    def tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        """Return parameters, selected weights and optimizer state, for a checkpoint."""
        tensors = {f"weights/{name}": weight.detach() for name, weight in self.weights.items()}
        tensors |= {f"kept/{name}": weight for name, weight in self._selected_weights.items()}
        for name, weight in self.weights.items():
            for key, value in optimizer.state.get(weight, {}).items():
                tensors[f"optimizer/{key}/{name}"] = value
        return tensors

    def restore(
        self, tensors: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer
    ) -> None:
        """Restore the result of `tensors`; the caller restores the curve."""
        assign(self.weights, {name: tensors[f"weights/{name}"] for name in self.weights})
        for path, value in tensors.items():
            kind, _, rest = path.partition("/")
            if kind == "kept":
                self._selected_weights[rest] = value.to(self.weights[rest].device)
            elif kind == "optimizer":
                key, _, name = rest.partition("/")
                weight = self.weights[name]
                # Adam counts its steps on the CPU.
                device = value.device if key == "step" else weight.device
                optimizer.state[weight][key] = value.to(device)


def assign(weights: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    """Assign values to parameters by name."""
    import torch

    with torch.no_grad():
        for name, value in values.items():
            weights[name].copy_(value)


def choose_weights(backbone: Backbone, train: str, *, words: bool) -> dict[str, torch.Tensor]:
    """Return the parameters to train, by name; freeze the others.

    Word embeddings are trained only with `words`.
    """
    layer_count = trained_layers(train)
    if layer_count is None:
        for weight in backbone.model.get_input_embeddings().parameters():
            weight.requires_grad_(words)
    else:
        layers = backbone.layers()
        if not layer_count <= len(layers) == backbone.depth:
            raise ConfigError(
                f"train: expected last:1 to last:{len(layers)}, layers with weights of their own, "
                f"found {train}"
            )
        backbone.model.requires_grad_(False)
        for layer in layers[-layer_count:]:
            layer.requires_grad_(True)
    parameters = backbone.model.named_parameters()
    # Hidden states do not depend on the pooler.
    return {
        name: parameter
        for name, parameter in parameters
        if parameter.requires_grad and not name.startswith("pooler.")
    }


class TrainingTask(ABC, Generic[B]):
    """A transformer with its heads, data and loss; made within `seeded`."""

    # Steps of an epoch.
    steps: int

    def __init__(
        self,
        backbone: Backbone,
        heads: Mapping[str, torch.nn.Module],
        settings: FineTuningSettings,
        dev: Callable[[], float],
    ) -> None:
        backbone_weights = choose_weights(
            backbone, settings.train, words=settings.train_word_embeddings
        )
        self.backbone = backbone
        self.modules = [backbone.model, *heads.values()]
        self.weights = {f"backbone.{name}": weight for name, weight in backbone_weights.items()}
        for head, module in heads.items():
            self.weights |= {f"{head}.{name}": weight for name, weight in module.named_parameters()}
        self.dev = dev
        self._rates = settings.learning_rate, settings.head_learning_rate

    def rate(self, name: str) -> float:
        """Return the peak learning rate of a weight."""
        return self._rates[0] if name.startswith("backbone.") else self._rates[1]

    @abstractmethod
    def batches(self, generator: np.random.Generator) -> Iterator[B]:
        """Yield the batches of an epoch, one for each step."""

    @abstractmethod
    def losses(self, batch: B) -> torch.Tensor | None:
        """Return the loss of each example, (examples,) float32; None without examples."""


def silent(_: object) -> None:
    """Ignore a report."""


def fine_tune(
    task: TrainingTask[Any],
    settings: FineTuningSettings,
    *,
    untrained: bool = False,
    checkpoint: Checkpoint | None = None,
    on_step: Callable[[Step], object] = silent,
    on_epoch: Callable[[Epoch], object] = silent,
) -> tuple[Epoch, ...]:
    """Train within `seeded`, and return all epochs from epoch 0 on.

    A resumed training calls `on_epoch` again for the epochs of the checkpoint.
    """
    training = _Training(task, settings, untrained=untrained)
    if checkpoint is not None and (state := checkpoint.read()) is not None:
        training.restore(*state)
    else:
        training.end_epoch()
    for epoch in training.stopping.curve:
        on_epoch(epoch)
    while not training.stopping.finished:
        for step in training.steps():
            on_step(step)
            if checkpoint is not None and checkpoint.due():
                checkpoint.write(*training.state())
        on_epoch(training.end_epoch())
        if checkpoint is not None:
            checkpoint.write(*training.state())
    training.stopping.restore_selected()
    return tuple(training.stopping.curve)


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's random numbers inside the block, and restore their state after it."""
    import torch

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def uses_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Return whether products are computed in bfloat16; ``auto`` chooses it if it is faster."""
    import torch

    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(
        torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    )


class _Training:
    """The task, optimizer and progress of a training."""

    def __init__(
        self, task: TrainingTask[Any], settings: FineTuningSettings, *, untrained: bool
    ) -> None:
        import torch

        self._task = task
        self._settings = settings
        self._total = settings.epochs * task.steps
        groups: dict[tuple[float, float], list[torch.Tensor]] = {}
        for name, weight in task.weights.items():
            # Only matrices decay.
            decay = settings.weight_decay if weight.ndim >= 2 else 0.0
            groups.setdefault((task.rate(name), decay), []).append(weight)
        self._optimizer = torch.optim.AdamW(
            [
                {"params": params, "lr": peak, "peak": peak, "weight_decay": decay}
                for (peak, decay), params in groups.items()
            ]
        )
        # A moving average depends less on the last batches than the last weights do.
        self._average = {name: value.detach().clone() for name, value in task.weights.items()}
        self.stopping: EarlyStopping[Epoch] = EarlyStopping(
            task.weights,
            lambda curve: select_epoch(curve, settings.tolerance, untrained=untrained),
            settings.epochs,
            settings.patience,
        )
        self._done = 0
        self._losses: list[float] = []
        self._active: list[float] = []

    def steps(self) -> Iterator[Step]:
        """Train the rest of the current epoch, and yield each step."""
        import torch

        for module in self._task.modules:
            module.train()
        epochs = len(self.stopping.curve) - 1
        generator = np.random.default_rng([self._settings.seed, epochs])
        skipped = self._done - epochs * self._task.steps
        for number, batch in enumerate(self._task.batches(generator)):
            if number >= skipped:
                self._step(batch)
                self._done += 1
                # After step n the average is a * average + (1 - a) * weights with a at most
                # (n - 1) / n. The first 1 / (1 - averaging) steps have equal weight, and the
                # weights before the first step have none.
                share = min(self._settings.averaging, (self._done - 1) / self._done)
                average = self._average.values()
                weights = self._task.weights.values()
                with torch.no_grad():
                    torch._foreach_lerp_(list(average), list(weights), 1 - share)
                yield Step(self._done, self._total, len(batch))

    def _step(self, batch: Any) -> None:
        import torch

        # Linear warm-up, then linear decay.
        warm = max(1.0, self._settings.warmup * self._total)
        factor = min(1.0, (self._done + 1) / warm) * (1 - self._done / self._total)
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        losses = self._task.losses(batch)
        if losses is None:
            return
        loss = losses.mean()
        if not torch.isfinite(loss):
            raise BadInputError(
                f"training: expected a finite loss, found {float(loss.detach()):g} at step "
                f"{self._done + 1}; lower the learning rate (--set learning-rate)"
            )
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._task.weights.values(), self._settings.clip)
        self._optimizer.step()
        self._losses.append(float(loss.detach()))
        self._active.append(float((losses > 0).float().mean()))

    def end_epoch(self) -> Epoch:
        """Evaluate the averaged weights on dev, and record the epoch."""
        weights = self._task.weights
        last = {name: weight.detach().clone() for name, weight in weights.items()}
        assign(weights, self._average)
        try:
            dev = self._task.dev()
        finally:
            assign(weights, last)
        losses = self._losses or [0.0]
        active = self._active or [0.0]
        number = len(self.stopping.curve)
        epoch = Epoch(number, float(np.mean(losses)), float(np.mean(active)), dev)
        self.stopping.record(epoch, self._average)
        self._losses = []
        self._active = []
        return epoch

    def state(self) -> TrainingState:
        """Return everything that the rest of the training depends on."""
        import torch

        tensors = self.stopping.tensors(self._optimizer)
        tensors |= {f"average/{name}": weight for name, weight in self._average.items()}
        tensors["chance"] = torch.get_rng_state()
        device = self._task.backbone.device
        if device.type == "cuda":
            tensors["chance/cuda"] = torch.cuda.get_rng_state(device)
        values = {
            "done": self._done,
            "curve": [asdict(epoch) for epoch in self.stopping.curve],
            "losses": self._losses,
            "active": self._active,
        }
        return tensors, values

    def restore(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> None:
        """Restore a state of the same training."""
        import torch

        self._done = values["done"]
        self.stopping.curve += [Epoch(**epoch) for epoch in values["curve"]]
        self.stopping.restore(tensors, self._optimizer)
        self._losses = list(values["losses"])
        self._active = list(values["active"])
        assign(self._average, {name: tensors[f"average/{name}"] for name in self._average})
        torch.set_rng_state(tensors["chance"])
        device = self._task.backbone.device
        if device.type == "cuda":
            torch.cuda.set_rng_state(tensors["chance/cuda"], device)
