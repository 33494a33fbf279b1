"""Files: what the system refuses as errors of this project, writes that survive a crash, arrays.

A safe write is: files under other names, fsync each, rename them, fsync the folder.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes import platforms
from indexes.errors import DamagedIndexError, IndexLockedError, RetrieverError, StorageError
from indexes.platforms import fsync_path

LOCK_FILE = "writer.lock"
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


def lockless(folder: Path) -> StorageError:
    """The error to raise for a folder in which files cannot be locked."""
    return StorageError(
        f"{folder}: its file system has no locks, so an index there could be damaged; choose a "
        "folder on a local disk"
    )


def grants_locks(folder: Path) -> bool:
    """Whether the files of an index can be locked, which SQLite does not tell from a held lock."""
    # Not the database, whose closing would drop the locks of this process.
    return platforms.grants_locks(folder / LOCK_FILE)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system or SQLite refuses below `path` into one clear error."""
    try:
        yield
    except OSError as error:
        refusal = _refusal(path, error)
        if refusal is None:
            raise
        raise refusal from error
    except sqlite3.DatabaseError as error:
        translated = _translate_sqlite_error(path, error)
        if translated is None:
            raise
        raise translated from error
    except UnicodeDecodeError as error:
        # SQLite's own message quotes the damaged bytes.
        raise damaged_database(path, error) from error


