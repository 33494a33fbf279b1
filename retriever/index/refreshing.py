"""An index follows its sources: what changed is read, what is new added, what is gone removed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from indexes import LANGUAGES
from retriever.documents.reader import CorpusReader
from retriever.documents.report import FilesReport
from retriever.errors import (
    IndexLockedError,
    SourceError,
    StorageError,
)
from retriever.index.adding import make_indexer
from retriever.index.indexing.fit_measurement import measure_fit
from retriever.index.indexing.run import IndexingReport, Progress
from retriever.index.sources.changes import find_changes
from retriever.index.sources.files import SourceChanges, is_settled
from retriever.index.sources.memory import SourceMemory
from retriever.index.sources.recording import record_documents
from retriever.index.sources.remembered import note_moved, remembered_sources
from retriever.index.sources.times import update_times
from retriever.search.fit import is_due
from retriever.search.settings import FIT

if TYPE_CHECKING:
    from indexes import Stage, Writer
    from retriever.index.writer_access import WriterAccess
    from retriever.search.opened import OpenedIndex

# Problems and missing sources that a message names.
_NAMED = 10
# Files of an earlier reader that are read again together; fewer with a time limit, which is
# checked between batches.
_OUTDATED_BATCH = 128
_TIMED_BATCH = 16


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """The result of a refresh.

    Attributes:
        added, changed, removed: documents.
        unchanged: documents of the sources that stayed as they are.
        skipped: malformed records, and files that cannot be read.
        problems: messages of the first 10 of these.
        files_left_out: files of folders that are not read, by suffix or another reason.
        outdated: files that a reader of an earlier release had read, and that were read again.
        postponed: such files that wait for the next refresh, since the time was up.
        files: the files that were read, as `FilesReport.to_json` has them.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    skipped: int = 0
    problems: tuple[str, ...] = ()
    files_left_out: dict[str, int] = field(default_factory=dict)
    outdated: int = 0
    postponed: int = 0
    files: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def is_change(self) -> bool:
        """Whether the refresh changed the index."""
        return bool(self.added or self.changed or self.removed)


