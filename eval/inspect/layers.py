"""Hidden states of many texts, and the mean cosine between every two layers of a word piece.

Source: Wang and Kuo 2020, Eq. 2 and Fig. 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.figures import heat_map, new_figure
from eval.progress import Done, Notify, Progress, ignore, silent
from eval.reports import Report, ReportedResult, Section, Table, environment
from eval.settings import Loading
from retriever.encoders import TextStates, scale_to_unit
from retriever.errors import BadInputError, ConfigError, require_several

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from retriever.encoders import Encoder

# Texts sorted by length together, so that batches need little padding.
_BLOCK = 512
# Most layers whose table of three decimals fits a terminal, and whose figure has readable numbers.
_NUMBERED_LAYERS = 13


class TextsRead(NamedTuple):
    """Number of texts read and cut, and whether a limit ended the reading."""

    texts: int
    cut: int
    limited: bool

    def __str__(self) -> str:
        if self.texts == 1:
            return "1 text"
        return f"{'the first ' if self.limited else ''}{self.texts:,} texts"


class Inspection:
    """Texts and their hidden states, read as they are needed, each block in order of length.

    The states of the prompt come first; offsets count in the text without the prompt.
    """

    def __init__(
        self,
        encoder: Encoder,
        texts: Iterable[str],
        limit: int | None = None,
        done: Done = ignore,
        notify: Notify = ignore,
    ) -> None:
        require_several("texts", texts)
        self._encoder = encoder
        self._texts = islice(texts, limit)
        self._limit = limit
        self._done = done
        self._notify = notify
        self._count = 0
        self._cut = 0

    @property
    def read(self) -> TextsRead:
        """Counts of the texts so far."""
        return TextsRead(self._count, self._cut, self._count == self._limit)

    def __iter__(self) -> Iterator[tuple[str, TextStates]]:
        while block := list(islice(self._texts, _BLOCK)):
            lengths = list(map(len, self._encoder.tokenize(block)))
            order = sorted(range(len(block)), key=lengths.__getitem__)
            ordered = [block[row] for row in order]
            self._cut += sum(length > self._encoder.spec.max_length for length in lengths)
            for text, states in zip(ordered, all_states(self._encoder, ordered), strict=True):
                self._count += 1
                yield text, states
                self._done(1)
        if self._cut:
            self._notify(cut_warning(self._cut, self._encoder))


def cut_warning(cut: int, encoder: Encoder) -> str:
    """Return the warning that the ends of texts were not read."""
    texts = "1 text" if cut == 1 else f"{cut:,} texts"
    return (
        f"warning: {texts} exceeded the window of {encoder.spec.max_length} word pieces; the "
        "excess was not read"
    )


def all_states(encoder: Encoder, texts: Sequence[str]) -> Iterator[TextStates]:
    """Yield the states of each text.

    Raises:
        ConfigError: the model's layers cannot be read one by one.
    """
    with warnings.catch_warnings():
        # The caller counts cut texts, and warns once instead of in each block.
        warnings.filterwarnings("ignore", message=".*longer than the window", category=UserWarning)
        states_of_texts = encoder.hidden_states(texts)
    for states in states_of_texts:
        if len(states.states) != encoder.depth + 1:
            raise ConfigError(
                f"model: expected a model that returns all {encoder.depth + 1} hidden states, "
                f"found {encoder.spec.model}, which returns only the last; name another model"
            )
        yield states


@dataclass(frozen=True, slots=True, eq=False)
class LayerInspection(ReportedResult):
    """The result of `inspect_layers`: (layers, layers) mean cosines over word pieces."""

    encoder: str
    read: TextsRead
    pieces: int
    mean: NDArray[np.float64]
    device: str | None = None
    command: str = ""

    def diagonals(self) -> list[dict[str, Any]]:
        """Return, for each offset, the means of layers l and l + offset, and their statistics."""
        return [
            {
                "offset": offset,
                "values": values.tolist(),
                "mean": float(values.mean()),
                "deviation": float(values.std()),
                "lowest": float(values.min()),
                "highest": float(values.max()),
            }
            for offset in range(1, len(self.mean))
            for values in [np.diagonal(self.mean, offset)]
        ]

    def report(self) -> Report:
        """Return the cosines and the offset diagonals as tables."""
        return Report(
            name="inspect-layers",
            title=f"{self.encoder}: {self.read}, {self.pieces:,} word pieces",
            sections=(Section(tables=tuple(self._tables()), brief=True),),
            data={
                "encoder": self.encoder,
                "texts": self.read.texts,
                "cut": self.read.cut,
                "pieces": self.pieces,
                "hidden_states": len(self.mean),
                "mean": self.mean.tolist(),
                "diagonals": self.diagonals(),
            },
            command=self.command,
            environment=environment(self.device),
            figures={"layers": self.figure},
        )

    def figure(self) -> Figure:
        """Draw the matrix as a heat map beside its offset diagonals as curves, as in Fig. 1."""
        layers = len(self.mean)
        figure = new_figure(12, 5.2)
        from matplotlib import colormaps

        left, right = figure.subplots(1, 2)
        image = heat_map(left, self.mean, 2, numbers=layers <= _NUMBERED_LAYERS)
        left.set_aspect("equal")
        figure.colorbar(image, ax=left, label="mean cosine")
        left.set(xlabel="hidden state (0: embeddings)", ylabel="hidden state")
        left.set_title(f"cosine between layers, mean of {self.pieces:,} word pieces")
        # Matplotlib's own cycle repeats after ten.
        right.set_prop_cycle(color=colormaps["viridis"](np.linspace(0, 0.95, layers - 1)))
        for diagonal in self.diagonals():
            right.plot(diagonal["values"], ".-", label=f"offset {diagonal['offset']}")
        right.set(xlabel="lower hidden state of the two", ylabel="mean cosine")
        right.set_title("offset diagonals")
        _layer_ticks(left, layers)
        left.set_yticks(left.get_xticks())
        _layer_ticks(right, layers - 1)
        right.grid(alpha=0.3)
        right.legend(fontsize="x-small", ncols=2)
        return figure

    def _tables(self) -> Iterator[Table]:
        mean = self.mean
        decimals = 3 if len(mean) <= _NUMBERED_LAYERS else 2
        layers = [str(layer) for layer in range(len(mean))]
        rows = [
            (layer, *(f"{value:.{decimals}f}" for value in row))
            for layer, row in zip(layers, mean.tolist(), strict=True)
        ]
        yield Table(("", *layers), tuple(rows), "mean cosine between hidden states (0: embeddings)")
        names = ("mean", "deviation", "lowest", "highest")
        diagonals = [
            (str(diagonal["offset"]), *(f"{diagonal[name]:.4f}" for name in names))
            for diagonal in self.diagonals()
        ]
        yield Table(("layers apart", *names), tuple(diagonals), "offset diagonals")


def inspect_layers(
    texts: Iterable[str],
    encoder: str = "",
    *,
    limit: int | None = None,
    loading: Loading | None = None,
    progress: Progress = silent,
    notify: Notify = ignore,
    command: str = "",
) -> LayerInspection:
    """Compute the mean cosine between every two hidden states of a word piece.

    Texts are read as they are needed, at most `limit`, and cut at the window with a warning.

    Raises:
        BadInputError: there is no word piece.
        ConfigError: the encoder has no layers that can be read one by one.
        TypeError: one string instead of several.
        Exception: see `Encoder.load`.
    """
    loading = loading or Loading()
    model = loading.load(encoder)
    inspection = Inspection(model, texts, limit, progress("reading texts", limit), notify)
    pieces, mean = layer_similarity((states.states, states.is_pooled) for _, states in inspection)
    return LayerInspection(
        str(model.spec), inspection.read, pieces, mean, device=loading.device, command=command
    )


def cosine_maps(states: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return (pieces, layers, layers) cosines of (layers, pieces, width) states."""
    units = scale_to_unit(states.astype(np.float64)).transpose(1, 0, 2)
    maps: NDArray[np.float64] = np.clip(units @ units.transpose(0, 2, 1), -1, 1)
    return maps


def layer_similarity(
    texts: Iterable[tuple[NDArray[np.floating], NDArray[np.bool_]]],
) -> tuple[int, NDArray[np.float64]]:
    """Return the number of pieces, and the (layers, layers) mean of their cosines.

    Each text is (layers, pieces, width) states and a mask of the pieces that count.
    """
    pieces = 0
    total = np.zeros(())
    for states, mask in texts:
        maps = cosine_maps(states[:, mask])
        pieces += len(maps)
        total = total + maps.sum(axis=0)
    if pieces == 0:
        raise BadInputError("expected texts with word pieces, found none; give more text")
    return pieces, total / pieces


def _layer_ticks(axes: Axes, layers: int) -> None:
    axes.set_xticks(range(0, layers, 1 if layers <= _NUMBERED_LAYERS else 2))
