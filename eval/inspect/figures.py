"""Figures of inspections: layers, words, weights and SBERT-WK's settings.

Each function raises MissingExtraError if matplotlib is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from eval.figures import heat_map, new_figure, plain_text
from eval.tables import on_one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from eval.inspect.layers import LayerSimilarity
    from eval.inspect.meta import MetaWord
    from eval.inspect.sensitivity import Sensitivity
    from eval.inspect.words import VarianceGroups
    from retriever.encoders.fusion.word_weights import WeightedWord

# With more layers, numbers in the cells could not be read.
_NUMBERED_LAYERS = 13
_USUAL_COLORS = 10
_INCHES_A_WORD = 0.32
# In inches: matplotlib refuses images of 65,536 dots.
_WIDEST = 400.0
_LONGEST_LABEL = 24


def similarity_figure(similarity: LayerSimilarity) -> Figure:
    """The matrix of cosines as a heat map, and its offset diagonals as curves, as in Fig. 1."""
    layers = len(similarity.mean)
    figure = new_figure(12, 5.2)
    left, right = figure.subplots(1, 2)
    image = heat_map(left, similarity.mean, 2, numbers=layers <= _NUMBERED_LAYERS)
    left.set_aspect("equal")
    figure.colorbar(image, ax=left, label="mean cosine")
    left.set(xlabel="hidden state (0: embeddings)", ylabel="hidden state")
    left.set_title(f"cosine between layers, mean of {similarity.pieces:,} word pieces")
    _color_curves(right, layers - 1)
    for diagonal in similarity.diagonals():
        places = range(len(diagonal.values))
        right.plot(places, diagonal.values, ".-", label=f"offset {diagonal.offset}")
    right.set(xlabel="lower hidden state of the two", ylabel="mean cosine")
    right.set_title("offset diagonals")
    _layer_ticks(left, layers)
    left.set_yticks(left.get_xticks())
    _layer_ticks(right, layers - 1)
    right.grid(alpha=0.3)
    right.legend(fontsize="x-small", ncols=2)
    return figure


def variances_figure(groups: VarianceGroups) -> Figure:
    """The words of low, middle and high variance as bars, as in Table I."""
    named = [("low", groups.low), ("middle", groups.middle), ("high", groups.high[::-1])]
    words = [word for _, group in named for word in group]
    figure = new_figure(7, min(1.5 + 0.2 * len(words), _WIDEST))
    axes = figure.subplots()
    first = 0
    for name, group in named:
        places = range(first, first + len(group))
        axes.barh(places, [word.variance for word in group], label=name)
        first += len(group)
    axes.set_yticks(range(len(words)), [f"{_label(one.word)} ({one.count:,})" for one in words])
    plain_text(*axes.get_yticklabels())
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(y=0.01)
    axes.set(xlabel="variance of the adjacent-layer cosines, mean over occurrences")
    axes.legend(title="variance", loc="lower right")
    return figure


def weights_figure(words: Sequence[WeightedWord], first_layer: int) -> Figure:
    """The weight of each word as a bar, and below it the weights of the layers in it.

    Args:
        words: at least one.
        first_layer: the number of the first of their layers.
    """
    figure = new_figure(min(max(6, 2 + _INCHES_A_WORD * len(words)), _WIDEST), 5.5)
    top, bottom = figure.subplots(2, 1, sharex=True)
    places = range(len(words))
    top.bar(places, [word.weight for word in words])
    top.set_ylabel("weight in the text")
    layers = np.array([word.layers for word in words]).T
    image = bottom.imshow(layers, cmap="viridis", origin="lower", aspect="auto")
    figure.colorbar(image, ax=bottom, label="weight in the word")
    bottom.set_ylabel("hidden state")
    bottom.set_yticks(range(len(layers)), [str(first_layer + row) for row in range(len(layers))])
    bottom.set_xticks(places, [_label(word.text) for word in words], rotation=90, fontsize=8)
    plain_text(*bottom.get_xticklabels())
    return figure


def contributions_figure(words: Sequence[MetaWord]) -> Figure:
    """The length of each source's part of each word, at least one word, as a heat map."""
    figure = new_figure(min(max(6, 2 + _INCHES_A_WORD * len(words)), _WIDEST), 3.2)
    axes = figure.subplots()
    lengths = np.array([word.lengths for word in words]).T
    image = heat_map(axes, lengths, 2, numbers=False)
    figure.colorbar(image, ax=axes, label="length of its part")
    axes.set_ylabel("source")
    axes.set_yticks(range(len(lengths)), [str(row + 1) for row in range(len(lengths))])
    axes.set_xticks(range(len(words)), [_label(word.text) for word in words], rotation=90)
    plain_text(*axes.get_xticklabels())
    return figure


def sensitivity_figure(found: Sensitivity, objective: str) -> Figure:
    """The correlation over the window and over the start layer, as in Fig. 3."""
    figure = new_figure(11, 4.4)
    left, right = figure.subplots(1, 2, sharey=True)
    values = np.array(found.values, dtype=np.float64)
    _color_curves(left, len(found.start_layers))
    _color_curves(right, len(found.windows))
    for column, start in enumerate(found.start_layers):
        left.plot(found.windows, values[:, column], "o-", label=f"start layer {start}")
    for row, window in enumerate(found.windows):
        right.plot(found.start_layers, values[row], "o-", label=f"window {window}")
    left.set(xlabel="window m", ylabel=objective, xticks=found.windows)
    right.set(xlabel="start layer (0: embeddings)", xticks=found.start_layers)
    right.yaxis.set_tick_params(labelleft=True)
    for axes in (left, right):
        axes.axhline(found.baseline, color="grey", linestyle="--", label="last layer, mean")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small", ncols=2)
    return figure


def _color_curves(axes: Axes, curves: int) -> None:
    """Give each of many curves its own color: matplotlib's cycle repeats."""
    from matplotlib import colormaps

    if curves > _USUAL_COLORS:
        shades = np.linspace(0, 0.95, curves)
        axes.set_prop_cycle(color=colormaps["viridis"](shades))


def _layer_ticks(axes: Axes, layers: int) -> None:
    axes.set_xticks(range(0, layers, 1 if layers <= _NUMBERED_LAYERS else 2))


def _label(text: str) -> str:
    """A word as a label: at most 24 characters, without control characters, which SVG lacks."""
    shown = on_one_line(text)
    return shown if len(shown) <= _LONGEST_LABEL else f"{shown[: _LONGEST_LABEL - 1]}…"
