"""Folders that a command writes a model into: complete, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from indexes.files.atomic import fsync_tree, storage_errors
from indexes.store.replacement import replace_folder
from retriever.errors import ConfigError


def check_output(folder: Path, what: str, strange: Callable[[set[str]], str | None]) -> None:
    """Refuse a folder that cannot be written to, or that holds what is not to be lost.

    Args:
        folder: where to write.
        what: the folder that may be replaced, such as "the folder of a reranker".
        strange: of the names of what lies in a folder, not empty, one that is not of such a thing,
            or None.

    Raises:
        ConfigError: the folder holds something else, is a file, or lies in a folder that does not
            exist.
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


@contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """A new folder to write flat files into, which takes the place of `folder` at the end.

    Raises:
        StorageError: the disk is full or cannot be written.
    """
    folder = folder.resolve()
    new = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    with storage_errors(folder.parent):
        try:
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            yield new
            fsync_tree(new)
            if folder.exists():
                replace_folder(new, folder)
            else:
                os.rename(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
