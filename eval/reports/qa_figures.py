"""Figures of an evaluation on a question set: differences, recall, scores and learning curves.

Each is drawn to a .png or .svg file, and raises MissingExtraError where matplotlib is not
installed and StorageError where the file cannot be written. Values are multiplied by 100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.metrics.comparison import Comparison, Qrels, Run
from eval.metrics.ranking import evaluate
from eval.qa.result import QAResult, SystemResult
from eval.reports.figure_files import new_figure, save_figure
from eval.reports.markdown import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

Floats = NDArray[np.float64]

_DEEPEST = 100
_BINS = 40
_COLORS = 10
_STYLES = ("-", "--", ":")
_COLUMNS = 4
_LONGEST_NAME = 40
# Of the greatest score: a range that is smaller cannot be divided into bins.
_SMALLEST_RANGE = 1e-9


def draw_figures(folder: Path, result: QAResult) -> list[Path]:
    """Draw all figures for which there are values, each as PNG and as SVG; the files."""
    measure = result.measures[0]
    counted = result.comparison.per_query[measure][result.comparison.baseline]
    qrels = {one.id: one.grades for one in result.questions.questions if one.id in counted}
    runs = {system.name: system.runs for system in result.systems}
    first = {name: seeds[0] for name, seeds in runs.items()}
    curves = {system.name: _from_zero(system) for system in result.systems if system.curves}
    drawn: dict[str, Callable[[Path], None]] = {
        "recall": lambda path: draw_recall(runs, qrels, path),
        "scores": lambda path: draw_scores(first, qrels, path),
    }
    if len(runs) > 1:
        drawn["differences"] = lambda path: draw_differences(result.comparison, measure, path)
    if curves:
        drawn["learning"] = lambda path: draw_learning(curves, path)
    paths = []
    for name, draw in drawn.items():
        for ending in (".png", ".svg"):
            paths.append(folder / f"{name}{ending}")
            draw(paths[-1])
    return paths


def draw_differences(comparison: Comparison, measure: str, path: Path) -> None:
    """Each system's differences from the baseline question by question, the greatest first.

    Args:
        comparison: of at least two systems.
        measure: one of its measures.
        path: the file.
    """
    values = comparison.per_query[measure]
    baseline = np.array(list(values[comparison.baseline].values()))
    others = [name for name in values if name != comparison.baseline]
    figure, panels = _panels(others, share_y=True)
    edges = np.arange(len(baseline) + 1)
    for name, axes in zip(others, panels, strict=True):
        differences = np.sort(np.array(list(values[name].values())) - baseline)[::-1] * 100
        better, worse = int((differences > 0).sum()), int((differences < 0).sum())
        axes.stairs(np.maximum(differences, 0), edges, fill=True, color="C0")
        axes.stairs(np.minimum(differences, 0), edges, fill=True, color="C3")
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_xlabel(f"questions: {better:,} better, {worse:,} worse", fontsize="small")
        axes.grid(alpha=0.3)
    said = f"{measure} less that of {_label(comparison.baseline)}, × 100"
    _plain(figure.supylabel(said, fontsize="medium"))
    save_figure(figure, path)


def recall_curve(runs: Sequence[Run], qrels: Qrels, deepest: int) -> Floats:
    """(deepest,) mean R@1, R@2, ... in [0, 1], over the seeds; as `ranking` defines them."""
    measures = [f"R@{rank}" for rank in range(1, deepest + 1)]
    means = [list(evaluate(run, qrels, measures).means.values()) for run in runs]
    curve: Floats = np.array(means).mean(axis=0)
    return curve


def draw_recall(systems: Mapping[str, Sequence[Run]], qrels: Qrels, path: Path) -> None:
    """Mean recall in the first k, for k up to 100 or to the longest ranking.

    Args:
        systems: name to one run for each seed; at least one.
        qrels: question to passage to grade, of the questions that count.
        path: the file.
    """
    longest = max(
        (len(run.get(one, ())) for runs in systems.values() for run in runs for one in qrels),
        default=0,
    )
    deepest = min(max(longest, 1), _DEEPEST)
    figure = new_figure(8.5, 4.6)
    axes = figure.subplots()
    for place, runs in enumerate(systems.values()):
        curve = recall_curve(runs, qrels, deepest) * 100
        color, line = _style(place)
        axes.plot(range(1, deepest + 1), curve, label=str(place), color=color, linestyle=line)
    axes.set_xscale("log")
    ticks = [rank for rank in (1, 2, 5, 10, 20, 50, 100) if rank <= deepest]
    axes.set_xticks(ticks, [str(rank) for rank in ticks])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="k (log scale)", ylabel="mean R@k × 100")
    axes.grid(alpha=0.3)
    _legend(figure, list(systems))
    save_figure(figure, path)


def draw_scores(systems: Mapping[str, Run], qrels: Qrels, path: Path) -> None:
    """Histograms of each system's scores, of relevant passages and of the others.

    Args:
        systems: name to run; at least one.
        qrels: question to passage to grade, of the questions that count; what has no grade, or one
            below 1, is another passage.
        path: the file.
    """
    figure, panels = _panels(list(systems), share_y=False)
    for run, axes in zip(systems.values(), panels, strict=True):
        found = [
            (score, qrels[question].get(passage, 0) >= 1)
            for question in qrels
            for passage, score in run.get(question, {}).items()
        ]
        scores = np.array([score for score, _ in found], dtype=np.float64)
        relevant = np.array([one for _, one in found], dtype=np.bool_)
        edges = _edges(scores)
        for chosen, color, name in ((~relevant, "C7", "others"), (relevant, "C2", "relevant")):
            if chosen.any():
                density, _ = np.histogram(scores[chosen], edges, density=True)
                axes.stairs(density, edges, fill=True, alpha=0.55, color=color, label=name)
        axes.set_yticks([])
        if len(scores):
            axes.legend(fontsize="x-small")
    figure.supxlabel("score of the first seed", fontsize="medium")
    figure.supylabel("density", fontsize="medium")
    save_figure(figure, path)


def draw_learning(
    curves: Mapping[str, Sequence[Sequence[float]]], path: Path, first: int = 0
) -> None:
    """The dev score after each epoch: the mean over the seeds, in a band from least to greatest.

    Where seeds were trained for different numbers of epochs, mean and band are of those that were
    trained so long.

    Args:
        curves: name to a curve for each seed, in [0, 1]; NaN where there is no value.
        path: the file.
        first: the epoch of the first value; 0 is before training.
    """
    figure = new_figure(8.5, 4.6)
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    for place, seeds in enumerate(curves.values()):
        longest = max(map(len, seeds))
        filled = [[*seed, *[np.nan] * (longest - len(seed))] for seed in seeds]
        table = np.ma.masked_invalid(np.array(filled, dtype=np.float64)) * 100
        epochs = np.arange(first, first + longest)
        color, line = _style(place)
        mean = table.mean(axis=0)
        axes.plot(epochs, mean, marker=".", label=str(place), color=color, linestyle=line)
        if len(seeds) > 1:
            low, high = table.min(axis=0), table.max(axis=0)
            axes.fill_between(epochs, low, high, color=color, alpha=0.15, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch (0: before training)", ylabel="dev MAP × 100")
    axes.grid(alpha=0.3)
    _legend(figure, list(curves))
    save_figure(figure, path)


def _from_zero(system: SystemResult) -> list[tuple[float, ...]]:
    """Its curves from epoch 0: a cross-encoder has no score before training."""
    before = (np.nan,) if system.name.partition("@")[0] == "cross-encoder" else ()
    return [(*before, *curve) for curve in system.curves]


def _panels(names: Sequence[str], *, share_y: bool) -> tuple[Figure, list[Axes]]:
    """A figure with a part for each name, which is its title."""
    columns = min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(max(2.9 * columns, 5.0), 2.4 * rows + 0.5)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y).ravel().tolist()
    for axes in grid[len(names) :]:
        axes.remove()
    for name, axes in zip(names, grid, strict=False):
        _plain(axes.set_title(_label(name), fontsize="small"))
        axes.tick_params(labelsize="x-small")
    return figure, grid[: len(names)]


def _edges(scores: Floats) -> Floats:
    """Of the bins of a histogram, also where all scores are equal."""
    low, high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 1.0)
    size = max(abs(low), abs(high))
    if high - low <= _SMALLEST_RANGE * size or size == 0:
        low, high = low - max(size, 1) / 2, high + max(size, 1) / 2
    edges: Floats = np.linspace(low, high, _BINS + 1)
    return edges


def _style(place: int) -> tuple[str, str]:
    """Colour and line: colours repeat after ten systems, but with another line."""
    return f"C{place % _COLORS}", _STYLES[place // _COLORS % len(_STYLES)]


def _legend(figure: Figure, names: Sequence[str]) -> None:
    """A legend beside the curves, which are labelled with their numbers.

    matplotlib would leave out a curve whose label begins with an underscore.
    """
    legend = figure.legend(loc="outside right upper", fontsize="small")
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(_label(name))
        _plain(text)


def _label(name: str) -> str:
    """Names of systems often differ only at the end: what is too long is cut in the middle."""
    shown = printable(name)
    half = _LONGEST_NAME // 2
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:half]}…{shown[1 - half :]}"


def _plain(text: Text) -> None:
    """Keep matplotlib from setting what stands between dollar signs as a formula."""
    text.set_parse_math(False)
