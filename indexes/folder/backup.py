"""A consistent copy of an index, made while others read and write it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from indexes.errors import ConfigError, DamagedIndexError, StorageError
from indexes.files.atomic import whole_folder
from indexes.files.faults import damaged, readable, storage_errors
from indexes.folder.verify import verify
from indexes.progress import Stage, no_progress
from indexes.segments.segment import MANIFEST_FILE, read_manifest, segment_folder
from indexes.store.connection import DATABASE_FILE, open_reader, transaction
from indexes.store.settings import read_setting

# The segments in the copy, as SQLite names them: number and SHA-256 of the manifest, to how many of
# their files are linked and how many copied.
_Done = dict[tuple[int, str], tuple[int, int]]

# Of SQLite's pages, between two looks at whether the person interrupts.
_PAGES = 4096


@dataclass(frozen=True, slots=True)
class Backup:
    """What a snapshot holds and how it was made.

    Attributes:
        generation: the commit of the index that it is a copy of.
        documents: how many it holds.
        segments: how many it has.
        linked: files that are hard links to those of the index.
        copied: files of segments that were copied.
    """

    generation: int
    documents: int
    segments: int
    linked: int
    copied: int


def snapshot_index(
    folder: str | Path,
    target: str | Path,
    progress: Stage = no_progress,
) -> Backup:
    """Copy an index as one of its commits left it, and verify the copy.

    The database is copied inside one read transaction. The files of segments never change, so
    they are hard-linked, or copied where the file system cannot link. A writer that merges
    segments away meanwhile does not disturb: the copy then is of a later commit.

    Args:
        folder: the index.
        target: does not exist yet, or is an empty folder; appears complete or not at all.
        progress: receives the progress in segments and in pages of the database.

    Raises:
        ConfigError: the target holds something, is a file, is inside the index or in a folder that
            does not exist.
        DamagedIndexError: the index is not sound; nothing is left of the copy.
        StorageError: the disk is full or cannot be written.
        NotAnIndexError, FormatVersionError
    """
    folder, target = Path(folder), Path(target).resolve()
    with closing(open_reader(folder)):
        check_target(folder, target)
    with whole_folder(target, replace=False) as new:
        made = _copy_latest(folder, new, progress)
        _require_sound(folder, new)
    return made


def check_target(folder: Path, target: Path) -> None:
    """Refuse a place where no copy of the index `folder` can be made.

    Raises:
        ConfigError: see `snapshot_index`.
    """
    if target.is_relative_to(folder.resolve()):
        raise ConfigError(
            f"{target}: is the index itself, or a folder in it; choose another folder"
        )
    if not target.parent.is_dir():
        raise ConfigError(
            f"{target}: expected a name in a folder that exists; make the folder or choose another"
        )
    if not target.exists():
        return
    if not target.is_dir():
        raise ConfigError(f"{target}: expected a new folder, found a file; choose another")
    found = sorted(path.name for path in target.iterdir())
    if found:
        raise ConfigError(
            f"{target}: expected a new name or an empty folder, found {found[0]!r} in it; choose "
            "another"
        )


def _copy_latest(folder: Path, new: Path, progress: Stage) -> Backup:
    """Copy a commit; where a writer took files of it away meanwhile, a later one."""
    done: _Done = {}
    while True:
        with closing(open_reader(folder)) as session:
            connection = session.connection
            try:
                generation = _generation(folder, connection)
                made = _copy_commit(folder, connection, new, done, progress)
            except (DamagedIndexError, StorageError):
                # Of what was copied already, what a later commit names too is kept.
                if session.is_current() and _generation(folder, connection) == generation:
                    raise
            else:
                if session.is_current():
                    return made


def _generation(folder: Path, connection: sqlite3.Connection) -> int:
    with storage_errors(folder), readable(folder):
        return int(read_setting(connection, "generation"))


def _copy_commit(
    folder: Path,
    connection: sqlite3.Connection,
    new: Path,
    done: _Done,
    progress: Stage,
) -> Backup:
    with storage_errors(folder), transaction(connection, "DEFERRED"), readable(folder):
        generation = int(read_setting(connection, "generation"))
        (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
        named = connection.execute("SELECT segment, manifest FROM segments").fetchall()
        for number, manifest in set(done) - set(named):
            shutil.rmtree(segment_folder(new, number))
            del done[number, manifest]
        copied = progress("copying segments", len(named))
        for number, manifest in named:
            if (number, manifest) not in done:
                source, into = segment_folder(folder, number), segment_folder(new, number)
                done[number, manifest] = _copy_segment(source, manifest, into)
            copied(1)
        _copy_database(connection, new / DATABASE_FILE, progress)
    linked, whole = (sum(counts[i] for counts in done.values()) for i in (0, 1))
    return Backup(generation, documents, len(named), linked, whole)


def _copy_segment(source: Path, manifest_hash: str, into: Path) -> tuple[int, int]:
    """Link or copy a segment's files; how many were linked, and how many copied.

    Raises:
        DamagedIndexError: a file is missing or the manifest is another one.
    """
    names = [*read_manifest(source, manifest_hash)["files"], MANIFEST_FILE]
    linked = 0
    with storage_errors(into):
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for name in names:
            if Path(name).name != name:
                raise damaged(
                    source / MANIFEST_FILE, f"names {name!r}, expected a name without a folder"
                )
            try:
                linked += _linked(source / name, into / name)
            except FileNotFoundError as error:
                raise damaged(source / name, "the file is missing") from error
    return linked, len(names) - linked


def _linked(source: Path, target: Path) -> bool:
    """Give a file a second name, or copy it where that cannot be; says which."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # Another file system, or one without links, or too many of them.
        shutil.copyfile(source, target)
        return False
    return True


def _copy_database(connection: sqlite3.Connection, target: Path, progress: Stage) -> None:
    """Copy what the read transaction of `connection` sees."""
    with storage_errors(target.parent):
        target.unlink(missing_ok=True)
        told = 0
        update: Callable[[int], object] | None = None

        def tell(_: int, remaining: int, total: int) -> None:
            nonlocal told, update
            update = update or progress("copying database pages", total)
            update(total - remaining - told)
            told = total - remaining

        with closing(sqlite3.connect(target)) as copy:
            connection.backup(copy, pages=_PAGES, progress=tell)


def _require_sound(folder: Path, new: Path) -> None:
    try:
        problems = verify(new)
    except DamagedIndexError as error:
        problems = [str(error)]
    if problems:
        found = problems[0].replace(str(new), str(folder))
        raise DamagedIndexError(f"{found}; no snapshot was made: restore the index first")
