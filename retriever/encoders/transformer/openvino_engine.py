"""The forward pass in OpenVINO, in float32, bfloat16 or int8.

The calibration texts are part of the program. A model therefore has the same int8 vectors in every
index, independent of its content and order.

Quantization is static. The inputs of a linear layer have 256 steps over one range, its weights 255
steps for each output. SmoothQuant (Xiao et al. 2023, Eq. 4) moves part of the differences between
input components into the weights, which have a range for each output.

The graph is built from the weights in memory and compiled at each start. For 6 to 12 layers that
takes 0.2 to 0.4 s of processor time, so nothing is converted beforehand or cached on disk.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_files
from retriever.encoders.computing import scale_to_unit, token_batches
from retriever.encoders.settings import Dtype
from retriever.encoders.transformer.bert import (
    Affine,
    Floats,
    HiddenStates,
    NumPyEngine,
    UnsupportedModelError,
    Weights,
    distance_buckets,
    hidden_states,
    map_tensors,
)
from retriever.encoders.transformer.word_pieces import WordPieces
from retriever.errors import StorageError
from retriever.files import default_cache

_SENTENCES = Path(__file__).with_name("calibration.txt")
# Sentences of a calibration passage, and from one passage to the next.
_PASSAGE_SENTENCES = 8
_PASSAGE_STEP = 4
# Alpha of SmoothQuant: the share of the differences that moves into the weights.
_MIGRATION = 0.75
# Least range and scale.
_FLOOR = 1e-5
# Format of cached calibrations.
_FORMAT = 2
# Most word pieces of a calibration text.
_WINDOW = 256
# (2, inputs) lowest and highest value of each input component, by the name of a linear layer.
Ranges = Mapping[str, Floats]
# With int8, attention and norms have the library's default: bfloat16 if the processor has it.
_PRECISIONS: dict[Dtype, str] = {"float32": "f32", "bfloat16": "bf16"}
# Most word pieces of a batch, which runs on one core.
BATCH_PIECES = 1024
# Least pieces of a batch when few texts are divided among the cores. The slack keeps the number of
# batches at the number of cores in spite of padding.
_FEWEST = 64
_SLACK = 1.25
# Pieces that a single text is padded to, since a repeated shape runs faster.
_FILLED = 16
# Attention bias at padding. Its exponential is 0 in every precision.
_PADDED = -1e4


def calibration_texts() -> list[str]:
    """Return the calibration sentences, and passages of eight sentences from all over the list."""
    sentences = _SENTENCES.read_text(encoding="utf-8").splitlines()
    passages = [
        " ".join(
            sentences[(start + 13 * place) % len(sentences)] for place in range(_PASSAGE_SENTENCES)
        )
        for start in range(0, len(sentences), _PASSAGE_STEP)
    ]
    return [*sentences, *passages]


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedLinear:
    """A linear layer in eight bits."""

    smoothing: Floats  # (inputs,) factors of the input.
    low: float  # Range of the smoothed input, from `low` to `high` in 256 steps.
    high: float
    weight: NDArray[np.int8]  # (outputs, inputs), of the smoothed input.
    step: Floats  # (outputs, 1), value of 1 in a row of `weight`.


def calibrate(weights: Weights, identity: str, tokenizer: WordPieces, window: int) -> Ranges:
    """Measure the ranges of a model, or read them from the cache."""
    texts = calibration_texts()
    file = _cache_file("int8", [str(_FORMAT), identity, *texts])
    with suppress(UnsupportedModelError):
        return map_tensors(file)
    ranges = measure_ranges(weights, tokenizer.tokenize(texts, min(window, _WINDOW)))
    _write_cache(file, ranges)
    return ranges


def measure_ranges(weights: Weights, ids: Sequence[Sequence[int]]) -> dict[str, Floats]:
    """Run texts in NumPy, and measure the range of the input of each linear layer."""
    ranges: dict[str, Floats] = {}

    def watch(layer: Affine, inputs: Floats) -> None:
        flat = inputs.reshape(-1, inputs.shape[-1])
        low = flat.min(axis=0)
        high = flat.max(axis=0)
        limits = ranges.setdefault(layer.name, np.zeros((2, len(low)), np.float32))
        np.minimum(limits[0], low, out=limits[0])
        np.maximum(limits[1], high, out=limits[1])

    for _ in NumPyEngine(weights, [len(weights.layers)], watch).run(ids):
        pass
    return ranges


def quantize(layer: Affine, measured: Floats) -> QuantizedLinear:
    """Quantize a linear layer to eight bits, for the measured range of its input."""
    low, high = measured
    columns = np.maximum(np.abs(layer.weight).max(axis=0), _FLOOR)
    scale = np.maximum(np.maximum(-low, high), _FLOOR) ** _MIGRATION / columns ** (1 - _MIGRATION)
    scale = (scale / np.exp(np.log(scale).mean())).astype(np.float32)
    lowest = float((low / scale).min())
    highest = float((high / scale).max())
    step = max((highest - lowest) / 255, _FLOOR)
    zero = round(-lowest / step)
    weight = layer.weight * scale
    steps = np.maximum(np.abs(weight).max(axis=1, keepdims=True), _FLOOR) / np.float32(127)
    rounded = np.rint(weight / steps).astype(np.int8)
    return QuantizedLinear(1 / scale, -zero * step, (255 - zero) * step, rounded, steps)


def least_cosine(
    encode_with_both: Callable[[Sequence[str]], Sequence[Floats]], identity: str
) -> float:
    """Return the least cosine, -1 to 1, between two encodings of the 64 calibration sentences.

    `encode_with_both` returns both encodings, (64, dimensions) float32 each. The result is cached
    under `identity`; it is measured at each start if the cache cannot be written.
    """
    sentences = _SENTENCES.read_text(encoding="utf-8").splitlines()
    file = _cache_file("cosines", [identity, *sentences])
    with suppress(UnsupportedModelError, KeyError):
        return float(map_tensors(file)["cosine"][0])
    first, second = map(scale_to_unit, encode_with_both(sentences))
    cosine = (first * second).sum(axis=1).min(keepdims=True)
    _write_cache(file, {"cosine": cosine})
    return float(cosine[0])


def _cache_file(kind: str, facts: Sequence[str]) -> Path:
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return default_cache() / kind / f"{key}.safetensors"


def _write_cache(file: Path, arrays: Mapping[str, Floats]) -> None:
    from safetensors.numpy import save_file

    # A cache that cannot be written costs a few seconds at the next start.
    with suppress(StorageError, OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_files(file) as (new,):
            save_file(dict(arrays), new)


class OpenVINOEngine:
    """The forward pass in OpenVINO: parallel batches on one core each, a single one on all cores.

    Parallel and single batches have graphs of their own, each compiled on first use with a copy of
    the weights. Threads may share the engine.
    """

    def __init__(
        self, weights: Weights, layers: Sequence[int], dtype: Dtype, ranges: Ranges | None = None
    ) -> None:
        self._weights = weights
        self._layers = layers
        self.dtype = dtype
        self._ranges = ranges
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._cores = cores or 1
        self._lock = threading.Lock()
        # Compiled graphs and idle requests, by the number of parallel batches.
        self._compiled: dict[int, Any] = {}
        self._requests: dict[int, list[Any]] = defaultdict(list)

    def batches(self, lengths: Sequence[int] | NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Divide texts into batches that keep every core busy; see `token_batches`."""
        share = _SLACK * float(np.sum(lengths)) / self._cores
        return token_batches(lengths, int(min(max(share, _FEWEST), BATCH_PIECES)))

    def run(
        self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
    ) -> Iterator[HiddenStates]:
        """Run texts, and yield the states of each batch."""
        lengths = np.array([len(row) for row in ids], np.int64)
        batches = list(self.batches(lengths))
        streams = self._cores if len(batches) > 1 else 1
        # Keeps the inputs of a batch in memory while it runs.
        waiting: deque[tuple[NDArray[np.int64], Any, list[Any]]] = deque()

        def finish() -> Iterator[HiddenStates]:
            rows, request, _ = waiting.popleft()
            request.wait()
            outputs = range(len(request.model_outputs))
            states = [request.get_output_tensor(output).data for output in outputs]
            yield HiddenStates(rows, lengths[rows], states)
            self._requests[streams].append(request)

        try:
            for rows in batches:
                batch_types = None if types is None else [types[row] for row in rows]
                inputs = self._inputs([ids[row] for row in rows], batch_types)
                request = self._request(streams)
                # `start_async` with inputs would check each of them again.
                for place, tensor in enumerate(inputs):
                    request.set_input_tensor(place, tensor)
                request.start_async()
                waiting.append((rows, request, inputs))
                # One more batch than cores, so no core waits while the caller reads.
                if len(waiting) > self._cores:
                    yield from finish()
            while waiting:
                yield from finish()
        finally:
            for _, request, _ in waiting:
                request.wait()

    def _inputs(
        self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None
    ) -> list[Any]:
        import openvino

        lengths = np.array([len(row) for row in ids], np.int64)
        shape = len(ids), int(lengths.max())
        if len(ids) == 1 and self.dtype != "float32":
            shape = 1, max(shape[1], min(_FILLED, self._weights.max_pieces))
        real = np.arange(shape[1]) < lengths[:, None]
        padded = np.zeros(shape, np.int64)
        padded[real] = np.concatenate(ids)
        kinds = np.zeros(shape, np.int64)
        if types is not None:
            kinds[real] = np.concatenate(types)
        bias = np.where(real, np.float32(0), np.float32(_PADDED))[:, None, None]
        inputs = [padded, self._weights.position_rows(padded).copy(), bias]
        if self._weights.types is not None:
            inputs.append(kinds)
        return [openvino.Tensor(array, shared_memory=True) for array in inputs]

    def _request(self, streams: int) -> Any:
        """Return an idle request of the graph for a number of parallel batches."""
        import openvino

        with self._lock:
            if streams not in self._compiled:
                settings: dict[str, Any] = {
                    "NUM_STREAMS": streams,
                    "INFERENCE_NUM_THREADS": self._cores,
                }
                if self.dtype in _PRECISIONS:
                    settings["INFERENCE_PRECISION_HINT"] = _PRECISIONS[self.dtype]
                graph = _Graph(self._weights, self._ranges).model(self._layers)
                self._compiled[streams] = openvino.Core().compile_model(graph, "CPU", settings)
            idle = self._requests[streams]
            return idle.pop() if idle else self._compiled[streams].create_infer_request()


