"""What the system and SQLite refuse, as the errors of this project."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indexes.errors import DamagedIndexError, IndexLockedError, StorageError

# SQLite's shared memory grows in pieces of this size.
_LEAST_FREE = 32 * 1024
_REFUSALS = {
    errno.ENOSPC: "the disk is full: free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up: free some space and run the same command again",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EFBIG: "the file would be too large: raise the limit (ulimit -f) or choose another disk",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.EEXIST: "a file is in the way: choose another folder",
    errno.ENOTDIR: "a file is in the way: choose another folder",
    errno.EIO: "the disk reports an error: check it, then the index with `retriever verify`",
}
_REMEDY = "restore it from a backup or index again with --recreate"


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system or SQLite refuses below `path` into one clear error.

    Raises:
        StorageError: the disk is full or failing, or the folder cannot be created or written.
        IndexLockedError: another program keeps the database locked.
        DamagedIndexError: SQLite finds its file malformed.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            place = Path(error.filename or path)
            raise StorageError(f"{place}: {_denied(place)}") from error
        if error.errno in _REFUSALS:
            raise StorageError(f"{error.filename or path}: {_REFUSALS[error.errno]}") from error
        raise
    except sqlite3.DatabaseError as error:
        code = primary_code(error)
        if code == sqlite3.SQLITE_FULL:
            raise StorageError(f"{path}: {_REFUSALS[errno.ENOSPC]}") from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise StorageError(f"{path}: {_denied(path / 'index.sqlite')}") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
            raise IndexLockedError(
                f"{path}: another program keeps index.sqlite locked ({error}): close the program "
                "and run the same command again"
            ) from error
        if code == sqlite3.SQLITE_IOERR:
            # SQLite reports a full disk as such only if the log or the database cannot grow.
            if _is_full(path):
                raise StorageError(f"{path}: {_REFUSALS[errno.ENOSPC]}") from error
            raise StorageError(f"{path}: the disk reports an error ({error})") from error
        # Every statement is correct: an error in one, or text that is not UTF-8 (an
        # OperationalError without a code), means that the file was altered.
        altered = code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        if altered or (code == 0 and isinstance(error, sqlite3.OperationalError)):
            raise damaged_database(path, error) from error
        raise
    except UnicodeDecodeError as error:
        # SQLite's own message quotes the damaged bytes.
        raise damaged_database(path, error) from error


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 if the error is of Python's own module."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Treat values of the wrong kind, in rows that a writer made, as an altered database.

    Raises:
        DamagedIndexError: in place of AttributeError, LookupError, TypeError and ValueError.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise damaged_database(folder, f"a row was altered ({error})") from error


def damaged(path: Path, problem: str) -> DamagedIndexError:
    """The error to raise for a file that was altered."""
    return DamagedIndexError(f"{path}: {problem}; {_REMEDY}")


def damaged_database(folder: Path, reason: object) -> DamagedIndexError:
    """The error to raise if the database of the index in `folder` was altered."""
    return damaged(folder / "index.sqlite", " ".join(str(reason).split()))


def _denied(path: Path) -> str:
    """What to do where permission to read or to write is missing."""
    # Of a path behind a folder that cannot be entered, the folder.
    place = next((one for one in (path, *path.absolute().parents) if os.path.exists(one)), path)
    if os.access(place, os.R_OK | (os.X_OK if place.is_dir() else 0)):
        return "permission denied: make the folder writable or choose another"
    what = "the folder" if place.is_dir() else "the file"
    return f"permission denied: make {what}{'' if place == path else f' {place}'} readable"


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_FREE
    except OSError:
        return False
