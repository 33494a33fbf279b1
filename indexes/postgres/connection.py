"""The URL of an index in a database, connections, and their errors as those of this project.

``postgresql://user@host:port/database?index=name``
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
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

LEAST_SERVER = 13
_LONGEST_NAME = 200
_INT8, _INT8_ARRAY = 20, 1016
# What it logs beside an error is the same error.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

Connection = psycopg.Connection[tuple[Any, ...]]
Rows = psycopg.Cursor[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Location:
    """Where an index is; its text is a URL without a password."""

    index: str
    shown: str
    conninfo: str = field(repr=False)  # of libpq, the password included if the URL has one

    def __str__(self) -> str:
        return self.shown


def parse_location(url: str) -> Location:
    """The index that a URL names. Beside `index`, it may have every parameter of libpq."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        (index,) = (value for name, value in pairs if name == "index")
        options = [pair for pair in pairs if pair[0] != "index"]
        query = urlencode(options, quote_via=quote)
        given = conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}?{query}")
        int(str(given.get("port", "")).replace(",", "") or 0)
    except (ValueError, psycopg.ProgrammingError):
        index = ""
    # An unescaped sign in a password would make its rest a host, port or database.
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
    shown = f"postgresql://{account.partition(':')[0]}{at}{hosts}{parts.path}?"
    shown += urlencode([*socket, ("index", index)], safe="/", quote_via=quote)
    whole = {"connect_timeout": 10, "fallback_application_name": "retriever", **given}
    return Location(index, shown, make_conninfo("", **whole))


_REMEDIES: dict[type[psycopg.Error], str] = {
    errors.ReadOnlySqlTransaction: "write to the primary server",
    errors.InsufficientPrivilege: "grant it, or connect as another user",
    errors.QueryCanceled: "raise its timeout, and run the same command again",
}


@contextmanager
def database_errors(location: Location) -> Iterator[None]:
    """Turn what the server, or the way to it, refuses into one clear error."""
    try:
        yield
    except psycopg.Error as error:
        raise _translated(location, error) from error


def _translated(location: Location, error: psycopg.Error) -> RetrieverError:
    reason = first_line(error)
    if isinstance(error, errors.LockNotAvailable):
        return IndexLockedError(f"{location}: another session keeps a lock ({reason}): try again")
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
        return DamagedIndexError(f"{location}: {reason}; restore the database from a backup")
    for kind, remedy in _REMEDIES.items():
        if isinstance(error, kind):
            return StorageError(f"{location}: {reason}; {remedy}")
    return StorageError(
        f"{location}: the server refused a statement, or the connection was lost ({reason}); run "
        "the same command again when that is mended: nothing is lost or stored twice"
    )


def connect(location: Location) -> Connection:
    """Connect, in autocommit mode."""
    try:
        # Statements are planned for the values that they come with: filters need that.
        connection = psycopg.connect(location.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise StorageError(
            f"{location}: no connection ({first_line(error)}); check the URL and the server; "
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


class _Int8Array(Dumper):
    """A (n,) array as bigint[], in the binary form of one copy."""

    format = pq.Format.BINARY
    oid = _INT8_ARRAY

    def dump(self, obj: NDArray[np.int64]) -> bytes:
        """The array as the server reads it."""
        items = np.empty(len(obj), [("size", ">i4"), ("value", ">i8")])
        items["size"], items["value"] = 8, obj
        return struct.pack("!iiIii", 1, 0, _INT8, len(obj), 1) + items.tobytes()


def first_line(error: psycopg.Error) -> str:
    """What the server or libpq says, without statement and position."""
    # After several attempts libpq lists them all.
    return (error.diag.message_primary or str(error) or type(error).__name__).splitlines()[0]
