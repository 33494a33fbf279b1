"""Files and folders that commands write, whole or not at all, and the folder of the cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from indexes import whole_file, whole_files, write_lines, writer_lock
from retriever.errors import ConfigError

__all__ = [
    "check_output",
    "default_cache",
    "folder_cache",
    "remove_index",
    "whole_file",
    "whole_files",
    "write_lines",
]


def check_output(folder: Path, what: str, strange: Callable[[set[str]], str | None]) -> None:
    """Refuse a folder that cannot be written to, or that holds what is not to be lost.

    `what` is the folder that may be replaced, such as "the folder of a reranker". `strange` gets
    the names in a folder, and returns one that does not belong there, or None.
    """
    if not folder.absolute().parent.is_dir():
        raise ConfigError(
            f"{folder}: expected a name in a folder that exists; make the folder or change --output"
        )
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder, found a file; change --output")
    names = {path.name for path in folder.iterdir()}
    found = strange(names) if names else None
    if found is not None:
        raise ConfigError(
            f"{folder}: expected a new name, an empty folder or {what}, found {found} in it; "
            "change --output"
        )


def default_cache() -> Path:
    """The folder of the cache: $RETRIEVER_CACHE or ~/.cache/retriever."""
    named = os.environ.get("RETRIEVER_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "retriever"


def folder_cache() -> Path:
    """Return where `retriever query --in` keeps its indexes."""
    return default_cache() / "folders"


def remove_index(folder: Path) -> None:
    """Remove an index folder; IndexLockedError if a process is writing to it."""
    with writer_lock(folder):
        shutil.rmtree(folder)
