"""The sources that an index remembers, and the files and documents of each.

It is in a small database beside that of the index: the sources with the options of reading them,
the files of each, and the ids of the documents that each file gave. An id is written there before
its document is committed, so that whatever an interruption leaves is found again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from indexes import SOURCES_FILE
from indexes.files import storage_errors
from indexes.filters import id_forms
from retriever.documents.file_kinds import kind_of_file
from retriever.documents.members import is_archive
from retriever.documents.reader import CorpusReader
from retriever.documents.report import FilesReport
from retriever.documents.sources import normalize_name
from retriever.documents.tables import split_table
from retriever.errors import DamagedIndexError
from retriever.files import default_cache, make_private
from retriever.index.sources import files
from retriever.index.sources.files import (
    FileState,
    Source,
    SourceChanges,
    file_digest,
    hidden_path,
)
from retriever.index.sources.readings import note_earlier_readings, reader_of, report_readings

if TYPE_CHECKING:
    from indexes import Store

# Paths are bytes, since not all of them are UTF-8. A file without a hash was not read to its end.
# If it has a stamp, it is as it was, and an earlier release had read it.
# An id is stale while its file is read again, until it is seen there.
_SCHEMA = (
    "CREATE TABLE sources (source INTEGER PRIMARY KEY, path BLOB UNIQUE, options TEXT)",
    "CREATE TABLE files (source INTEGER, path BLOB, stamp TEXT, hash BLOB, "
    "PRIMARY KEY (source, path)) WITHOUT ROWID",
    "CREATE TABLE origins (source INTEGER, path BLOB, id TEXT, stale INTEGER, "
    "PRIMARY KEY (source, path, id)) WITHOUT ROWID",
)
# How each file was read: its kind in `KINDS`, the version of that reader, why it was skipped, and
# a line for each loss, a kind and a detail parted by a colon. Then the counts of what a folder
# leaves out. Earlier releases have neither table.
_READINGS_SCHEMA = (
    "CREATE TABLE readings (source INTEGER, path BLOB, kind TEXT, version INTEGER, fault TEXT, "
    "losses TEXT, is_empty INTEGER, PRIMARY KEY (source, path)) WITHOUT ROWID",
    "CREATE TABLE left_out (source INTEGER, reason TEXT, files INTEGER, "
    "PRIMARY KEY (source, reason)) WITHOUT ROWID",
)
_OPTIONS = {"reader", "on_long", "is_folder", "lacks"}
# Ids that are read together.
_BATCH = 512


class SourceMemory:
    """The sources of one index, a context manager; changes need the writer lock of the index."""

    def __init__(self, store: Store) -> None:
        self._path = memory_path(store)
        with storage_errors(self._path.parent):
            if store.folder is None:
                # It names files of this user.
                make_private(self._path.parent)
            # Generators that read it may be resumed by another thread.
            self._database = sqlite3.connect(self._path, check_same_thread=False, timeout=30)
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        """Make the tables, or refuse others."""
        with self.transaction() as database:
            rows = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
            tables = {sql for (sql,) in rows}
            if not tables:
                database.executescript(f"BEGIN; {'; '.join((*_SCHEMA, *_READINGS_SCHEMA))}")
            elif tables == set(_SCHEMA):
                # An index that cannot be written is read without them.
                with suppress(sqlite3.OperationalError):
                    database.executescript(f"BEGIN; {'; '.join(_READINGS_SCHEMA)}")
                    note_earlier_readings(database)
                    tables.update(_READINGS_SCHEMA)
            elif tables != {*_SCHEMA, *_READINGS_SCHEMA}:
                # Such as a trigger, which would run with the statements of whoever opens it.
                raise sqlite3.DatabaseError("it holds other tables")
            self._has_readings = tables != set(_SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction; its errors and those of the disk become those of this project."""
        try:
            with storage_errors(self._path.parent), self._database:
                yield self._database
        except (DamagedIndexError, sqlite3.DatabaseError) as error:
            raise DamagedIndexError(
                f"{self._path}: the remembered sources were altered ({error.__cause__ or error}); "
                "remove this file and index the sources again with --prune"
            ) from error

    def sources(self) -> list[Source]:
        """Return the sources, in the order in which they were first indexed."""
        with self.transaction() as database:
            rows = database.execute("SELECT * FROM sources ORDER BY source").fetchall()
            with suppress(AttributeError, TypeError, ValueError):
                sources = [
                    Source(number, os.fsdecode(path), json.loads(text))
                    for number, path, text in rows
                ]
                if all(source.options.keys() == _OPTIONS for source in sources):
                    return sources
            raise sqlite3.DatabaseError("the options of a source were altered")

    def count(self) -> int:
        """Return the number of documents that the sources hold."""
        with self.transaction() as database:
            return int(database.execute("SELECT count(*) FROM origins").fetchone()[0])

    def places(self, id_: str) -> list[tuple[str, str]]:
        """Return the sources that have a document as a whole file, and its path below each.

        The path is empty where the source is the file. Records and parts of a file have no place.
        """
        places = []
        for source in self.sources():
            prefix = source.options["reader"]["prefix"]
            if source.options["is_folder"]:
                path = id_ if prefix is None else id_.removeprefix(f"{prefix}/")
                is_file = path != "" and (prefix is None or path != id_)
            else:
                path = ""
                is_file = normalize_name(id_) == normalize_name(prefix or "")
            if not is_file:
                continue
            # The names of a file may be decomposed where its id is not.
            for form in id_forms(path):
                with self.transaction() as database:
                    row = (source.number, os.fsencode(form), id_)
                    origin = "SELECT 1 FROM origins WHERE (source, path, id) = (?, ?, ?)"
                    if database.execute(origin, row).fetchone() is not None:
                        places.append((source.path, form))
        return places

    def enter(self, reader: CorpusReader, on_long: str | None) -> list[Source]:
        """Remember the sources of a reader, with its options in place of earlier ones."""
        sources = []
        with self.transaction() as database:
            for source in reader.sources:
                path = os.path.abspath(source)
                place = split_table(path)[0]
                # Standard input and pipes are read once.
                if source == "-" or not (place.is_dir() or place.is_file()):
                    continue
                options = {
                    "reader": reader.options(source),
                    "on_long": on_long,
                    "is_folder": place.is_dir(),
                    "lacks": files.lacking(),
                }
                (number,) = database.execute(
                    "INSERT INTO sources (path, options) VALUES (?, ?) ON CONFLICT (path) DO "
                    "UPDATE SET options = excluded.options RETURNING source",
                    (os.fsencode(path), json.dumps(options)),
                ).fetchone()
                sources.append(Source(number, path, options))
        return sources

    def files(self, source: Source) -> tuple[dict[str, FileState], dict[str, FileState]]:
        """Return stamps and hashes of files by path, and of erased files by `hidden_path`."""
        remembered: dict[str, FileState] = {}
        erased: dict[str, FileState] = {}
        with self.transaction() as database:
            for path, stamp, digest in database.execute(
                "SELECT path, stamp, hash FROM files WHERE source = ?", (source.number,)
            ):
                files = erased if path.startswith(b"\0") else remembered
                files[os.fsdecode(path)] = stamp, digest
        return remembered, erased

    def reader_versions(self, source: Source) -> dict[str, tuple[str, int]]:
        """Return the kind of each file by path, and the version of the reader that read it."""
        if not self._has_readings:
            return {}
        with self.transaction() as database:
            rows = database.execute(
                "SELECT path, kind, version FROM readings WHERE source = ?", (source.number,)
            ).fetchall()
        return {os.fsdecode(path): (kind, version) for path, kind, version in rows}

    def files_report(self) -> FilesReport:
        """Report the files of all sources; empty if an earlier release read all."""
        if not self._has_readings:
            return FilesReport()
        source_paths = {source.number: source.path for source in self.sources()}
        with self.transaction() as database:
            return report_readings(database, source_paths)

    def paths_of_documents(self, source: Source) -> set[str]:
        """Return the files that gave documents, without archives and mails, which may hold more."""
        with self.transaction() as database:
            rows = database.execute(
                "SELECT DISTINCT path FROM origins WHERE source = ?", (source.number,)
            ).fetchall()
        paths = (os.fsdecode(path) for (path,) in rows)
        root = Path(source.path)
        return {
            path
            for path in paths
            if kind_of_file(root / path) not in ("mbox", "mail") and not is_archive(path)
        }

    def begin(self, changes: Sequence[SourceChanges]) -> None:
        """Note which files are about to be read; an interruption has them read again."""
        with self.transaction() as database:
            database.execute("UPDATE origins SET stale = 0 WHERE stale")
            for change in changes:
                database.executemany(
                    "DELETE FROM files WHERE source = ? AND path = ?",
                    [(change.source.number, hidden_path(path)) for path in change.read],
                )
                rows = [
                    (change.source.number, os.fsencode(path))
                    for path in (*change.read, *change.removed)
                ]
                database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, '', NULL)", rows)
                database.executemany(
                    "UPDATE files SET stamp = ? WHERE source = ? AND path = ?",
                    [
                        (change.seen[path][0], change.source.number, os.fsencode(path))
                        for path in change.outdated
                    ],
                )
                readings = [
                    (change.source.number, os.fsencode(path), *reader_of(path))
                    for path in change.read
                ]
                database.executemany(
                    "INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, '', '', 0)", readings
                )
                database.executemany(
                    "UPDATE origins SET stale = 1 WHERE source = ? AND path = ?", rows
                )
                # An interruption has them read again, which gives their documents the new time.
                database.executemany(
                    "UPDATE files SET stamp = '', hash = NULL WHERE source = ? AND path = ?",
                    [(change.source.number, os.fsencode(path)) for path in change.touched],
                )

    def stale_ids(self) -> Iterator[list[str]]:
        """Yield batches of ids that no file gives any more, once changed files are read."""
        with self.transaction() as database:
            rows = database.execute(
                "SELECT DISTINCT id FROM origins WHERE stale AND id NOT IN "
                "(SELECT id FROM origins WHERE NOT stale)"
            )
            while batch := rows.fetchmany(_BATCH):
                yield [id_ for (id_,) in batch]

    def deleted_ids(self, stored: Callable[[list[str]], Container[str]]) -> frozenset[str]:
        """Return the ids of files that are read again that the index no longer holds."""
        with self.transaction() as database:
            return frozenset(_deleted_ids(database, stored, "WHERE stale"))

    def mark_outdated(self) -> None:
        """Have the next refresh read all files again, as those that an earlier release read."""
        with self.transaction() as database:
            database.execute("UPDATE readings SET version = 0")

    def finish(self, changes: Sequence[SourceChanges], *, removed: bool) -> bool:
        """Note the files that were read, and with `removed` those that are gone.

        Returns whether files must be read again.
        """
        unsettled = "SELECT source, path FROM origins WHERE stale"
        if removed:
            unsettled = (
                "SELECT source, path FROM origins WHERE NOT stale AND id IN "
                "(SELECT id FROM origins WHERE stale)"
            )
        with self.transaction() as database:
            for change in changes:
                number = change.source.number
                # Another process may be reading what is only touched here.
                rows = [
                    (*seen, number, os.fsencode(path), path in change.read | change.touched.keys())
                    for path, seen in change.seen.items()
                ]
                database.executemany(
                    "UPDATE files SET stamp = ?, hash = ? WHERE source = ? AND path = ? "
                    "AND (? OR hash IS NOT NULL)",
                    rows,
                )
                options = change.source.options | {"lacks": files.lacking()}
                database.execute(
                    "UPDATE sources SET options = ? WHERE source = ?", (json.dumps(options), number)
                )
                gone_rows = [(number, os.fsencode(path)) for path in change.removed if removed]
                for table in ("files", "readings"):
                    database.executemany(
                        f"DELETE FROM {table} WHERE source = ? AND path = ?",  # noqa: S608
                        gone_rows,
                    )
                database.execute("DELETE FROM left_out WHERE source = ?", (number,))
                database.executemany(
                    "INSERT INTO left_out VALUES (?, ?, ?)",
                    [(number, reason, files) for reason, files in change.left_out.items()],
                )
            cursor = database.execute(
                f"UPDATE files SET stamp = '', hash = NULL WHERE (source, path) IN ({unsettled})"  # noqa: S608
            )
            if removed:
                database.execute("DELETE FROM origins WHERE stale")
            return cursor.rowcount > 0

    def erase(self, stored: Callable[[list[str]], Container[str]]) -> None:
        """Leave no byte of ids that the index does not hold, nor of the files that were theirs.

        A source that is a file, and of which nothing is left, is forgotten.
        """
        sources = {source.number: source for source in self.sources()}
        with self.transaction() as database:
            deleted_ids = list(_deleted_ids(database, stored))
            paths = database.execute(
                "DELETE FROM origins WHERE id IN (SELECT value FROM json_each(?)) "
                "RETURNING source, path",
                (json.dumps(deleted_ids),),
            ).fetchall()
            for number, path in set(paths):
                _erase_path(database, sources[number], path)
        # Whatever is deleted, SQLite leaves parts of it in pages that are in use or free.
        with self.transaction() as database:
            database.execute("VACUUM")

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget these sources, and what they gave."""
        with self.transaction() as database:
            for number in numbers:
                _forget(database, number)


def _deleted_ids(
    database: sqlite3.Connection,
    stored: Callable[[list[str]], Container[str]],
    condition: str = "",
) -> Iterator[str]:
    """Yield the ids that files gave and that the index does not hold."""
    rows = database.execute(f"SELECT DISTINCT id FROM origins {condition}")  # noqa: S608
    while batch := [id_ for (id_,) in rows.fetchmany(_BATCH)]:
        stored_ids = stored(batch)
        yield from (id_ for id_ in batch if id_ not in stored_ids)


def _erase_path(database: sqlite3.Connection, source: Source, path: bytes) -> None:
    """Put a hash in the place of a file that gave documents, unless it has others."""
    row = source.number, path
    if database.execute("SELECT 1 FROM origins WHERE (source, path) = (?, ?)", row).fetchone():
        return
    if not path:
        _forget(database, source.number)
        return
    database.execute("DELETE FROM readings WHERE (source, path) = (?, ?)", row)
    stamp, digest = database.execute(
        "DELETE FROM files WHERE (source, path) = (?, ?) RETURNING stamp, hash", row
    ).fetchone() or ("", None)
    name = os.fsdecode(path)
    if digest is None:
        # The reading of the file was interrupted. What it holds now is erased.
        with suppress(OSError):
            digest = file_digest(f"{source.path}/{name}")
    hidden = source.number, hidden_path(name), stamp, digest
    database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", hidden)


def _forget(database: sqlite3.Connection, number: int) -> None:
    for table in ("origins", "files", "readings", "left_out", "sources"):
        database.execute(f"DELETE FROM {table} WHERE source = ?", (number,))  # noqa: S608


def memory_path(store: Store) -> Path:
    """In the folder of the index, else in the cache of this machine, which has the files."""
    if store.folder is not None:
        return store.folder / SOURCES_FILE
    name = hashlib.sha256(str(store).encode()).hexdigest()[:16]
    return default_cache() / "sources" / f"{name}.sqlite"
