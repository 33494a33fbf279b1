"""Vectors of passages whose document is not complete yet, for a run that resumes after a kill.

They are in a table of their own, which exists only while there are any. No reader looks at it, and
no vector in it counts before the commit of its document.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def keep(
    connection: sqlite3.Connection, digests: Sequence[bytes], vectors: NDArray[np.float32]
) -> None:
    """Keep vectors; the caller is inside a transaction.

    Args:
        connection: of the writer.
        digests: of what was encoded.
        vectors: (digests, d) float32.
    """
    connection.execute(
        "CREATE TABLE IF NOT EXISTS unfinished (digest BLOB PRIMARY KEY, vector BLOB NOT NULL, "
        "checksum BLOB NOT NULL) WITHOUT ROWID"
    )
    rows = []
    for digest, vector in zip(digests, vectors, strict=True):
        blob = vector.astype("<f4").tobytes()
        rows.append((digest, blob, _checksum(digest, blob)))
    connection.executemany("INSERT OR REPLACE INTO unfinished VALUES (?, ?, ?)", rows)


def kept(
    connection: sqlite3.Connection, digests: Sequence[bytes]
) -> dict[bytes, NDArray[np.float32]]:
    """Those of some vectors that are kept, by digest; one that was altered counts as missing."""
    if not is_any_kept(connection):
        return {}
    found = {}
    for digest in digests:
        row = connection.execute(
            "SELECT vector, checksum FROM unfinished WHERE digest = ?", (digest,)
        ).fetchone()
        if row is not None and row[1] == _checksum(digest, row[0]):
            found[digest] = np.frombuffer(row[0], "<f4").astype(np.float32)
    return found


def is_any_kept(connection: sqlite3.Connection) -> bool:
    """Whether the table exists."""
    found = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'unfinished'"
    )
    return found.fetchone() is not None


def forget(connection: sqlite3.Connection) -> None:
    """Drop what is kept; the caller is inside a transaction."""
    connection.execute("DROP TABLE IF EXISTS unfinished")


def _checksum(digest: bytes, vector: bytes) -> bytes:
    return hashlib.blake2b(digest + vector, digest_size=16).digest()
