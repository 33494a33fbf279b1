"""The store in a folder of this machine, and consistent copies of it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from indexes.errors import ConfigError, DamagedIndexError, NotAnIndexError, RetrieverError
from indexes.files import (
    aside_of,
    damaged,
    damaged_database,
    replace_folder,
    storage_errors,
    whole_folder,
)
from indexes.folder.connection import (
    DATABASE_FILE,
    SOURCES_FILE,
    Session,
    foreign_files,
    is_index,
    read_settings,
    refuse_links,
    refuse_remains,
    require_vacant,
)
from indexes.folder.lock import new_folder, recover_replacement, writer_lock
from indexes.folder.segment import MANIFEST_FILE, read_manifest, segment_folder
from indexes.folder.view import FolderReader, size_on_disk
from indexes.platforms import release_to_move
from indexes.protocol import Stage, no_progress

if TYPE_CHECKING:
    from indexes.folder.writer import FolderWriter

# File that marks an unfinished replacement, and holds the command that began it.
_MARKER = f"{DATABASE_FILE}-unfinished"
# Pages of SQLite that are copied before an interruption is noticed.
_PAGES = 4096


class FolderStore:
    """A `Store` in a folder; `folder` is resolved if it is a link, ``.`` or ``..``."""

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder)
        self.folder = path.resolve() if path.name in ("", "..") or path.is_symlink() else path

    @property
    def name(self) -> str:
        """Name of the folder, without ``.index`` and leading dots."""
        return self.folder.absolute().name.removesuffix(".index").lstrip(".") or "index"

    def __str__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"FolderStore({str(self.folder)!r})"

    def exists(self) -> bool:
        with storage_errors(self.folder):
            recover_replacement(self.folder)
            if is_index(self.folder):
                return True
            require_vacant(self.folder)
            refuse_remains(self.folder)
            return False

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        from indexes.folder.writer import FolderWriter

        with FolderWriter(self.folder, settings, lock_timeout=lock_timeout):
            pass

    def reader(self) -> FolderReader:
        return FolderReader(self.folder)

    def writer(self, lock_timeout: float = 0.0) -> FolderWriter:
        from indexes.folder.writer import FolderWriter

        return FolderWriter(self.folder, lock_timeout=lock_timeout)

    @contextmanager
    def replacement(self, begun_with: str) -> Iterator[FolderStore]:
        """Yield the store of a new index in a hidden folder, which replaces this one at the end.

        If this folder is missing or empty, yield this store.
        """
        folder = self.folder
        recover_replacement(folder)
        if not folder.is_dir() or not any(folder.iterdir()):
            yield self
            return
        strangers = foreign_files(folder)
        if strangers:
            raise NotAnIndexError(
                f"{folder}: holds {strangers[0]!r}, which is no part of an index and would be "
                "lost; move it away, or choose another folder with -i"
            )
        if Path.cwd().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"{folder}: the folder is to be replaced and is the current one, or holds it: run "
                "the command from another folder"
            )
        new = new_folder(folder)
        for beside in (new, aside_of(folder)):
            # The user's own folder may have this name.
            require_vacant(beside)
        marker = new / _MARKER
        with writer_lock(folder) as lock:
            with storage_errors(new):
                if not marker.is_file() or marker.read_text("utf-8") != begun_with:
                    # Begun with other settings, or left behind by a finished replacement. The
                    # marker is removed first: no run may resume an interrupted removal.
                    marker.unlink(missing_ok=True)
                    shutil.rmtree(new, ignore_errors=True)
                new.mkdir(exist_ok=True)
                marker.write_text(begun_with, "utf-8")
            try:
                yield FolderStore(new)
            except RetrieverError:
                if [path.name for path in new.iterdir()] == [_MARKER]:
                    shutil.rmtree(new, ignore_errors=True)
                raise
            with storage_errors(folder):
                marker.unlink()
                release_to_move(lock)
                replace_folder(new, folder)

    def verify(self) -> list[str]:
        from indexes.folder.verify import verify

        return verify(self.folder)

    def size(self) -> int:
        return size_on_disk(self.folder)

    def damaged(self, reason: object) -> DamagedIndexError:
        return damaged_database(self.folder, reason)


class Backup(NamedTuple):
    """Content of a snapshot, and how it was made.

    Attributes:
        generation: generation of the commit that was copied.
        documents: number of documents.
        segments: number of segments.
        linked: number of files that are hard links to files of the index.
        copied: number of files of segments that were copied.
    """

    generation: int
    documents: int
    segments: int
    linked: int
    copied: int


def snapshot_index(folder: str | Path, target: str | Path, progress: Stage = no_progress) -> Backup:
    """Copy an index as one of its commits left it, with its sources, and verify the copy.

    The database is copied inside one read transaction. Files of segments never change: they are
    hard-linked, or copied where the file system cannot link. If a writer merges segments meanwhile,
    the copy is that of a later commit.

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
    folder = Path(folder)
    target = Path(target).resolve()
    # Segment number and SHA-256 of the manifest to the numbers of linked and copied files. Segments
    # of one commit that a later commit names too are not copied again.
    copied: dict[tuple[int, str], tuple[int, int]] = {}
    with closing(Session(folder)) as session:
        _check_target(folder, target)
        with whole_folder(target, replace=False) as new:
            _copy_memory(folder, new)
            with session.commit(
                lambda session: _copy_commit(session, new, copied, progress)
            ) as backup:
                pass
            try:
                problems = FolderStore(new).verify()
            except DamagedIndexError as error:
                problems = [str(error)]
            if problems:
                problem = problems[0].replace(str(new), str(folder))
                raise DamagedIndexError(f"{problem}; no snapshot was made: restore the index first")
    return backup


