"""Files and folders that appear complete or not at all, and survive a crash.

The order that makes a write safe is always the same: write the files under other names, fsync
each, rename them, and fsync the folder that names them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
    with ExitStack() as stack:
        new = [
            stack.enter_context(_temporary(path, lambda one: one.touch(exist_ok=False)))
            for path in paths
        ]
        yield new
        for path in new:
            fsync_path(path)
        for path, name in zip(new, paths, strict=True):
            os.replace(path, name)
        fsync_path(paths[-1].parent)


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
    with storage_errors(folder.parent), _temporary(folder, Path.mkdir) as new:
        yield new
        fsync_tree(new)
        if replace and folder.exists():
            replace_folder(new, folder)
        else:
            os.rename(new, folder)
            try:
                fsync_path(folder.parent)
            except OSError:
                # Reported as not made, it would be in the way of the next attempt.
                os.rename(folder, new)
                raise


@contextmanager
def _temporary(path: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """A new file or folder beside `path`, which is removed if it still has that name at the end.

    What killed processes left of such is removed first.
    """
    remove_abandoned(path)
    while True:
        # A process on another machine, or in another container, may have an equal id.
        mark = f"{os.getpid()}-{secrets.token_hex(4)}"
        new = path.with_name(f".{path.name}.{mark}.tmp")
        make(new)
        try:
            lock = _lock(new)
        except (BlockingIOError, FileNotFoundError):
            # Before it was locked, another process found it and took it for abandoned.
            _remove(new)
            continue
        except OSError:
            # The file system has no locks, so that no process takes anything for abandoned.
            lock = None
        if lock is None or new.exists():
            break
        os.close(lock)
    try:
        yield new
    finally:
        _remove(new)
        if lock is not None:
            os.close(lock)


def abandoned(folder: Path, name: str | None = None) -> Iterator[Path]:
    """New files and folders in `folder` that killed processes left, in the order of their names.

    Each is locked until the next one is asked for. A process that is at work, wherever it runs,
    has the lock of its own.

    Args:
        folder: where they are; one that cannot be read has none.
        name: that they were to get; None for all.
    """
    form = re.compile(rf"\.{'.+' if name is None else re.escape(name)}\.\d+-[0-9a-f]{{8}}\.tmp")
    try:
        found = sorted(filter(form.fullmatch, os.listdir(folder)))
    except OSError:
        return
    for one in found:
        try:
            lock = _lock(folder / one)
        except OSError:
            continue
        try:
            yield folder / one
        finally:
            os.close(lock)


def remove_abandoned(path: Path) -> None:
    """Remove what killed processes left that wrote `path`."""
    for left in abandoned(path.parent, path.name):
        _remove(left)


def _lock(path: Path) -> int:
    """A descriptor that holds the lock of a file or folder until it is closed.

    Raises:
        BlockingIOError: another one holds it.
        OSError: it is gone or a link, or the file system has no locks.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


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
