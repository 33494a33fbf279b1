"""FAISS, imported where it is used: two distributions bring it and neither is a hard dependency."""

from __future__ import annotations

import re
import threading
from functools import cache
from importlib import metadata
from typing import Any

from indexes.errors import MissingExtraError

_DISTRIBUTIONS = ("faiss-cpu", "faiss-gpu")
_OF_THREAD = threading.local()
# FAISS: "Error in <function> at <file>:<line>: <reason>".
_REASON = re.compile(r"^Error in .* at \S+:\d+: (?:Error: )?(.*)$", re.DOTALL)


def load_faiss() -> Any:
    """Import FAISS.

    Raises:
        MissingExtraError: no FAISS is installed, or two that overwrite each other.
    """
    installed = sorted(name for name in _DISTRIBUTIONS if _is_installed(name))
    if len(installed) > 1:
        raise MissingExtraError(
            f"{' and '.join(installed)} are both installed and overwrite each other's module "
            f"faiss: pip uninstall {' '.join(installed)}, then install one of them"
        )
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            "dense search needs FAISS, which cannot be imported "
            f'({error}): pip install "layer-retriever[cpu]", or [gpu], never both; '
            "or search with --mode bm25"
        ) from error
    return faiss


def count_gpus(faiss: Any) -> int:
    """How many GPUs FAISS finds; none where it is built without them."""
    found = getattr(faiss, "get_num_gpus", None)
    return 0 if found is None else int(found())


def gpu_resources(faiss: Any) -> Any:
    """FAISS's streams and memory on a GPU: large, so made once, but for each thread its own."""
    if not hasattr(_OF_THREAD, "resources"):
        _OF_THREAD.resources = faiss.StandardGpuResources()
    return _OF_THREAD.resources


def faiss_reason(error: BaseException) -> str:
    """What a FAISS exception says, in one line, without its place in FAISS's source."""
    text = " ".join(str(error).split()) or type(error).__name__
    found = _REASON.match(text)
    return found[1] if found else text


@cache
def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


# Candidates re-scored for each result.
WHOLE, BYTES, COARSE = 1, 2, 10


def unwrap(index: Any) -> tuple[tuple[Any, ...], Any]:
    """The transforms before the part of a FAISS index that finds candidates, and that part.

    A refinement by FAISS is left out: candidates are re-scored from the kept vectors anyway.
    """
    faiss = load_faiss()
    transforms: list[Any] = []
    while True:
        index = faiss.downcast_index(index)
        if isinstance(index, faiss.IndexPreTransform):
            transforms.extend(index.chain.at(i) for i in range(index.chain.size()))
            index = index.index
        elif isinstance(index, faiss.IndexRefine):
            index = index.base_index
        else:
            return tuple(transforms), index


def code_bytes(core: Any) -> int:
    """Bytes that a FAISS index without wrappers keeps of a vector; 0 where it does not say."""
    holder = load_faiss().downcast_index(core.storage) if hasattr(core, "storage") else core
    return int(getattr(holder, "code_size", 0))


def oversampling(d: int, transforms: tuple[Any, ...], core: Any) -> int:
    """How many candidates to re-score for each result, by how much of a vector the codes keep.

    Args:
        d: dimensions of the vectors.
        transforms: as `unwrap` gives them.
        core: as `unwrap` gives it.

    Returns:
        1 where the codes are the vectors, 2 for a byte a dimension or more, otherwise 10.
    """
    kept = code_bytes(core)
    if any(transform.d_out < transform.d_in for transform in transforms) or kept < d:
        return COARSE
    return WHOLE if kept >= 4 * d else BYTES
