"""A transformer that runs without torch where it can: pieces to vectors by the engine that pays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import Engine, engine_for, way
from retriever.encoders.models.finding import ModelFolder
from retriever.encoders.registry import Batches, EncoderModel, Span
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.transformer.backends.fusing import make_fuser
from retriever.encoders.transformer.backends.int8 import calibrated
from retriever.encoders.transformer.backends.numpy_engine import NumPyEngine
from retriever.encoders.transformer.backends.openvino_engine import OpenVINOEngine, States
from retriever.encoders.transformer.backends.weights import UnsupportedModelError, read_weights
from retriever.encoders.transformer.backends.word_pieces import WordPieces
from retriever.encoders.transformer.resolution import Fusion

if TYPE_CHECKING:
    from retriever.encoders.transformer.model import TransformerModel

_UNLIMITED = 10**9


class LightModel(EncoderModel):
    """Turns word pieces into vectors; the same as `TransformerModel` gives, within rounding.

    Few texts run in NumPy, many in OpenVINO or, where it is not installed, in torch. Threads may
    share it, and a forked child process can use it.

    Args:
        folder: of the model.
        settings: resolved.
        fusion: what they read.
        load_torch: loads the same model in torch.

    Attributes:
        dimensions: components of a vector.
        max_length: the most word pieces, special tokens included, that the model has positions for.
        computed: the ways in which vectors were computed so far, such as ``float32 by numpy 2.4``.

    Raises:
        UnsupportedModelError: only torch can run the model with these settings.
    """

    def __init__(
        self,
        folder: ModelFolder,
        settings: EncoderSettings,
        fusion: Fusion,
        load_torch: Callable[[], TransformerModel],
    ) -> None:
        if settings.dtype == "float16":
            raise UnsupportedModelError("float16, which torch has for GPUs")
        self._weights = read_weights(folder)
        self._pieces = WordPieces(folder)
        self._settings = settings
        self._fuser = make_fuser(folder, settings, fusion, self._weights.width)
        self._load_torch = load_torch
        self._loading = threading.Lock()
        self._torch: TransformerModel | None = None
        self._openvino: tuple[int, OpenVINOEngine] | None = None
        self._inherited: tuple[int, OpenVINOEngine] | None = None
        self._identity = folder.weights
        self._encoded = 0
        self.computed: set[str] = set()
        self.dimensions = self._fuser.dimensions
        self.max_length = min(self._weights.longest, self._pieces.max_length)

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[list[int]]:
        """Word-piece ids of each text with special tokens; cut at `max_length` ids if given."""
        if self._settings.wk_preset == "released":
            # The published code cuts the ids themselves: a text that is cut has no [SEP].
            return [ids[:max_length] for ids in self._pieces.tokenize(texts)]
        return self._pieces.tokenize(texts, max_length)

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word piece, special tokens left out."""
        return self._pieces.piece_offsets(text)

    @property
    def word_dimensions(self) -> int:
        """Those of a vector, if a piece has one of its own."""
        return self.dimensions if self._fuser.fuses_pieces else 0

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """One vector per text, (texts, dimensions) float32, not normalized."""
        batches = self.embed_batches(pieces)
        if batches is None:
            return self.in_torch().embed(pieces)
        vectors = np.zeros((len(pieces), self.dimensions), np.float32)
        for rows, found in batches:
            vectors[rows] = found
        return vectors

    def embed_batches(self, pieces: Sequence[Sequence[int]]) -> Batches | None:
        """The vectors of any number of texts by NumPy or OpenVINO; None where torch computes."""
        engine = self._choose(sum(map(len, pieces)))
        if engine == "torch":
            return None
        return (
            (found.key, self._fuser(found.states, found.lengths))
            for found in self._states(pieces, engine)
        )

    def _choose(self, pieces: int) -> Engine:
        """The engine for the next texts, which have this number of word pieces in all."""
        self._encoded = min(self._encoded + pieces, _UNLIMITED)
        engine = engine_for(self._settings, self._encoded)
        if pieces:
            self.computed.add(way(self._settings.dtype, engine))
        return engine

    def tokenize_with_offsets(
        self, texts: Sequence[str], *, query: bool = False
    ) -> tuple[list[list[int]], list[list[Span]]]:
        """Ids of whole texts, and offsets of each piece, (0, 0) for special tokens."""
        return self._pieces.tokenize_with_offsets(texts)

    def piece_batches(self, pieces: Sequence[Sequence[int]]) -> Batches:
        """The vectors of all pieces, a batch after the other."""
        engine = self._choose(sum(map(len, pieces)))
        if engine == "torch":
            yield from self.in_torch().piece_batches(pieces)
            return
        for found in self._states(pieces, engine):
            yield found.key, self._fuser.pieces(found.states)

    def _states(
        self, pieces: Sequence[Sequence[int]], engine: Literal["numpy", "openvino"]
    ) -> Iterator[States[NDArray[np.int64]]]:
        """The hidden states that are read, a batch after the other; the key is its rows."""
        lengths = np.array([len(ids) for ids in pieces], np.int64)
        if engine == "numpy":
            one_by_one = NumPyEngine(self._weights)
            for row, ids in enumerate(pieces):
                states = one_by_one.states(ids, self._fuser.layers)
                yield States(np.array([row]), lengths[row : row + 1], states)
            return
        compiled = self._compiled()
        groups = compiled.batches(lengths)
        yield from compiled.run((rows, [pieces[row] for row in rows], None) for rows in groups)

    def in_torch(self) -> TransformerModel:
        """The same model in torch, loaded on first use."""
        with self._loading:
            if self._torch is None:
                self._torch = self._load_torch()
            return self._torch

    def _compiled(self) -> OpenVINOEngine:
        # The threads of an engine do not survive a fork.
        with self._loading:
            if self._openvino is None or self._openvino[0] != os.getpid():
                # The destructor of one that a parent process had would wait for its threads.
                self._inherited = self._openvino
                self._openvino = os.getpid(), self._compile()
            return self._openvino[1]

    def _compile(self) -> OpenVINOEngine:
        dtype, ranges = self._settings.dtype or "float32", None
        if dtype == "int8":
            ranges = calibrated(self._weights, self._identity, self._pieces, self.max_length)
        return OpenVINOEngine(self._weights, self._fuser.layers, dtype, ranges)
