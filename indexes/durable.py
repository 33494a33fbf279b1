"""Files that survive a crash: fsync, atomic replacement of a folder, and what the system refused.

The order that makes a commit safe is always the same: write the files, fsync each, fsync the
folder that names them, and only then make them visible.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import DamagedIndexError, StorageError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# SQLite's shared memory grows by pieces of this size.
_LEAST_FREE = 32 * 1024
_REFUSALS = {
    errno.ENOSPC: "the disk is full: free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up: free some space and run the same command again",
    errno.EROFS: "the file system is read-only: choose another folder with -i",
    errno.EACCES: "permission denied: make the folder writable or choose another with -i",
    errno.EPERM: "permission denied: make the folder writable or choose another with -i",
    errno.EFBIG: "the file would be too large: raise the limit (ulimit -f) or choose another disk",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.EEXIST: "a file is in the way: choose another folder with -i",
    errno.ENOTDIR: "a file is in the way: choose another folder with -i",
    errno.EIO: "the disk reports an error: check it, then the index with `retriever verify`",
}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system or SQLite refuses below `path` into one clear error.

    Raises:
        StorageError: the disk is full or failing, or the folder cannot be made or written.
        DamagedIndexError: SQLite finds its file malformed.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSALS:
            raise StorageError(f"{error.filename or path}: {_REFUSALS[error.errno]}") from error
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise StorageError(f"{path}: {_REFUSALS[errno.ENOSPC]}") from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise StorageError(f"{path}: {_REFUSALS[errno.EACCES]}") from error
        if code == sqlite3.SQLITE_IOERR:
            # Of a full disk SQLite says so only where the log or the database cannot grow.
            if _is_full(path):
                raise StorageError(f"{path}: {_REFUSALS[errno.ENOSPC]}") from error
            raise StorageError(f"{path}: the disk reports an error ({error})") from error
        # Every statement is known to be right: an error in one, or text that is no UTF-8 (which
        # has no code), means that the schema or a row is not as it was written.
        if code in (0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise damaged_database(path, error) from error
        raise
    except UnicodeDecodeError as error:
        # SQLite's own message quotes the damaged bytes.
        raise damaged_database(path, error) from error


def damaged_database(folder: Path, reason: object) -> DamagedIndexError:
    """The error to raise where the database of the index in `folder` holds what nobody wrote."""
    line = " ".join(str(reason).split())
    return DamagedIndexError(
        f"{folder / 'index.sqlite'}: {line}; restore it from a backup or index again with "
        "--recreate"
    )


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_FREE
    except OSError:
        return False


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a C-contiguous array as .npy.

    `numpy.save` loses the reason when the disk is full (its OSError has no errno); a plain write
    keeps it.

    Raises:
        OSError: with errno set.
    """
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def fsync_path(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Flush every file of a flat folder, then the folder, then its parent."""
    for path in sorted(folder.iterdir()):
        fsync_path(path)
    fsync_path(folder)
    fsync_path(folder.parent)


def replace_folder(new: Path, current: Path) -> None:
    """Put the folder `new` in the place of `current`, which is then removed.

    On Linux the two names are exchanged in one atomic step. Where the system cannot do that,
    `current` is first moved aside to `current.old`; `recover_replacement` undoes that after a
    crash between the two moves.
    """
    aside = current.with_name(current.name + ".old")
    shutil.rmtree(aside, ignore_errors=True)
    if _exchange(new, current):
        os.rename(new, aside)
    else:
        os.rename(current, aside)
        os.rename(new, current)
    fsync_path(current.parent)
    shutil.rmtree(aside)


def recover_replacement(current: Path) -> None:
    """Finish or undo a `replace_folder` that a crash cut short; does nothing otherwise.

    Only the caller that is about to write may call this.
    """
    aside = current.with_name(current.name + ".old")
    if not (aside / "index.sqlite").exists():
        return
    if current.exists():
        shutil.rmtree(aside)
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
