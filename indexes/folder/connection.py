"""The SQLite file of an index: format version, connections, settings."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from indexes.errors import (
    DamagedIndexError,
    FormatVersionError,
    NotAnIndexError,
    StorageError,
)
from indexes.files import (
    LOCK_FILE,
    damaged,
    damaged_database,
    grants_locks,
    primary_code,
    readable,
    storage_errors,
)
from indexes.platforms import FSYNC_LEAVES_CACHE

DATABASE_FILE = "index.sqlite"
_LOG = f"{DATABASE_FILE}-wal"
SEGMENTS_FOLDER = "segments"
# Database of the sources of an index and their state, written by `retriever.index.sources`.
SOURCES_FILE = f"{DATABASE_FILE}-sources"
OWN_FILES = (
    *(f"{DATABASE_FILE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
    SEGMENTS_FOLDER,
    LOCK_FILE,
    *(f"{SOURCES_FILE}{suffix}" for suffix in ("", "-journal")),
)
FORMAT_VERSION = 5
APPLICATION_ID = 0x52545256  # "RTRV"
# The view for other programs; see `indexes.folder.documents`.
CORPUS_VIEW = (
    "SELECT d.id, d.title, d.text, d.metadata, (SELECT count(*) FROM passages AS p "
    "WHERE p.doc = d.doc) AS passages FROM documents AS d"
)
# Seconds that SQLite waits for another program that locks the database.
BUSY_SECONDS = 30
# Seconds that it waits until it is clear whether files can be locked at all.
_FIRST_BUSY_SECONDS = 0.5
# Seconds that another process may take to make or remove the files of the log.
_TRANSITION_SECONDS = 1.0
# Errors of SQLite where it cannot make or lock the files of its log.
_NO_LOG = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
)

# Which file `index.sqlite` is: device and inode; without locks, also its size and time of change. A
# writer takes longer than the steps of that time, from opening the index to changing the file.
Identity = tuple[int, ...]
T = TypeVar("T")


class Session:
    """A connection that reads an index, also in a folder that cannot be written.

    Attributes:
        locked: whether SQLite's locks protect the content of a transaction from writers. They are
            in `index.sqlite-shm`; if it is missing and cannot be made, there are no locks.
        state: checksum of all settings, which differs between any two commits, since one setting
            counts them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = ""
        self._connect()

    def _connect(self) -> None:
        while True:
            # Taken before the log is read, so that a later change by a writer is noticed.
            identity_before = _identity(self.folder, locked=False)
            try:
                with storage_errors(self.folder):
                    refuse_links(self.folder, *OWN_FILES)
                    # SQLite would make files of a log beside the database of another program.
                    required = (
                        self.folder / name for name in (DATABASE_FILE, f"{DATABASE_FILE}-shm")
                    )
                    if not all(path.is_file() for path in required):
                        _require_index(self.folder)
                    connection, locked = _connect_reader(self.folder)
            except (DamagedIndexError, StorageError):
                _require_index(self.folder)
                # SQLite reports a disk error if its log is removed while it opens the file.
                if identity_before == _identity(self.folder, locked=False):
                    raise
                continue
            identity = identity_before[:2] if locked else identity_before
            if identity == _identity(self.folder, locked):
                self.connection = connection
                self.locked = locked
                self.identity = identity
                return
            connection.close()

    def is_current(self) -> bool:
        """Whether the folder still holds the file that is read, unaltered if there are no locks."""
        return self.identity == _identity(self.folder, self.locked)

    def follow(self) -> None:
        """Connect again if the folder holds another file, or an altered one without locks."""
        if not self.is_current() or (not self.locked and (self.folder / _LOG).exists()):
            # If nothing can be opened now, the old connection stays for the next attempt.
            old = self.connection
            self._connect()
            old.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _read_state(self) -> str:
        query = "SELECT value FROM settings WHERE key = ?"
        row = self.connection.execute(query, (_CHECKSUM_KEY,)).fetchone()
        # An early release has no checksum of settings: the generation tells commits apart.
        return str(row or self.connection.execute(query, ("generation",)).fetchone())

    @contextmanager
    def commit(self, read: Callable[[Session], T]) -> Iterator[T]:
        """Yield the result of `read` in one commit, whose transaction lasts for the block.

        If `read` fails, and a writer has changed the index since, it reads a later commit.
        """
        with storage_errors(self.folder):
            try:
                with readable(self.folder):
                    content = self._begin(read)
                try:
                    yield content
                finally:
                    # Without locks, an error of the block may also come from the concurrent change.
                    if not self.locked and not self.is_current():
                        raise StorageError(
                            f"{self.folder}: the index changed while it was read without locks, "
                            f"since {DATABASE_FILE}-shm was missing and could not be made; run the "
                            "same command again"
                        )
            finally:
                self.connection.commit()

    def _begin(self, read: Callable[[Session], T]) -> T:
        while True:
            try:
                self.state = begin_reading(self.connection, self._read_state)
                content = read(self)
                # If the folder was replaced meanwhile, its files belong to another database.
                if self.is_current():
                    return content
            except Exception:
                # A commit that was made meanwhile may be readable.
                if self.is_current():
                    state = self._read_state()
                    self.connection.commit()
                    if self._read_state() == state:
                        raise
            self.connection.commit()
            self.follow()


