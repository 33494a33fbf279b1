"""The SQLite file of an index: format version, connections.

`index.sqlite` is the single source of truth: what it does not name does not exist. Its
tables are in `indexes.store.migrations`.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indexes.errors import DamagedIndexError, FormatVersionError, NotAnIndexError
from indexes.files.faults import damaged_database, storage_errors
from indexes.store.settings import check_settings

DATABASE_FILE = "index.sqlite"
SEGMENTS_FOLDER = "segments"
LOCK_FILE = "writer.lock"
FORMAT_VERSION = 3
APPLICATION_ID = 0x52545256  # "RTRV"
# The view for other programs; see `indexes.store.migrations`.
CORPUS_VIEW = (
    "SELECT d.id, d.title, d.text, d.metadata, (SELECT count(*) FROM passages AS p "
    "WHERE p.doc = d.doc) AS passages FROM documents AS d"
)
# How long SQLite waits for another program that locks the database.
_BUSY_SECONDS = 30

# Which file `index.sqlite` is: device and inode.
Identity = tuple[int, int]


def require_vacant(folder: Path) -> None:
    """Refuse a place where no new index can be made.

    Raises:
        NotAnIndexError: it is a file, or a folder that holds other files.
        StorageError: the folder cannot be listed.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotAnIndexError(f"{folder}: expected a folder, found a file; choose another with -i")
    with storage_errors(folder):
        strangers = foreign_files(folder)
    if strangers:
        raise NotAnIndexError(
            f"{folder}: the folder exists and is not an index (it holds {strangers[0]!r}); "
            "choose a new folder with -i"
        )


def foreign_files(folder: Path) -> list[str]:
    """Names in `folder` that no index puts there, ascending."""
    return sorted(
        path.name
        for path in folder.iterdir()
        if not path.name.startswith(DATABASE_FILE) and path.name not in (SEGMENTS_FOLDER, LOCK_FILE)
    )


def is_index(folder: Path) -> bool:
    """Whether `folder` holds the database of a completely created index."""
    if not (folder / DATABASE_FILE).is_file():
        return False
    try:
        if _application_id(folder, "ro&immutable=1") == APPLICATION_ID:
            return True
        # Just created: the header may still be in the write-ahead log alone.
        return _has_log(folder) and _application_id(folder, "ro") == APPLICATION_ID
    except sqlite3.DatabaseError:
        return _marked(folder)


def identity(folder: Path) -> Identity | None:
    """Which file is `index.sqlite` now; changes when the folder is replaced."""
    try:
        status = os.stat(folder / DATABASE_FILE)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_writer(folder: Path) -> sqlite3.Connection:
    """Open an existing index for writing; the caller holds the writer lock.

    Raises:
        NotAnIndexError, FormatVersionError, StorageError, DamagedIndexError
    """
    _require_index(folder)
    with storage_errors(folder):
        connection = connect(folder, "rw")
        _check_version(connection, folder)
        _check_schema(connection, folder)
        check_settings(connection, folder)
        # A folder that cannot be written should say so now, not after an hour of encoding.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    return connection


def open_reader(folder: Path) -> sqlite3.Connection:
    """Open an existing index for reading alone; works in a folder that cannot be written.

    Raises:
        NotAnIndexError, FormatVersionError, DamagedIndexError
    """
    _require_index(folder)
    if os.access(folder, os.W_OK) and os.access(folder / DATABASE_FILE, os.W_OK):
        mode = "rw"
    elif _has_log(folder):
        mode = "ro"
    else:
        # Without a log and without write permission SQLite cannot make the shared-memory file.
        mode = "ro&immutable=1"
    with storage_errors(folder):
        connection = connect(folder, mode)
        connection.execute("PRAGMA query_only=ON")
        _check_version(connection, folder)
        _check_schema(connection, folder)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Everything in the block is committed together, or, if it raises, not at all."""
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def format_version(connection: sqlite3.Connection) -> int:
    """The format of an index, as the transaction of `connection` sees it, if it is inside one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def connect(folder: Path, mode: str) -> sqlite3.Connection:
    """A connection to the database of an index, in autocommit mode, usable from any thread.

    Args:
        folder: of the index.
        mode: as SQLite's URI has it: ``ro``, ``rw``, ``rwc``, or ``ro&immutable=1``.
    """
    connection = sqlite3.connect(
        f"{_uri(folder)}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=_BUSY_SECONDS,
        check_same_thread=False,
    )
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA trusted_schema=OFF")
    if sys.platform == "darwin":
        # On macOS fsync leaves data in the drive's cache.
        connection.execute("PRAGMA fullfsync=ON")
        connection.execute("PRAGMA checkpoint_fullfsync=ON")
    return connection


