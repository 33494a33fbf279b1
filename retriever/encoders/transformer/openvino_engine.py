"""The forward pass in OpenVINO, in float32, bfloat16 or int8.

The graph is built from the weights in memory and compiled at each start. For 6 to 12 layers that
takes 0.2 to 0.4 s of processor time, so nothing is converted beforehand or cached on disk.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from indexes.platforms import keep_signal_stack, usable_cores
from retriever.encoders.computing import token_batches
from retriever.encoders.settings import Dtype
from retriever.encoders.transformer.network import Affine, Network, NetworkInputs
from retriever.encoders.transformer.numpy_engine import HiddenStates
from retriever.encoders.transformer.quantization import QuantizedLinear, Ranges, quantize
from retriever.encoders.transformer.tensors import Floats

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
# OpenVINO sends a message to Google Analytics at each import, unless this package is missing.
_TELEMETRY = "openvino_telemetry"
_IMPORT_LOCK = threading.Lock()


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry: it takes a stub that sends nothing.

    A program that has imported OpenVINO itself keeps its telemetry.
    """
    modules = cast(dict[str, Any], sys.modules)
    with _IMPORT_LOCK:
        if "openvino" not in modules:
            telemetry = modules.get(_TELEMETRY)
            modules[_TELEMETRY] = None
            try:
                import openvino
            finally:
                del modules[_TELEMETRY]
                if telemetry is not None:
                    modules[_TELEMETRY] = telemetry
        import openvino
    return openvino


class OpenVINOEngine:
    """The forward pass in OpenVINO: parallel batches on one core each, a single one on all cores.

    Parallel and single batches have graphs of their own, each compiled on first use with a copy of
    the weights. Threads may share the engine.
    """

    def __init__(
        self, network: Network, layers: Sequence[int], dtype: Dtype, ranges: Ranges | None = None
    ) -> None:
        self._network = network
        self._layers = layers
        self.dtype = dtype
        self._ranges = ranges
        self._cores = usable_cores()
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
        openvino = import_openvino()
        network = self._network
        lengths = np.array([len(row) for row in ids], np.int64)
        shape = len(ids), int(lengths.max())
        if len(ids) == 1 and self.dtype != "float32":
            shape = 1, max(shape[1], min(_FILLED, network.max_pieces))
        real = np.arange(shape[1]) < lengths[:, None]
        padded = np.zeros(shape, np.int64)
        padded[real] = np.concatenate(ids)
        kinds = np.zeros(shape, np.int64)
        if types is not None:
            kinds[real] = np.concatenate(types)
        arrays: dict[str, NDArray[Any]] = {
            "ids": padded,
            "words": padded if has_word_table(network) else network.words[padded],
            "positions": network.position_rows(padded).copy(),
            "padding": np.where(real, np.float32(0), np.float32(_PADDED))[:, None, None],
            "types": kinds,
        }
        names = graph_inputs(network)
        return [openvino.Tensor(arrays[name], shared_memory=True) for name in names]

    def _request(self, streams: int) -> Any:
        """Return an idle request of the graph for a number of parallel batches."""
        openvino = import_openvino()
        with self._lock:
            if streams not in self._compiled:
                settings: dict[str, Any] = {
                    "NUM_STREAMS": streams,
                    "INFERENCE_NUM_THREADS": self._cores,
                }
                if self.dtype in _PRECISIONS:
                    settings["INFERENCE_PRECISION_HINT"] = _PRECISIONS[self.dtype]
                graph = _GraphOperations(self._network, self._ranges).model(self._layers)
                # On a processor with AMX, OpenVINO gives this thread another stack for signals. It
                # later frees that stack, whether or not the thread still has it.
                with keep_signal_stack():
                    compiled = openvino.Core().compile_model(graph, "CPU", settings)
                self._compiled[streams] = compiled
            idle = self._requests[streams]
            return idle.pop() if idle else self._compiled[streams].create_infer_request()


def has_word_table(network: Network) -> bool:
    """Return whether the graph holds the word vectors.

    A table in fewer bits stays outside: NumPy converts the rows of each batch.
    """
    return isinstance(network.words, np.ndarray)


def graph_inputs(network: Network) -> list[str]:
    """Return the names of the inputs of a network's graph, in order."""
    names = ["ids" if has_word_table(network) else "words"]
    names += ["positions"] if network.has_positions else []
    names += ["padding"]
    return names + (["types"] if network.has_types else [])


