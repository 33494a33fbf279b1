"""Files and folders that commands write, whole or not at all, and the folder of the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexes import remove_index, whole_file, whole_files, write_lines
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


@contextmanager
def private_files() -> Iterator[None]:
    """Give what this process creates in the block to its user alone, from the first byte on."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_private(folder: Path, *, whole: bool = False) -> None:
    """Make a folder that only this user can enter; `whole` restricts what is in it, too.

    A file system without permissions, or a folder of another user, is left as it is.
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
    # A file may be gone by now.
    with suppress(FileNotFoundError, PermissionError):
        if not path.is_symlink() and path.stat().st_mode & 0o077:
            path.chmod(mode)
