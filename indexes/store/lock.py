"""One writer at a time: an advisory lock on a file of the index folder that says who holds it.

The lock belongs to the open file, so the system drops it when the process dies, however it dies;
a lock is never stale. A forked child does not inherit it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from indexes.errors import IndexLockedError
from indexes.files.atomic import require_platform
from indexes.files.faults import storage_errors
from indexes.store.connection import LOCK_FILE, refuse_links

if TYPE_CHECKING:
    from filelock import FileLock

_POLL_SECONDS = 0.02


class WriterLock:
    """Exclusive right to write to one folder; use it as a context manager.

    Args:
        folder: the index folder, or another one.
        timeout: how many seconds to wait for another writer.
        what: the folder, for the message.

    Raises on entry:
        IndexLockedError: another writer holds it; the message says which, and since when.
        StorageError: the lock file cannot be written, or the system is not supported.
    """

    def __init__(self, folder: Path, timeout: float = 0.0, what: str = "the index") -> None:
        self._folder = folder
        self._what = what
        self._timeout = timeout
        self._lock: FileLock | None = None

    def __enter__(self) -> WriterLock:
        # Readers do not need it.
        from filelock import FileLock, Timeout

        require_platform()
        refuse_links(self._folder)
        path = self._folder / LOCK_FILE
        give_up = time.monotonic() + self._timeout
        while True:
            before = _identity(self._folder)
            # Not thread-local: a writer may be closed by another thread than the one it began in.
            lock = FileLock(
                path, mode=0o644, thread_local=False, fallback_to_soft=False, is_singleton=False
            )
            with storage_errors(self._folder):
                try:
                    lock.acquire(
                        timeout=max(0.0, give_up - time.monotonic()), poll_interval=_POLL_SECONDS
                    )
                except Timeout:
                    raise IndexLockedError(
                        f"{self._folder}: another writer holds {self._what}: {_holder(path)}; "
                        "wait until it has finished"
                    ) from None
            if _identity(self._folder) == before:
                break
            # The folder was replaced in between: this is the lock of the old one.
            lock.release()
        self._lock = lock
        try:
            with storage_errors(self._folder):
                path.write_text(_facts(), encoding="utf-8")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _facts() -> str:
    return json.dumps(
        {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": " ".join(sys.argv[:2]),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
    )


def _holder(path: Path) -> str:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        who = f"process {facts['pid']} on {facts['host']} ({facts['command']})"
        return f"{who} since {facts['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has just started"
