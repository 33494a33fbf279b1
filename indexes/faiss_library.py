"""FAISS, imported where it is used: two distributions bring it and neither is a hard dependency."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Any

from indexes.errors import MissingExtraError

_DISTRIBUTIONS = ("faiss-cpu", "faiss-gpu")


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


@cache
def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
