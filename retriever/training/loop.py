"""Fine-tuning a transformer: steps, epochs; what is trained comes in as a `Task`.

The same seed gives the same weights on the same machine, interrupted or not.
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

# Its length is the number of its pairs.
B = TypeVar("B", bound=Sized)


@dataclass(frozen=True, slots=True)
class Epoch:
    """Result of an epoch, from 1 on; 0 is before training. `active`: share that had a loss."""

    epoch: int
    loss: float
    active: float
    dev: float


@dataclass(frozen=True, slots=True)
class Step:
    """Steps done, steps there are if training does not stop early, and pairs of this one."""

    number: int
    total: int
    size: int


def kept_epoch(curve: Sequence[Epoch], tolerance: float, *, untrained: bool) -> Epoch | None:
    """The epoch that `tolerance` keeps; `untrained` says if the untrained model may be kept."""
    best = before = -math.inf
    kept = None
    for one in curve:
        if one.epoch == 0 and not untrained:
            continue
        best = max(best, one.dev)
        if one.epoch == 0:
            kept = one
            before = one.dev
        elif one.dev >= best - tolerance and one.dev > before:
            kept = one
    return kept


E = TypeVar("E")


class EarlyStopping(Generic[E]):
    """The epochs of a training, and the weights of the one that is kept."""

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor],
        choose: Callable[[Sequence[E]], E | None],
        epochs: int,
        patience: int,
    ) -> None:
        self.weights = weights
        self.curve: list[E] = []
        self._kept: dict[str, torch.Tensor] = {}
        self._choose = choose
        self._epochs = epochs
        self._patience = patience

    @property
    def kept(self) -> E | None:
        """The epoch that is kept."""
        return self._choose(self.curve)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or the last ones were worse."""
        done = len(self.curve) - 1
        kept = self.kept
        if done >= self._epochs:
            return True
        return kept is not None and done - self.curve.index(kept) >= self._patience

    def record(self, epoch: E, values: Mapping[str, torch.Tensor] | None = None) -> None:
        """Add an epoch, after which the parameters, or `values` in their place, may be kept."""
        self.curve.append(epoch)
        if self.kept is epoch:
            values = self.weights if values is None else values
            self._kept = {name: one.detach().clone() for name, one in values.items()}

    def use_kept(self) -> None:
        """Give the parameters the values that are kept."""
        assign(self.weights, self._kept)

    def tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        """Parameters, what is kept and the optimizer's state, for a checkpoint."""
        tensors = {f"weights/{name}": one.detach() for name, one in self.weights.items()}
        tensors |= {f"kept/{name}": one for name, one in self._kept.items()}
        for name, weight in self.weights.items():
            for key, value in optimizer.state.get(weight, {}).items():
                tensors[f"optimizer/{key}/{name}"] = value
        return tensors

    def restore(
        self, tensors: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer
    ) -> None:
        """Take over what `tensors` gave; the curve is the caller's."""
        assign(self.weights, {name: tensors[f"weights/{name}"] for name in self.weights})
        for path, value in tensors.items():
            kind, _, rest = path.partition("/")
            if kind == "kept":
                self._kept[rest] = value.to(self.weights[rest].device)
            elif kind == "optimizer":
                key, _, name = rest.partition("/")
                weight = self.weights[name]
                # Adam counts its steps on the CPU.
                device = value.device if key == "step" else weight.device
                optimizer.state[weight][key] = value.to(device)


