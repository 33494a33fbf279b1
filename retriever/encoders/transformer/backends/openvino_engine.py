"""The forward pass as a graph that OpenVINO compiles for the processor at hand.

The graph is built from the weights in memory and compiled at each start. That takes 0.2 to 0.4 s of
processor time for 6 to 12 layers, so that nothing is converted beforehand or cached on the disk.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import token_batches
from retriever.encoders.settings import Dtype
from retriever.encoders.transformer.backends.forward import distance_buckets, hidden_states
from retriever.encoders.transformer.backends.int8 import QuantizedLinear, Ranges, quantize
from retriever.encoders.transformer.backends.weights import Affine, Weights

Floats = NDArray[np.float32]
Key = TypeVar("Key")

# With int8, attention and norms are in what the library takes by default: bfloat16 where the
# processor has it.
_PRECISIONS: dict[Dtype, str] = {"float32": "f32", "bfloat16": "bf16"}
# The most word pieces of a batch, which one core works on.
BATCH_PIECES = 1024
# Few texts are divided among the cores, in batches of at least this many pieces; and of so much
# more than a core's share, that there is no batch more than cores in spite of padding.
_FEWEST = 64
_SLACK = 1.25
# What attention adds at padding: its exponential is 0 in every precision.
_PADDED = -1e4


@dataclass(frozen=True, slots=True, eq=False)
class States(Generic[Key]):
    """The hidden states of one batch.

    Attributes:
        key: what the caller named the batch.
        lengths: (texts,) int64, word pieces of each text.
        states: for each layer that was asked for (texts, longest, width) float32, finite but
            without meaning at padding; overwritten when the next batch is asked for.
    """

    key: Key
    lengths: NDArray[np.int64]
    states: list[Floats]


@dataclass(frozen=True, slots=True, eq=False)
class _Running(Generic[Key]):
    """A batch that is computed; the memory of its inputs has to stay meanwhile."""

    key: Key
    lengths: NDArray[np.int64]
    compiled: _Compiled
    request: Any
    inputs: Sequence[Any]


class _Compiled:
    """A graph that runs some batches at a time; compiled when it is first used.

    Args:
        weights: see `OpenVINOEngine`.
        layers: see `OpenVINOEngine`.
        dtype: see `OpenVINOEngine`.
        ranges: see `OpenVINOEngine`.
        streams: how many batches run at a time.
        cores: which they divide among them.
    """

    def __init__(
        self,
        weights: Weights,
        layers: Sequence[int],
        dtype: Dtype,
        ranges: Ranges | None,
        *,
        streams: int,
        cores: int,
    ) -> None:
        self._parts = weights, layers, ranges
        self._settings: dict[str, Any] = {
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": cores,
        }
        if dtype in _PRECISIONS:
            self._settings["INFERENCE_PRECISION_HINT"] = _PRECISIONS[dtype]
        self._lock = threading.Lock()
        self._model: Any = None
        self._idle: list[Any] = []

    def request(self) -> Any:
        """A request that nobody uses."""
        import openvino

        with self._lock:
            if self._model is None:
                weights, layers, ranges = self._parts
                graph = _Graph(weights, ranges).model(layers)
                self._model = openvino.Core().compile_model(graph, "CPU", self._settings)
            return self._idle.pop() if self._idle else self._model.create_infer_request()

    def give_back(self, request: Any) -> None:
        """Let others use a request that has ended."""
        self._idle.append(request)


class OpenVINOEngine:
    """Runs batches side by side, each on one core, and a lone batch on all. Threads may share it.

    The two ways are compiled apart, when each is first used, and each copies the weights.

    Args:
        weights: of the model.
        layers: the hidden states that are read, ascending; those above are not computed.
        dtype: of the matrix products.
        ranges: of the inputs of linear layers, for ``int8``.
    """

    def __init__(
        self, weights: Weights, layers: Sequence[int], dtype: Dtype, ranges: Ranges | None = None
    ) -> None:
        self._weights = weights
        self._cores = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else (os.cpu_count() or 1)
        )
        parts = weights, layers, dtype, ranges
        self._several = _Compiled(*parts, streams=self._cores, cores=self._cores)
        self._alone = (
            _Compiled(*parts, streams=1, cores=self._cores) if self._cores > 1 else self._several
        )

    def batches(self, lengths: Sequence[int] | NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Rows of texts in batches, so that every core has work; see `token_batches`.

        Args:
            lengths: word pieces of each text, each at least 1.
        """
        share = _SLACK * float(np.sum(lengths)) / self._cores
        return token_batches(lengths, int(min(max(share, _FEWEST), BATCH_PIECES)))

    def run(
        self,
        batches: Iterable[tuple[Key, Sequence[Sequence[int]], Sequence[Sequence[int]] | None]],
    ) -> Iterator[States[Key]]:
        """Run batches, and yield the states of each in the order of the batches.

        Args:
            batches: of each batch the key, the ids of each text with special tokens, and their
                token types; None if these are all 0.
        """
        # One more than run at a time, so that no core waits while the caller reads the states.
        waiting: deque[_Running[Key]] = deque()
        try:
            ahead = iter(batches)
            first = list(itertools.islice(ahead, 2))
            compiled = self._several if len(first) > 1 else self._alone
            for batch in itertools.chain(first, ahead):
                waiting.append(self._start(compiled, *batch))
                if len(waiting) > self._cores:
                    yield from self._finish(waiting.popleft())
            while waiting:
                yield from self._finish(waiting.popleft())
        finally:
            for one in waiting:
                one.request.wait()

    def _finish(self, running: _Running[Key]) -> Iterator[States[Key]]:
        running.request.wait()
        outputs = range(len(running.request.model_outputs))
        states = [running.request.get_output_tensor(one).data for one in outputs]
        yield States(running.key, running.lengths, states)
        running.compiled.give_back(running.request)

    def _start(
        self,
        compiled: _Compiled,
        key: Key,
        ids: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None,
    ) -> _Running[Key]:
        import openvino

        lengths = np.array([len(row) for row in ids], np.int64)
        shape = len(ids), int(lengths.max())
        real = np.arange(shape[1]) < lengths[:, None]
        padded = np.zeros(shape, np.int64)
        padded[real] = np.concatenate(ids)
        kinds = np.zeros(shape, np.int64)
        if types is not None:
            kinds[real] = np.concatenate(types)
        bias = np.where(real, np.float32(0), np.float32(_PADDED))[:, None, None]
        inputs = [padded, self._weights.places(padded).copy(), bias]
        if self._weights.types is not None:
            inputs.append(kinds)
        request = compiled.request()
        tensors = [openvino.Tensor(one, shared_memory=True) for one in inputs]
        request.start_async(tensors)
        return _Running(key, lengths, compiled, request, tensors)


