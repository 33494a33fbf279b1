"""Connections to a database, and what goes wrong with them as the errors of this project."""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import errors, pq
from psycopg.adapt import Dumper

from indexes.errors import (
    ClosedIndexError,
    ConfigError,
    DamagedIndexError,
    IndexLockedError,
    RetrieverError,
    StorageError,
)
from indexes.postgres.location import Location

# What it logs beside an error is the same error.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

Connection = psycopg.Connection[tuple[Any, ...]]

LEAST_SERVER = 13
_INT8, _INT8_ARRAY = 20, 1016
_IDLE = 8
_AGAIN = "run the same command again: nothing is lost or stored twice"
_REFUSALS: dict[type[psycopg.Error], str] = {
    errors.DiskFull: f"the server's disk is full: free some space and {_AGAIN}",
    errors.InsufficientPrivilege: "the user lacks a privilege ({reason}): grant it, or connect as "
    "another user",
    errors.ReadOnlySqlTransaction: "the server is a read replica: write to the primary server",
    errors.QueryCanceled: "the server stopped a statement ({reason}): raise its timeout, and "
    + _AGAIN,
    errors.TooManyConnections: "the server has too many connections: close some, or raise "
    "max_connections",
}
_DAMAGE = (errors.DataCorrupted, errors.IndexCorrupted)
_LOCKED = (errors.LockNotAvailable,)


@contextmanager
def database_errors(location: Location) -> Iterator[None]:
    """Turn what the server, or the way to it, refuses into one clear error.

    Raises:
        StorageError: the connection failed or was lost, or the server refused a statement.
        IndexLockedError: another session keeps a lock.
        DamagedIndexError: the server finds its files corrupted.
    """
    try:
        yield
    except psycopg.Error as error:
        raise translated(location, error) from error


def translated(location: Location, error: psycopg.Error) -> RetrieverError:
    """The error of this project for one of psycopg."""
    reason = _first_line(error)
    for kind, refusal in _REFUSALS.items():
        if isinstance(error, kind):
            return StorageError(f"{location}: {refusal.format(reason=reason)}")
    if isinstance(error, _LOCKED):
        return IndexLockedError(f"{location}: another session keeps a lock ({reason}): try again")
    if isinstance(error, _DAMAGE):
        return DamagedIndexError(f"{location}: {reason}; restore the database from a backup")
    if isinstance(error, psycopg.OperationalError):
        return StorageError(f"{location}: the connection was lost ({reason}); {_AGAIN}")
    return StorageError(f"{location}: the server refused a statement ({reason}); see its log")


def connect(location: Location) -> Connection:
    """Connect, in autocommit mode.

    Raises:
        StorageError: the server cannot be reached, or refuses user, password or database.
        ConfigError: the server is too old, or the database's text is not UTF-8.
    """
    try:
        # Statements are planned for the values that they come with: filters need that.
        connection = psycopg.connect(location.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise StorageError(
            f"{location}: no connection ({_first_line(error)}); check the URL and the server; "
            "a password comes from PGPASSWORD or ~/.pgpass"
        ) from None
    found = connection.info.server_version // 10_000
    encoding = connection.info.parameter_status("server_encoding")
    if found < LEAST_SERVER or encoding != "UTF8":
        connection.close()
        raise ConfigError(
            f"{location}: expected PostgreSQL {LEAST_SERVER} or newer and the encoding UTF8, found "
            f"PostgreSQL {found} and {encoding}"
        )
    connection.adapters.register_dumper(np.ndarray, _Int8Array)
    return connection


class Pool:
    """Connections for threads that read side by side; a forked child opens its own."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: list[Connection] = []
        self._closed = False

    def close(self) -> None:
        """Close what is idle now, and the others when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle if self._process == os.getpid() else ():
            connection.close()

    def take(self, *, fresh: bool = False) -> Connection:
        """A connection of the caller alone: an idle one, or a new one if `fresh`.

        Raises:
            ClosedIndexError: the pool is closed.
            What `connect` raises.
        """
        with self._lock:
            if self._closed:
                raise ClosedIndexError(f"{self._location}: the index was closed; open it again")
            if self._process != os.getpid():
                # The connections are the parent's, which goes on using them.
                self._process, self._idle = os.getpid(), []
            if fresh:
                for connection in self._idle:
                    connection.close()
                self._idle = []
            if self._idle:
                return self._idle.pop()
        return connect(self._location)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next caller, unless it is of no use."""
        idle = pq.TransactionStatus.IDLE
        with suppress(psycopg.Error):
            if connection.info.transaction_status != idle:
                connection.rollback()
        with self._lock:
            # An interrupted statement may still run.
            usable = connection.info.transaction_status == idle and len(self._idle) < _IDLE
            usable = usable and not self._closed
            if usable:
                self._idle.append(connection)
        if not usable:
            connection.close()


class _Int8Array(Dumper):
    """A (n,) array as bigint[], in the binary form of one copy."""

    format = pq.Format.BINARY
    oid = _INT8_ARRAY

    def dump(self, obj: NDArray[np.int64]) -> bytes:
        """The array as the server reads it."""
        items = np.empty(len(obj), [("size", ">i4"), ("value", ">i8")])
        items["size"], items["value"] = 8, obj
        return struct.pack("!iiIii", 1, 0, _INT8, len(obj), 1) + items.tobytes()


def _first_line(error: psycopg.Error) -> str:
    """What the server or libpq says, without statement and position."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # After several attempts libpq lists them all; the last line says why the last one failed.
    return (lines or [type(error).__name__])[0].rstrip(":")
