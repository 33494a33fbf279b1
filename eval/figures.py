"""Figures as PNG and SVG files, without a display and without the global state of pyplot."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from retriever.errors import ConfigError, StorageError, require_extra
from retriever.files import whole_file
from retriever.terminal import on_one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

FORMATS = (".png", ".svg")
_DOTS_PER_INCH = 150


def check_figure(path: Path) -> None:
    """Refuse a figure that cannot be drawn, before any work is done for it.

    Raises:
        ConfigError: the name ends neither in .png nor in .svg.
        MissingExtraError: matplotlib is not installed.
        StorageError: its folder does not exist, or it is a folder.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"{path}: expected a figure that ends in .png or .svg, found "
            f"{path.suffix or 'no ending'!r}; rename it"
        )
    if not path.resolve().parent.is_dir() or path.is_dir():
        raise StorageError(
            f"{path}: expected a file in a folder that exists; make the folder or rename the figure"
        )
    new_figure(1, 1)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    require_extra("plot", "a figure", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its ending, whole or not at all.

    Equal figures give equal bytes. Text in SVG files stays text.

    Raises:
        StorageError: the file cannot be written.
    """
    import matplotlib

    form = path.suffix.lower().removeprefix(".")
    extra = {"Date": None} if form == "svg" else {}
    with (
        whole_file(path, "the figure") as new,
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "layer-retriever"}),
        warnings.catch_warnings(),
    ):
        # A character that the font lacks is a box in PNG, and correct in SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        figure.savefig(new, format=form, dpi=_DOTS_PER_INCH, metadata=extra)


def short_label(name: str, longest: int = 40) -> str:
    """Return a name as a label; a long one is cut in the middle, since names differ at the end."""
    line = on_one_line(name)
    half = longest // 2
    return line if len(line) <= longest else f"{line[:half]}…{line[1 - half :]}"


def plain_text(*texts: Text) -> None:
    """Keep matplotlib from setting text between dollar signs as a formula."""
    for text in texts:
        text.set_parse_math(False)


def panels(figure: Figure, names: Sequence[str], *, columns: int = 4) -> list[Axes]:
    """Return a grid of axes with these titles; the last row may be incomplete."""
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in grid[len(names) :]:
        axes.remove()
    for name, axes in zip(names, grid, strict=False):
        plain_text(axes.set_title(short_label(name), fontsize="small"))
        axes.tick_params(labelsize="x-small")
    return list(grid[: len(names)])


def heat_map(axes: Axes, values: NDArray[np.float64], digits: int, *, numbers: bool) -> Any:
    """Draw a matrix with its first row at the bottom; `numbers` adds the value of each cell."""
    image = axes.imshow(values, cmap="viridis", origin="lower", aspect="auto")
    if numbers:
        middle = (values.min() + values.max()) / 2
        for (row, column), value in np.ndenumerate(values):
            color = "black" if value > middle else "white"
            text = f"{value:.{digits}f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
    return image


def learning_figure(curves: Mapping[str, Sequence[Sequence[float]]], measure: str = "AP") -> Figure:
    """Plot dev scores by epoch: a thin line for each seed, a thick one for the mean."""
    figure = new_figure(8.5, 4.6)
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    for number, seeds in enumerate(curves.values()):
        # Colors repeat after ten, with another style.
        style: dict[str, Any] = {
            "color": f"C{number % 10}",
            "linestyle": ("-", "--", ":")[number // 10 % 3],
        }
        # The mean ends with the shortest seed: it would jump otherwise.
        shortest = min(map(len, seeds))
        mean = 100 * np.mean([seed[:shortest] for seed in seeds], axis=0)
        axes.plot(range(shortest), mean, marker=".", label=str(number), **style)
        for seed in seeds if len(seeds) > 1 else ():
            axes.plot(100 * np.array(seed), linewidth=0.6, alpha=0.5, **style)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch (0: before training)", ylabel=f"dev {measure} × 100")
    axes.grid(alpha=0.3)
    legend = figure.legend(loc="outside right upper", fontsize="small")
    for text, name in zip(legend.get_texts(), curves, strict=True):
        text.set_text(short_label(name))
        plain_text(text)
    return figure
