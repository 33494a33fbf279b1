"""How a cross-encoder is fine-tuned, and what a training reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from retriever.errors import ConfigError
from retriever.rerankers.training.sampling import SamplingSettings


@dataclass(frozen=True, slots=True)
class CrossTrainingSettings:
    """How a cross-encoder is fine-tuned.

    Attributes:
        margin: of the hinge loss, 0 or more; the paper's is 0, for which a constant scorer has no
            loss.
        learning_rate: of the transformer, times two factors: one falls linearly from 1 to 0 over
            all steps, the other rises linearly to 1 in the warm-up.
        head_learning_rate: of the MLP, likewise.
        weight_decay: of matrices.
        warmup: share of the steps in which the rates rise from 0.
        clip: the norm that gradients are clipped to.
        averaging: decay of the moving average of the weights over the steps, which dev scores and
            which is kept; 0 takes the last weights. Not in the paper.
        epochs: at most.
        tolerance: the last epoch is kept whose dev score is no more than this below the best of its
            predecessors; 0 keeps the best one, the last of equal ones. With a few hundred dev
            questions two epochs differ by more than this by chance, and the earlier ones were
            trained at higher rates.
        patience: epochs in a row that are further below, after which training stops.
        seed: of the MLP's first weights, dropout and the order of questions.
        train_word_embeddings: off as in the paper, which trains all but them.
        precision: of the products in training; ``auto`` is bfloat16 where the processor multiplies
            it faster than float32. Weights are float32.
        sampling: pairs of a question, questions of a step.

    Raises:
        ConfigError: a value that is out of range.
    """

    margin: float = 1.0
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
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    sampling: SamplingSettings = field(
        default_factory=lambda: SamplingSettings(count=12, positives=3, questions=8)
    )

    def __post_init__(self) -> None:
        for name, low, high in (
            ("margin", 0.0, math.inf),
            ("learning_rate", 0.0, math.inf),
            ("head_learning_rate", 0.0, math.inf),
            ("weight_decay", 0.0, math.inf),
            ("warmup", 0.0, 1.0),
            ("tolerance", 0.0, math.inf),
            ("epochs", 1, math.inf),
            ("patience", 1, math.inf),
            ("seed", 0, math.inf),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                limit = f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
                raise ConfigError(f"{name}: expected {limit}, found {value:g}")
        if not 0 <= self.averaging < 1:
            raise ConfigError(f"averaging: expected 0 to below 1, found {self.averaging:g}")
        if not self.clip > 0:
            raise ConfigError(f"clip: expected more than 0, found {self.clip:g}")


@dataclass(frozen=True, slots=True)
class CrossEpoch:
    """What an epoch of training came to.

    Attributes:
        epoch: from 1.
        loss: mean of the steps' losses.
        active: share of the triples that had a loss.
        dev: the dev score after it.
    """

    epoch: int
    loss: float
    active: float
    dev: float


def kept_epoch(curve: Sequence[CrossEpoch], tolerance: float) -> CrossEpoch | None:
    """The epoch whose weights are kept, see `CrossTrainingSettings.tolerance`; None before any."""
    best, kept = -math.inf, None
    for one in curve:
        best = max(best, one.dev)
        if one.dev >= best - tolerance:
            kept = one
    return kept


@dataclass(frozen=True, slots=True)
class Step:
    """How far training is.

    Attributes:
        number: steps done.
        total: steps there are, if training does not stop early.
        pairs: how many the step had.
    """

    number: int
    total: int
    pairs: int
