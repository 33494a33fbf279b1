"""FAISS, imported where it is used: two distributions bring it and neither is a hard dependency."""

from __future__ import annotations

import threading
from functools import cache
from importlib import metadata
from typing import Any

from indexes.errors import MissingExtraError

_DISTRIBUTIONS = ("faiss-cpu", "faiss-gpu")
_OF_THREAD = threading.local()


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


@cache
def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
