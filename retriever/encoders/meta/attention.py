"""UNSUP and SUP of Takahashi and Bollegala 2022: projections and weights learned by gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from retriever.encoders.meta.linear import Projection, WordPooling
from retriever.encoders.meta.words import PairBatch, WordBatch
from retriever.errors import ConfigError

Variant = Literal["stable", "printed", "released"]


@dataclass(frozen=True, slots=True)
class UnsupSettings:
    """How UNSUP and SUP are trained."""

    dimensions: int
    pooling: WordPooling = "max"
    variant: Variant = "stable"
    weights: bool = True
    epochs: int = 100
    patience: int = 5
    learning_rate: float = 1e-2
    weight_decay: float = 1e-4
    seed: int = 0


def fit_unsup(
    epochs: Callable[[int], Iterable[WordBatch]],
    widths: Sequence[int],
    settings: UnsupSettings,
    *,
    held_out: Callable[[], Iterable[WordBatch]],
    score: Callable[[Projection], float] | None,
    done: Callable[[int], object] = lambda epochs: None,
    checkpoint: Path | None = None,
) -> Projection:
    """Not here yet."""
    raise ConfigError("method: unsup is not available yet")


def fit_sup(
    epochs: Callable[[int], Iterable[PairBatch]],
    widths: Sequence[int],
    settings: UnsupSettings,
    *,
    score: Callable[[Projection], float] | None,
    done: Callable[[int], object] = lambda epochs: None,
    checkpoint: Path | None = None,
) -> Projection:
    """Not here yet."""
    raise ConfigError("method: sup is not available yet")