def _check_target(folder: Path, target: Path) -> None:
    """Refuse a target that cannot hold a copy of the index."""
    if target.is_relative_to(folder.resolve()):
        raise ConfigError(
            f"{target}: is the index itself, or a folder in it; choose another folder"
        )
    if not target.parent.is_dir():
        raise ConfigError(
            f"{target}: expected a name in a folder that exists; make the folder or choose another"
        )
    content = ["a file"] if target.exists() else []
    if target.is_dir():
        content = [f"{path.name!r} in it" for path in sorted(target.iterdir())]
    if content:
        raise ConfigError(
            f"{target}: expected a new name or an empty folder, found {content[0]}; choose another"
        )


def _copy_commit(
    session: Session, new: Path, done: dict[tuple[int, str], tuple[int, int]], progress: Stage
) -> Backup:
    """Copy a commit; `done` has the segments that were copied for an earlier commit."""
    folder = session.folder
    connection = session.connection
    (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    segments = connection.execute("SELECT segment, manifest FROM segments").fetchall()
    for number, manifest in set(done) - set(segments):
        shutil.rmtree(segment_folder(new, number))
        del done[number, manifest]
    report_copied = progress("copying segments", len(segments))
    for number, manifest in segments:
        if (number, manifest) not in done:
            source = segment_folder(folder, number)
            into = segment_folder(new, number)
            done[number, manifest] = _copy_segment(source, manifest, into)
        report_copied(1)
    _copy_database(connection, new / DATABASE_FILE, progress)
    linked, copied_files = map(sum, zip((0, 0), *done.values(), strict=True))
    generation = int(read_settings(connection)["generation"])
    return Backup(generation, documents, len(segments), linked, copied_files)


def _copy_segment(source: Path, manifest_hash: str, into: Path) -> tuple[int, int]:
    """Link or copy the files of a segment; return how many were linked, and how many copied."""
    names = [*read_manifest(source, manifest_hash)["files"], MANIFEST_FILE]
    linked = 0
    with storage_errors(into):
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for name in names:
            try:
                os.link(source / name, into / name)
                linked += 1
            except FileNotFoundError as error:
                raise damaged(source / name, "the file is missing") from error
            except OSError:
                # Another file system, or one without links, or too many of them.
                shutil.copyfile(source / name, into / name)
    return linked, len(names) - linked


def _copy_memory(folder: Path, new: Path) -> None:
    """Copy the memory of sources before the commit: it must not be ahead of the commit."""
    memory = folder / SOURCES_FILE
    refuse_links(folder, SOURCES_FILE)
    if memory.exists():
        with closing(sqlite3.connect(memory)) as connection:
            try:
                _copy_database(connection, new / SOURCES_FILE, no_progress)
            except DamagedIndexError as error:
                raise damaged(memory, "the file was altered") from error


def _copy_database(connection: sqlite3.Connection, target: Path, progress: Stage) -> None:
    """Copy the database as the read transaction of `connection` sees it."""
    with storage_errors(target.parent):
        target.unlink(missing_ok=True)
        (total,) = connection.execute("PRAGMA page_count").fetchone()
        update = progress("copying database pages", total)
        reported = 0

        def report(_: int, remaining: int, total: int) -> None:
            nonlocal reported
            update(total - remaining - reported)
            reported = total - remaining

        with closing(sqlite3.connect(target)) as copy:
            connection.backup(copy, pages=_PAGES, progress=report)
