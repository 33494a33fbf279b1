"""How a transformer is fine-tuned, and what a training reports."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from retriever.errors import ConfigError

Precision = Literal["auto", "float32", "bfloat16"]
TrainedPart = Literal["full", "last", "lora"]


@dataclass(frozen=True, slots=True)
class Trained:
    """Which weights of a transformer are trained.

    Attributes:
        part: ``full`` is all that vectors depend on; ``last`` the last `size` transformer layers;
            ``lora`` low-rank adapters of rank `size` on the linear maps of every layer (Hu et al.
            2022), which are added to the weights when the encoder is saved.
        size: number of layers, or rank; 0 with ``full``.

    Raises:
        ConfigError: an unknown part, or a size below 1 for one that has a size.
    """

    part: TrainedPart = "full"
    size: int = 0

    def __post_init__(self) -> None:
        if self.part not in get_args(TrainedPart) or (self.size < 1) != (self.part == "full"):
            raise ConfigError(f"train: {_EXPECTED}, found {self}")

    @classmethod
    def parse(cls, text: str) -> Trained:
        """Read ``full``, ``last:N`` or ``lora:RANK``.

        Raises:
            ConfigError: it is none of them.
        """
        match = re.fullmatch(r"(full)|(last|lora):([0-9]{1,6})", text)
        if match is None:
            raise ConfigError(f"train: {_EXPECTED}, found {text[:40]!r}")
        if match[1]:
            return cls()
        return cls("last" if match[2] == "last" else "lora", int(match[3]))

    def __str__(self) -> str:
        return self.part if self.part == "full" else f"{self.part}:{self.size}"


# Adapters start at zero, and move the weights by their product with small numbers.
_ADAPTER_RATE = 10.0
_EXPECTED = "expected full, last:N or lora:RANK, N and RANK at least 1"


@dataclass(frozen=True, slots=True)
class FineTuningSettings:
    """What cross-encoders and encoders have in common.

    Attributes:
        trained: which weights of the transformer change. Adapters learn at ten times its rate.
        learning_rate: of the transformer, times two factors: one falls linearly from 1 to 0 over
            all steps, the other rises linearly to 1 in the warm-up.
        head_learning_rate: of layers on top of the transformer, likewise.
        weight_decay: of matrices.
        warmup: share of the steps in which the rates rise from 0.
        clip: the norm that gradients are clipped to.
        averaging: decay of the moving average of the weights over the steps, which dev scores and
            which is kept; 0 takes the last weights.
        epochs: at most.
        tolerance: the last epoch is kept whose dev score is no more than this below the best of its
            predecessors; 0 keeps the best one, the last of equal ones. With a few hundred dev
            questions two epochs differ by more than this by chance, and the earlier ones were
            trained at higher rates.
        patience: epochs in a row that are further below, after which training stops.
        seed: of first weights, dropout and the order of the examples.
        train_word_embeddings: whether they are trained too, if `trained` is ``full``.
        precision: of the products in training; ``auto`` is bfloat16 where the processor multiplies
            it faster than float32. Weights are float32.

    Raises:
        ConfigError: a value that is out of range.
    """

    trained: Trained = Trained()
    learning_rate: float = 1e-4
    head_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.1
    clip: float = 1.0
    averaging: float = 0.95
    epochs: int = 3
    tolerance: float = 0.02
    patience: int = 2
    seed: int = 0
    train_word_embeddings: bool = False
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("learning_rate", 0.0, math.inf),
            ("head_learning_rate", 0.0, math.inf),
            ("weight_decay", 0.0, math.inf),
            ("warmup", 0.0, 1.0),
            ("tolerance", 0.0, math.inf),
            ("epochs", 1, math.inf),
            ("patience", 1, math.inf),
            ("seed", 0, math.inf),
        ):
            self._require(name, low, high)
        if not 0 <= self.averaging < 1:
            raise ConfigError(f"averaging: expected 0 to below 1, found {self.averaging:g}")
        if not self.clip > 0:
            raise ConfigError(f"clip: expected more than 0, found {self.clip:g}")

    @property
    def transformer_rate(self) -> float:
        """The learning rate of the weights that `trained` says."""
        return self.learning_rate * (_ADAPTER_RATE if self.trained.part == "lora" else 1.0)

    def _require(self, name: str, low: float, high: float = math.inf) -> None:
        """Refuse a value that is out of range or not a number."""
        value = getattr(self, name)
        if not low <= value <= high:
            limit = f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
            raise ConfigError(f"{name}: expected {limit}, found {value:g}")


@dataclass(frozen=True, slots=True)
class Epoch:
    """The result of an epoch of training.

    Attributes:
        epoch: from 1; 0 is before training.
        loss: mean of the steps' losses; 0 before training.
        active: share of the examples that had a loss.
        dev: the dev score after it.
    """

    epoch: int
    loss: float
    active: float
    dev: float


def kept_epoch(curve: Sequence[Epoch], tolerance: float, *, untrained: bool) -> Epoch | None:
    """The epoch whose weights are kept, see `FineTuningSettings.tolerance`; None before any.

    Args:
        curve: of a training.
        tolerance: see there.
        untrained: whether the untrained model, epoch 0, may be kept; then only an epoch that is
            better than it takes its place.
    """
    best = before = -math.inf
    kept = None
    for one in curve:
        if one.epoch == 0 and not untrained:
            continue
        best = max(best, one.dev)
        if one.epoch == 0:
            kept, before = one, one.dev
        elif one.dev >= best - tolerance and one.dev > before:
            kept = one
    return kept


@dataclass(frozen=True, slots=True)
class Step:
    """How far training is.

    Attributes:
        number: steps done.
        total: steps there are, if training does not stop early.
        size: pairs of the step.
    """

    number: int
    total: int
    size: int
