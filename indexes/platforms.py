"""Linux, macOS and Windows: calls that a system lacks, or that mean something else there.

No other module asks which system it runs on; `tests/architecture/test_platform_calls.py` checks it.
Windows has three differences that matter here. It cannot flush a folder. A locked byte is closed to
all other programs. A file that is open or mapped can be neither renamed nor removed, and neither
can its folder.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import subprocess

# Whether fsync leaves data in the cache of the drive.
FSYNC_LEAVES_CACHE: Final = sys.platform == "darwin"
# Features of the processor, in a file of Linux.
PROCESSOR_FILE: Final = Path("/proc/cpuinfo")
# Files of the drivers of NVIDIA, AMD, the Windows Subsystem for Linux, and of NVIDIA on Windows.
GPU_FILES: Final = (
    "/dev/nvidiactl",
    "/dev/kfd",
    "/dev/dxg",
    r"C:\Windows\System32\nvcuda.dll",
)
# Errors of the system for locks that a file system does not have.
NO_LOCKS: Final = frozenset((errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP))

# The byte that is locked on Windows. It is past the end of every file that is locked.
_LOCKED_BYTE = 1 << 30
# Windows: access denied, sharing violation, lock violation, and a file that is mapped.
_IN_USE = frozenset((5, 32, 33, 1224))
# Virus scanners and readers of the search index of Windows have new files open for a moment.
_PATIENCE_SECONDS = 2.0
_RETRY_SECONDS = 0.02
_AT_FDCWD = -100
# The same number on Linux (RENAME_EXCHANGE) and on macOS (RENAME_SWAP).
_EXCHANGE = 2
# Signal of Linux for the death of the process that started another.
_PR_SET_PDEATHSIG = 1


class WriterLock(Protocol):
    """A lock of the library `filelock`, or a `ByteLock`."""

    def acquire(self, timeout: float, poll_interval: float) -> object:
        """Take the lock, or raise `filelock.Timeout` after this many seconds."""

    def release(self) -> None:
        """Give up the lock; do nothing without it."""


def file_lock(path: Path) -> WriterLock:
    """Return the lock of a file that is made if there is none; see `writer_lock`."""
    if sys.platform == "win32":
        return ByteLock(path)
    # Imported here, since readers do not need it.
    from filelock import FileLock

    # Not thread-local: another thread may close the writer.
    return FileLock(path, thread_local=False, fallback_to_soft=False, is_singleton=False)


class ByteLock:
    """The lock of one byte past the end of a file, on Windows.

    `filelock` locks the first byte there. Nobody else could read who holds the lock, and the holder
    could not write it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, timeout: float, poll_interval: float) -> None:
        """Take the lock, or raise `filelock.Timeout` after this many seconds."""
        from filelock import Timeout

        deadline = time.monotonic() + timeout
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT)
            try:
                _change_byte_lock(descriptor, "LK_NBLCK")
            except PermissionError:
                os.close(descriptor)
                if time.monotonic() >= deadline:
                    raise Timeout(str(self._path)) from None
                time.sleep(poll_interval)
            except BaseException:
                os.close(descriptor)
                raise
            else:
                self._descriptor = descriptor
                return

    def release(self) -> None:
        """Give up the lock; do nothing without it."""
        if self._descriptor is not None:
            # Closing would unlock the byte too, at a time that Windows chooses.
            with suppress(OSError):
                _change_byte_lock(self._descriptor, "LK_UNLCK")
            os.close(self._descriptor)
            self._descriptor = None


def _change_byte_lock(descriptor: int, mode: str) -> None:
    """Lock or unlock the byte, without waiting; PermissionError if another file has locked it."""
    import msvcrt

    functions: Any = msvcrt
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    functions.locking(descriptor, getattr(functions, mode), 1)


def release_to_move(lock: WriterLock) -> None:
    """On Windows, release the lock of a folder, so that it can be moved or removed.

    Elsewhere an open file does not prevent that, and nothing is done.

    A writer that takes the lock meanwhile has files of the folder open, so that the move fails.
    """
    if sys.platform == "win32":
        lock.release()


def lock_path(path: Path) -> int:
    """Return a descriptor that holds the lock of a file or folder until it is closed.

    Raises:
        BlockingIOError: another process holds it.
        OSError: the file system has no locks. Nor has Windows for files that are renamed later.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def grants_locks(path: Path) -> bool:
    """Whether SQLite can lock the files beside `path`, as it does on every disk of Windows."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        with open(path, "rb", buffering=0) as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in NO_LOCKS
    return True


def fsync_path(path: Path) -> None:
    """Flush a file or a folder to the disk; Windows flushes files alone."""
    if sys.platform == "win32":
        if path.is_dir():
            return
        # It flushes what is open for writing alone.
        descriptor = os.open(path, os.O_RDWR)
    else:
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


def replace_file(source: Path, target: Path) -> None:
    """Give a file another name, which may be that of a file, in one atomic step."""
    _retry_while_open(os.replace, source, target)


def move_folder(source: Path, target: Path) -> None:
    """Give a folder another name, which may be that of an empty folder."""
    if sys.platform == "win32":
        with suppress(FileNotFoundError):
            os.rmdir(target)
    _retry_while_open(os.rename, source, target)


