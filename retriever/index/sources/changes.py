"""How a source differs from what an index remembers of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from retriever.documents.file_kinds import KINDS, is_document, kind_of_file
from retriever.index.sources import files
from retriever.index.sources.files import (
    FileState,
    Source,
    SourceChanges,
    SourceListing,
    file_digest,
    file_stamp,
    has_log,
    hidden_path,
    is_settled,
    list_files,
    stamped_time,
)

if TYPE_CHECKING:
    from retriever.index.sources.memory import SourceMemory


def find_changes(memory: SourceMemory, source: Source, *, every: bool = False) -> SourceChanges:
    """Compare the files of a source by size and time, then by hash; with `every`, read all."""
    return _Comparison(memory, source, every=every).compare()


class _Comparison:
    """Compares the files of a source with those that are remembered."""

    def __init__(self, memory: SourceMemory, source: Source, *, every: bool) -> None:
        self._listing: SourceListing = list_files(source)
        self._every = every
        self._remembered, self._erased = memory.files(source)
        self._versions = memory.reader_versions(source)
        # What is installed since may read files that were passed over, and gave no documents.
        self._is_complete = set(source.options["lacks"]) <= set(files.lacking())
        self._with_documents = (
            set[str]() if self._is_complete else memory.paths_of_documents(source)
        )
        self._now = time.time_ns()
        self._changes = SourceChanges(
            source,
            missing=self._listing.missing,
            unreadable=self._listing.unreadable,
            left_out=self._listing.left_out,
        )

    def compare(self) -> SourceChanges:
        """Return the changes."""
        changes = self._changes
        listing = self._listing
        is_empty = not listing.files and not listing.unlisted
        if changes.missing is None and self._remembered and is_empty:
            changes.missing = "holds none of its files any more"
        for path, (place, status) in listing.files.items():
            self._compare_file(path, place, status)
        unlisted = tuple(listing.unlisted)
        removed = (path for path in self._remembered if path not in listing.files)
        # An erased file is not forgotten: where it comes back unchanged, it stays erased.
        changes.removed = [path for path in removed if not f"{path}/".startswith(unlisted)]
        return changes

    def _compare_file(self, path: str, place: str, status: os.stat_result) -> None:
        row = path if path in self._remembered else os.fsdecode(hidden_path(path))
        old: FileState = self._remembered.get(path) or self._erased.get(row, ("", None))
        old_stamp, old_digest = old
        stamp = file_stamp(place, path, status, self._now)
        # An interruption left it so while an outdated file was read.
        is_begun = is_settled(stamp) and old == (stamp, None)
        is_outdated = row == path and (is_begun or _is_outdated(self._versions.get(path)))
        is_read = self._is_complete or path in self._with_documents or row in self._erased
        is_due = self._every or not is_read
        changes = self._changes
        is_same = is_settled(stamp) and old_stamp == stamp
        if is_same and old_digest is not None and not is_due:
            if is_outdated:
                changes.read.add(path)
                changes.outdated.add(path)
                changes.seen[path] = stamp, old_digest
            return
        try:
            digest = file_digest(place)
        except OSError as error:
            changes.unreadable.append(f"{place}: cannot be read: {error.strerror}")
            return
        is_changed = (digest != old_digest and not is_begun) or is_due or has_log(place, path)
        if is_changed or is_outdated:
            changes.read.add(path)
            row = path
            if not is_changed:
                changes.outdated.add(path)
        elif row == path:
            self._note_time(path, old_stamp, stamp)
        changes.seen[row] = stamp, digest

    def _note_time(self, path: str, old_stamp: str, stamp: str) -> None:
        """Note the new time of a file whose content is as it was."""
        earlier = stamped_time(old_stamp)
        modified = stamped_time(stamp)
        source = self._changes.source
        is_whole = source.options["is_folder"] or is_document(source.path)
        has_time = is_whole and kind_of_file(os.path.join(source.path, path)) != "mbox"
        if has_time and modified is not None and modified != earlier:
            self._changes.touched[path] = earlier, modified


def _is_outdated(reading: tuple[str, int] | None) -> bool:
    """Whether a reader of an earlier release read a file, and the newest reads more."""
    kind, version = reading or ("", 0)
    return kind in KINDS and KINDS[kind].reader_version > version
