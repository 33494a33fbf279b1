"""Matrix products in eight bits: ranges measured once, weights rounded when the graph is built.

Static quantization: the inputs of a linear layer in 256 steps over one range, its weights in 255
steps for each output. SmoothQuant (Xiao et al. 2023, Eq. 4) moves part of what differs between the
components of the input into the weights, where each output has a range of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes import whole_files
from retriever.encoders.transformer.backends.calibration import calibration_texts
from retriever.encoders.transformer.backends.numpy_engine import NumPyEngine
from retriever.encoders.transformer.backends.weights import Affine, Floats, Weights, map_tensors
from retriever.encoders.transformer.backends.word_pieces import WordPieces
from retriever.errors import StorageError
from retriever.files import default_cache

# SmoothQuant's alpha: how much of the difference goes into the weights.
_MIGRATION = 0.75
_FLOOR = 1e-5
# Of calibration; another one has other files.
_FORMAT = 2
_WINDOW = 256

# By the name of a linear layer (2, inputs): the lowest and the highest value of each component of
# its input.
Ranges = Mapping[str, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedLinear:
    """A linear layer in eight bits.

    Attributes:
        smoothing: (inputs,) that the input is multiplied with.
        low, high: the range of the smoothed input in 256 steps, one of which is 0.
        weight: (outputs, inputs) int8, of the smoothed input.
        step: (outputs, 1) float32, what 1 in a row of `weight` stands for.
    """

    smoothing: Floats
    low: float
    high: float
    weight: NDArray[np.int8]
    step: Floats


def calibrated(weights: Weights, identity: str, tokenizer: WordPieces, window: int) -> Ranges:
    """The ranges of a model, from the cache if they were measured before.

    Args:
        weights: of the model.
        identity: the SHA-256 of its files.
        tokenizer: of the model.
        window: the most word pieces that it has positions for.
    """
    texts = calibration_texts()
    key = hashlib.sha256("\n".join([str(_FORMAT), identity, *texts]).encode()).hexdigest()[:16]
    file = default_cache() / "int8" / f"{key}.safetensors"
    names = {one.name for layer in weights.layers for one in layer.linears}
    if file.is_file():
        ranges = map_tensors(file)
        if ranges.keys() == names:
            return ranges
    ranges = measure_ranges(weights, tokenizer.tokenize(texts, min(window, _WINDOW)))
    # A cache that cannot be written costs a few seconds at the next start.
    with suppress(StorageError, OSError):
        _write(file, ranges)
    return ranges


def measure_ranges(weights: Weights, ids: Sequence[Sequence[int]]) -> dict[str, Floats]:
    """Run texts in NumPy, and measure what goes into each linear layer.

    Args:
        weights: of the model.
        ids: of each text, special tokens included; at least one text.
    """
    found: dict[str, Floats] = {}

    def watch(layer: Affine, inputs: Floats) -> None:
        flat = inputs.reshape(-1, inputs.shape[-1])
        low, high = flat.min(axis=0), flat.max(axis=0)
        ends = found.setdefault(layer.name, np.zeros((2, len(low)), np.float32))
        np.minimum(ends[0], low, out=ends[0])
        np.maximum(ends[1], high, out=ends[1])

    engine = NumPyEngine(weights, watch)
    for row in ids:
        engine.states(row, [len(weights.layers)])
    return found


def quantize(layer: Affine, measured: Floats) -> QuantizedLinear:
    """A linear layer in eight bits, for what was measured of its input."""
    low, high = measured
    columns = np.maximum(np.abs(layer.weight).max(axis=0), _FLOOR)
    scale = np.maximum(np.maximum(-low, high), _FLOOR) ** _MIGRATION / columns ** (1 - _MIGRATION)
    scale = (scale / np.exp(np.log(scale).mean())).astype(np.float32)
    lowest, highest = float((low / scale).min()), float((high / scale).max())
    step = max((highest - lowest) / 255, _FLOOR)
    zero = round(-lowest / step)
    weight = layer.weight * scale
    steps = np.maximum(np.abs(weight).max(axis=1, keepdims=True), _FLOOR) / np.float32(127)
    rounded = np.rint(weight / steps).astype(np.int8)
    return QuantizedLinear(1 / scale, -zero * step, (255 - zero) * step, rounded, steps)


def _write(file: Path, ranges: Mapping[str, Floats]) -> None:
    from safetensors.numpy import save_file

    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_files(file) as (new,):
        save_file(dict(ranges), new)
