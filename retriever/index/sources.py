"""What an index remembers of its sources, and what has changed in them since.

It is in a small database beside that of the index: the sources with the options of reading them,
the files of each, and the ids of the documents that each file gave. An id is written there before
its document is committed, so that whatever an interruption leaves is found again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from indexes import SOURCES_FILE, id_forms, storage_errors
from retriever.documents.document import Document
from retriever.documents.files import KINDS, kind_of, kind_of_file
from retriever.documents.folders import FolderRules, files_below
from retriever.documents.kinds import Loss, LossKind
from retriever.documents.reader import CorpusReader, Placed
from retriever.documents.report import FilesReport
from retriever.documents.sources import UnopenedError, composed
from retriever.documents.tables import split_table
from retriever.errors import DamagedIndexError
from retriever.files import default_cache, make_private

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
# Characters of the losses of one file that are kept, and of the reason for skipping one.
_LOSSES_LENGTH = 10_000
_FAULT_LENGTH = 500
# Stamp and hash of a file.
_Known = tuple[str, bytes | None]
_OPTIONS = {"reader", "on_long", "is_folder", "lacks"}
# Documents that are noted together, by number and by the characters of their texts.
_BATCH = 512
_CHARACTERS = 1 << 20
# A file that changed so shortly ago can change again within the same tick of its clock.
_RECENT_NS = 2 * 10**9


class Source(NamedTuple):
    """A source that an index remembers."""

    number: int
    path: str  # absolute; of a database with its table
    # `reader`: of `CorpusReader.again`; `on_long`; `is_folder`; `lacks`: modules without which
    # files were passed over.
    options: dict[str, Any]


@dataclass(slots=True)
class Changes:
    """How a source differs from what is remembered of it."""

    source: Source
    read: set[str] = field(default_factory=set)  # files that are to be read
    # Of these, files that are as they were, but read by a reader of an earlier release.
    outdated: set[str] = field(default_factory=set)
    # New stamps and hashes of these, and of files whose content is as it was.
    seen: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    missing: str | None = None  # why the source as a whole is not there
    gone: list[str] = field(default_factory=list)  # all files, if the source is missing
    # What cannot be read at the moment and keeps its documents, with the reason.
    unreadable: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


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
        with self._transaction() as database:
            rows = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
            tables = {sql for (sql,) in rows}
            if not tables:
                database.executescript(f"BEGIN; {'; '.join((*_SCHEMA, *_READINGS_SCHEMA))}")
            elif tables == set(_SCHEMA):
                # An index that cannot be written is read without them.
                with suppress(sqlite3.OperationalError):
                    database.executescript(f"BEGIN; {'; '.join(_READINGS_SCHEMA)}")
                    _note_earlier_readings(database)
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
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """The database; its errors and those of the disk as those of this project."""
        try:
            with storage_errors(self._path.parent), self._database:
                yield self._database
        except (DamagedIndexError, sqlite3.DatabaseError) as error:
            raise DamagedIndexError(
                f"{self._path}: what the index remembers of its sources was altered "
                f"({error.__cause__ or error}); remove this file and index the sources again with "
                "--prune"
            ) from error

    def sources(self) -> list[Source]:
        """The sources, in the order in which they were first indexed."""
        with self._transaction() as database:
            rows = database.execute("SELECT * FROM sources ORDER BY source").fetchall()
            with suppress(AttributeError, TypeError, ValueError):
                found = [
                    Source(one, os.fsdecode(path), json.loads(text)) for one, path, text in rows
                ]
                if all(one.options.keys() == _OPTIONS for one in found):
                    return found
            raise sqlite3.DatabaseError("the options of a source were altered")

    def count(self) -> int:
        """The number of documents that the sources hold."""
        with self._transaction() as database:
            return int(database.execute("SELECT count(*) FROM origins").fetchone()[0])

    def places(self, id_: str) -> list[tuple[str, str]]:
        """The sources that have a document as a whole file, and its path below each, a folder.

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
                is_file = composed(id_) == composed(prefix or "")
            if not is_file:
                continue
            # The names of a file may be decomposed where its id is not.
            for form in id_forms(path):
                with self._transaction() as database:
                    row = (source.number, os.fsencode(form), id_)
                    origin = "SELECT 1 FROM origins WHERE (source, path, id) = (?, ?, ?)"
                    if database.execute(origin, row).fetchone() is not None:
                        places.append((source.path, form))
        return places

    def enter(self, reader: CorpusReader, on_long: str | None) -> list[Source]:
        """Remember the sources of a reader, in place of what was known of how they are read."""
        entered = []
        with self._transaction() as database:
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
                    "lacks": lacking(),
                }
                (number,) = database.execute(
                    "INSERT INTO sources (path, options) VALUES (?, ?) ON CONFLICT (path) DO "
                    "UPDATE SET options = excluded.options RETURNING source",
                    (os.fsencode(path), json.dumps(options)),
                ).fetchone()
                entered.append(Source(number, path, options))
        return entered

    def changes(self, source: Source, *, every: bool = False) -> Changes:
        """What has changed in a source, by size and time, then by hash; with `every`, all of it."""
        found = Changes(source)
        known, erased = self._files(source)
        versions = self._reader_versions(source)
        # What is installed since may read what was passed over, and gave nothing.
        is_complete = set(source.options["lacks"]) <= set(lacking())
        gave = set[str]() if is_complete else self._paths_of_documents(source)
        there, unlisted = _files_of(source, found)
        if found.missing is None and known and not there and not unlisted:
            found.missing = "holds none of its files any more"
        now = time.time_ns()
        for path, (place, status) in there.items():
            row = path if path in known else os.fsdecode(_hidden(path))
            old = known.pop(path, None) or erased.get(row, ("", None))
            new = _stamp(place, path, status, now)
            # An interruption left it so while an outdated file was read.
            is_begun = new != "" and old == (new, None)
            is_outdated = row == path and (is_begun or _is_outdated(versions.get(path)))
            is_due = every or not (is_complete or path in gave or row in erased)
            if new and old[0] == new and old[1] is not None and not is_due:
                if is_outdated:
                    found.read.add(path)
                    found.outdated.add(path)
                    found.seen[path] = new, old[1]
                continue
            try:
                digest = _digest(place)
            except OSError as error:
                found.unreadable.append(f"{place}: cannot be read: {error.strerror}")
                continue
            is_changed = (digest != old[1] and not is_begun) or is_due or _has_log(place, path)
            if is_changed or is_outdated:
                found.read.add(path)
                row = path
                if not is_changed:
                    found.outdated.add(path)
            found.seen[row] = new, digest
        # An erased file is not forgotten: where it comes back unchanged, it stays erased.
        found.gone = [path for path in known if not f"{path}/".startswith(tuple(unlisted))]
        return found

    def _files(self, source: Source) -> tuple[dict[str, _Known], dict[str, _Known]]:
        """Stamps and hashes of files by path, and those of erased files by what stands for it."""
        known: dict[str, _Known] = {}
        erased: dict[str, _Known] = {}
        with self._transaction() as database:
            for path, stamp, digest in database.execute(
                "SELECT path, stamp, hash FROM files WHERE source = ?", (source.number,)
            ):
                files = erased if path.startswith(b"\0") else known
                files[os.fsdecode(path)] = stamp, digest
        return known, erased

    def _reader_versions(self, source: Source) -> dict[str, tuple[str, int]]:
        """The kind of each file by path, and the version of the reader that read it."""
        if not self._has_readings:
            return {}
        with self._transaction() as database:
            rows = database.execute(
                "SELECT path, kind, version FROM readings WHERE source = ?", (source.number,)
            ).fetchall()
        return {os.fsdecode(path): (kind, version) for path, kind, version in rows}

    def files_report(self) -> FilesReport:
        """The files of all sources by what became of them; empty if an earlier release read all."""
        report = FilesReport()
        if not self._has_readings:
            return report
        names = {source.number: source.path for source in self.sources()}
        with self._transaction() as database:
            for kind, files in database.execute(
                "SELECT kind, count(*) FROM readings WHERE fault = '' GROUP BY kind ORDER BY 2 DESC"
            ):
                if kind in KINDS:
                    report.read[KINDS[kind].label] += files
            report.without_text, report.skipped = database.execute(
                "SELECT coalesce(sum(is_empty), 0), coalesce(sum(fault != ''), 0) FROM readings"
            ).fetchone()
            for number, path, losses in database.execute(
                "SELECT source, path, losses FROM readings WHERE losses != '' ORDER BY 1, 2"
            ):
                pairs = [line.split(": ", 1) for line in losses.splitlines()]
                place = os.path.join(names[number], os.fsdecode(path))
                report.add_losses(
                    place.rstrip("/"), [Loss(cast(LossKind, kind), why) for kind, why in pairs]
                )
            for reason, files in database.execute("SELECT reason, files FROM left_out"):
                report.left_out[reason] += files
        return report

    def _paths_of_documents(self, source: Source) -> set[str]:
        """The files that gave documents, but mailboxes, which may hold more."""
        with self._transaction() as database:
            rows = database.execute(
                "SELECT DISTINCT path FROM origins WHERE source = ?", (source.number,)
            ).fetchall()
        paths = (os.fsdecode(path) for (path,) in rows)
        root = Path(source.path)
        return {path for path in paths if kind_of_file(root / path) != "mbox"}

    def begin(self, changes: Sequence[Changes]) -> None:
        """Note which files are about to be read; an interruption has them read again."""
        with self._transaction() as database:
            database.execute("UPDATE origins SET stale = 0 WHERE stale")
            for one in changes:
                database.executemany(
                    "DELETE FROM files WHERE source = ? AND path = ?",
                    [(one.source.number, _hidden(path)) for path in one.read],
                )
                rows = [(one.source.number, os.fsencode(path)) for path in (*one.read, *one.gone)]
                database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, '', NULL)", rows)
                database.executemany(
                    "UPDATE files SET stamp = ? WHERE source = ? AND path = ?",
                    [
                        (one.seen[path][0], one.source.number, os.fsencode(path))
                        for path in one.outdated
                    ],
                )
                readings = [
                    (one.source.number, os.fsencode(path), *_reader_of(path)) for path in one.read
                ]
                database.executemany(
                    "INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, '', '', 0)", readings
                )
                database.executemany(
                    "UPDATE origins SET stale = 1 WHERE source = ? AND path = ?", rows
                )

    def noted(self, reader: CorpusReader, sources: Iterable[Source]) -> Iterator[Document]:
        """The documents of a reader; each is noted before it is given."""
        numbers = {one.path: one.number for one in sources}
        batch: list[Placed] = []
        characters = 0
        try:
            for one in reader.placed():
                batch.append(one)
                characters += len(one.document.text)
                if len(batch) == _BATCH or characters >= _CHARACTERS:
                    given = batch
                    batch = []
                    characters = 0
                    yield from self._noted(given, numbers)
        except Exception:
            # Those before a fault are indexed.
            yield from self._noted(batch, numbers)
            raise
        yield from self._noted(batch, numbers)
        with self._transaction() as database:
            places = [
                (numbers.get(os.path.abspath(source)), os.fsencode(path), fault[:_FAULT_LENGTH])
                for source, path, fault in reader.unread
            ]
            database.executemany(
                "UPDATE readings SET fault = ?3 WHERE (source, path) = (?1, ?2) AND NOT EXISTS "
                "(SELECT 1 FROM origins WHERE (source, path) = (?1, ?2) AND NOT stale)",
                places,
            )
            # A file of which nothing can be read any more keeps its documents.
            database.executemany(
                "UPDATE origins SET stale = 0 WHERE (source, path) = (?1, ?2) AND NOT EXISTS "
                "(SELECT 1 FROM origins WHERE (source, path) = (?1, ?2) AND NOT stale)",
                (place[:2] for place in places),
            )

    def _noted(self, batch: Sequence[Placed], numbers: dict[str, int]) -> Iterator[Document]:
        numbered = [(numbers.get(os.path.abspath(document.source)), document) for document in batch]
        placed = [self._with_stored_id(number, document) for number, document in numbered]
        rows = [
            (number, os.fsencode(placement.file), placement.document.id)
            for number, placement in placed
            if number is not None and not placement.document.is_empty
        ]
        readings = [
            (
                placement.kind,
                KINDS[placement.kind].reader_version,
                "".join(f"{loss.kind}: {loss.detail}\n" for loss in placement.losses),
                placement.document.is_empty,
                number,
                os.fsencode(placement.file),
            )
            for number, placement in placed
            if number is not None and placement.kind
        ]
        with self._transaction() as database:
            database.executemany("INSERT OR REPLACE INTO origins VALUES (?, ?, ?, 0)", rows)
            database.executemany(
                f"UPDATE readings SET kind = ?, version = ?, "  # noqa: S608
                f"losses = substr(losses || ?, 1, {_LOSSES_LENGTH}), is_empty = ? "
                "WHERE (source, path) = (?, ?)",
                readings,
            )
        yield from (placement.document for _, placement in placed if not placement.is_repeated)

    def _with_stored_id(self, number: int | None, placed: Placed) -> tuple[int | None, Placed]:
        """The document with the id that an earlier release gave it, where that is not composed."""
        document = placed.document
        if number is None or document.id.isascii():
            return number, placed
        with self._transaction() as database:
            row = (number, os.fsencode(placed.file))
            rows = database.execute("SELECT id FROM origins WHERE (source, path) = (?, ?)", row)
            stored = [id_ for (id_,) in rows if id_ != document.id and composed(id_) == document.id]
        if not stored:
            return number, placed
        return number, placed._replace(document=replace(document, id=stored[0]))

    def stale_ids(self) -> Iterator[list[str]]:
        """In batches, the ids that files gave that were read, or are gone, and that none has."""
        with self._transaction() as database:
            rows = database.execute(
                "SELECT DISTINCT id FROM origins WHERE stale AND id NOT IN "
                "(SELECT id FROM origins WHERE NOT stale)"
            )
            while batch := rows.fetchmany(_BATCH):
                yield [id_ for (id_,) in batch]

    def deleted_ids(self, stored: Callable[[list[str]], Container[str]]) -> frozenset[str]:
        """The ids of files that are being read again which the index does not hold any more."""
        with self._transaction() as database:
            return frozenset(_deleted_ids(database, stored, "WHERE stale"))

    def mark_outdated(self) -> None:
        """Have the next refresh read all files again, as those that an earlier release read."""
        with self._transaction() as database:
            database.execute("UPDATE readings SET version = 0")

    def finish(self, changes: Sequence[Changes], *, removed: bool) -> bool:
        """Note what was read or is gone (`removed`); returns whether files are to be read again."""
        unsettled = "SELECT source, path FROM origins WHERE stale"
        if removed:
            unsettled = (
                "SELECT source, path FROM origins WHERE NOT stale AND id IN "
                "(SELECT id FROM origins WHERE stale)"
            )
        with self._transaction() as database:
            for one in changes:
                number = one.source.number
                # Another process may be reading what is only touched here.
                rows = [
                    (*seen, number, os.fsencode(path), path in one.read)
                    for path, seen in one.seen.items()
                ]
                database.executemany(
                    "UPDATE files SET stamp = ?, hash = ? WHERE source = ? AND path = ? "
                    "AND (? OR hash IS NOT NULL)",
                    rows,
                )
                options = one.source.options | {"lacks": lacking()}
                database.execute(
                    "UPDATE sources SET options = ? WHERE source = ?", (json.dumps(options), number)
                )
                gone = [(number, os.fsencode(path)) for path in one.gone if removed]
                for table in ("files", "readings"):
                    database.executemany(
                        f"DELETE FROM {table} WHERE source = ? AND path = ?",  # noqa: S608
                        gone,
                    )
                database.execute("DELETE FROM left_out WHERE source = ?", (number,))
                database.executemany(
                    "INSERT INTO left_out VALUES (?, ?, ?)",
                    [(number, reason, files) for reason, files in one.left_out.items()],
                )
            found = database.execute(
                f"UPDATE files SET stamp = '', hash = NULL WHERE (source, path) IN ({unsettled})"  # noqa: S608
            )
            if removed:
                database.execute("DELETE FROM origins WHERE stale")
            return found.rowcount > 0

    def erase(self, stored: Callable[[list[str]], Container[str]]) -> None:
        """Leave no byte of ids that the index does not hold, nor of the files that were theirs.

        A source that is a file, and of which nothing is left, is forgotten.
        """
        sources = {source.number: source for source in self.sources()}
        with self._transaction() as database:
            deleted_ids = list(_deleted_ids(database, stored))
            paths = database.execute(
                "DELETE FROM origins WHERE id IN (SELECT value FROM json_each(?)) "
                "RETURNING source, path",
                (json.dumps(deleted_ids),),
            ).fetchall()
            for number, path in set(paths):
                _erase_path(database, sources[number], path)
        # Whatever is deleted, SQLite leaves parts of it in pages that are in use or free.
        with self._transaction() as database:
            database.execute("VACUUM")

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget these sources, and what they gave."""
        with self._transaction() as database:
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
            digest = _digest(f"{source.path}/{name}")
    hidden = source.number, _hidden(name), stamp, digest
    database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", hidden)


def _forget(database: sqlite3.Connection, number: int) -> None:
    for table in ("origins", "files", "readings", "left_out", "sources"):
        database.execute(f"DELETE FROM {table} WHERE source = ?", (number,))  # noqa: S608


@cache
def lacking() -> list[str]:
    """Modules that some kinds of files need and that are not installed."""
    needed = {module for kind in KINDS.values() for module in kind.needs}
    return sorted(module for module in needed if find_spec(module) is None)


def passed_over(source: Source) -> Counter[str]:
    """The files of a source, by kind, that packages which are not installed would read."""
    there, _ = _files_of(source, Changes(source))
    lacks = set(lacking())
    kinds = [KINDS[kind] for place, _ in there.values() if (kind := kind_of(place)) is not None]
    return Counter(kind.label for kind in kinds if lacks.intersection(kind.needs))


def memory_path(store: Store) -> Path:
    """In the folder of the index, else in the cache of this machine, which has the files."""
    if store.folder is not None:
        return store.folder / SOURCES_FILE
    name = hashlib.sha256(str(store).encode()).hexdigest()[:16]
    return default_cache() / "sources" / f"{name}.sqlite"


def _files_of(
    source: Source, found: Changes
) -> tuple[dict[str, tuple[str, os.stat_result]], list[str]]:
    """The files of a source with their places, and what of it cannot be listed, with a slash."""
    place = split_table(source.path)[0]
    unlisted = []
    there: dict[str, tuple[str, os.stat_result]] = {}
    if not place.exists():
        found.missing = "does not exist"
    elif place.is_dir() != source.options["is_folder"]:
        found.missing = "is now a folder" if place.is_dir() else "is no folder any more"
    elif not place.is_dir():
        there[""] = str(place), place.stat()
    else:
        given = source.options["reader"]
        rules = FolderRules(tuple(given["include"]), tuple(given["exclude"]))
        try:
            for entry in files_below(place, rules, found.left_out):
                if entry.fault is not None and not entry.passed_over:
                    unlisted.append(f"{entry.path}/")
                    found.unreadable.append(f"{place}/{entry.path}: {entry.fault}")
                elif entry.status is not None:
                    there[entry.path] = f"{place}/{entry.path}", entry.status
        except UnopenedError as error:
            # The source itself cannot be listed.
            unlisted.append("")
            found.unreadable.append(str(error))
    return there, unlisted


def _note_earlier_readings(database: sqlite3.Connection) -> None:
    """Note that an earlier release read all files that it remembers."""
    rows = database.execute(
        "SELECT source, files.path, sources.path FROM files JOIN sources USING (source) "
        "WHERE substr(files.path, 1, 1) != x'00'"
    ).fetchall()
    readings = []
    for number, path, source_path in rows:
        kind = kind_of(os.fsdecode(path or source_path)) or ""
        # A text that is a source has a document a line.
        is_file = path or kind != "text"
        readings.append((number, path, kind if is_file else "", 0, "", "", 0))
    database.executemany("INSERT INTO readings VALUES (?, ?, ?, ?, ?, ?, ?)", readings)


def _reader_of(path: str) -> tuple[str, int]:
    """The kind of a file of a folder by its name, and the version of the reader of that kind.

    A file that is a source gets its kind when it is read: it may be a table or lines.
    """
    kind = (kind_of(path) or "") if path else ""
    return kind, KINDS[kind].reader_version if kind else 0


def _is_outdated(reading: tuple[str, int] | None) -> bool:
    """Whether a reader of an earlier release read a file, and the newest reads more."""
    kind, version = reading or ("", 0)
    return kind in KINDS and KINDS[kind].reader_version > version


def _hidden(path: str) -> bytes:
    """What stands for the path of a file whose documents were erased; no path holds NUL."""
    return b"\0" + hashlib.blake2b(os.fsencode(path), digest_size=16).digest()


def _has_log(place: str, path: str) -> bool:
    """Whether a database that is a source keeps beside itself what was committed last."""
    return not path and os.path.exists(f"{place}-wal")


def _stamp(place: str, path: str, status: os.stat_result, now: int) -> str:
    """Size and times of a file; empty while it may change without another time."""
    if now - status.st_ctime_ns < _RECENT_NS or _has_log(place, path):
        return ""
    # The time of the last change of any kind (ctime) cannot be set, unlike that of the content.
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _digest(place: str) -> bytes:
    with open(place, "rb", buffering=0) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
