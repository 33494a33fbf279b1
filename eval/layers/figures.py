"""The figure of a layer search: the effects of the number of layers and of leaving each one out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eval.figures import new_figure
from eval.layers.effects import LayerEffect, SizeEffect

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def effects_figure(
    sizes: Sequence[SizeEffect], layers: Sequence[LayerEffect], baseline: float, objective: str
) -> Figure:
    """Both effects side by side, as in Figs. 2 to 4 of Hosseini et al. 2023.

    Args:
        sizes: the effect of the number of layers.
        layers: the effect of each layer.
        baseline: objective of the last layer on the search data.
        objective: its name.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    numbers = [effect.size for effect in sizes]
    left.plot(numbers, [effect.best for effect in sizes], "o-", label="best set")
    left.plot(numbers, [effect.mean for effect in sizes], "s--", label="mean of the sets")
    _held_out(left, numbers, [effect.held_out for effect in sizes])
    left.axhline(baseline, color="grey", linewidth=1, label="last layer only")
    left.set_xlabel("number of layers")
    states = [effect.layer for effect in layers]
    _points(right, states, [effect.without for effect in layers], "o-", "best set without it")
    right.plot(states, [effect.with_layer for effect in layers], "s--", label="best set with it")
    _held_out(right, states, [effect.held_out_without for effect in layers])
    right.set_xlabel("hidden state left out (0: embeddings)")
    for axes, places in ((left, numbers), (right, states)):
        axes.set_ylabel(objective)
        axes.set_xticks(places)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return figure


def _held_out(axes: Axes, places: Sequence[int], values: Sequence[float | None]) -> None:
    if any(value is not None for value in values):
        _points(axes, places, values, "^:", "the best set, on held-out data")


def _points(
    axes: Axes, places: Sequence[int], values: Sequence[float | None], style: str, label: str
) -> None:
    # matplotlib leaves a gap where a value is NaN.
    known = [float("nan") if value is None else value for value in values]
    axes.plot(places, known, style, label=label)
