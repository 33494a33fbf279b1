"""How vectors are computed: engine and number format, batches of texts, unit length."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import Dtype, EncoderSettings
from retriever.errors import require_extra

Engine = Literal["numpy", "openvino", "torch"]
# A NumPy array or a torch tensor.
Array = Any
Floating = TypeVar("Floating", bound=np.floating[Any])

# Word pieces in all that a process encodes before another engine than NumPy pays for its start:
# 0.3 to 0.6 s of OpenVINO, of which a third is compiling; 2 to 6 s of torch and transformers.
OPENVINO_PAYS = 512
TORCH_PAYS = 4096
# Batches of about this many word pieces keep a layer's activations in the processor's caches.
BATCH_PIECES: dict[Dtype, int] = {
    "float32": 1536,
    "bfloat16": 2048,
    "float16": 2048,
    "int8": 2048,
}
# On a GPU, which small batches leave idle; memory that is too small for one is met by halving it.
ACCELERATOR_PIECES = 32768
# A forward pass in training; a step takes several.
TRAINING_PIECES = 2048
_PROCESSOR = Path("/proc/cpuinfo")
# The instructions that OpenVINO multiplies bfloat16 with.
_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})
# What the drivers of NVIDIA, of AMD and of Windows's subsystem for Linux leave in the system.
_GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def runs_on_cpu(device: str | None) -> bool:
    """Whether a model runs on the processor, as far as can be seen without importing torch."""
    if device is not None:
        return device == "cpu"
    return not any(map(os.path.exists, _GPU_FILES)) or not _has_torch()


def _has_torch() -> bool:
    return find_spec("torch") is not None


def has_openvino() -> bool:
    """Whether OpenVINO is installed."""
    return find_spec("openvino") is not None


def engine_for(settings: EncoderSettings, pieces: int) -> Engine:
    """The engine for the next texts, where a model can run on any of them."""
    backend = settings.backend or "auto"
    dtype = settings.number_format
    if backend == "openvino" or dtype == "int8":
        require_extra("openvino", f"encoding in {dtype} with OpenVINO", "openvino")
        return "openvino"
    if backend != "auto":
        return backend
    if dtype == "float32":
        if pieces <= OPENVINO_PAYS:
            return "numpy"
        if pieces <= TORCH_PAYS and not has_openvino() and "torch" not in sys.modules:
            return "numpy"
    if has_openvino():
        return "openvino"
    return "torch" if dtype != "float32" or _has_torch() else "numpy"


@cache
def way(dtype: Dtype, engine: Engine) -> str:
    """How vectors are computed, for a person: the number format, the engine and its version."""
    # Imported here, so that a query starts sooner.
    from importlib import metadata

    return f"{dtype} by {engine} {metadata.version(engine)}"


def describe_engines(settings: EncoderSettings) -> str:
    """Which engines `engine_for` takes for an index, for a person."""
    few = engine_for(settings, 1)
    many = engine_for(settings, TORCH_PAYS + 1)
    limit = OPENVINO_PAYS if many == "openvino" else TORCH_PAYS
    shown: str = many
    if many == "openvino" and settings.dtype in (None, "auto"):
        shown = f"{many} in {native_format()}"
    if few == many:
        return shown
    return f"{few} for the first {limit} word pieces of a process, then {shown}"


def native_format() -> Dtype:
    """The number format of ``auto``: bfloat16 where the processor multiplies it, else float32."""
    try:
        flags = _PROCESSOR.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return "float32"
    return "bfloat16" if _BFLOAT16.intersection(flags) else "float32"


def token_batches(
    lengths: Sequence[int] | NDArray[np.int64], pieces: int
) -> Iterator[NDArray[np.int64]]:
    """Texts of like length together, so that rows times longest row stays within `pieces`."""
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        rows = max(1, pieces // int(sizes[order[start]]))
        yield order[start : start + rows]
        start += rows


def filled_batches(pieces: Sequence[Any], limit: int) -> Iterator[NDArray[np.int64]]:
    """`token_batches` of the texts that have a piece."""
    lengths = np.array([len(one) for one in pieces], np.int64)
    filled = np.flatnonzero(lengths)
    for batch in token_batches(lengths[filled], limit):
        yield filled[batch]


def in_parts(lengths: Sequence[int], compute: Callable[[NDArray[np.int64]], Array]) -> Array:
    """What `compute` gives for the rows of texts of like length, in the order of the texts."""
    import torch

    parts = list(token_batches(lengths, TRAINING_PIECES))
    found = torch.cat([compute(rows) for rows in parts])
    return found[torch.from_numpy(np.argsort(np.concatenate(parts)))]


def scale_to_unit(vectors: NDArray[Floating]) -> NDArray[Floating]:
    """Scale the vectors along the last axis to length 1, in place; a vector of zeros stays."""
    limits = np.finfo(vectors.dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        # The squares of other numbers are too large for the type, or lose digits.
        is_plain = (lengths > np.sqrt(limits.tiny) / limits.eps) & (lengths < np.inf)
        if not is_plain.all():
            extreme = ~is_plain[..., 0]
            part = vectors[extreme]
            largest = np.abs(part).max(axis=-1, keepdims=True, initial=0)
            np.divide(part, largest, out=part, where=(largest > 0) & (largest < np.inf))
            vectors[extreme] = part
            lengths[extreme] = np.linalg.norm(part, axis=-1, keepdims=True)
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return vectors


def find_unbounded(vectors: NDArray[np.float32]) -> int | None:
    """The first of (n, d) vectors whose squared length float32 does not hold; None without one.

    Inner products of the others are finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = np.isfinite(np.einsum("ij,ij->i", vectors, vectors))
    return None if is_finite.all() else int(is_finite.argmin())


def describe_unbounded(vector: NDArray[np.float32]) -> str:
    """Say what is wrong with a vector of `find_unbounded`, and what helps."""
    largest = vector[np.abs(vector).argmax()]
    if not np.isfinite(largest):
        return f"expected a vector of finite numbers, found {largest}; use another encoder"
    return (
        f"expected a vector whose squared length float32 holds, found the number {largest:g} in "
        "it; leave normalize=no out, or use another encoder"
    )


def array_functions(array: Array) -> Any:
    """The module with the functions of an array: torch of a tensor, else NumPy."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def in_single(array: Array) -> Array:
    """In float32."""
    return array.astype(np.float32) if isinstance(array, np.ndarray) else array.float()


def in_double(array: Array) -> Array:
    """In float64."""
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array.double()


def reduce_segments(
    ufunc: np.ufunc, rows: NDArray[np.float32], counts: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Reduce as many consecutive rows as each count says, (counts, d) float32; zeros of none."""
    result = np.zeros((len(counts), rows.shape[1]), np.float32)
    # An empty segment would get the next one's first row.
    filled = np.flatnonzero(counts)
    if len(filled):
        starts = (np.cumsum(counts) - counts)[filled]
        result[filled] = ufunc.reduceat(rows, starts, axis=0)
    return result