class _Graph:
    """See `forward.Operations`; values are nodes of an OpenVINO graph."""

    def __init__(self, weights: Weights, ranges: Ranges | None) -> None:
        from openvino import opset13

        self._weights = weights
        self._ranges = ranges
        self._operators: Any = opset13

    def model(self, layers: Sequence[int]) -> Any:
        """A model of these hidden states; its inputs are ids, places, bias and types."""
        import openvino

        make, weights = self._operators, self._weights
        ids, places, types = (make.parameter([-1, -1], np.int64, name) for name in "ipt")
        padding = make.parameter([-1, 1, 1, -1], np.float32, "b")
        bias = padding
        if weights.distances is not None:
            bias = padding + self._distance_bias(weights.distances, ids)
        outputs = []
        states = hidden_states(self, weights, ids, places, types, bias)
        for layer, state in zip(range(layers[-1] + 1), states, strict=False):
            if layer in layers:
                outputs.append(make.result(state))
        inputs = [ids, places, padding, *([] if weights.types is None else [types])]
        return openvino.Model(outputs, inputs, "encoder")

    def _distance_bias(self, distances: Floats, ids: Any) -> Any:
        make, number = self._operators, self._integers
        longest = len(self._weights.positions)
        table = self._constant(np.ascontiguousarray(distances[distance_buckets(longest)].T))
        pieces = make.gather(make.shape_of(ids), number(1), number(0))
        place = make.range(number(0), pieces, number(1), "i64")
        away = make.unsqueeze(place, number(0)) - make.unsqueeze(place, number(1))
        found = make.gather(table, away + number(longest - 1), number(1))
        return make.unsqueeze(found, number(0))

    def _constant(self, array: Floats) -> Any:
        # In place: the weights stay in the pages of their file until the compiler copies them.
        return self._operators.constant(array, shared_memory=True)

    def _integers(self, value: int | Sequence[int]) -> Any:
        return self._operators.constant(np.array(value, np.int64))

    def rows(self, table: Floats, places: Any) -> Any:
        return self._operators.gather(self._constant(table), places, self._integers(0))

    def linear(self, value: Any, layer: Affine) -> Any:
        weight = self._constant(layer.weight)
        if self._ranges is not None:
            value, weight = self._rounded(value, quantize(layer, self._ranges[layer.name]))
        product = self._operators.matmul(value, weight, False, True)
        return product + self._constant(layer.bias[None, None])

    def _rounded(self, value: Any, layer: QuantizedLinear) -> tuple[Any, Any]:
        """The smoothed input in its 256 steps, and the weights; the compiler multiplies in int8."""
        make = self._operators
        ends = [make.constant(np.float32(one)) for one in (layer.low, layer.high)]
        smoothed = value * self._constant(layer.smoothing[None, None])
        weight = make.convert(make.constant(layer.weight), "f32") * self._constant(layer.step)
        return make.fake_quantize(smoothed, *ends, *ends, 256), weight

    def norm(self, value: Any, layer: Affine, epsilon: float) -> Any:
        normal = self._operators.mvn(value, self._integers([-1]), True, epsilon, "inside_sqrt")
        scaled = normal * self._constant(layer.weight[None, None])
        return scaled + self._constant(layer.bias[None, None])

    def gelu(self, value: Any) -> Any:
        return self._operators.gelu(value, "erf")

    def attention(self, query: Any, key: Any, value: Any, heads: int, bias: Any) -> Any:
        make, width = self._operators, self._weights.width

        def split(states: Any) -> Any:
            parts = make.reshape(states, self._integers([0, 0, heads, -1]), True)
            return make.transpose(parts, self._integers([0, 2, 1, 3]))

        scale = make.constant(np.float32(1 / math.sqrt(width // heads)))
        scores = make.matmul(split(query), split(key), False, True) * scale + bias
        mixed = make.matmul(make.softmax(scores, -1), split(value), False, False)
        joined = make.transpose(mixed, self._integers([0, 2, 1, 3]))
        return make.reshape(joined, self._integers([0, 0, width]), True)
