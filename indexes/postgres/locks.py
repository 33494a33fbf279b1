"""Who may do what beside whom: marks of sessions, and the retirement of replaced indexes.

Marks are advisory locks: the server takes them back when a session ends, however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors

from indexes.errors import IndexLockedError
from indexes.postgres.connection import Connection
from indexes.postgres.location import Location
from indexes.postgres.schema import KEY, drop_index

# The server notices a moment later that a session has ended.
_GRACE = 0.2


def wait_for_mark(
    connection: Connection, location: Location, number: int, timeout: float, *, alone: bool
) -> None:
    """Mark an index as written by this session.

    Raises:
        IndexLockedError: it is being replaced; or, if `alone`, it has writers.
    """
    end = time.monotonic() + max(timeout, _GRACE)
    while not _mark(connection, number, alone=alone):
        if time.monotonic() >= end:
            who = "a writer holds it" if alone else "`reindex` or --recreate is replacing it"
            raise IndexLockedError(f"{location}: {who}; try again when that has ended")
        time.sleep(0.05)


def release(connection: Connection) -> None:
    """End a session, and with it its marks, before this returns."""
    with suppress(psycopg.Error):
        connection.execute("SELECT pg_advisory_unlock_all()")
    connection.close()


def alone_in_upkeep(connection: Connection, number: int, work: Callable[[], int]) -> int:
    """What `work` returns, in the one transaction that rewrites postings; 0 if another one does."""
    try:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            return work() if _lock_upkeep(connection, number) else 0
    except errors.SerializationFailure:
        # The other one has ended since this one began.
        return 0


def drop_retired(connection: Connection) -> None:
    """Drop the indexes that others have replaced, unless someone still reads them."""
    rows = connection.execute(
        "SELECT number FROM retriever.indexes WHERE name IS NULL AND replaces IS NULL"
    ).fetchall()
    for (number,) in rows:
        try:
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '200ms'")
                drop_index(connection, number)
        except psycopg.Error as error:
            if not isinstance(error, errors.LockNotAvailable):
                raise


def _mark(connection: Connection, number: int, *, alone: bool) -> bool:
    """Try to mark the index as written by several sessions, or by this one alone."""
    kind = "" if alone else "_shared"
    statement = f"SELECT pg_try_advisory_lock{kind}(%s, %s)"
    return bool(_one(connection, statement, (KEY, number))[0])


def _one(connection: Connection, statement: str, parameters: Sequence[Any]) -> tuple[Any, ...]:
    row = connection.execute(statement, parameters).fetchone()
    assert row is not None
    return row


def _lock_upkeep(connection: Connection, number: int) -> bool:
    statement = "SELECT pg_try_advisory_xact_lock(%s, %s)"
    return bool(_one(connection, statement, (KEY + 1, number))[0])
