"""Files and folders that appear complete or not at all, and survive a crash.

The order that makes a write safe is always the same: write the files under other names, fsync
each, rename them, and fsync the folder that names them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from indexes.errors import StorageError
from indexes.files.faults import storage_errors

_AT_FDCWD = -100
# The same number on Linux (RENAME_EXCHANGE) and on macOS (RENAME_SWAP).
_EXCHANGE = 2


def require_platform() -> None:
    """Refuse to write where a crash could lose what was written.

    Raises:
        StorageError: the system is neither Linux nor macOS.
    """
    if sys.platform == "win32":
        raise StorageError(
            "Windows is not supported: it cannot flush a folder to the disk or replace one that "
            "is in use; run retriever in WSL, on Linux or on macOS"
        )


def fsync_path(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if sys.platform == "darwin":
            import fcntl

            # On macOS fsync leaves data in the drive's cache. Some file systems lack this call.
            try:
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            except OSError:
                os.fsync(descriptor)
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Flush everything below a folder, each file before its folder; then its parent."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in sorted(names):
            fsync_path(Path(root, name))
        fsync_path(Path(root))
    fsync_path(folder.parent)


@contextmanager
def whole_files(*paths: Path) -> Iterator[list[Path]]:
    """New files to write, which get the names of `paths`, in this order, if nothing is raised.

    Args:
        paths: files of one folder, which exists.

    Raises:
        StorageError: the disk is full or cannot be written.
    """
    with storage_errors(paths[-1]), _renamed_at_end(paths) as new:
        yield new


@contextmanager
def _renamed_at_end(paths: Sequence[Path]) -> Iterator[list[Path]]:
    # Another machine may write a file of this name into a shared folder, from an equal process id.
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    new = [path.with_name(f".{path.name}.{mark}.tmp") for path in paths]
    try:
        yield new
        for path in new:
            fsync_path(path)
        for path, name in zip(new, paths, strict=True):
            os.replace(path, name)
        fsync_path(paths[-1].parent)
    finally:
        for path in new:
            with suppress(OSError):
                path.unlink(missing_ok=True)


@contextmanager
def whole_folder(folder: Path, *, replace: bool = True) -> Iterator[Path]:
    """A new folder to write into, which takes the place of `folder` if the block ends well.

    Args:
        folder: its parent exists.
        replace: whether a folder that holds something may be replaced; an empty one always may.

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
            if replace and folder.exists():
                replace_folder(new, folder)
            else:
                os.rename(new, folder)
                fsync_path(folder.parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def write_lines(path: Path, lines: Iterable[str], what: str) -> None:
    """Write a text file whole or not at all, in place of the file of this name if there is one.

    Args:
        path: the file.
        lines: with their ends, taken one by one. A lone surrogate, as in a file name that is not
            UTF-8, is written as an escape.
        what: the content, for the message, such as "the run".

    Raises:
        StorageError: the file cannot be written.
    """
    with (
        whole_file(path, what) as new,
        new.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        file.writelines(lines)


@contextmanager
def whole_file(path: Path, what: str) -> Iterator[Path]:
    """A new file to write, which takes the place of `path` if nothing is raised.

    Args:
        path: a file whose folder exists.
        what: the content, for the message, such as "the run".

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        with _renamed_at_end([path]) as (new,):
            yield new
    except OSError as error:
        raise StorageError(
            f"{path}: cannot write {what} ({error.strerror}); choose a writable folder"
        ) from error


def aside_of(current: Path) -> Path:
    """Where `replace_folder` keeps the replaced folder until it is removed."""
    return current.with_name(f".{current.name}.retriever-old")


def replace_folder(new: Path, current: Path) -> None:
    """Put the folder `new` in the place of `current`, and remove the old one.

    Linux and macOS exchange the two names in one atomic step. Where the file system cannot do
    that, `current` is first moved aside, to `aside_of` it; a crash between the two moves leaves
    it there.
    """
    aside = aside_of(current)
    shutil.rmtree(aside, ignore_errors=True)
    if _exchange(new, current):
        os.rename(new, aside)
    else:
        os.rename(current, aside)
        os.rename(new, current)
    fsync_path(current.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one atomic step; False if the system or file system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, _EXCHANGE)
    elif sys.platform.startswith("linux") and hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    else:
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))
