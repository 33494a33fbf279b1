"""The similarity of a word piece's hidden states from layer to layer.

Wang and Kuo 2020, Sec. III and Fig. 1: the cosine between the vectors of every two layers of one
piece (Eq. 2), averaged over the pieces, and the offset diagonals of that matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.inspect.figures import similarity_figure
from eval.inspect.states import Inspection, TextsRead
from eval.progress import Notify, Progress, ignore, silent
from eval.reports import Report, ReportedResult, Section, environment
from eval.tables import Table
from eval.vectors import Loading
from retriever.errors import BadInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# From here on a table of three decimals is wider than a terminal.
_MANY_LAYERS = 14


@dataclass(frozen=True, slots=True)
class OffsetDiagonal:
    """The mean cosines between hidden states that are `offset` layers apart.

    Attributes:
        offset: at least 1.
        values: the cosine of layers 0 and offset, of 1 and offset + 1, and so on.
        mean: of the values.
        deviation: population standard deviation of the values.
        lowest: minimum of the values.
        highest: maximum of the values.
    """

    offset: int
    values: tuple[float, ...]
    mean: float
    deviation: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, eq=False)
class LayerSimilarity:
    """Cosines between hidden states, over many word pieces.

    Attributes:
        pieces: number of word pieces.
        mean: (layers, layers) float64 in [-1, 1], symmetric; layer 0 is the embedding output.
        deviation: (layers, layers) float64, population standard deviation over the pieces.
    """

    pieces: int
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def diagonals(self) -> list[OffsetDiagonal]:
        """The offset diagonals of the mean, by ascending offset from 1."""
        found = []
        for offset in range(1, len(self.mean)):
            values = np.diagonal(self.mean, offset)
            found.append(
                OffsetDiagonal(
                    offset,
                    tuple(values.tolist()),
                    float(values.mean()),
                    float(values.std()),
                    float(values.min()),
                    float(values.max()),
                )
            )
        return found


@dataclass(frozen=True, slots=True, eq=False)
class LayerInspection(ReportedResult):
    """The result of `inspect_layers`.

    Attributes:
        encoder: text form.
        read: the texts.
        similarity: of the hidden states of their word pieces.
        device: as asked for.
        command: reproduces the result; may be empty.
    """

    encoder: str
    read: TextsRead
    similarity: LayerSimilarity
    device: str | None = None
    command: str = ""

    def report(self) -> Report:
        """The cosines and the offset diagonals as tables."""
        data = {
            "encoder": self.encoder,
            "texts": self.read.texts,
            "cut": self.read.cut,
            "pieces": self.similarity.pieces,
            "hidden_states": len(self.similarity.mean),
            "mean": self.similarity.mean.tolist(),
            "deviation": self.similarity.deviation.tolist(),
            "diagonals": [asdict(diagonal) for diagonal in self.similarity.diagonals()],
        }
        return Report(
            name="inspect-layers",
            title=f"{self.encoder}: {self.read}, {self.similarity.pieces:,} word pieces",
            sections=(Section(tables=tuple(self._tables()), brief=True),),
            data=data,
            command=self.command,
            environment=environment(self.device),
            figures={"layers": self.figure},
        )

    def figure(self) -> Figure:
        """The matrix as a heat map beside its offset diagonals; see `similarity_figure`."""
        return similarity_figure(self.similarity)

    def _tables(self) -> Iterator[Table]:
        mean = self.similarity.mean
        decimals = 3 if len(mean) < _MANY_LAYERS else 2
        layers = [str(layer) for layer in range(len(mean))]
        rows = [
            (layer, *(f"{value:.{decimals}f}" for value in row))
            for layer, row in zip(layers, mean.tolist(), strict=True)
        ]
        yield Table(("", *layers), tuple(rows), "mean cosine between hidden states (0: embeddings)")
        names = ("mean", "deviation", "lowest", "highest")
        diagonals = [
            (str(one.offset), *(f"{getattr(one, name):.4f}" for name in names))
            for one in self.similarity.diagonals()
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

    Args:
        texts: read as they are needed.
        encoder: text form; empty is the bundled model.
        limit: maximum number of texts, at least 1; None reads all.
        loading: where the model comes from.
        progress: of the texts.
        notify: called with a warning if texts are cut at the window.
        command: reproduces the result, for its report.

    Raises:
        BadInputError: there is no word piece.
        ConfigError: the encoder has no layers that can be read one by one.
        TypeError: one string instead of several.
        What `Encoder.load` raises.
    """
    loading = loading or Loading()
    model = loading.load(encoder)
    inspection = Inspection(model, texts, limit, progress("reading texts", limit), notify)
    similarity = layer_similarity((one.states.states, one.states.kept) for one in inspection)
    return LayerInspection(
        str(model.spec), inspection.read, similarity, device=loading.device, command=command
    )


def cosine_maps(states: NDArray[np.floating]) -> NDArray[np.float64]:
    """The cosines between all layers of each piece.

    Args:
        states: (layers, pieces, width).

    Returns:
        (pieces, layers, layers) in [-1, 1], symmetric; a cosine with a zero vector is 0.
    """
    units = unit_vectors(states).transpose(1, 0, 2)
    maps: NDArray[np.float64] = np.clip(units @ units.transpose(0, 2, 1), -1, 1)
    return maps


def unit_vectors(states: NDArray[np.floating]) -> NDArray[np.float64]:
    """The vectors along the last axis, scaled to length 1, in float64; zero vectors stay zero."""
    vectors = states.astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return vectors


def layer_similarity(
    texts: Iterable[tuple[NDArray[np.floating], NDArray[np.bool_]]],
) -> LayerSimilarity:
    """The cosines of all pieces of all texts; each piece has the same weight.

    Args:
        texts: for each text its states (layers, pieces, width) and the mask (pieces,) of those
            that are included.

    Raises:
        BadInputError: no piece is included.
    """
    count = 0
    mean: NDArray[np.float64] = np.zeros(())
    squares: NDArray[np.float64] = np.zeros(())
    for states, kept in texts:
        maps = cosine_maps(states[:, kept])
        if len(maps) == 0:
            continue
        # Chan, Golub and LeVeque 1979: plain sums of squares lose small deviations to rounding.
        own = maps.mean(axis=0)
        apart = own - mean
        share = len(maps) / (count + len(maps))
        squares = squares + ((maps - own) ** 2).sum(axis=0) + apart**2 * (count * share)
        mean = mean + apart * share
        count += len(maps)
    if count == 0:
        raise BadInputError("expected texts with word pieces, found none; give more text")
    return LayerSimilarity(count, mean, np.sqrt(squares / count))
