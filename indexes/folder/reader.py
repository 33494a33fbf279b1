"""Readers of one index folder, each call on one consistent view of the latest commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from indexes.errors import DamagedIndexError, StorageError
from indexes.files.arrays import set_read_ahead
from indexes.files.faults import readable, storage_errors
from indexes.filters.facets import Owners
from indexes.folder.view import Commit, FolderView
from indexes.segments.live import live_segments
from indexes.segments.segment import PENDING, Segment
from indexes.store.connection import Session, transaction
from indexes.store.pool import ConnectionPool
from indexes.store.settings import read_setting
from indexes.vectors.choice import FLAT


class FolderReader:
    """Reads one index folder; sees every commit made before each `view` block.

    Threads may share it: each view has a connection of its own. A child that is forked can use it,
    provided that no view was open at the fork.

    Raises:
        NotAnIndexError, FormatVersionError, DamagedIndexError
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pool = ConnectionPool(folder)
        self._commit: Commit | None = None

    def close(self) -> None:
        """Release the database and the mapped files."""
        self._pool.close()
        self._commit = None

    @contextmanager
    def view(self) -> Iterator[FolderView]:
        """One consistent view of the latest commit, valid inside the `with` block.

        Raises:
            ClosedIndexError: the reader is closed.
            DamagedIndexError: a file of the index is missing or altered.
            StorageError: the process was forked while a view was open, or a writer changed an index
                of which SQLite could not lock the file.
        """
        with storage_errors(self.folder), self._pool.session() as session, ExitStack() as stack:
            view = self._pin(session, stack)
            with session.undisturbed():
                yield view

    def _pin(self, session: Session, stack: ExitStack) -> FolderView:
        """Begin a read transaction that ends with `stack`, and return what it sees."""
        while True:
            with ExitStack() as attempt:
                try:
                    with storage_errors(self.folder), readable(self.folder):
                        attempt.enter_context(transaction(session.connection, "DEFERRED"))
                        commit = self._current(session)
                except (DamagedIndexError, StorageError):
                    # A writer may have replaced the whole folder, or merged segments and removed
                    # them, while their files were opened.
                    if session.is_current():
                        seen = self._generation(session)
                        attempt.close()
                        if self._generation(session) == seen:
                            raise
                else:
                    stack.enter_context(attempt.pop_all())
                    return FolderView(self.folder, session.connection, commit)
            session.follow()

    def _current(self, session: Session) -> Commit:
        generation = self._generation(session)
        known = self._commit
        if known is not None and (known.identity, known.generation) == (
            session.identity,
            generation,
        ):
            return known
        opened: dict[tuple[int, str], Segment] = {}
        owners: Owners = {}
        if known is not None and known.identity == session.identity:
            opened = {
                (one.segment.number, one.segment.manifest): one.segment for one in known.segments
            }
            # A copy at once: other threads add to it. Passages in files keep their documents.
            owners = {key: held for key, held in known.owners.copy().items() if key in opened}
            owners.pop((PENDING, ""), None)
        commit = Commit(
            session.identity,
            generation,
            live_segments(self.folder, session.connection, opened),
            owners,
        )
        for live in commit.segments:
            # Through a structure, a search reads the vectors of its candidates.
            if live.segment.structure.name != FLAT:
                set_read_ahead(live.segment.vectors, False)
        # Not locked: where threads race, the next one opens the segments again.
        latest = self._commit
        if (
            latest is None
            or latest.identity != commit.identity
            or latest.generation < commit.generation
        ):
            self._commit = commit
        return commit

    def _generation(self, session: Session) -> int:
        with readable(self.folder):
            return int(read_setting(session.connection, "generation"))
