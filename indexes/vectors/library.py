"""FAISS, imported where it is used: two distributions provide it, neither is a dependency."""

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
    """The number of GPUs that FAISS finds; 0 if it is built without GPU support."""
    found = getattr(faiss, "get_num_gpus", None)
    return 0 if found is None else int(found())


def gpu_resources(faiss: Any) -> Any:
    """FAISS's streams and memory on a GPU: large, so created once per thread."""
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