def refresh_index(
    access: WriterAccess,
    *,
    prune: bool,
    progress: Progress | None,
    stage: Stage,
    seconds: float | None,
) -> RefreshReport:
    """Read again what has changed in the sources of an index; see `Index.refresh`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    store = access.opened.store
    if not remembered_sources(store):
        raise SourceError(
            f"{store}: the index remembers no sources; index them once more with `retriever "
            "index`, or in Python with Index.add(CorpusReader(...), remember=True)"
        )
    with SourceMemory(store) as memory:
        changes = _find_changes(memory, prune=prune)
        if not any(change.read or change.removed for change in changes):
            _measure_unchanged(access)
            # The next refresh that can write does what is left.
            with suppress(StorageError, IndexLockedError):
                _settle(access, memory, changes)
            return _report(IndexingReport(), changes, [], memory.count())
    with access.writer() as writer, SourceMemory(store) as memory:
        refresh = _Refresh(access.opened, writer, memory, progress, stage)
        is_unfinished = True
        outdated: list[SourceChanges] = []
        batch_size = _OUTDATED_BATCH if deadline is None else _TIMED_BATCH
        while is_unfinished:
            # Another process may have refreshed it meanwhile.
            changes = _find_changes(memory, prune=prune)
            outdated = _without_outdated(changes, batch_size)
            is_unfinished = refresh.read(changes)
            memory.forget([change.source.number for change in changes if change.missing])
        read_again = _read_outdated(outdated, refresh.read, stage, deadline)
        writer.merge(stage)
        measure_fit(access.opened, writer)
        result = _report(refresh.report, changes, refresh.readers, memory.count())
        postponed = sum(len(change.read) for change in outdated) - read_again
        return replace(result, outdated=read_again, postponed=postponed)


class _Refresh:
    """Reads changed files into an index, whose writer lock it has."""

    def __init__(
        self,
        opened: OpenedIndex,
        writer: Writer,
        memory: SourceMemory,
        progress: Progress | None,
        stage: Stage,
    ) -> None:
        self.report = IndexingReport()
        self.readers: list[CorpusReader] = []
        self._opened = opened
        self._writer = writer
        self._memory = memory
        self._progress = progress
        self._stage = stage

    def read(self, changes: Sequence[SourceChanges]) -> bool:
        """Read changed files, and delete what is gone; return whether to read some once more."""
        memory = self._memory
        memory.begin(changes)
        # Files that are as they were bring nothing back that was deleted.
        are_outdated = any(change.outdated for change in changes)
        deleted_ids = (
            memory.deleted_ids(self._writer.stored_versions) if are_outdated else frozenset()
        )
        for change in changes:
            if change.read:
                self._read_source(change, changes, deleted_ids)
            update_times(self._writer, memory, change)
        for ids in memory.stale_ids():
            self.report.deleted += self._writer.delete(ids)
        return memory.finish(changes, removed=True)

    def _read_source(
        self, change: SourceChanges, changes: Sequence[SourceChanges], deleted_ids: frozenset[str]
    ) -> None:
        """Index the changed files of one source."""
        source = change.source
        reader = CorpusReader.again(source.path, source.options["reader"], change.read)
        self.readers.append(reader)
        indexer = make_indexer(
            self._opened,
            self._writer,
            source.options["on_long"],
            progress=self._progress,
            stage=self._stage,
            report=self.report,
        )
        note_moved(indexer, self._memory, changes)
        documents = record_documents(self._memory, reader, [source])
        indexer.add(document for document in documents if document.id not in deleted_ids)
        indexer.merge()


def _settle(access: WriterAccess, memory: SourceMemory, changes: Sequence[SourceChanges]) -> None:
    """Note new times of files whose content is as it was."""
    if any(change.touched for change in changes):
        with access.writer() as writer:
            memory.begin(changes)
            for change in changes:
                update_times(writer, memory, change)
            memory.finish(changes, removed=False)
    elif any(is_settled(stamp) for change in changes for stamp, _ in change.seen.values()):
        # It only saves the next refresh some work.
        memory.finish(changes, removed=False)


def _read_outdated(
    batches: Sequence[SourceChanges],
    read: Callable[[Sequence[SourceChanges]], object],
    stage: Stage,
    deadline: float | None,
) -> int:
    """Read files of earlier readers again until a deadline; returns how many."""
    if not batches:
        return 0
    step = stage("files that an earlier release read", sum(len(batch.read) for batch in batches))
    count = 0
    for batch in batches:
        if deadline is not None and time.monotonic() >= deadline:
            break
        read([batch])
        count += len(batch.read)
        step(len(batch.read))
    return count


def _without_outdated(changes: Sequence[SourceChanges], batch_size: int) -> list[SourceChanges]:
    """Take files of earlier readers out of changes; returns them in batches of one source each."""
    batches = []
    for change in changes:
        paths = sorted(change.outdated)
        change.read -= change.outdated
        change.outdated = set()
        for start in range(0, len(paths), batch_size):
            batch = paths[start : start + batch_size]
            seen = {path: change.seen.pop(path) for path in batch}
            batches.append(
                SourceChanges(
                    change.source, set(batch), set(batch), seen=seen, left_out=change.left_out
                )
            )
    return batches


def _measure_unchanged(access: WriterAccess) -> None:
    """Measure the encoder's fit where a program has changed the index, as by `Index.delete`."""
    with access.opened.view() as view:
        measured = view.setting(FIT, {})
        languages = view.setting(LANGUAGES, {})
        if not measured or not is_due(measured, view.passage_count, languages):
            return
    # The next refresh that can write does it.
    with suppress(StorageError, IndexLockedError), access.writer() as writer:
        measure_fit(access.opened, writer)


def _find_changes(memory: SourceMemory, *, prune: bool) -> list[SourceChanges]:
    """Find the changes of all sources; SourceError if one is missing, unless `prune`."""
    changes = [find_changes(memory, source) for source in memory.sources()]
    missing = [f"{change.source.path} {change.missing}" for change in changes if change.missing]
    if missing and not prune:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise SourceError(
            f"{', '.join(missing[:_NAMED])}{more}; nothing was changed; restore it, or delete its "
            "documents with `retriever refresh --prune`"
        )
    return changes


def _report(
    report: IndexingReport,
    changes: Sequence[SourceChanges],
    readers: Sequence[CorpusReader],
    count: int,
) -> RefreshReport:
    """Return the report of a refresh, after which the sources hold `count` documents."""
    problems = [problem for change in changes for problem in change.unreadable]
    skipped = len(problems) + sum(reader.skipped for reader in readers)
    problems += [problem for reader in readers for problem in reader.problems]
    files = FilesReport()
    for reader in readers:
        files.update(reader.files)
    return RefreshReport(
        report.added,
        report.updated,
        report.deleted,
        count - report.added - report.updated,
        skipped,
        tuple(problems[:_NAMED]),
        dict(sum((change.left_out for change in changes), Counter())),
        files=files.to_json(),
    )