def _refusal(path: Path, error: OSError) -> StorageError | None:
    """The error to raise for one of the operating system; None if it says all itself."""
    if platforms.is_in_use(error):
        return StorageError(
            f"{error.filename or path}: Windows refuses it: close the programs that have it open, "
            "or make it writable, and run the same command again"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        place = Path(error.filename or path)
        return StorageError(f"{place}: {_denied(place)}")
    if error.errno == errno.ENOLCK:
        return lockless(path)
    if error.errno in _REFUSALS:
        return StorageError(f"{error.filename or path}: {_REFUSALS[error.errno]}")
    return None


def _translate_sqlite_error(path: Path, error: sqlite3.DatabaseError) -> RetrieverError | None:
    """Return the error to raise for one of SQLite, or None to raise it unchanged."""
    code = primary_code(error)
    # SQLite reports a full disk as such only if the log or the database cannot grow.
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return StorageError(f"{path}: {_REFUSALS[errno.ENOSPC]}")
    if code == sqlite3.SQLITE_IOERR:
        return StorageError(f"{path}: the disk reports an error ({error})")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return StorageError(f"{path}: {_denied(path / 'index.sqlite')}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        if not grants_locks(path):
            return lockless(path)
        return IndexLockedError(
            f"{path}: another program keeps index.sqlite locked ({error}): close the program "
            "and run the same command again"
        )
    # Every statement is correct, so an error in one means that the file was altered. Text that is
    # not UTF-8 raises an OperationalError without a code.
    is_altered = code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    if is_altered or (code == 0 and isinstance(error, sqlite3.OperationalError)):
        return damaged_database(path, error)
    return None


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 if the error is of Python's own module."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Treat values of the wrong kind, in rows that a writer made, as an altered database."""
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


@contextmanager
def present(path: Path) -> Iterator[None]:
    """Treat it as damage if the file that the block reads is missing, or is a folder."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise damaged(path, "the file is missing") from error


def _denied(path: Path) -> str:
    """Return the remedy where permission to read or to write is missing."""
    # Of a path behind a folder that cannot be entered, the folder.
    place = next(
        (parent for parent in (path, *path.absolute().parents) if os.path.exists(parent)), path
    )
    if os.access(place, os.R_OK | (os.X_OK if place.is_dir() else 0)):
        return "permission denied: make the folder writable or choose another"
    what = "the folder" if place.is_dir() else "the file"
    return f"permission denied: make {what}{'' if place == path else f' {place}'} readable"


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_FREE
    except OSError:
        return False


def fsync_tree(folder: Path) -> None:
    """Flush everything below a folder, each file before its folder; then its parent."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in sorted(names):
            fsync_path(Path(root, name))
        fsync_path(Path(root))
    fsync_path(folder.parent)


@contextmanager
def whole_files(*paths: Path) -> Iterator[list[Path]]:
    """New files of one folder to write, which get these names, in this order, if none raises."""
    with storage_errors(paths[-1]), _renamed_at_end(paths) as new:
        yield new


@contextmanager
def _renamed_at_end(paths: Sequence[Path]) -> Iterator[list[Path]]:
    with ExitStack() as stack:
        new = [
            stack.enter_context(_temporary(path, lambda new_path: new_path.touch(exist_ok=False)))
            for path in paths
        ]
        yield new
        for path in new:
            fsync_path(path)
        for path, name in zip(new, paths, strict=True):
            platforms.replace_file(path, name)
        fsync_path(paths[-1].parent)


@contextmanager
def whole_folder(folder: Path, *, replace: bool = True) -> Iterator[Path]:
    """A new folder to write into, which takes the place of `folder` if the block ends well.

    Without `replace`, one that holds something stays, and the block fails.
    """
    folder = folder.resolve()
    with storage_errors(folder.parent), _temporary(folder, Path.mkdir) as new:
        yield new
        fsync_tree(new)
        if replace and folder.exists():
            replace_folder(new, folder)
        else:
            platforms.move_folder(new, folder)
            try:
                fsync_path(folder.parent)
            except OSError:
                # Reported as not made, it would be in the way of the next attempt.
                platforms.move_folder(folder, new)
                raise


@contextmanager
def _temporary(path: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """A new file or folder beside `path`, removed if it still has that name at the end."""
    remove_abandoned(path)
    # A process on another machine, or in another container, may have an equal id.
    mark = f"{os.getpid()}-{os.urandom(4).hex()}"
    new = path.with_name(f".{path.name}.{mark}.tmp")
    make(new)
    lock = None
    is_taken = False
    try:
        lock = platforms.lock_path(new)
    except (BlockingIOError, FileNotFoundError):
        # Before it was locked, another process took it for abandoned.
        is_taken = True
    except OSError:
        # The file system has no locks, so that no process takes anything for abandoned.
        pass
    try:
        if is_taken or not new.exists():
            raise StorageError(
                f"{path}: another process writes it in the same moment; run the same command again"
            )
        yield new
    finally:
        _remove(new)
        if lock is not None:
            os.close(lock)


def abandoned(folder: Path, name: str | None = None) -> Iterator[Path]:
    """Yield new files and folders that killed processes left, each locked until the next."""
    form = re.compile(rf"\.{'.+' if name is None else re.escape(name)}\.\d+-[0-9a-f]{{8}}\.tmp")
    try:
        names = sorted(filter(form.fullmatch, os.listdir(folder)))
    except OSError:
        return
    for entry in names:
        try:
            lock = platforms.lock_path(folder / entry)
        except OSError:
            continue
        try:
            yield folder / entry
        finally:
            os.close(lock)


def remove_abandoned(path: Path) -> None:
    """Remove what killed processes left that wrote `path`."""
    for left in abandoned(path.parent, path.name):
        _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def write_lines(path: Path, lines: Iterable[str], what: str) -> None:
    """Write lines, with their ends, as a text file, whole or not at all; see `whole_file`."""
    # A lone surrogate, as in a file name that is not UTF-8, is written as an escape.
    with (
        whole_file(path, what) as new,
        new.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        file.writelines(lines)


@contextmanager
def whole_file(path: Path, what: str) -> Iterator[Path]:
    """A new file to write, which takes the place of `path` if nothing is raised.

    `what` is the content, for the message, such as "the run".
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
    """Put the folder `new` in the place of `current`, in one atomic step where the system can.

    Elsewhere a crash between two moves can leave `current` where `aside_of` says.
    """
    aside = aside_of(current)
    shutil.rmtree(aside, ignore_errors=True)
    if platforms.exchange(new, current):
        platforms.move_folder(new, aside)
    else:
        platforms.move_folder(current, aside)
        platforms.move_folder(new, current)
    fsync_path(current.parent)
    shutil.rmtree(aside, ignore_errors=True)


# Up to this size a file is read, which takes about as long as mapping it, and holds no descriptor:
# an index of many small segments would need more of them than a process may have.
SMALL = 64 * 1024


def is_small(size: int) -> bool:
    """Whether a file of this many bytes is read, and checked, whole when it is opened."""
    return size <= SMALL


def file_facts(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file, as the manifest of a segment holds them."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def map_array(path: Path, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array of an .npy file, read-only, of one of these types and of exactly this shape."""
    with present(path), path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"format version {version}")
            actual_shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        # NumPy's header parser raises as many errors as Python's own, warnings included.
        except Exception as error:
            reason = " ".join(str(error).split())
            raise damaged(path, f"not a readable .npy file ({reason})") from error
        offset = file.tell()
        size = os.fstat(file.fileno()).st_size
        if actual_shape != shape or fortran or dtype.str not in dtypes:
            expected_array = f"{'/'.join(dtypes)} {shape}"
            raise damaged(path, f"expected {expected_array}, found {dtype.str} {actual_shape}")
        expected = offset + dtype.itemsize * int(np.prod(shape, dtype=object))
        if size != expected:
            raise damaged(path, f"expected {expected} bytes, found {size}")
        if is_small(size):
            return np.frombuffer(file.read(), dtype).reshape(shape)
        # Not an np.memmap, of which indexing costs a subclass check each time.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype, offset=offset).reshape(shape)


def unique(values: NDArray[Any]) -> NDArray[Any]:
    """Return sorted distinct values, like `np.unique` without its 10 ms import on first use."""
    ordered = np.sort(values, axis=None)
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    return np.asarray(ordered[is_first[: len(ordered)]])


def set_read_ahead(array: NDArray[Any], enabled: bool) -> None:
    """Tell the kernel whether to read ahead in the file of a mapped array, as it does at first."""
    # Where rows are read here and there, what is read ahead displaces what is needed from memory.
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    mapped = base.obj if isinstance(base, memoryview) else None
    if isinstance(mapped, mmap.mmap):
        platforms.set_mapped_read_ahead(mapped, enabled)


def map_bytes(path: Path) -> bytes | mmap.mmap:
    """The content of a file, read-only."""
    with present(path), path.open("rb") as file:
        if is_small(os.fstat(file.fileno()).st_size):
            return file.read()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a C-contiguous array as .npy; errors of the disk keep their errno, unlike `np.save`."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


class GrowingArray:
    """An .npy file of (n, *columns), written in parts inside a `with` block."""

    def __init__(self, path: Path, dtype: np.dtype[Any], columns: tuple[int, ...] = ()) -> None:
        self._file = path.open("wb")
        self._dtype = dtype
        self._columns = columns
        self._rows = 0
        self._write_header()

    def append(self, part: NDArray[Any]) -> None:
        """Add rows."""
        self._file.write(np.ascontiguousarray(part, self._dtype).data)
        self._rows += len(part)

    def __enter__(self) -> GrowingArray:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._file:
            if error is None:
                self._file.seek(0)
                self._write_header()

    def _write_header(self) -> None:
        # NumPy pads the header so that the first axis can grow in place.
        shape = (self._rows, *self._columns)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)
