"""Figures of an evaluation on a question set: differences, recall, scores and learning curves.

Each function raises MissingExtraError if matplotlib is not installed. Values are multiplied by 100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.figures import (
    learning_figure,
    line_style,
    new_figure,
    numbered_legend,
    panels,
    plain_text,
    short_label,
)
from eval.metrics.measures import PoolMeasures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from eval.metrics.comparison import Comparison
    from eval.qa.result import QAResult, SystemResult

Floats = NDArray[np.float64]

_DEEPEST = 100
_BINS = 40
# A range smaller than this part of the greatest score cannot be divided into bins.
_SMALLEST_RANGE = 1e-9


def qa_figures(result: QAResult) -> dict[str, Callable[[], Figure]]:
    """Name to what draws it, for all figures that the result has values for."""
    systems, counted = result.systems, set(result.comparison.queries)
    found: dict[str, Callable[[], Figure]] = {
        "recall": lambda: recall_figure(systems, counted),
        "scores": lambda: scores_figure(systems, counted),
    }
    if len(systems) > 1:
        measure = result.measures[0]
        found["differences"] = lambda: differences_figure(result.comparison, measure)
    curves = {
        one.name: [(*[np.nan] * one.first_epoch, *curve) for curve in one.curves]
        for one in systems
        if one.curves
    }
    if curves:
        found["learning"] = lambda: learning_figure(curves)
    return found


def differences_figure(comparison: Comparison, measure: str) -> Figure:
    """Each system's differences from the baseline, one bar per question, the greatest first.

    Args:
        comparison: of at least two systems.
        measure: one of its measures.
    """
    others = [name for name in comparison.names if name != comparison.baseline]
    figure = _grid(len(others))
    edges = np.arange(len(comparison.queries) + 1)
    for name, axes in zip(others, panels(figure, others, share_y=True), strict=True):
        differences = np.sort(comparison.differences(measure, name))[::-1] * 100
        better, worse = int((differences > 0).sum()), int((differences < 0).sum())
        axes.stairs(np.maximum(differences, 0), edges, fill=True, color="C0")
        axes.stairs(np.minimum(differences, 0), edges, fill=True, color="C3")
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_xlabel(f"questions: {better:,} better, {worse:,} worse", fontsize="small")
        axes.grid(alpha=0.3)
    label = f"{measure} minus that of {short_label(comparison.baseline)}, × 100"
    plain_text(figure.supylabel(label, fontsize="medium"))
    return figure


def recall_curve(system: SystemResult, counted: set[str], deepest: int) -> Floats:
    """(deepest,) mean R@1, R@2, ... in [0, 1] over the seeds and the questions that count."""
    measures = PoolMeasures(system.pools, [f"R@{rank}" for rank in range(1, deepest + 1)])
    kept = np.array([pool.id in counted for pool in system.pools])
    found = measures(np.stack(system.scores))
    return np.array([values[:, kept].mean() for values in found.values()])


def recall_figure(systems: Sequence[SystemResult], counted: set[str]) -> Figure:
    """Mean recall in the first k, for k up to 100 or to the longest ranking.

    Args:
        systems: at least one.
        counted: ids of the questions that count.
    """
    longest = max(
        len(pool.candidates) for one in systems for pool in one.pools if pool.id in counted
    )
    deepest = min(max(longest, 1), _DEEPEST)
    figure = new_figure(8.5, 4.6)
    axes = figure.subplots()
    for place, one in enumerate(systems):
        curve = recall_curve(one, counted, deepest) * 100
        axes.plot(range(1, deepest + 1), curve, label=str(place), **line_style(place))
    axes.set_xscale("log")
    ticks = [rank for rank in (1, 2, 5, 10, 20, 50, 100) if rank <= deepest]
    axes.set_xticks(ticks, [str(rank) for rank in ticks])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="k (log scale)", ylabel="mean R@k × 100")
    axes.grid(alpha=0.3)
    numbered_legend(figure, [one.name for one in systems])
    return figure


def scores_figure(systems: Sequence[SystemResult], counted: set[str]) -> Figure:
    """Histograms of each system's scores: of relevant passages in percent of these, and likewise of
    the others.

    Args:
        systems: at least one.
        counted: ids of the questions that count.
    """
    figure = _grid(len(systems))
    names = [one.name for one in systems]
    for one, axes in zip(systems, panels(figure, names), strict=True):
        kept = np.array([pool.id in counted for pool in one.pools for _ in pool.candidates])
        relevant = np.array(
            [pool.grades.get(id_, 0) >= 1 for pool in one.pools for id_ in pool.candidates],
            np.bool_,
        )
        scores = one.scores[0]
        if len(scores):
            scores, relevant = scores[kept], relevant[kept]
        edges = _edges(scores)
        for chosen, color, name in ((~relevant, "C7", "others"), (relevant, "C2", "relevant")):
            if chosen.any():
                counts, _ = np.histogram(scores[chosen], edges)
                share = 100 * counts / np.count_nonzero(chosen)
                axes.stairs(share, edges, fill=True, alpha=0.55, color=color, label=name)
        if len(one.scores) > 1:
            axes.set_xlabel(f"first of {len(one.scores)} seeds", fontsize="small")
        if len(scores):
            axes.legend(fontsize="x-small")
    figure.supxlabel("score", fontsize="medium")
    figure.supylabel("% of each kind", fontsize="medium")
    return figure


def _grid(count: int) -> Figure:
    """A figure for this many panels."""
    columns = min(4, count)
    return new_figure(max(2.9 * columns, 5.0), 2.4 * -(-count // columns) + 0.5)


def _edges(scores: Floats) -> Floats:
    """The edges of the bins of a histogram, even where all scores are equal."""
    low, high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 1.0)
    size = max(abs(low), abs(high))
    if high - low <= _SMALLEST_RANGE * size or size == 0:
        low, high = low - max(size, 1) / 2, high + max(size, 1) / 2
    edges: Floats = np.linspace(low, high, _BINS + 1)
    return edges
