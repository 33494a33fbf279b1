"""One writer at a time: an advisory lock on a file of the index folder that says who holds it.

The lock belongs to the open file, so the system drops it when the process dies, however it dies;
a lock is never stale. Linux and macOS.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
from pathlib import Path
from types import TracebackType

from indexes.errors import IndexLockedError
from indexes.files.atomic import storage_errors
from indexes.store.connection import LOCK_FILE, refuse_links


class WriterLock:
    """Exclusive right to write to one index folder; use it as a context manager.

    Raises on entry:
        IndexLockedError: another process holds it; the message says which, and since when.
        StorageError: the lock file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    def __enter__(self) -> WriterLock:
        refuse_links(self._folder)
        path = self._folder / LOCK_FILE
        while True:
            with storage_errors(self._folder):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
                os.close(descriptor)
                raise IndexLockedError(
                    f"{self._folder}: another writer holds the index: {_describe(holder)}; "
                    "wait until it has finished"
                ) from None
            if _same_file(descriptor, path):
                break
            # The folder was replaced between open and lock: this is the lock of the old one.
            os.close(descriptor)
        holder = json.dumps(
            {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "command": " ".join(sys.argv[:2]),
                "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            }
        )
        with storage_errors(self._folder):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
        self._descriptor = -1


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _describe(holder: str) -> str:
    try:
        facts = json.loads(holder)
        who = f"process {facts['pid']} on {facts['host']} ({facts['command']})"
        return f"{who} since {facts['since']}"
    except (ValueError, KeyError, TypeError):
        return "a process that has just started"
