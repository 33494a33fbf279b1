"""FAISS, imported where it is used: two distributions provide it, and neither is required."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import MissingExtraError, SourceError

# The index type without a structure: all vectors are scanned.
FLAT = "flat"
# FAISS: "Error in <function> at <file>:<line>: <reason>".
_REASON = re.compile(r"^Error in .* at \S+:\d+: (?:Error: )?(.*)$", re.DOTALL)


def load_faiss() -> Any:
    """Import FAISS.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            "dense search needs FAISS, which cannot be imported "
            f'({error}): pip install "layer-retriever[cpu]", or [gpu], never both, which '
            "overwrite each other; or search with --mode bm25"
        ) from error
    return faiss


def count_gpus(faiss: Any) -> int:
    """Count the GPUs that FAISS finds; 0 if it is built without GPU support."""
    get_num_gpus = getattr(faiss, "get_num_gpus", None)
    return 0 if get_num_gpus is None else int(get_num_gpus())


def faiss_reason(error: BaseException) -> str:
    """Return the message of a FAISS exception in one line, without its place in the source."""
    text = " ".join(str(error).split()) or type(error).__name__
    match = _REASON.match(text)
    return match[1] if match else text


def unwrap(index: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the transforms of a FAISS index and its core, which finds candidates."""
    faiss = load_faiss()
    transforms: list[Any] = []
    while True:
        index = faiss.downcast_index(index)
        if isinstance(index, faiss.IndexPreTransform):
            transforms.extend(index.chain.at(i) for i in range(index.chain.size()))
            index = index.index
        elif isinstance(index, faiss.IndexRefine):
            # Candidates are scored again from the stored vectors anyway.
            index = index.base_index
        else:
            return tuple(transforms), index


def code_bytes(core: Any) -> int:
    """Return the bytes of a code in a FAISS index without wrappers; 0 if it does not say."""
    storage = load_faiss().downcast_index(core.storage) if hasattr(core, "storage") else core
    return int(getattr(storage, "code_size", 0))


def is_faiss_file(path: Path) -> bool:
    """Return whether a file begins as `faiss.write_index` writes one.

    The first byte is I; three letters or digits follow.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError:
        return False
    return len(head) == 4 and head[:1] == b"I" and head.isalnum()


class FaissVectors:
    """The vectors of a FAISS index file, in the order in which they were added.

    Ids of `IndexIDMap` are not read. `exact` says whether the file has the vectors as they were
    added.
    """

    def __init__(self, path: Path) -> None:
        faiss = load_faiss()
        self._path = path
        try:
            # The outer index owns the inner ones.
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
        if index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
            raise SourceError(
                f"{path}: expected the metric inner product or L2, found number {index.metric_type}"
            )
        self.shape = (int(index.ntotal), int(index.d))
        self.exact = type(index).__name__.removesuffix("IP").removesuffix("L2").endswith("Flat")
        self._index = index

    def __len__(self) -> int:
        """Return the number of vectors."""
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        """Return (rows, dimensions) float32 vectors."""
        try:
            vectors = self._index.reconstruct_batch(
                np.arange(*rows.indices(len(self)), dtype=np.int64)
            )
        except RuntimeError as error:
            raise SourceError(
                f"{self._path}: its vectors cannot be read back ({faiss_reason(error)}); give them "
                "as a NumPy file"
            ) from error
        return np.asarray(vectors, np.float32)
