"""Access to the writer of an open index: one change at a time, by any thread or process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retriever.errors import IndexLockedError

if TYPE_CHECKING:
    from indexes import Writer
    from retriever.search.opened import OpenedIndex


@dataclass(eq=False)
class WriterAccess:
    """Gives the writer of an index to one thread at a time.

    A forked child process can use the object of its parent.
    """

    opened: OpenedIndex
    lock_timeout: float = 0.0
    # The lock of this process, and the process and thread that hold it.
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _holder: tuple[int, int] = field(default_factory=lambda: (os.getpid(), 0), init=False)

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Hold the writer lock of the index; ClosedIndexError after `close`."""
        # Raises the error of a closed index before anything waits.
        self.opened.settings()
        with self.exclusive(), self.opened.store.writer(self.lock_timeout) as writer:
            yield writer

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock of this process; IndexLockedError if this thread holds it already."""
        process = os.getpid()
        thread = threading.get_ident()
        if self._holder == (process, thread):
            raise IndexLockedError(
                f"{self.opened.store}: this thread is already changing the index, as by an `add` "
                "that reads its documents; wait until that has ended"
            )
        if self._holder[0] != process:
            # Forked: the thread that had the lock is in the parent.
            self._lock = threading.Lock()
            self._holder = (process, 0)
        with self._lock:
            self._holder = process, thread
            try:
                yield
            finally:
                self._holder = process, 0
