"""The effect of the number of layers and of each layer (Hosseini et al. 2023, Appendix E)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.layers.search import Task, comparable
from eval.layers.subsets import LayerSubsets


@dataclass(frozen=True, slots=True)
class SizeEffect:
    """Sets of one number of layers (Figs. 2 and 3).

    Attributes:
        size: number of layers.
        sets: number of sets that were tried.
        best: highest objective on the search data.
        mean: mean objective on the search data.
        held_out: objective on the held-out data of the set that is best on the search data.
        best_layers: that set; None for a mean over searches.
    """

    size: int
    sets: int
    best: float
    mean: float
    held_out: float | None
    best_layers: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class LayerEffect:
    """Sets with and without one layer (Fig. 4).

    Attributes:
        layer: the hidden state.
        with_layer: highest objective on the search data of sets with it.
        without: highest objective of sets without it; None if every set has it.
        held_out_with, held_out_without: objectives of these two sets on the held-out data.
    """

    layer: int
    with_layer: float
    without: float | None
    held_out_with: float | None
    held_out_without: float | None


class HeldOut:
    """The objective of single sets on the held-out data; None if there is none.

    Args:
        task: the held-out data.
        subsets: the sets.
        everywhere: (subsets,) objectives of all sets there, if they are known.
    """

    def __init__(
        self, task: Task | None, subsets: LayerSubsets, everywhere: NDArray[np.float64] | None
    ) -> None:
        self._task = task
        self._subsets = subsets
        self._everywhere = everywhere

    def __call__(self, place: int) -> float | None:
        """The objective of the set at this position."""
        if self._everywhere is not None:
            return float(self._everywhere[place])
        if self._task is None:
            return None
        return float(self._task.values(self._subsets.masks[place : place + 1])[0])


def size_effects(
    subsets: LayerSubsets, values: NDArray[np.float64], held_out: HeldOut
) -> tuple[SizeEffect, ...]:
    """The effect of the number of layers, in ascending order."""
    effects = []
    for size in np.unique(subsets.sizes).tolist():
        places = np.flatnonzero(subsets.sizes == size)
        best = _best(values, places)
        effects.append(
            SizeEffect(
                size=size,
                sets=len(places),
                best=float(values[best]),
                mean=float(values[places].mean()),
                held_out=held_out(best),
                best_layers=subsets.layers(best),
            )
        )
    return tuple(effects)


def layer_effects(
    subsets: LayerSubsets, values: NDArray[np.float64], held_out: HeldOut
) -> tuple[LayerEffect, ...]:
    """The effect of leaving out each hidden state, in ascending order."""
    effects = []
    for layer in range(subsets.hidden_states):
        has = subsets.contains(layer)
        best = _best(values, np.flatnonzero(has))
        lacking = np.flatnonzero(~has)
        other = _best(values, lacking) if len(lacking) else None
        effects.append(
            LayerEffect(
                layer=layer,
                with_layer=float(values[best]),
                without=None if other is None else float(values[other]),
                held_out_with=held_out(best),
                held_out_without=None if other is None else held_out(other),
            )
        )
    return tuple(effects)


def mean_size_effects(searches: Sequence[tuple[SizeEffect, ...]]) -> tuple[SizeEffect, ...]:
    """Means over several searches of the same sets."""
    return tuple(
        SizeEffect(
            size=same[0].size,
            sets=same[0].sets,
            best=float(np.mean([effect.best for effect in same])),
            mean=float(np.mean([effect.mean for effect in same])),
            held_out=_mean([effect.held_out for effect in same]),
            best_layers=None,
        )
        for same in zip(*searches, strict=True)
    )


def mean_layer_effects(searches: Sequence[tuple[LayerEffect, ...]]) -> tuple[LayerEffect, ...]:
    """Means over several searches of the same sets."""
    return tuple(
        LayerEffect(
            layer=same[0].layer,
            with_layer=float(np.mean([effect.with_layer for effect in same])),
            without=_mean([effect.without for effect in same]),
            held_out_with=_mean([effect.held_out_with for effect in same]),
            held_out_without=_mean([effect.held_out_without for effect in same]),
        )
        for same in zip(*searches, strict=True)
    )


def _best(values: NDArray[np.float64], places: NDArray[np.int64]) -> int:
    # Positions ascend, so ties are broken as for the best of all sets.
    return int(places[np.argmax(comparable(values[places]))])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
