"""A FAISS index without its wrappers: the part that finds candidates, and how many to ask of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files.arrays import each_once
from indexes.files.faults import damaged
from indexes.vectors.library import load_faiss

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
    """Bytes that a FAISS index without wrappers keeps of a vector; 0 if it does not say."""
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


class Unwrapped:
    """A FAISS index without what is wrapped around the part that finds candidates.

    Attributes:
        core: that part.
        n: vectors.
        d: dimensions of the vectors.
        oversampling: how many candidates to re-score for each result.

    Args:
        index: a trained FAISS index, by inner product.
        path: the file that it was read from, for errors.
    """

    def __init__(self, index: Any, path: Path) -> None:
        self._index = index  # owns what the core points to
        self._path = path
        self._transforms, self.core = unwrap(index)
        self.n, self.d = int(index.ntotal), int(index.d)
        self.oversampling = oversampling(self.d, self._transforms, self.core)

    def transformed(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """(q, d) queries as the core takes them, C-contiguous."""
        for transform in self._transforms:
            queries = transform.apply(queries)
        return np.ascontiguousarray(queries)

    def positions(self, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions that FAISS returned, ascending, each once, without -1.

        Raises:
            DamagedIndexError: one does not exist.
        """
        positions = each_once(row[row != -1])
        if len(positions) and (positions[0] < 0 or positions[-1] >= self.n):
            raise damaged(self._path, "it holds a passage that its segment does not have")
        return positions
