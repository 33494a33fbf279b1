"""Figures of an evaluation of encoders on sets of sentences: scores, and layers as a heat map.

Each is drawn to a .png or .svg file, and raises MissingExtraError where matplotlib is not
installed and StorageError where the file cannot be written. Values are multiplied by 100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eval.reports.figure_files import new_figure, save_figure
from eval.reports.markdown import printable
from eval.sentences.result import LayerGrid, SentenceResult, SetScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 4
# More rows than these would not hold a number that can be read.
_NUMBERED_ROWS = 30
_LONGEST_NAME = 44


def draw_sentence_figures(folder: Path, result: SentenceResult) -> list[Path]:
    """Draw all figures for which there are values, each as PNG and as SVG; the files."""
    drawn: dict[str, Callable[[Path], None]] = {}
    for measure in result.measures:
        if result.sets:
            drawn[f"scores-{measure}"] = lambda path, measure=measure: draw_scores(  # type: ignore[misc]
                result.sets, measure, path
            )
    models = list(dict.fromkeys(grid.encoder for grid in result.grids))
    for number, model in enumerate(models, 1):
        for measure in result.measures:
            grids = [one for one in result.grids if (one.encoder, one.measure) == (model, measure)]
            name = f"layers-{measure}" + (f"-{number}" if len(models) > 1 else "")
            drawn[name] = lambda path, grids=grids: draw_layers(grids, path)  # type: ignore[misc]
    paths = []
    for name, draw in drawn.items():
        for ending in (".png", ".svg"):
            paths.append(folder / f"{name}{ending}")
            draw(paths[-1])
    return paths


def draw_scores(sets: Sequence[SetScores], measure: str, path: Path) -> None:
    """A point for each encoder with its 95% interval, a panel for each set.

    Args:
        sets: of the same encoders; at least one.
        measure: one of theirs.
        path: the file.
    """
    names = [_label(score.encoder) for score in sets[0].scores]
    columns = min(_COLUMNS, len(sets))
    rows = -(-len(sets) // columns)
    height = 0.9 + 0.24 * len(names)
    figure = new_figure(3.4 + 2.2 * columns, rows * height + 0.4)
    panels = _panels(figure, rows, columns, len(sets), share_y=True)
    places = np.arange(len(names))
    for place, (axes, one) in enumerate(zip(panels, sets, strict=True)):
        values = [score.values[measure] for score in one.scores]
        middle = np.array([value.value for value in values]) * 100
        # Of examples that were tested differently often, a value may lie outside its interval.
        low = np.maximum(middle - np.array([value.low for value in values]) * 100, 0)
        high = np.maximum(np.array([value.high for value in values]) * 100 - middle, 0)
        axes.errorbar(middle, places, xerr=[low, high], fmt="o", markersize=4, capsize=2)
        axes.set_title(_label(one.name), fontsize="small").set_parse_math(False)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize="x-small")
        if place % columns == 0:
            for text in axes.set_yticks(places, names):
                text.label1.set_parse_math(False)
    panels[0].invert_yaxis()
    figure.supxlabel(f"{measure} × 100, 95% interval", fontsize="small")
    save_figure(figure, path)


def draw_layers(grids: Sequence[LayerGrid], path: Path) -> None:
    """Hidden states by poolings as a heat map, a panel for each set, as Fig. 1 of Ma et al. 2019.

    Args:
        grids: of one model and measure, with the same poolings; at least one.
        path: the file.
    """
    states, poolings = grids[0].values.shape
    columns = min(_COLUMNS, len(grids))
    rows = -(-len(grids) // columns)
    size = (1.3 + 0.6 * poolings, 1.0 + max(0.27 * min(states, _NUMBERED_ROWS), 1.6))
    figure = new_figure(max(columns * size[0], 4.0), rows * size[1] + 0.6)
    for axes, grid in zip(
        _panels(figure, rows, columns, len(grids), share_y=False), grids, strict=True
    ):
        values = grid.values * 100
        image = axes.imshow(values, cmap="viridis", origin="lower", aspect="auto")
        figure.colorbar(image, ax=axes).ax.tick_params(labelsize="x-small")
        if states <= _NUMBERED_ROWS:
            middle = (values.min() + values.max()) / 2
            for (row, column), value in np.ndenumerate(values):
                color = "black" if value > middle else "white"
                text = f"{value:.1f}"
                axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
        axes.set_xticks(range(poolings), grid.poolings)
        axes.set_yticks(range(0, states, 1 if states <= _NUMBERED_ROWS else 2))
        axes.tick_params(labelsize="x-small")
        axes.set_title(_label(grid.name), fontsize="small").set_parse_math(False)
    figure.supylabel("hidden state (0: embeddings)", fontsize="small")
    title = f"{_label(grids[0].encoder)}, {grids[0].measure} × 100"
    figure.suptitle(title, fontsize="medium").set_parse_math(False)
    save_figure(figure, path)


def _panels(figure: Figure, rows: int, columns: int, count: int, *, share_y: bool) -> list[Axes]:
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y).ravel().tolist()
    for axes in grid[count:]:
        axes.remove()
    panels: list[Axes] = grid[:count]
    return panels


def _label(name: str) -> str:
    """Encoders often differ only at the end: what is too long is cut in the middle."""
    shown = printable(name)
    half = _LONGEST_NAME // 2
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:half]}…{shown[1 - half :]}"