def _uri(folder: Path) -> str:
    return (folder / DATABASE_FILE).absolute().as_uri()


def _require_index(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotAnIndexError(f"{folder}: expected an index folder, found a file; name it with -i")
    if not folder.is_dir():
        raise NotAnIndexError(
            f"{folder}: no index here; make one with `retriever index SOURCE -i {folder}`"
        )
    with storage_errors(folder):
        refuse_links(folder)
        found = is_index(folder)
        if not found:
            refuse_remains(folder)
    if not found:
        raise NotAnIndexError(
            f"{folder}: this folder is not an index; choose another with -i or make one with "
            "`retriever index`"
        )


def refuse_remains(folder: Path) -> None:
    """Refuse a folder with segments, which belong to an index, but without its database.

    Raises:
        DamagedIndexError: the database was lost.
    """
    segments = folder / SEGMENTS_FOLDER
    if segments.is_dir() and any(path.name.isdigit() for path in segments.iterdir()):
        raise damaged_database(
            folder, "the file is missing, or is not the database of the segments beside it"
        )


def refuse_links(folder: Path) -> None:
    """Check that what is written to or removed is in the folder itself.

    Raises:
        DamagedIndexError: it is a link.
    """
    for name in (
        *(f"{DATABASE_FILE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
        SEGMENTS_FOLDER,
        LOCK_FILE,
    ):
        refuse_link(folder / name)


def refuse_link(path: Path) -> None:
    """Check that a file or folder is where it seems to be; raises what `refuse_links` raises."""
    if path.is_symlink():
        raise DamagedIndexError(
            f"{path}: expected a file or folder of the index's own, found a link; "
            "restore the index from a backup or index again with --recreate"
        )


def _check_schema(connection: sqlite3.Connection, folder: Path) -> None:
    """Refuse what no release makes: it would run with the statements of whoever opens the index."""
    found = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR (type = 'view' AND NOT "
        "(name = 'corpus' AND sql LIKE 'CREATE VIEW%AS ' || ?)) ORDER BY name",
        (CORPUS_VIEW,),
    ).fetchone()
    if found is not None:
        connection.close()
        raise damaged_database(folder, f"an index has no {found[0]} {found[1]!r}")


def _check_version(connection: sqlite3.Connection, folder: Path) -> None:
    version = format_version(connection)
    if version > FORMAT_VERSION:
        connection.close()
        raise FormatVersionError(
            f"{folder}: the index has format version {version}, this release reads up to "
            f"{FORMAT_VERSION}; upgrade with `pip install -U layer-retriever`"
        )
    if version < 1:
        connection.close()
        raise damaged_database(folder, f"expected format version 1 or more, found {version}")


def _application_id(folder: Path, mode: str) -> int:
    """The id that SQLite finds.

    The file is not to be opened but by SQLite: closing it would drop the locks that other
    connections of this process hold, and a writer would take away the log under them.
    """
    connection = sqlite3.connect(f"{_uri(folder)}?mode={mode}", uri=True)
    try:
        (found,) = connection.execute("PRAGMA application_id").fetchone()
        return int(found)
    finally:
        connection.close()


def _marked(folder: Path) -> bool:
    """Whether a file that SQLite cannot read, and so no process has open, has our mark."""
    try:
        with (folder / DATABASE_FILE).open("rb") as file:
            return file.read(72)[68:] == APPLICATION_ID.to_bytes(4, "big")
    except OSError:
        return False


def _has_log(folder: Path) -> bool:
    log = folder / f"{DATABASE_FILE}-wal"
    return log.exists() and log.stat().st_size > 0