def require_vacant(folder: Path) -> None:
    """Refuse a folder in which no new index can be made."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotAnIndexError(f"{folder}: expected a folder, found a file; choose another with -i")
    with storage_errors(folder):
        foreign_names = foreign_files(folder)
    if foreign_names:
        raise NotAnIndexError(
            f"{folder}: the folder exists and is not an index (it holds {foreign_names[0]!r}); "
            "choose a new folder with -i"
        )


def foreign_files(folder: Path) -> list[str]:
    """Return names in `folder` that are no part of an index, ascending; none if it is missing."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(
        name
        for name in names
        if not name.startswith(DATABASE_FILE) and name not in (SEGMENTS_FOLDER, LOCK_FILE)
    )


def is_index(folder: Path) -> bool:
    """Whether `folder` holds the database of a completely created index."""
    with storage_errors(folder):
        if not (folder / DATABASE_FILE).is_file():
            return False
        # Only SQLite may open the file. Closing it would drop the locks of other connections of
        # this process, and a writer would remove the log under them. The header of a new database
        # may still be in the log alone.
        for mode in ("ro&immutable=1", "ro") if _has_log(folder) else ("ro&immutable=1",):
            try:
                with closing(connect(folder, mode)) as connection:
                    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            except sqlite3.DatabaseError:
                return _has_application_id(folder)
            if application_id == APPLICATION_ID:
                return True
        return False


def open_writer(folder: Path) -> sqlite3.Connection:
    """Open an existing index for writing; the caller holds the writer lock."""
    _require_index(folder)
    with storage_errors(folder):
        connection = _open_checked(folder, "rw")
        try:
            check_settings(read_settings(connection), folder)
            # Refuse a folder that cannot be written now, not after an hour of encoding.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
    return connection


def close_writer(connection: sqlite3.Connection, folder: Path) -> None:
    """Close a connection that could write, and keep the log, which readers may need."""
    # SQLite removes its log with the last connection, unless that can only read.
    with suppress(sqlite3.Error), closing(connect(folder, "ro")) as reader:
        format_version(reader)
        # Pages that readers still need stay in the log.
        connection.execute("PRAGMA busy_timeout=0")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the changes of the block as a whole or, if it raises, not at all."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def begin_reading(connection: sqlite3.Connection, look: Callable[[], T]) -> T:
    """Begin a transaction that sees the index as it is now; return the result of `look`."""
    deadline = time.monotonic() + _TRANSITION_SECONDS
    connection.execute("BEGIN")
    while True:
        try:
            return look()
        except sqlite3.OperationalError as error:
            # Another process has created the shared memory but not initialized it yet, and
            # this process may not write it.
            transient = primary_code(error) == sqlite3.SQLITE_READONLY
            if not transient or time.monotonic() > deadline:
                raise
            time.sleep(_TRANSITION_SECONDS / 100)


