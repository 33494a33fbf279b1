"""Connections for the readers of an index folder: a pool that follows a replaced folder and
survives a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from weakref import WeakSet

from indexes.errors import ClosedIndexError, StorageError
from indexes.store.connection import Session, open_reader
from indexes.store.replacement import recover_for_reading


class ConnectionPool:
    """Connections to one index folder, for threads that read it side by side.

    A child that is forked opens its own, provided that none was in use at the fork.

    Raises:
        NotAnIndexError, FormatVersionError, DamagedIndexError
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._closed = False
        self._in_use = 0
        # Whether a connection was in use when this process was forked.
        self._torn = False
        recover_for_reading(folder)
        self._idle = [open_reader(folder)]
        _POOLS.add(self)

    def close(self) -> None:
        """Close what is idle now, and the others when they are given back."""
        with self._lock:
            self._closed = True
            self._close_idle()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session of the caller alone, to the folder that has the name now.

        Raises:
            ClosedIndexError: the pool is closed.
            StorageError: the process was forked while a session was in use.
        """
        with self._lock:
            if self._closed:
                raise ClosedIndexError(
                    f"{self._folder}: the index object is closed; open another with Index.open"
                )
            if self._torn:
                raise StorageError(
                    f"{self._folder}: this process was forked while a search was running, so that "
                    "SQLite cannot lock the index; fork when none is running, or start a new "
                    "process instead of forking"
                )
            session = self._idle.pop() if self._idle else None
            self._in_use += 1
        try:
            if session is None:
                session = open_reader(self._folder)
            else:
                session.follow()
            yield session
        finally:
            self._give_back(session)

    def before_fork(self) -> None:
        """Close what is idle, and keep others from opening more until `after_fork`.

        SQLite in the child would take the parent's open connections for its own, and lock nothing.
        """
        self._lock.acquire()
        self._close_idle()

    def after_fork(self, *, in_child: bool) -> None:
        """Open connections again when they are needed."""
        if in_child:
            self._torn = self._torn or self._in_use > 0
        self._lock.release()

    def _give_back(self, session: Session | None) -> None:
        with self._lock:
            self._in_use -= 1
            if session is None:
                return
            if not self._closed:
                self._idle.append(session)
                return
        session.close()

    def _close_idle(self) -> None:
        for session in self._idle:
            session.close()
        self._idle = []


_POOLS: WeakSet[ConnectionPool] = WeakSet()


class _Forking:
    """What happens to the pools of a process when it forks."""

    def __init__(self) -> None:
        self._pools: list[ConnectionPool] = []

    def before(self) -> None:
        self._pools = list(_POOLS)
        for pool in self._pools:
            pool.before_fork()

    def after(self, *, in_child: bool) -> None:
        for pool in self._pools:
            pool.after_fork(in_child=in_child)
        self._pools = []


_FORKING = _Forking()
# Not on Windows.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_FORKING.before,
        after_in_parent=partial(_FORKING.after, in_child=False),
        after_in_child=partial(_FORKING.after, in_child=True),
    )
