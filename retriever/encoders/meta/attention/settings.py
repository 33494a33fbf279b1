"""How attention-weighted meta-embeddings are trained, and what a training reports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from retriever.errors import ConfigError

Variant = Literal["stable", "printed", "released"]


@dataclass(frozen=True, slots=True)
class AttentionSettings:
    """What `fit_sup` and `fit_unsup` share.

    Sec. 4.4 of Takahashi and Bollegala (2022) has SGD, and all parameters start between -1 and 1,
    where projections are far from orthogonal and the first steps diverge. Here projections start
    orthogonal at random and weights equal, and the optimizer is AdamW, as in the authors' code.

    Attributes:
        dimensions: width of the meta-embedding; None is the width of the widest source.
        pooling: how word meta-vectors become one of the sentence: ``mean`` (Eq. 4) or ``max``
            (Eq. 5).
        weights: whether the weights of the sources are trained (Eq. 2); without them all sources
            count alike (Eq. 1; Table 2).
        learning_rate: constant.
        weight_decay: share of the learning rate by which parameters shrink at each step.
        epochs: maximum number.
        patience: number of epochs without improvement after which training stops.
        seed: of the projections before training.

    Raises:
        ConfigError: a value is out of range.
    """

    dimensions: int | None = None
    pooling: Literal["mean", "max"] = "mean"
    weights: bool = True
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    epochs: int = 50
    patience: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice(self, "pooling", ("mean", "max"))
        for name, low in (("dimensions", 1), ("epochs", 1), ("patience", 1), ("seed", 0)):
            require_least(self, name, low)
        require_least(self, "weight_decay", 0)
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate: expected more than 0, found {self.learning_rate:g}")


@dataclass(frozen=True, slots=True)
class UnsupSettings(AttentionSettings):
    """How `fit_unsup` trains.

    Attributes:
        variant: ``stable``, ``printed`` or ``released``; `fit_unsup` says what each is.
        lambda_: coefficient of different words of a sentence (Eq. 7).
        mu: coefficient of a word in different sentences (Eq. 8).
        nu: coefficient of different words in different sentences (Eq. 9).
        xi: coefficient of the orthogonality of the projections. ``printed`` starts from the four
            and trains them; ``released`` starts from random ones.
        margin: squared distance from which on a pushed pair has no loss; of ``stable`` alone. With
            equal weights orthogonal vectors are at 2. The weights measure quality only by way of
            it. Up to 1, hardly a pair is pushed, and they equalize the lengths of the projections:
            a noisy source, whose projections are short, gets more. At 2, nearly all pairs are
            pushed, and unequal weights increase distances, whichever source is the heavier. Between
            them the noisier of two copies of a signal gets less.

    Raises:
        ConfigError: a value is out of range.
    """

    variant: Variant = "stable"
    lambda_: float = 1.0
    mu: float = 1.0
    nu: float = 1.0
    xi: float = 1.0
    margin: float = 1.5

    def __post_init__(self) -> None:
        # Zero-argument super() does not know a class with slots.
        AttentionSettings.__post_init__(self)
        require_choice(self, "variant", ("stable", "printed", "released"))
        for name in ("lambda_", "mu", "nu", "xi", "margin"):
            require_least(self, name, 0)


@dataclass(frozen=True, slots=True)
class MetaEpoch:
    """The result of an epoch of training.

    Attributes:
        epoch: from 1; 0 is before training.
        loss: mean over the batches as training met them; None before training.
        held_out: mean loss over the held-out batches; None if there are none.
        score: the dev score; None if there is none.
        weights: of the sources.
    """

    epoch: int
    loss: float | None
    held_out: float | None
    score: float | None
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The course of a training.

    Attributes:
        curve: all epochs, from the untrained projections on.
        best: the epoch that is kept, the earliest of equal ones: of the highest score if there is
            one, else of the lowest loss on held-out sentences.
        diverged: whether training ended since the loss was no longer finite; of the variant
            ``printed`` alone.
    """

    curve: tuple[MetaEpoch, ...]
    best: int
    diverged: bool = False


def require_choice(settings: Any, name: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of the choices."""
    value = getattr(settings, name)
    if value not in choices:
        expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise ConfigError(f"{name.strip('_')}: expected {expected}, found {value!r}")


def require_least(settings: Any, name: str, low: float) -> None:
    """Refuse a value that is below `low` or not finite; None passes."""
    value = getattr(settings, name)
    if value is not None and not low <= value < math.inf:
        raise ConfigError(f"{name.strip('_')}: expected {low:g} or more, found {value:g}")
