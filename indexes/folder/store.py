"""The store that is a folder on this machine, and the reference for the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indexes.errors import (
    ConfigError,
    DamagedIndexError,
    NotAnIndexError,
    RetrieverError,
)
from indexes.files.atomic import aside_of, replace_folder
from indexes.files.faults import damaged_database, storage_errors
from indexes.folder.reader import FolderReader
from indexes.folder.verify import verify
from indexes.folder.view import size_on_disk
from indexes.folder.writer import FolderWriter
from indexes.progress import Stage, no_progress
from indexes.segments import maintenance
from indexes.store.connection import (
    DATABASE_FILE,
    foreign_files,
    is_index,
    refuse_remains,
    require_vacant,
)
from indexes.store.lock import WriterLock
from indexes.store.replacement import new_folder, recover_replacement
from indexes.vectors.choice import StructureSettings

# Marks an unfinished replacement, and holds what it was begun with.
_MARKER = f"{DATABASE_FILE}-unfinished"


class MaintainedWriter(FolderWriter):
    """The one writer of an index folder, which also merges segments."""

    def merge(self, stage: Stage = no_progress) -> int:
        """Merge segments; see `indexes.segments.maintenance.merge`."""
        return maintenance.merge(self, stage)

    def settle(self, added: int, stage: Stage = no_progress) -> int:
        """Merge segments after a run; see `indexes.segments.maintenance.settle`."""
        return maintenance.settle(self, added, stage)

    def compact(self, stage: Stage = no_progress) -> int:
        """Merge all segments into one; see `indexes.segments.maintenance.compact`."""
        return maintenance.compact(self, stage)

    def rebuild(self, structures: StructureSettings, stage: Stage = no_progress) -> int:
        """Merge all segments; see `indexes.segments.maintenance.rebuild`."""
        return maintenance.rebuild(self, structures, stage)


class FolderStore:
    """An index folder; see `indexes.protocol.Store`.

    Attributes:
        folder: its path; not a link, nor written ``.`` or ``..``, so that it can be replaced.
    """

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder)
        self.folder = path.resolve() if path.name in ("", "..") or path.is_symlink() else path

    @property
    def name(self) -> str:
        """The folder's own name, without ``.index`` and leading dots."""
        return self.folder.absolute().name.removesuffix(".index").lstrip(".") or "index"

    def __str__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"FolderStore({str(self.folder)!r})"

    def exists(self) -> bool:
        """Whether there is an index; see `indexes.protocol.Store`."""
        with storage_errors(self.folder):
            recover_replacement(self.folder)
            if is_index(self.folder):
                return True
            require_vacant(self.folder)
            refuse_remains(self.folder)
            return False

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        """Make an empty index; see `indexes.protocol.Store`."""
        with FolderWriter(self.folder, settings, lock_timeout=lock_timeout):
            pass

    def reader(self) -> FolderReader:
        """Open it for reading."""
        return FolderReader(self.folder)

    def writer(self, lock_timeout: float = 0.0) -> MaintainedWriter:
        """Open it for writing, and lock it."""
        return MaintainedWriter(self.folder, lock_timeout=lock_timeout)

    @contextmanager
    def replacement(self, begun_with: str) -> Iterator[FolderStore]:
        """A new index in a hidden folder beside this one; see `indexes.protocol.Store`.

        Where there is nothing yet, that is this one. The old index is replaced whether it is
        damaged or not.

        Raises:
            IndexLockedError: another writer holds the old index.
            NotAnIndexError: the folder, or one beside it that is needed, holds other files.
            ConfigError: the current folder is, or is inside, the one to be replaced.
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
        with WriterLock(folder):
            with storage_errors(new):
                if not marker.is_file() or marker.read_text() != begun_with:
                    # Other settings, or the old index that a finished replacement left behind. The
                    # marker goes first, so that no run resumes what an interruption leaves of it.
                    marker.unlink(missing_ok=True)
                    shutil.rmtree(new, ignore_errors=True)
                new.mkdir(exist_ok=True)
                marker.write_text(begun_with)
            try:
                yield FolderStore(new)
            except RetrieverError:
                if [path.name for path in new.iterdir()] == [_MARKER]:
                    shutil.rmtree(new, ignore_errors=True)
                raise
            with storage_errors(folder):
                marker.unlink()
                replace_folder(new, folder)

    def verify(self) -> list[str]:
        """Check every file, count and id; see `indexes.folder.verify`."""
        return verify(self.folder)

    def size(self) -> int:
        """Bytes of every file of the folder."""
        return size_on_disk(self.folder)

    def damaged(self, reason: object) -> DamagedIndexError:
        """The error to raise if the database was altered."""
        return damaged_database(self.folder, reason)
