"""The URL of an index in a database, connections, and their errors as those of this project.

``postgresql://user@host:port/database?index=name``
"""

from __future__ import annotations

import logging
import os
import re
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import ProgrammingError, errors, pq
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from indexes.errors import (
    ClosedIndexError,
    ConfigError,
    DamagedIndexError,
    IndexLockedError,
    RetrieverError,
    StorageError,
)

_FORM = "postgresql://USER@HOST/DATABASE?index=NAME"
_LONGEST_NAME = 200
_CONNECT_SECONDS = "10"
# Hosts, each with or without a port.
_PORTS = re.compile(r"(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?(,(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?)*")


@dataclass(frozen=True, slots=True)
class Location:
    """Where an index is; its text has no password.

    Attributes:
        index: the name of the index in the database.
        conninfo: what libpq connects with, the password included if the URL has one.
    """

    index: str
    conninfo: str = field(repr=False)

    def __str__(self) -> str:
        parts = {name: str(value) for name, value in conninfo_to_dict(self.conninfo).items()}
        host, user = parts.get("host", ""), parts.get("user", "")
        socket = f"host={host}&" if host.startswith("/") else ""
        address = "" if socket else host
        if "port" in parts and not socket:
            address += f":{parts['port']}"
        account = f"{quote(user)}@" if user else ""
        database = quote(parts.get("dbname", ""))
        return f"postgresql://{account}{address}/{database}?{socket}index={quote(self.index)}"


def parse_location(url: str) -> Location:
    """The index that a URL names. Beside `index`, it may have every parameter of libpq."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise _malformed() from None
    ports = parts.netloc.rpartition("@")[2]
    # An unescaped sign in a password would make its rest a host, port or database.
    if parts.netloc.count("@") > 1 or "@" in parts.path or not _PORTS.fullmatch(ports):
        raise _malformed()
    names = [value for name, value in pairs if name == "index"]
    if len(names) != 1 or not names[0] or parts.fragment:
        raise ConfigError(
            f"postgresql://…: expected {_FORM}, found {len(names) or 'no'} index; write #, ?, / "
            "and @ in a name or password as %23, %3F, %2F and %40"
        )
    index = names[0]
    if len(index) > _LONGEST_NAME or not index.isprintable():
        raise ConfigError(
            f"postgresql://…: expected an index name of at most {_LONGEST_NAME} printable "
            f"characters, found {len(index)}: {index[:40]!r}"
        )
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    rest = [(name, value) for name, value in pairs if name != "index"]
    for name, _ in rest:
        if name not in known:
            found = repr(name[:40]) if name.isidentifier() else "another"
            raise ConfigError(
                "postgresql://…: expected index or a parameter of libpq such as sslmode, "
                f"found {found}"
            )
    query = urlencode(rest, quote_via=quote)
    try:
        given = conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}?{query}")
    except ProgrammingError:
        raise _malformed() from None
    defaults = {"connect_timeout": _CONNECT_SECONDS, "fallback_application_name": "retriever"}
    whole = {**defaults, **{name: str(value) for name, value in given.items()}}
    return Location(index, make_conninfo(**whole))


def _malformed() -> ConfigError:
    return ConfigError(
        f"postgresql://…: expected {_FORM}, found a malformed URL; check host and port, and write "
        "special characters of a password in percent form, such as %40 for @"
    )


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


@contextmanager
def database_errors(location: Location) -> Iterator[None]:
    """Turn what the server, or the way to it, refuses into one clear error."""
    try:
        yield
    except psycopg.Error as error:
        raise _translated(location, error) from error


def _translated(location: Location, error: psycopg.Error) -> RetrieverError:
    """The error of this project for one of psycopg."""
    reason = _first_line(error)
    for kind, refusal in _REFUSALS.items():
        if isinstance(error, kind):
            return StorageError(f"{location}: {refusal.format(reason=reason)}")
    if isinstance(error, errors.LockNotAvailable):
        return IndexLockedError(f"{location}: another session keeps a lock ({reason}): try again")
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
        return DamagedIndexError(f"{location}: {reason}; restore the database from a backup")
    if isinstance(error, psycopg.OperationalError):
        return StorageError(f"{location}: the connection was lost ({reason}); {_AGAIN}")
    return StorageError(f"{location}: the server refused a statement ({reason}); see its log")


def connect(location: Location) -> Connection:
    """Connect, in autocommit mode."""
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
        """A connection of the caller alone: an idle one, or a new one if `fresh`."""
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
