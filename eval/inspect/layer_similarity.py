"""How alike the hidden states of a word piece are from layer to layer.

Wang and Kuo 2020, Sec. III and Fig. 1: the cosine between every two layers' vectors of one piece
(Eq. 2), averaged over the pieces, and that map's offset diagonals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.errors import BadInputError


@dataclass(frozen=True, slots=True)
class OffsetDiagonal:
    """The mean cosines between hidden states that are `offset` layers apart.

    Attributes:
        offset: at least 1.
        values: the cosine of layers 0 and offset, of 1 and offset + 1, and so on.
        mean: of the values.
        deviation: their population standard deviation, along the diagonal.
        lowest: the least of them.
        highest: the greatest.
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
        pieces: how many word pieces.
        mean: (layers, layers) float64 in [-1, 1], symmetric; layer 0 is the embedding output.
        deviation: (layers, layers) float64, the population standard deviation over the pieces.
    """

    pieces: int
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def diagonals(self) -> list[OffsetDiagonal]:
        """The offset diagonals of the mean, from offset 1 to the last."""
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
    """The vectors along the last axis at length 1, in float64; zero vectors stay zero."""
    vectors = states.astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return vectors


def layer_similarity(
    texts: Iterable[tuple[NDArray[np.floating], NDArray[np.bool_]]],
) -> LayerSimilarity:
    """The cosine map of all pieces of all texts; each piece counts the same.

    Args:
        texts: for each text its states (layers, pieces, width) and which pieces count (pieces,).

    Raises:
        BadInputError: there is no piece that counts.
    """
    count = 0
    mean: NDArray[np.float64] = np.zeros(())
    squares: NDArray[np.float64] = np.zeros(())
    for states, kept in texts:
        maps = cosine_maps(states[:, kept])
        if len(maps) == 0:
            continue
        # Chan, Golub and LeVeque 1979: sums of squares would lose the deviation of steady layers.
        own = maps.mean(axis=0)
        apart = own - mean
        share = len(maps) / (count + len(maps))
        squares = squares + ((maps - own) ** 2).sum(axis=0) + apart**2 * (count * share)
        mean = mean + apart * share
        count += len(maps)
    if count == 0:
        raise BadInputError("expected word pieces to look at, found none; give more text")
    return LayerSimilarity(count, mean, np.sqrt(squares / count))
