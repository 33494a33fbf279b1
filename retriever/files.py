"""Files and folders that commands write, complete or not at all, and the folder of the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexes import remove_index
from indexes.files import whole_file, whole_files, write_lines
from retriever.errors import ConfigError

__all__ = [
    "check_output",
    "default_cache",
    "folder_cache",
    "make_private",
    "private_files",
    "remove_index",
    "whole_file",
    "whole_files",
    "write_lines",
]


def check_output(folder: Path, what: str, find_foreign: Callable[[set[str]], str | None]) -> None:
    """Raise ConfigError if a folder cannot be written to, or has other contents.

    Args:
        folder: the folder to write.
        what: the kind of folder that may be replaced, such as "the folder of a reranker".
        find_foreign: returns one of the names in the folder that does not belong there, or None.
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
    foreign = find_foreign(names) if names else None
    if foreign is not None:
        raise ConfigError(
            f"{folder}: expected a new name, an empty folder or {what}, found {foreign} in it; "
            "change --output"
        )


def default_cache() -> Path:
    """Return the folder of the cache: $RETRIEVER_CACHE or ~/.cache/retriever."""
    path = os.environ.get("RETRIEVER_CACHE")
    if path:
        return Path(path)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "retriever"


def folder_cache() -> Path:
    """Return the folder for the indexes of `retriever query --in`."""
    return default_cache() / "folders"


@contextmanager
def private_files() -> Iterator[None]:
    """Make files that this process creates in the block accessible to its user alone."""
    previous_mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(previous_mask)


def make_private(folder: Path, *, whole: bool = False) -> None:
    """Make a folder that only this user can enter; `whole` also restricts its contents.

    A folder of another user, or on a file system without permissions, is left unchanged.
    """
    with private_files():
        folder.mkdir(parents=True, exist_ok=True)
    _restrict(folder.resolve(), 0o700)
    if whole:
        for parent, folders, files in os.walk(folder):
            for names, mode in ((folders, 0o700), (files, 0o600)):
                for name in names:
                    _restrict(Path(parent, name), mode)


def _restrict(path: Path, mode: int) -> None:
    # The file may have been deleted meanwhile.
    with suppress(FileNotFoundError, PermissionError):
        if not path.is_symlink() and path.stat().st_mode & 0o077:
            path.chmod(mode)
