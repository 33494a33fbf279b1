"""Writing probing sets in the form of SentEval's files: complete, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from eval.datasets.probing.forms import FILES
from eval.datasets.probing.maker import MadeSet
from indexes import fsync_path, storage_errors
from retriever.errors import ConfigError


def check_folder(folder: Path, tasks: Iterable[str]) -> None:
    """Refuse a folder that the files of these tasks cannot be written into.

    Raises:
        ConfigError: it is a file, lies in a folder that does not exist, or has one of the files.
    """
    if not folder.absolute().parent.is_dir():
        raise ConfigError(
            f"{folder}: expected a name in a folder that exists; make the folder or change --output"
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder, found a file; change --output")
    for task in tasks:
        if (folder / FILES[task]).exists():
            raise ConfigError(
                f"{folder}: expected a folder without {FILES[task]}, which may be SentEval's own, "
                "found it; remove it or change --output"
            )


def write_sets(folder: Path, sets: Sequence[MadeSet]) -> list[Path]:
    """Write each set into a file of the folder, which is made if there is none.

    The files get their names when all are written.

    Returns:
        The files, in the order of `sets`.

    Raises:
        StorageError: the disk is full or cannot be written.
    """
    files = [folder / FILES[made.task] for made in sets]
    new = [path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in files]
    with storage_errors(folder):
        folder.mkdir(exist_ok=True)
        try:
            for path, made in zip(new, sets, strict=True):
                with path.open("w", encoding="utf-8", newline="") as file:
                    file.writelines(
                        f"{split}\t{one.label}\t{one.text}\n"
                        for split, instances in made.splits.items()
                        for one in instances
                    )
                fsync_path(path)
            for path, target in zip(new, files, strict=True):
                os.replace(path, target)
            fsync_path(folder)
        finally:
            for path in new:
                path.unlink(missing_ok=True)
    return files
