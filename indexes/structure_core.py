"""The part of a FAISS index that finds candidates, without what FAISS wraps around it."""

from __future__ import annotations

from typing import Any

from indexes.faiss_library import load_faiss

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