def format_version(connection: sqlite3.Connection) -> int:
    """Return the format of an index, as the transaction of `connection` sees it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def connect(folder: Path, mode: str) -> sqlite3.Connection:
    """Connect to the database of an index, in autocommit mode, usable from any thread."""
    connection = sqlite3.connect(
        f"{(folder / DATABASE_FILE).absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=_FIRST_BUSY_SECONDS,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA foreign_keys=ON")
        try:
            # The first statement that reads the file.
            connection.execute("PRAGMA synchronous=FULL")
        except sqlite3.OperationalError as error:
            # If files cannot be locked, SQLite would wait in vain.
            if primary_code(error) == sqlite3.SQLITE_BUSY and not grants_locks(folder):
                raise
        connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA trusted_schema=OFF")
        if FSYNC_LEAVES_CACHE:
            connection.execute("PRAGMA fullfsync=ON")
            connection.execute("PRAGMA checkpoint_fullfsync=ON")
    except BaseException:
        # For example, the file is no database.
        connection.close()
        raise
    return connection


def _identity(folder: Path, locked: bool) -> Identity:
    """Return the identity of `index.sqlite`; empty if there is none."""
    try:
        status = os.stat(f"{folder}/{DATABASE_FILE}")
    except OSError:
        return ()
    file_id = status.st_dev, status.st_ino
    return file_id if locked else (*file_id, status.st_size, status.st_mtime_ns)


def _connect_reader(folder: Path) -> tuple[sqlite3.Connection, bool]:
    """Connect for reading, and return whether there are locks; see `Session`."""
    deadline = time.monotonic() + _TRANSITION_SECONDS
    database = folder / DATABASE_FILE
    log = folder / _LOG
    while True:
        reason = "this user may not write index.sqlite"
        # In a folder that this user may write, beside a database that he may not, SQLite would make
        # files that the owner cannot write.
        if (
            os.access(database, os.W_OK)
            or not os.access(folder, os.W_OK)
            or (log.exists() and (folder / f"{DATABASE_FILE}-shm").exists())
        ):
            try:
                return _open_checked(folder, "ro"), True
            except sqlite3.OperationalError as error:
                if primary_code(error) not in _NO_LOG:
                    raise
                reason = str(error)
        if not _has_log(folder):
            return _open_checked(folder, "ro&immutable=1"), False
        if time.monotonic() > deadline:
            raise StorageError(
                f"{log}: cannot read the last commits of a killed writer ({reason}); run "
                "`retriever info` as a user who can write the folder, or free some disk space"
            )
        time.sleep(_TRANSITION_SECONDS / 100)


def _open_checked(folder: Path, mode: str) -> sqlite3.Connection:
    """Connect, and refuse a database that no release makes."""
    connection = connect(folder, mode)
    try:
        if mode != "rw":
            connection.execute("PRAGMA query_only=ON")
        version = begin_reading(connection, partial(format_version, connection))
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        if application_id != APPLICATION_ID:
            raise damaged_database(folder, "the file is not the database of an index")
        if version > FORMAT_VERSION:
            raise FormatVersionError(
                f"{folder}: the index has format version {version}, this release reads up to "
                f"{FORMAT_VERSION}; upgrade with `pip install -U layer-retriever`"
            )
        if version < 1:
            raise damaged_database(folder, f"expected format version 1 or more, found {version}")
        # Foreign triggers and views would run with the statements of whoever opens the index.
        foreign = connection.execute(
            "SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR (type = 'view' AND NOT "
            "(name = 'corpus' AND sql LIKE 'CREATE VIEW%AS ' || ?)) ORDER BY name",
            (CORPUS_VIEW,),
        ).fetchone()
        if foreign is not None:
            raise damaged_database(folder, f"an index has no {foreign[0]} {foreign[1]!r}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _require_index(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotAnIndexError(f"{folder}: expected an index folder, found a file; name it with -i")
    if not folder.is_dir():
        raise NotAnIndexError(
            f"{folder}: no index here; make one with `retriever index SOURCE -i {folder}`"
        )
    with storage_errors(folder):
        # Files that are written or removed must be in the folder itself.
        refuse_links(folder, *OWN_FILES)
        has_index = is_index(folder)
        if not has_index:
            refuse_remains(folder)
    if not has_index:
        raise NotAnIndexError(
            f"{folder}: this folder is not an index; choose another with -i or make one with "
            "`retriever index`"
        )


def refuse_remains(folder: Path) -> None:
    """Refuse a folder with segments, which belong to an index, but without its database."""
    segments = folder / SEGMENTS_FOLDER
    if segments.is_dir() and any(path.name.isdigit() for path in segments.iterdir()):
        raise damaged_database(
            folder, "the file is missing, or is not the database of the segments beside it"
        )


def refuse_links(folder: Path, *names: str) -> None:
    """Refuse files and folders in `folder` that are links."""
    for path in (folder / name for name in names):
        if path.is_symlink():
            raise damaged(path, "expected a file or folder of the index's own, found a link")


def _has_application_id(folder: Path) -> bool:
    """Whether a file that SQLite cannot read has the application id of an index."""
    try:
        with (folder / DATABASE_FILE).open("rb") as file:
            return file.read(72)[68:] == APPLICATION_ID.to_bytes(4, "big")
    except FileNotFoundError:
        return False


def _has_log(folder: Path) -> bool:
    """Whether commits may be in the log that are not in `index.sqlite` yet."""
    try:
        return (folder / _LOG).stat().st_size > 0
    except FileNotFoundError:
        return False


_CHECKSUM_KEY = "seal"


def read_settings(connection: sqlite3.Connection, key: str | None = None) -> dict[str, str]:
    """Return the JSON text of all settings, or of one, by ascending key."""
    query = "SELECT key, value FROM settings "
    key_parameters = () if key is None else (key,)
    return dict(
        connection.execute(
            query + ("WHERE key = ?" if key_parameters else "ORDER BY key"), key_parameters
        )
    )


def write_setting(connection: sqlite3.Connection, key: str, value: Any) -> None:
    """Store one JSON value, inside a transaction, and update the checksum of all settings."""
    upsert = (
        "INSERT INTO settings VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )
    connection.execute(upsert, (key, json.dumps(value, ensure_ascii=False, sort_keys=True)))
    connection.execute(upsert, (_CHECKSUM_KEY, _settings_checksum(read_settings(connection))))


def check_settings(settings: Mapping[str, str], folder: Path) -> None:
    """Refuse altered settings; early releases wrote no checksum, which is accepted."""
    if settings.get(_CHECKSUM_KEY, checksum := _settings_checksum(settings)) != checksum:
        raise damaged_database(folder, "a setting was altered (the checksum of all differs)")
    for key in ("generation", "next_passage", "next_segment"):
        if not settings.get(key, "").isdecimal():
            value = settings.get(key)
            raise damaged_database(folder, f"expected a number as setting {key!r}, found {value!r}")


def _settings_checksum(settings: Mapping[str, str]) -> str:
    # In a damaged database a value can have any type.
    content = json.dumps(
        [setting for setting in settings.items() if setting[0] != _CHECKSUM_KEY], default=repr
    )
    return json.dumps(hashlib.blake2b(content.encode(), digest_size=16).hexdigest())
