"""Figures of an evaluation of encoders on sets of sentences: scores, and layers as a heat map.

Each function raises MissingExtraError if matplotlib is not installed. Values are multiplied by 100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.figures import heat_map, new_figure, panels, plain_text, short_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from eval.metrics.comparison import Score
    from eval.sentences.result import LayerGrid, SentenceResult, SetScores

_COLUMNS = 4
# Numbers in the cells of more rows than these could not be read.
_NUMBERED_ROWS = 30


def sentence_figures(result: SentenceResult) -> dict[str, Callable[[], Figure]]:
    """Name to what draws it, for all figures that the result has values for."""
    found: dict[str, Callable[[], Figure]] = {}
    models = list(dict.fromkeys(grid.encoder for grid in result.grids))
    for measure in result.measures:
        if result.sets:
            found[f"scores-{measure}"] = partial(scores_figure, result.sets, measure)
        if any(one.curve for one in result.sets):
            found[f"sizes-{measure}"] = partial(sizes_figure, result.sets, measure)
        for number, model in enumerate(models, 1):
            grids = [one for one in result.grids if (one.encoder, one.measure) == (model, measure)]
            name = f"layers-{measure}" + (f"-{number}" if len(models) > 1 else "")
            found[name] = partial(layers_figure, grids)
    return found


def scores_figure(sets: Sequence[SetScores], measure: str) -> Figure:
    """A point with its 95% interval for each encoder, in a panel for each set.

    Args:
        sets: of the same encoders; at least one.
        measure: one of theirs.
    """
    names = [short_label(score.encoder) for score in sets[0].scores]
    columns = min(_COLUMNS, len(sets))
    rows = -(-len(sets) // columns)
    figure = new_figure(3.4 + 2.2 * columns, rows * (0.9 + 0.24 * len(names)) + 0.4)
    axes_of_sets = panels(figure, [one.name for one in sets], share_y=True)
    places = np.arange(len(names))
    for place, (axes, one) in enumerate(zip(axes_of_sets, sets, strict=True)):
        middle, around = _percentages([score.values[measure] for score in one.scores])
        axes.errorbar(middle, places, xerr=around, fmt="o", markersize=4, capsize=2)
        axes.grid(alpha=0.3)
        if place % columns == 0:
            plain_text(*(tick.label1 for tick in axes.set_yticks(places, names)))
    axes_of_sets[0].invert_yaxis()
    figure.supxlabel(f"{measure} × 100, 95% interval", fontsize="small")
    return figure


def sizes_figure(sets: Sequence[SetScores], measure: str) -> Figure:
    """Each encoder by the number of examples that were learned from, with 95% intervals, and the
    reduction of error beside the model's last layer; Fig. 1 of Hosseini et al. (2023).

    Args:
        sets: of the same encoders, each with a `curve`; at least one.
        measure: one of theirs.
    """
    curves: dict[str, list[SetScores]] = {}
    for one in sets:
        assert one.curve is not None
        curves.setdefault(one.curve[0], []).append(one)
    figure = new_figure(max(3.2 * len(curves), 6.4), 6.6)
    axes = panels(figure, [*curves] * 2, columns=len(curves))
    for of, values, errors in zip(
        curves.values(), axes[: len(curves)], axes[len(curves) :], strict=True
    ):
        ordered = sorted(of, key=lambda one: one.curve or ("", 0))
        learned = [one.curve[1] for one in ordered if one.curve]
        for place, score in enumerate(ordered[0].scores):
            found = [one.scores[place] for one in ordered]
            middle, around = _percentages([one.values[measure] for one in found])
            label = short_label(score.encoder)
            values.errorbar(
                learned, middle, yerr=around, fmt=".-", capsize=2, alpha=0.8, label=label
            )
            reduced = [one.extra["error reduction"] * 100 for one in found]
            errors.plot(learned, reduced, ".-", alpha=0.8, label=label)
        for panel in (values, errors):
            panel.set_xscale("log")
            panel.set_xticks(learned, [f"{one:,}" for one in learned])
            panel.set_xticks([], minor=True)
            panel.grid(alpha=0.3)
    axes[0].set_ylabel(f"{measure} × 100, 95% interval", fontsize="small")
    axes[len(curves)].set_ylabel("error reduction × 100", fontsize="small")
    figure.supxlabel("examples learned from", fontsize="small")
    plain_text(*axes[0].legend(fontsize="x-small").get_texts())
    return figure


def layers_figure(grids: Sequence[LayerGrid]) -> Figure:
    """Hidden states by poolings as a heat map, in a panel for each set; Fig. 1 of Ma et al. (2019).

    Args:
        grids: of one model and measure, with the same poolings; at least one.
    """
    states, poolings = grids[0].values.shape
    columns = min(_COLUMNS, len(grids))
    rows = -(-len(grids) // columns)
    size = (1.3 + 0.6 * poolings, 1.0 + max(0.27 * min(states, _NUMBERED_ROWS), 1.6))
    figure = new_figure(max(columns * size[0], 4.0), rows * size[1] + 0.6)
    numbered = states <= _NUMBERED_ROWS
    for axes, grid in zip(panels(figure, [one.name for one in grids]), grids, strict=True):
        image = heat_map(axes, grid.values * 100, 1, numbers=numbered)
        figure.colorbar(image, ax=axes).ax.tick_params(labelsize="x-small")
        axes.set_xticks(range(poolings), grid.poolings)
        axes.set_yticks(range(0, states, 1 if numbered else 2))
    figure.supylabel("hidden state (0: embeddings)", fontsize="small")
    title = f"{short_label(grids[0].encoder)}, {grids[0].measure} × 100"
    plain_text(figure.suptitle(title, fontsize="medium"))
    return figure


def _percentages(values: Sequence[Score]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The values, and (2, values) the lengths of their intervals below and above, × 100."""
    middle = np.array([value.value for value in values]) * 100
    ends = np.array([(value.low, value.high) for value in values]).T * 100
    # Where examples are tested unequally often, a value may lie outside its interval.
    return middle, np.maximum([middle - ends[0], ends[1] - middle], 0)