class _GraphOperations:
    """The operations of a forward pass as nodes of an OpenVINO graph."""

    def __init__(self, network: Network, ranges: Ranges | None) -> None:
        self._network = network
        self._ranges = ranges
        self._operators = import_openvino().opset13
        self._parameters = {name: self._parameter(name) for name in graph_inputs(network)}
        # Attention bias of padding.
        self._padding = self._parameters["padding"]
        # The first input has the number of pieces of a text.
        self._first_input = next(iter(self._parameters.values()))

    def model(self, layers: Sequence[int]) -> Any:
        """Return a model of hidden states, with the inputs of `graph_inputs`."""
        network = self._network
        words = self._parameters.get("words")
        if isinstance(network.words, np.ndarray):
            words = self.rows(network.words, self._parameters["ids"])
        inputs = NetworkInputs(
            words, self._parameters.get("positions"), self._parameters.get("types")
        )
        outputs = []
        states = network.hidden_states(self, inputs)
        for layer, state in zip(range(layers[-1] + 1), states, strict=False):
            if layer in layers:
                outputs.append(self._operators.result(state))
        return import_openvino().Model(outputs, list(self._parameters.values()), "encoder")

    def _parameter(self, name: str) -> Any:
        shapes = {"words": [-1, -1, self._network.width], "padding": [-1, 1, 1, -1]}
        number_type = np.float32 if name in shapes else np.int64
        return self._operators.parameter(shapes.get(name, [-1, -1]), number_type, name)

    def _constant(self, array: Floats) -> Any:
        # Not copied: the weights stay in the pages of their file until the compiler copies them.
        return self._operators.constant(array, shared_memory=True)

    def _integers(self, value: int | Sequence[int]) -> Any:
        return self._operators.constant(np.array(value, np.int64))

    def _pieces(self) -> Any:
        """Return the number of pieces of a text."""
        shape = self._operators.shape_of(self._first_input)
        return self._operators.gather(shape, self._integers(1), self._integers(0))

    def _places(self) -> Any:
        """Return the numbers of the pieces of a text, from 0."""
        return self._operators.range(self._integers(0), self._pieces(), self._integers(1), "i64")

    def rows(self, table: Floats, places: Any) -> Any:
        return self._operators.gather(self._constant(table), places, self._integers(0))

    def linear(self, states: Any, layer: Affine) -> Any:
        weight = self._constant(layer.weight)
        if self._ranges is not None:
            states, weight = self._quantized(states, quantize(layer, self._ranges[layer.name]))
        product = self._operators.matmul(states, weight, False, True)
        return product if layer.bias is None else product + self._constant(layer.bias[None, None])

    def _quantized(self, states: Any, layer: QuantizedLinear) -> tuple[Any, Any]:
        """Return the quantized input and the weights, which the compiler multiplies in int8."""
        make = self._operators
        limits = [make.constant(np.float32(limit)) for limit in (layer.low, layer.high)]
        smoothed = states * self._constant(layer.smoothing[None, None])
        weight = make.convert(make.constant(layer.weight), "f32") * self._constant(layer.step)
        return make.fake_quantize(smoothed, *limits, *limits, 256), weight

    def norm(self, states: Any, layer: Affine, epsilon: float) -> Any:
        normal = self._operators.mvn(states, self._integers([-1]), True, epsilon, "inside_sqrt")
        scaled = normal * self._constant(layer.weight[None, None])
        return scaled if layer.bias is None else scaled + self._constant(layer.bias[None, None])

    def gelu(self, states: Any) -> Any:
        return self._operators.gelu(states, "erf")

    def relative_position_bias(self, bias_by_offset: Floats) -> Any:
        make = self._operators
        integers = self._integers
        table = self._constant(bias_by_offset)
        places = self._places()
        distance = make.unsqueeze(places, integers(0)) - make.unsqueeze(places, integers(1))
        zero = bias_by_offset.shape[1] // 2
        bias = make.gather(table, distance + integers(zero), integers(1))
        return self._padding + make.unsqueeze(bias, integers(0))

    def rotation(self, cosines: Floats, sines: Floats) -> Any:
        places = self._places()
        return self.rows(cosines, places), self.rows(sines, places)

    def attention(
        self, query: Any, key: Any, value: Any, heads: int, bias: Any = None, rotation: Any = None
    ) -> Any:
        make = self._operators
        width = self._network.width

        def split(states: Any) -> Any:
            parts = make.reshape(states, self._integers([0, 0, heads, -1]), True)
            return make.transpose(parts, self._integers([0, 2, 1, 3]))

        query = split(query)
        key = split(key)
        if rotation is not None:
            query = self._rotate(query, rotation)
            key = self._rotate(key, rotation)
        scale = make.constant(np.float32(1 / math.sqrt(width // heads)))
        masked = make.matmul(query, key, False, True) * scale + (
            self._padding if bias is None else bias
        )
        mixed = make.matmul(make.softmax(masked, -1), split(value), False, False)
        joined = make.transpose(mixed, self._integers([0, 2, 1, 3]))
        return make.reshape(joined, self._integers([0, 0, width]), True)

    def _rotate(self, states: Any, rotation: Any) -> Any:
        """Rotate the pairs of components that are half a head apart."""
        make = self._operators
        cosines, sines = rotation
        first, second = make.split(states, self._integers(-1), 2).outputs()
        turned = make.concat([make.negative(second), first], -1)
        return states * cosines + turned * sines
