"""Quantization to eight bits, and the sentences that decide it.

The calibration sentences are part of the program. A model therefore has the same int8 vectors in
every index, independent of its content and order. Measured values are cached on disk.

Quantization is static. The inputs of a linear layer have 256 steps over one range, its weights 255
steps for each output. SmoothQuant (Xiao et al. 2023, Eq. 4) moves part of the differences between
input components into the weights, which have a range for each output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_files
from retriever.encoders.computing import scale_to_unit
from retriever.encoders.transformer.network import Affine, Network
from retriever.encoders.transformer.numpy_engine import NumPyEngine
from retriever.encoders.transformer.tensors import Floats, map_arrays
from retriever.encoders.transformer.tokenizer import PairTokenizer
from retriever.errors import ModelError, StorageError
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


def calibrate(network: Network, identity: str, tokenizer: PairTokenizer, window: int) -> Ranges:
    """Measure the ranges of a model, or read them from the cache."""
    texts = calibration_texts()
    # A shorter window cuts these texts, and has ranges of its own.
    windows = [str(window)] if window < _WINDOW else []
    file = _cache_file("int8", [str(_FORMAT), identity, *windows, *texts])
    with suppress(ModelError):
        return map_arrays(file)
    ranges = measure_ranges(network, tokenizer.tokenize(texts, min(window, _WINDOW)))
    _write_cache(file, ranges)
    return ranges


def measure_ranges(network: Network, ids: Sequence[Sequence[int]]) -> dict[str, Floats]:
    """Run texts in NumPy, and measure the range of the input of each linear layer."""
    ranges: dict[str, Floats] = {}

    def watch(layer: Affine, inputs: Floats) -> None:
        flat = inputs.reshape(-1, inputs.shape[-1])
        low = flat.min(axis=0)
        high = flat.max(axis=0)
        limits = ranges.setdefault(layer.name, np.zeros((2, len(low)), np.float32))
        np.minimum(limits[0], low, out=limits[0])
        np.maximum(limits[1], high, out=limits[1])

    for _ in NumPyEngine(network, [network.depth], watch).run(ids):
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
    with suppress(ModelError, KeyError):
        return float(map_arrays(file)["cosine"][0])
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
