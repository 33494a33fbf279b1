"""Computation of vectors: engine and number format, batches of texts, unit length."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexes.platforms import GPU_FILES, PROCESSOR_FILE
from retriever.encoders.settings import Dtype, EncoderSettings
from retriever.errors import require_extra

Engine = Literal["numpy", "openvino", "torch"]
# A NumPy array or a torch tensor.
Array = Any
Floating = TypeVar("Floating", bound=np.floating[Any])

# Word pieces that a process encodes before another engine than NumPy pays for its start. OpenVINO
# starts in 0.3 to 0.6 s, a third of it compiling; torch and transformers in 2 to 6 s.
OPENVINO_PAYS = 512
TORCH_PAYS = 4096
# Count of pieces that stands for any larger number.
MANY_PIECES = 10**9
# Word pieces of a batch. Such batches keep a layer's activations in the processor's caches.
BATCH_PIECES: dict[Dtype, int] = {
    "float32": 1536,
    "bfloat16": 2048,
    "float16": 2048,
    "int8": 2048,
}
# Word pieces of a batch on a GPU, which small batches leave idle. A batch that does not fit into
# memory is halved.
ACCELERATOR_PIECES = 32768
# Word pieces of a forward pass in training. A step takes several passes.
TRAINING_PIECES = 2048
# Processor flags of the instructions that OpenVINO multiplies bfloat16 with.
_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})
# Processor flag of tiles (AMX), which OpenVINO multiplies bfloat16 in.
_TILES = "amx_bf16"


def runs_on_cpu(device: str | None) -> bool:
    """Return whether a model runs on the processor, judged without importing torch."""
    if device is not None:
        return device == "cpu"
    return not any(map(os.path.exists, GPU_FILES)) or not _has_torch()


def _has_torch() -> bool:
    return find_spec("torch") is not None


def has_openvino() -> bool:
    """Return whether OpenVINO is installed."""
    return find_spec("openvino") is not None


def engine_for(settings: EncoderSettings, pieces: int) -> Engine:
    """Return the engine for a model that runs on all of them, after `pieces` word pieces."""
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
def describe_engine(dtype: Dtype, engine: Engine) -> str:
    """Describe how vectors are computed: number format, engine and its version."""
    # Imported here for the start of a query.
    from importlib import metadata

    return f"{dtype} by {engine} {metadata.version(engine)}"


def describe_engines(settings: EncoderSettings) -> str:
    """Describe the engines that `engine_for` chooses while an index is filled."""
    first_engine = engine_for(settings, 1)
    bulk_engine = engine_for(settings, TORCH_PAYS + 1)
    limit = OPENVINO_PAYS if bulk_engine == "openvino" else TORCH_PAYS
    description: str = bulk_engine
    if bulk_engine == "openvino" and settings.dtype in (None, "auto"):
        description = f"{bulk_engine} in {native_format()}"
    if first_engine == bulk_engine:
        return description
    return f"{first_engine} for the first {limit} tokens of a process, then {description}"


def native_format() -> Dtype:
    """Return the number format of ``auto``: bfloat16 if the processor has it, else float32."""
    return "float32" if _BFLOAT16.isdisjoint(_processor_flags()) else "bfloat16"


def is_int8_slower() -> bool:
    """Return whether bfloat16 runs faster than int8 here (docs/reference/computing.md)."""
    return _TILES in _processor_flags()


def _processor_flags() -> list[str]:
    try:
        return PROCESSOR_FILE.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []


def token_batches(
    lengths: Sequence[int] | NDArray[np.int64], pieces: int
) -> Iterator[NDArray[np.int64]]:
    """Yield rows of texts of similar length, longest first.

    The number of rows of a batch times its longest row is at most `pieces`, if it has two rows or
    more.
    """
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        rows = max(1, pieces // int(sizes[order[start]]))
        yield order[start : start + rows]
        start += rows


def filled_batches(pieces: Sequence[Any], limit: int) -> Iterator[NDArray[np.int64]]:
    """Yield `token_batches` of the texts that have pieces."""
    lengths = np.array([len(text_pieces) for text_pieces in pieces], np.int64)
    filled = np.flatnonzero(lengths)
    for batch in token_batches(lengths[filled], limit):
        yield filled[batch]


def apply_by_length(lengths: Sequence[int], compute: Callable[[NDArray[np.int64]], Array]) -> Array:
    """Apply `compute` to batches of texts of similar length; return results in the texts' order."""
    import torch

    batches = list(token_batches(lengths, TRAINING_PIECES))
    results = torch.cat([compute(rows) for rows in batches])
    return results[torch.from_numpy(np.argsort(np.concatenate(batches)))]


def scale_to_unit(vectors: NDArray[Floating]) -> NDArray[Floating]:
    """Scale the vectors along the last axis to length 1, in place; a vector of zeros stays."""
    limits = np.finfo(vectors.dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        # The squares of other lengths overflow the type or lose digits.
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


def cosine_matrix(first: ArrayLike, second: ArrayLike) -> NDArray[np.float32]:
    """Return the (n, m) cosines of (n, d) with (m, d) vectors; 0 for a zero vector."""
    rows = np.array(first, np.float32, ndmin=2)
    columns = np.array(second, np.float32, ndmin=2)
    scale_to_unit(rows)
    scale_to_unit(columns)
    cosines: NDArray[np.float32] = rows @ columns.T
    return cosines


def find_unbounded(vectors: NDArray[np.float32]) -> int | None:
    """Return the first of (n, d) vectors whose squared length exceeds float32; None without one.

    Inner products of the other vectors are finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = np.isfinite(np.einsum("ij,ij->i", vectors, vectors))
    return None if is_finite.all() else int(is_finite.argmin())


def describe_unbounded(vector: NDArray[np.float32]) -> str:
    """Describe the fault of a vector from `find_unbounded`, and the remedy."""
    largest = vector[np.abs(vector).argmax()]
    if not np.isfinite(largest):
        return f"expected a vector of finite numbers, found {largest}; use another encoder"
    return (
        f"expected a vector whose squared length float32 holds, found the number {largest:g} in "
        "it; leave normalize=no out, or use another encoder"
    )


def array_functions(array: Array) -> Any:
    """Return the module of an array's functions: torch for a tensor, else NumPy."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def to_float32(array: Array) -> Array:
    """Convert to float32."""
    return array.astype(np.float32) if isinstance(array, np.ndarray) else array.float()


def to_float64(array: Array) -> Array:
    """Convert to float64."""
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array.double()


def reduce_segments(
    ufunc: np.ufunc, rows: NDArray[np.float32], counts: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Reduce runs of consecutive rows, whose lengths are `counts`, to (counts, d) float32.

    An empty run gives zeros.
    """
    result = np.zeros((len(counts), rows.shape[1]), np.float32)
    # `reduceat` gives an empty run the first row of the next run.
    filled = np.flatnonzero(counts)
    if len(filled):
        starts = (np.cumsum(counts) - counts)[filled]
        result[filled] = ufunc.reduceat(rows, starts, axis=0)
    return result