class _Graph:
    """The operations of `hidden_states` as nodes of an OpenVINO graph."""

    def __init__(self, weights: Weights, ranges: Ranges | None) -> None:
        from openvino import opset13

        self._weights = weights
        self._ranges = ranges
        self._operators: Any = opset13

    def model(self, layers: Sequence[int]) -> Any:
        """Return a model of hidden states, with the inputs ids, places, bias and types."""
        import openvino

        make = self._operators
        weights = self._weights
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
        make = self._operators
        integers = self._integers
        longest = len(self._weights.positions)
        table = self._constant(np.ascontiguousarray(distances[distance_buckets(longest)].T))
        pieces = make.gather(make.shape_of(ids), integers(1), integers(0))
        position = make.range(integers(0), pieces, integers(1), "i64")
        distance = make.unsqueeze(position, integers(0)) - make.unsqueeze(position, integers(1))
        bias = make.gather(table, distance + integers(longest - 1), integers(1))
        return make.unsqueeze(bias, integers(0))

    def _constant(self, array: Floats) -> Any:
        # Not copied: the weights stay in the pages of their file until the compiler copies them.
        return self._operators.constant(array, shared_memory=True)

    def _integers(self, value: int | Sequence[int]) -> Any:
        return self._operators.constant(np.array(value, np.int64))

    def rows(self, table: Floats, places: Any) -> Any:
        return self._operators.gather(self._constant(table), places, self._integers(0))

    def linear(self, value: Any, layer: Affine) -> Any:
        weight = self._constant(layer.weight)
        if self._ranges is not None:
            value, weight = self._quantized(value, quantize(layer, self._ranges[layer.name]))
        product = self._operators.matmul(value, weight, False, True)
        return product + self._constant(layer.bias[None, None])

    def _quantized(self, value: Any, layer: QuantizedLinear) -> tuple[Any, Any]:
        """Return the quantized input and the weights, which the compiler multiplies in int8."""
        make = self._operators
        limits = [make.constant(np.float32(limit)) for limit in (layer.low, layer.high)]
        smoothed = value * self._constant(layer.smoothing[None, None])
        weight = make.convert(make.constant(layer.weight), "f32") * self._constant(layer.step)
        return make.fake_quantize(smoothed, *limits, *limits, 256), weight

    def norm(self, value: Any, layer: Affine, epsilon: float) -> Any:
        normal = self._operators.mvn(value, self._integers([-1]), True, epsilon, "inside_sqrt")
        scaled = normal * self._constant(layer.weight[None, None])
        return scaled + self._constant(layer.bias[None, None])

    def gelu(self, value: Any) -> Any:
        return self._operators.gelu(value, "erf")

    def attention(self, query: Any, key: Any, value: Any, heads: int, bias: Any) -> Any:
        make = self._operators
        width = self._weights.width

        def split(states: Any) -> Any:
            parts = make.reshape(states, self._integers([0, 0, heads, -1]), True)
            return make.transpose(parts, self._integers([0, 2, 1, 3]))

        scale = make.constant(np.float32(1 / math.sqrt(width // heads)))
        scores = make.matmul(split(query), split(key), False, True) * scale + bias
        mixed = make.matmul(make.softmax(scores, -1), split(value), False, False)
        joined = make.transpose(mixed, self._integers([0, 2, 1, 3]))
        return make.reshape(joined, self._integers([0, 0, width]), True)
