"""A backbone without torch, called light: network, tokenizer, and the engines that run it.

Models that read different layers of a network may share it. The first of them to read a batch
computes the layers of all; the others find them. Two sources of a meta-embedding on one model take
1.8 times less processor time for it (``python benchmarks/sharing.py``), and memory for the states.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retriever.encoders.computing import Engine
from retriever.encoders.model_folders import UNIGRAM_SETTINGS, ModelFolder
from retriever.encoders.settings import Dtype
from retriever.encoders.transformer.architectures.registry import read_network
from retriever.encoders.transformer.numpy_engine import HiddenStates, NumPyEngine
from retriever.encoders.transformer.openvino_engine import OpenVINOEngine
from retriever.encoders.transformer.quantization import calibrate
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.encoders.transformer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from retriever.encoders.transformer.unigram import Unigram

# Most word pieces whose hidden states are kept for the next model, 1.5 KB each for a layer of 384
# components. More are computed for each model.
SHARED_PIECES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _ForwardPass:
    """The hidden states of a batch of texts, for all models that share the network."""

    engine: Engine
    dtype: Dtype
    ids: list[list[int]]
    layers: tuple[int, ...]
    batches: list[HiddenStates]

    def has_states(
        self, engine: Engine, dtype: Dtype, ids: list[list[int]], layers: set[int]
    ) -> bool:
        """Return whether these layers of the same texts were computed in the same way."""
        same_way = (self.engine, self.dtype) == (engine, dtype)
        return same_way and layers <= set(self.layers) and self.ids == ids


class LightBackbone:
    """A model's network and tokenizer without torch, beside `Backbone` in torch.

    Threads may share it, and a forked child process can use it.

    Raises:
        UnsupportedModelError: only torch runs the model.
    """

    def __init__(self, folder: ModelFolder) -> None:
        self.network = read_network(folder)
        self.tokenizer = _read_tokenizer(folder)
        if self.tokenizer.highest_id >= len(self.network.words):
            raise UnsupportedModelError("a token that has no vector")
        self.max_length = min(self.network.max_pieces, self.tokenizer.max_length)
        self._weights = folder.weights
        # Protects the loading of the engines.
        self._lock = threading.Lock()
        # The id of the process that made the engine, and the engine.
        self._engines: dict[tuple[Dtype, tuple[int, ...]], tuple[int, OpenVINOEngine]] = {}
        self._inherited: list[OpenVINOEngine] = []
        self._model_count = 0
        # The hidden states that the models read.
        self._layers: set[int] = set()
        self._last_pass: _ForwardPass | None = None

    def register_model(self, layers: Collection[int]) -> None:
        """Register a model, and the hidden states that it reads."""
        self._model_count += 1
        self._layers |= set(layers)

    @property
    def is_shared(self) -> bool:
        """Whether several models read the network."""
        return self._model_count > 1

    def run(
        self, ids: Sequence[Sequence[int]], layers: Sequence[int], engine: Engine, dtype: Dtype
    ) -> Iterator[HiddenStates]:
        """Run texts, and yield the states of each batch; models share the last forward pass."""
        if not self.is_shared or sum(map(len, ids)) > SHARED_PIECES:
            yield from self.load_engine(engine, dtype, layers).run(ids)
            return
        rows = [list(row) for row in ids]
        # A local variable, since another thread may replace the last pass.
        last_pass = self._last_pass
        if last_pass is None or not last_pass.has_states(engine, dtype, rows, set(layers)):
            self._last_pass = None
            all_layers = tuple(sorted(self._layers.union(layers)))
            batches = list(map(_copy_states, self.load_engine(engine, dtype, all_layers).run(rows)))
            last_pass = _ForwardPass(engine, dtype, rows, all_layers, batches)
            self._last_pass = last_pass
        places = [last_pass.layers.index(layer) for layer in layers]
        for batch in last_pass.batches:
            states = [batch.states[place] for place in places]
            yield HiddenStates(batch.rows, batch.lengths, states)

    def load_engine(
        self, name: Engine, dtype: Dtype, layers: Sequence[int]
    ) -> NumPyEngine | OpenVINOEngine:
        """Return an engine for ascending layers; OpenVINO's is made on first use."""
        return (
            self.load_openvino(dtype, layers)
            if name == "openvino"
            else NumPyEngine(self.network, layers)
        )

    def load_openvino(self, dtype: Dtype, layers: Sequence[int]) -> OpenVINOEngine:
        """Return the engine in OpenVINO for a number format and ascending layers."""
        key = (dtype, tuple(layers))
        with self._lock:
            # The threads of an engine do not survive a fork.
            process, engine = self._engines.get(key, (None, None))
            if engine is not None and process == os.getpid():
                return engine
            if engine is not None:
                # Keep the parent's engine: its destructor would wait for threads that are gone.
                self._inherited.append(engine)
            ranges = None
            if dtype == "int8":
                ranges = calibrate(self.network, self._weights, self.tokenizer, self.max_length)
            engine = OpenVINOEngine(self.network, key[1], dtype, ranges)
            self._engines[key] = os.getpid(), engine
            return engine


def _copy_states(batch: HiddenStates) -> HiddenStates:
    """Return states that stay valid after the batch, and that no model can change."""
    states = [state.copy() for state in batch.states]
    for state in states:
        state.setflags(write=False)
    return HiddenStates(batch.rows, batch.lengths, states)


def _read_tokenizer(folder: ModelFolder) -> Tokenizer | Unigram:
    if not (folder.path / UNIGRAM_SETTINGS).is_file():
        return Tokenizer(folder)
    from retriever.encoders.transformer.unigram import Unigram

    return Unigram(folder)
