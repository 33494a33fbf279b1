"""The URL of an index in a database, connections, and errors of the server.

A URL is ``postgresql://user@host:port/database?index=name``.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import errors, pq
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from indexes.errors import (
    ConfigError,
    DamagedIndexError,
    IndexLockedError,
    RetrieverError,
    StorageError,
)

# The oldest release of PostgreSQL.
OLDEST_SERVER = 13
# Characters of the name of an index.
_LONGEST_NAME = 200
# Type numbers of PostgreSQL.
_INT8 = 20
_INT8_ARRAY = 1016
# Its log repeats the error that it raises.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class PostgresLocation:
    """The place of an index; its text is a URL without a password."""

    index: str
    url: str  # without a password
    conninfo: str = field(repr=False)  # for libpq, with the password if the URL has one

    def __str__(self) -> str:
        return self.url


def parse_location(url: str) -> PostgresLocation:
    """Parse the URL of an index, which may have every parameter of libpq besides `index`."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        (index,) = (value for name, value in pairs if name == "index")
        options = [pair for pair in pairs if pair[0] != "index"]
        query = urlencode(options, quote_via=quote)
        parameters = conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}?{query}")
        int(str(parameters.get("port", "")).replace(",", "") or 0)
    except (ValueError, psycopg.ProgrammingError):
        index = ""
    # After an unescaped sign, the rest of a password would become a host, port or database.
    if not index or parts.netloc.count("@") > 1 or "@" in parts.path or parts.fragment:
        raise ConfigError(
            "postgresql://…: expected postgresql://USER@HOST/DATABASE?index=NAME, and parameters "
            "of libpq such as sslmode, found another URL; write #, ?, / and @ in a name or "
            "password as %23, %3F, %2F and %40"
        )
    if len(index) > _LONGEST_NAME or not index.isprintable():
        raise ConfigError(
            f"postgresql://…: expected an index name of at most {_LONGEST_NAME} printable "
            f"characters, found {len(index)}: {index[:40]!r}"
        )
    account, at, hosts = parts.netloc.rpartition("@")
    socket = [pair for pair in options if pair[0] == "host"]
    safe_url = f"postgresql://{account.partition(':')[0]}{at}{hosts}{parts.path}?"
    safe_url += urlencode([*socket, ("index", index)], safe="/", quote_via=quote)
    defaults: dict[str, Any] = {"connect_timeout": 10, "fallback_application_name": "retriever"}
    return PostgresLocation(index, safe_url, make_conninfo("", **{**defaults, **parameters}))


# Errors of the server, the error of this project, and the remedy.
_REFUSALS: tuple[tuple[type[psycopg.Error], type[RetrieverError], str], ...] = (
    (errors.LockNotAvailable, IndexLockedError, "another session keeps a lock: try again"),
    (errors.DataCorrupted, DamagedIndexError, "restore the database from a backup"),
    (errors.IndexCorrupted, DamagedIndexError, "restore the database from a backup"),
    (errors.ReadOnlySqlTransaction, StorageError, "write to the primary server"),
    (errors.InsufficientPrivilege, StorageError, "grant it, or connect as another user"),
    (errors.QueryCanceled, StorageError, "raise its timeout, and run the same command again"),
)


@contextmanager
def database_errors(location: PostgresLocation) -> Iterator[None]:
    """Translate errors of the server and the connection into errors of this project."""
    try:
        yield
    except psycopg.Error as error:
        reason = first_line(error)
        for server_error, our_error, remedy in _REFUSALS:
            if isinstance(error, server_error):
                raise our_error(f"{location}: {reason}; {remedy}") from error
        raise StorageError(
            f"{location}: the server refused a statement, or the connection was lost ({reason}); "
            "nothing is lost or stored twice; fix the cause and run the same command again"
        ) from error


def connect(location: PostgresLocation) -> Connection:
    """Connect, in autocommit mode."""
    try:
        # Plans depend on the values of a statement, which filters need.
        connection = psycopg.connect(location.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise StorageError(
            f"{location}: no connection ({first_line(error)}); check the URL and the server; "
            "a password comes from PGPASSWORD or ~/.pgpass"
        ) from None
    server_release = connection.info.server_version // 10_000
    encoding = connection.info.parameter_status("server_encoding")
    if server_release < OLDEST_SERVER or encoding != "UTF8":
        connection.close()
        raise ConfigError(
            f"{location}: expected PostgreSQL {OLDEST_SERVER} or newer and the encoding UTF8, "
            f"found PostgreSQL {server_release} and {encoding}"
        )
    connection.adapters.register_dumper(np.ndarray, _Int8Array)
    return connection


class _Int8Array(Dumper):
    """Sends an (n,) array as bigint[] in binary form, without Python numbers."""

    format = pq.Format.BINARY
    oid = _INT8_ARRAY

    def dump(self, obj: NDArray[np.int64]) -> bytes:
        """Return the bytes that the server reads."""
        items = np.empty(len(obj), [("size", ">i4"), ("value", ">i8")])
        items["size"] = 8
        items["value"] = obj
        return struct.pack("!iiIii", 1, 0, _INT8, len(obj), 1) + items.tobytes()


def first_line(error: psycopg.Error) -> str:
    """Return the message of the server or libpq, without statement and position."""
    # After several attempts, libpq lists all errors.
    return (error.diag.message_primary or str(error) or type(error).__name__).splitlines()[0]


def release(connection: Connection) -> None:
    """End a session and release its locks before this function returns."""
    with suppress(psycopg.Error):
        connection.execute("SELECT pg_advisory_unlock_all()")
    connection.close()
