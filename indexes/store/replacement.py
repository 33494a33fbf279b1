"""Putting a new index folder in the place of an old one, atomically, and recovery after a crash.

Two hidden folders beside an index ``my.index`` can hold work in progress:
``.my.index.retriever-new`` the index that is to replace it, ``.my.index.retriever-old`` the one
that was replaced, on its way out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path

from indexes.files.atomic import fsync_path
from indexes.store.connection import DATABASE_FILE
from indexes.store.lock import WriterLock

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def new_folder(current: Path) -> Path:
    """Where the index grows that is to replace `current`."""
    return current.with_name(f".{current.name}.retriever-new")


def old_folder(current: Path) -> Path:
    """Where a replaced index lies until it is removed."""
    return current.with_name(f".{current.name}.retriever-old")


def replace_folder(new: Path, current: Path) -> None:
    """Put the folder `new` in the place of `current`, which is then removed.

    On Linux the two names are exchanged in one atomic step. Where the system cannot do that,
    `current` is first moved aside; `recover_replacement` undoes that after a crash between the
    two moves. The caller holds the writer lock of `current`.
    """
    aside = old_folder(current)
    shutil.rmtree(aside, ignore_errors=True)
    if _exchange(new, current):
        os.rename(new, aside)
    else:
        os.rename(current, aside)
        os.rename(new, current)
    fsync_path(current.parent)
    shutil.rmtree(aside, ignore_errors=True)


def recover_replacement(current: Path) -> None:
    """Finish or undo a `replace_folder` that a crash cut short; does nothing otherwise.

    Raises:
        IndexLockedError: the replacement is under way in a living process.
    """
    if not current.name:
        # Nothing lies beside the root of a disk.
        return
    aside = old_folder(current)
    if not (aside / DATABASE_FILE).exists():
        return
    # The replacing process holds the lock of the folder that it moved aside.
    with WriterLock(aside):
        if current.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(aside, current)
            fsync_path(current.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one atomic step; False where the system or file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    result = renameat2(
        _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE
    )
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))
