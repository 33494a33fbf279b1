"""A cross-encoder that scores without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import engine_for
from retriever.encoders.models.finding import ModelFolder
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.transformer.backends.int8 import calibrated
from retriever.encoders.transformer.backends.numpy_engine import NumPyEngine
from retriever.encoders.transformer.backends.openvino_engine import OpenVINOEngine
from retriever.encoders.transformer.backends.weights import (
    Floats,
    UnsupportedModelError,
    map_tensors,
    read_weights,
)
from retriever.encoders.transformer.backends.word_pieces import WordPieces


def _silent(pairs: int) -> None:
    """Do nothing."""


class LightCrossEncoder:
    """Gives the scores of `CrossEncoder`, within rounding.

    Args:
        folder: of the transformer.
        head: the file of the MLP on [CLS].
        max_length: the window in word pieces of question and passage together.
        computing: backend and number format.

    Attributes:
        max_length: as given.
        cut: how many pairs were longer than the window, of all that were scored so far.

    Raises:
        UnsupportedModelError: only torch can run it.
        MissingExtraError: OpenVINO is asked for and not installed.
    """

    def __init__(
        self, folder: ModelFolder, head: Path, max_length: int, computing: EncoderSettings
    ) -> None:
        # A pair is long: NumPy is for those who ask for it.
        self._engine = engine_for(computing, 10**9)
        if self._engine == "torch":
            raise UnsupportedModelError("OpenVINO is not installed")
        self._weights = read_weights(folder)
        self._pieces = WordPieces(folder)
        self._identity = folder.weights
        self._computing = computing
        self._head = _read_head(head, self._weights.width)
        self._compiled: OpenVINOEngine | None = None
        self.max_length = max_length
        self.cut = 0

    def score(
        self,
        questions: Sequence[str],
        passages: Sequence[str],
        done: Callable[[int], object] = _silent,
    ) -> NDArray[np.float32]:
        """One score for each question and the passage beside it; see `CrossEncoder.score`."""
        ids, types = self._tokenize(questions, passages)
        scores = np.zeros(len(questions), np.float32)
        for rows, cls in self._run(ids, types):
            scores[rows] = self._scores(cls)
            done(len(rows))
        return scores

    def _tokenize(
        self, questions: Sequence[str], passages: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        ids, types = self._pieces.tokenize_pairs(questions, passages)
        long = [row for row, one in enumerate(ids) if len(one) > self.max_length]
        if long:
            cut = self._pieces.tokenize_pairs(
                [questions[row] for row in long], [passages[row] for row in long], self.max_length
            )
            for row, one, kinds in zip(long, *cut, strict=True):
                ids[row], types[row] = one, kinds
        self.cut += len(long)
        return ids, types

    def _run(
        self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
    ) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """The top layer's [CLS] of each pair, a batch after the other."""
        depth = len(self._weights.layers)
        if self._engine == "numpy":
            engine = NumPyEngine(self._weights)
            for row, (one, kinds) in enumerate(zip(ids, types, strict=True)):
                yield np.array([row]), engine.states(one, [depth], kinds)[0][:, 0]
            return
        if self._compiled is None:
            dtype = self._computing.dtype or "float32"
            ranges = None
            if dtype == "int8":
                ranges = calibrated(self._weights, self._identity, self._pieces, self.max_length)
            self._compiled = OpenVINOEngine(self._weights, [depth], dtype, ranges)
        batches = (
            (rows, [ids[row] for row in rows], [types[row] for row in rows])
            for rows in self._compiled.batches([len(one) for one in ids])
        )
        for found in self._compiled.run(batches):
            yield found.key, found.states[0][:, 0]

    def _scores(self, cls: Floats) -> Floats:
        """See `CrossHead`."""
        weight, bias, out, shift = self._head
        scores: Floats = (np.tanh(cls @ weight.T + bias) @ out.T + shift)[:, 0]
        return scores


def _read_head(file: Path, width: int) -> tuple[Floats, Floats, Floats, Floats]:
    tensors = map_tensors(file)
    names = ("dense.weight", "dense.bias", "out.weight", "out.bias")
    shapes = ((width, width), (width,), (1, width), (1,))
    if [getattr(tensors.get(name), "shape", None) for name in names] != list(shapes):
        # What reads it in torch says what is wrong.
        raise UnsupportedModelError(f"{file}: another head")
    weight, bias, out, shift = (tensors[name] for name in names)
    return weight, bias, out, shift