def _retry_while_open(rename: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    """Rename, on Windows again for a while if a program has a file open."""
    deadline = None
    while True:
        try:
            return rename(source, target)
        except OSError as error:
            if not is_in_use(error):
                raise
            if deadline is None:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif time.monotonic() >= deadline:
                raise
        time.sleep(_RETRY_SECONDS)


def is_in_use(error: OSError) -> bool:
    """Whether Windows refuses what it refuses for files that are open."""
    return getattr(error, "winerror", None) in _IN_USE


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one atomic step; False if the system or file system cannot."""
    if sys.platform == "win32":
        return False
    import ctypes

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


def remove_tree(folder: Path) -> bool:
    """Remove a folder; return False if Windows keeps files of it that a program has open."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        if not is_in_use(error):
            raise
        shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def open_binary(path: Path) -> int:
    """Open a file to read its bytes, which Windows takes for text unless it is told."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Read up to `size` bytes; the position stays, which on Windows no other thread may use."""
    if sys.platform == "win32":
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, offset, os.SEEK_SET)
        content = os.read(descriptor, size)
        os.lseek(descriptor, position, os.SEEK_SET)
        return content
    return os.pread(descriptor, size, offset)


def descriptor_path(descriptor: int, path: Path) -> str:
    """Return a path that leads to the open file even if its name is gone.

    On Windows the name of an open file stays.
    """
    return str(path) if sys.platform == "win32" else f"/dev/fd/{descriptor}"


def set_mapped_read_ahead(mapped: mmap.mmap, enabled: bool) -> None:
    """Tell the kernel whether to read ahead in a mapped file, as it does at first."""
    if sys.platform != "win32":
        mapped.madvise(mmap.MADV_NORMAL if enabled else mmap.MADV_RANDOM)


def open_without_links(
    root: str, folders: list[str], name: str, check: Callable[[os.stat_result], None]
) -> int:
    """Open a file below a folder without following links, folder by folder.

    Args:
        root: the folder.
        folders: names of the folders from there to the file.
        name: the name of the file.
        check: raises an error for the status of a file that is not to be opened.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "Windows cannot open it without following links")
    # Non-blocking: a pipe in place of the file does not wait for its other end.
    plain = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    only_folder = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(root, only_folder)
    try:
        for part in folders:
            below = os.open(part, only_folder, dir_fd=folder)
            os.close(folder)
            folder = below
        # Opening a device can have side effects.
        check(os.stat(name, dir_fd=folder, follow_symlinks=False))
        return os.open(name, plain, dir_fd=folder)
    finally:
        os.close(folder)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


def limit_to_core_share(worker: int, workers: int) -> None:
    """Let this process use its share of the cores, from which libraries size their thread pools.

    Args:
        worker: number of this process, 0 to `workers` - 1.
        workers: number of processes that share the cores.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[worker % len(cores) :: workers])
    else:
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))


def register_at_fork(
    before: Callable[[], object],
    after_in_parent: Callable[[], object],
    after_in_child: Callable[[], object],
) -> None:
    """Call functions around each fork; Windows has none."""
    if sys.platform != "win32":
        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Let processes that start in the block leave Ctrl-C to this one.

    On Windows they have to ignore it themselves.
    """
    if sys.platform == "win32":
        yield
        return
    import signal
    from multiprocessing import resource_tracker

    # Started by the first process otherwise, and starting it lets interrupts through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def keep_signal_stack() -> Iterator[None]:
    """Give the thread back the stack on which it handles signals, if the block replaces it.

    A signal on a stack that has been freed ends the process with SIGSEGV. On Linux alone.
    """
    if sys.platform != "linux":
        yield
        return
    import ctypes

    class SignalStack(ctypes.Structure):
        _fields_ = (
            ("address", ctypes.c_void_p),
            ("flags", ctypes.c_int),
            ("size", ctypes.c_size_t),
        )

    library = ctypes.CDLL(None)
    before = SignalStack()
    library.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        library.sigaltstack(ctypes.byref(before), None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread after some time, where the system has timers."""
    import signal
    import threading

    def stop(*_: object) -> None:
        raise TimeoutError

    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ending_signals() -> list[int]:
    """Return the signals that end a service: Ctrl-C, a polite kill, and Ctrl-Break of Windows."""
    import signal

    names = ("SIGINT", "SIGTERM", "SIGBREAK")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def open_file_limit() -> int | None:
    """Return how many files this process may open; None without a limit."""
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def limit_memory(most_bytes: int) -> None:
    """Limit the address space of this process, where the system can."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))


def can_limit_programs() -> bool:
    """Whether programs can be limited as `program_limits` does."""
    return sys.platform != "win32"


def program_limits(most_written: int) -> dict[str, Any]:
    """Return arguments of `Popen` for a program of the user; this process needs one thread.

    The program has a session of its own, ends with this process on Linux, and writes no file
    larger than `most_written` bytes.
    """

    def limit_program() -> None:
        import resource
        import signal

        resource.setrlimit(resource.RLIMIT_FSIZE, (most_written, most_written))
        if sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return {"start_new_session": True, "preexec_fn": limit_program}


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that was started with `program_limits`, with all that it has started."""
    import signal

    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
