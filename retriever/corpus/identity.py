"""Ids from content, and a record of the ids seen whose memory does not grow with the corpus."""

from __future__ import annotations

import sqlite3
from hashlib import blake2b

from retriever.errors import StorageError

_HEX_DIGITS = 16


def content_id(title: str | None, text: str) -> str:
    """16 hex digits that depend on title and text alone, so that they survive a reordering."""
    return blake2b(f"{title or ''}\x1f{text}".encode()).hexdigest()[:_HEX_DIGITS]


class SeenIds:
    """Remembers where an id was first given, in a private temporary database.

    At most 32 MiB of the database are in memory; closing deletes it.
    """

    def __init__(self) -> None:
        self._database: sqlite3.Connection | None = None

    def earlier(self, doc_id: str, place: str) -> str | None:
        """The place that had `doc_id` before; if none had, store this one and return None.

        Raises:
            StorageError: the disk for temporary files is full or cannot be written.
        """
        try:
            if self._database is None:
                self._database = _temporary_database()
            row = (doc_id, place)
            if self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", row).rowcount:
                return None
            found = self._database.execute("SELECT place FROM seen WHERE id = ?", (doc_id,))
            return str(found.fetchone()[0])
        except sqlite3.OperationalError as error:
            raise StorageError(
                f"the ids read so far cannot be kept in a temporary file ({error}); "
                "free space there, or point TMPDIR to another disk"
            ) from error

    def close(self) -> None:
        """Forget everything."""
        if self._database is not None:
            self._database.close()
            self._database = None


def _temporary_database() -> sqlite3.Connection:
    # The reader is a generator, which may be resumed by another thread than the one that began.
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    # Nothing is ever rolled back, so a journal would only double the writing.
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA cache_size = -32768")
    database.execute("CREATE TABLE seen (id TEXT PRIMARY KEY, place TEXT) WITHOUT ROWID")
    database.execute("BEGIN")
    return database