def assign(weights: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    """Give parameters values by their names."""
    import torch

    with torch.no_grad():
        for name, value in values.items():
            weights[name].copy_(value)


def choose_weights(backbone: Backbone, train: str, *, words: bool) -> dict[str, torch.Tensor]:
    """The parameters to train, by name (word embeddings only with `words`); others are frozen."""
    size = trained_layers(train)
    if size is None:
        for weight in backbone.model.get_input_embeddings().parameters():
            weight.requires_grad_(words)
    else:
        layers = backbone.layers()
        if not size <= len(layers) == backbone.depth:
            raise ConfigError(
                f"train: expected last:1 to last:{len(layers)}, layers with weights of their own, "
                f"found {train}"
            )
        backbone.model.requires_grad_(False)
        for layer in layers[-size:]:
            layer.requires_grad_(True)
    named = backbone.model.named_parameters()
    # Hidden states do not depend on the pooler.
    return {
        name: one for name, one in named if one.requires_grad and not name.startswith("pooler.")
    }


class Task(ABC, Generic[B]):
    """A transformer, the heads on it, their data and their loss; made within `seeded`."""

    # Of an epoch.
    steps: int

    def __init__(
        self,
        backbone: Backbone,
        heads: Mapping[str, torch.nn.Module],
        settings: FineTuningSettings,
        dev: Callable[[], float],
    ) -> None:
        chosen = choose_weights(backbone, settings.train, words=settings.train_word_embeddings)
        self.backbone = backbone
        self.modules = [backbone.model, *heads.values()]
        self.weights = {f"backbone.{name}": one for name, one in chosen.items()}
        for head, module in heads.items():
            self.weights |= {f"{head}.{name}": one for name, one in module.named_parameters()}
        self.dev = dev
        self._rates = settings.learning_rate, settings.head_learning_rate

    def rate(self, name: str) -> float:
        """The learning rate of a weight at its peak."""
        return self._rates[0] if name.startswith("backbone.") else self._rates[1]

    @abstractmethod
    def batches(self, chance: np.random.Generator) -> Iterator[B]:
        """The batches of an epoch, one a step."""

    @abstractmethod
    def losses(self, batch: B) -> torch.Tensor | None:
        """The loss of each example of a batch, (examples,) float32, and None if it has none."""


def silent(_: object) -> None:
    """Do nothing with what is reported."""


def fine_tune(
    task: Task[Any],
    settings: FineTuningSettings,
    *,
    untrained: bool = False,
    checkpoint: Checkpoint | None = None,
    on_step: Callable[[Step], object] = silent,
    on_epoch: Callable[[Epoch], object] = silent,
) -> tuple[Epoch, ...]:
    """Train, within `seeded`; the curve begins with epoch 0, and earlier epochs are told again."""
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
    training.stopping.use_kept()
    return tuple(training.stopping.curve)


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Torch's random numbers come from the seed inside the block, and are as before after it."""
    import torch

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


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


class _Training:
    """A task, its optimizer and its progress."""

    def __init__(self, task: Task[Any], settings: FineTuningSettings, *, untrained: bool) -> None:
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
        self._average = {name: one.detach().clone() for name, one in task.weights.items()}
        self.stopping: EarlyStopping[Epoch] = EarlyStopping(
            task.weights,
            lambda curve: kept_epoch(curve, settings.tolerance, untrained=untrained),
            settings.epochs,
            settings.patience,
        )
        self._done = 0
        self._losses: list[float] = []
        self._active: list[float] = []

    def steps(self) -> Iterator[Step]:
        """The rest of the current epoch."""
        import torch

        for module in self._task.modules:
            module.train()
        epochs = len(self.stopping.curve) - 1
        chance = np.random.default_rng([self._settings.seed, epochs])
        skipped = self._done - epochs * self._task.steps
        for number, batch in enumerate(self._task.batches(chance)):
            if number >= skipped:
                self._step(batch)
                self._done += 1
                # After step n the average is a * average + (1 - a) * weights, where a is at most
                # (n - 1) / n: the first 1 / (1 - averaging) steps count alike, and the weights
                # before the first one not at all.
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
        """Continue the curve with the dev score of the averaged weights."""
        weights = self._task.weights
        last = {name: one.detach().clone() for name, one in weights.items()}
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
        """Everything that the rest of the training depends on."""
        import torch

        tensors = self.stopping.tensors(self._optimizer)
        tensors |= {f"average/{name}": one for name, one in self._average.items()}
        tensors["chance"] = torch.get_rng_state()
        device = self._task.backbone.device
        if device.type == "cuda":
            tensors["chance/cuda"] = torch.cuda.get_rng_state(device)
        values = {
            "done": self._done,
            "curve": [asdict(one) for one in self.stopping.curve],
            "losses": self._losses,
            "active": self._active,
        }
        return tensors, values

    def restore(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> None:
        """Resume from a state of the same training."""
        import torch

        self._done = values["done"]
        self.stopping.curve += [Epoch(**one) for one in values["curve"]]
        self.stopping.restore(tensors, self._optimizer)
        self._losses = list(values["losses"])
        self._active = list(values["active"])
        assign(self._average, {name: tensors[f"average/{name}"] for name in self._average})
        torch.set_rng_state(tensors["chance"])
        device = self._task.backbone.device
        if device.type == "cuda":
            torch.cuda.set_rng_state(tensors["chance/cuda"], device)
