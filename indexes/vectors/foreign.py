"""The vectors of an index that another program wrote with FAISS."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from indexes.errors import SourceError
from indexes.vectors.library import faiss_reason, load_faiss

Metric = Literal["ip", "l2"]


def is_faiss_file(path: Path) -> bool:
    """Whether a file begins as `faiss.write_index` writes one: I and three letters or digits."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError:
        return False
    return len(head) == 4 and head[:1] == b"I" and head.isalnum()


class FaissVectors:
    """The vectors of a FAISS index file, in the order in which they were added.

    Ids of `IndexIDMap` are not read. Nothing is unpickled.

    Args:
        path: what `faiss.write_index` wrote; it is read into memory.

    Attributes:
        shape: (vectors, dimensions).
        metric: what the index ranks by: ``ip``, the inner product, or ``l2``.
        exact: whether it keeps the vectors as they were added, not an approximation.

    Raises:
        SourceError: the file cannot be read, ranks by another metric, or does not keep vectors.
        MissingExtraError: FAISS is not installed.
    """

    def __init__(self, path: Path) -> None:
        faiss = load_faiss()
        self._path = path
        try:
            # It owns what it wraps.
            self._owner = faiss.read_index(str(path))
            index = faiss.downcast_index(self._owner)
            while type(index).__name__ in ("IndexIDMap", "IndexIDMap2"):
                index = faiss.downcast_index(index.index)
            if isinstance(index, faiss.IndexIVF):
                index.make_direct_map()
        except (RuntimeError, TypeError) as error:
            raise SourceError(
                f"{path}: expected an index of float vectors as faiss.write_index writes it "
                f"({faiss_reason(error)}); write it again"
            ) from error
        metrics: dict[int, Metric] = {faiss.METRIC_INNER_PRODUCT: "ip", faiss.METRIC_L2: "l2"}
        if index.metric_type not in metrics:
            raise SourceError(
                f"{path}: expected the metric inner product or L2, found number {index.metric_type}"
            )
        self.metric = metrics[index.metric_type]
        self.shape = (int(index.ntotal), int(index.d))
        self.exact = type(index).__name__.removesuffix("IP").removesuffix("L2").endswith("Flat")
        self._index = index

    def __len__(self) -> int:
        """The number of vectors."""
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        """(rows, dimensions) float32.

        Raises:
            SourceError: the index does not keep vectors.
        """
        try:
            found = self._index.reconstruct_batch(
                np.arange(*rows.indices(len(self)), dtype=np.int64)
            )
        except RuntimeError as error:
            raise SourceError(
                f"{self._path}: its vectors cannot be read back ({faiss_reason(error)}); give them "
                "as a NumPy file"
            ) from error
        return np.asarray(found, np.float32)
