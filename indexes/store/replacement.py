"""Recovery from a replacement of a whole index folder that a crash cut short.

Two hidden folders beside an index ``my.index`` can hold work in progress:
``.my.index.retriever-new`` the index that is to replace it, ``.my.index.retriever-old`` the one
that was replaced, on its way out.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from indexes.errors import IndexLockedError
from indexes.files.atomic import abandoned, aside_of, fsync_path
from indexes.store.connection import DATABASE_FILE, foreign_files
from indexes.store.lock import WriterLock


def new_folder(current: Path) -> Path:
    """Where the index grows that is to replace `current`."""
    return current.with_name(f".{current.name}.retriever-new")


def recover_replacement(current: Path) -> None:
    """Finish or undo a `replace_folder` that a crash cut short; does nothing otherwise.

    Where the replaced folder is still the only one, it takes its name back; otherwise what is
    left of it is removed.

    Raises:
        IndexLockedError: a running process is replacing the folder.
    """
    # There is nothing beside the root of a disk.
    if not current.name or not (aside := aside_of(current)).is_dir():
        return
    if not current.exists():
        if (aside / DATABASE_FILE).exists():
            # The replacing process holds the lock of the folder that it moved aside.
            with WriterLock(aside):
                if not current.exists():
                    os.rename(aside, current)
                    fsync_path(current.parent)
        return
    # The user's own folder may have this name.
    if not foreign_files(aside):
        with WriterLock(aside):
            shutil.rmtree(aside, ignore_errors=True)


def recover_for_reading(current: Path) -> None:
    """As `recover_replacement`, where the index itself is missing; never waits or removes."""
    if not current.exists():
        try:
            recover_replacement(current)
        except (IndexLockedError, OSError):
            # The process that replaces it is about to restore it, or it must not be touched.
            return


def remains(current: Path) -> dict[Path, str]:
    """What interrupted commands left beside an index, and what to do about each."""
    found = {}
    if current.name:
        old, new = aside_of(current), new_folder(current)
        if current.exists() and old.is_dir() and not foreign_files(old):
            found[old] = "left by a replacement; `retriever compact` removes it"
        if (new / DATABASE_FILE).exists():
            found[new] = (
                "an unfinished --recreate or reindex; run that command again to resume it, or "
                "remove the folder"
            )
        for path in abandoned(current.parent):
            found[path] = "left by an interrupted command; run that command again, or remove it"
    return found
