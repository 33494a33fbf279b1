"""An index follows its sources: what changed is read, what is new added, what is gone removed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from indexes import LANGUAGES
from retriever.documents.document import Document
from retriever.documents.reader import CorpusReader
from retriever.documents.report import FilesReport
from retriever.errors import (
    BadInputError,
    IndexLockedError,
    SourceError,
    StorageError,
    require_extra,
)
from retriever.index.fit_measurement import measure_fit
from retriever.index.indexing import Indexer
from retriever.index.indexing_run import IndexingReport, Progress
from retriever.index.sources import Changes, Source, SourceMemory, memory_path
from retriever.search.fit import is_due
from retriever.search.settings import FIT

if TYPE_CHECKING:
    from indexes import Stage, Store
    from retriever.index.index import Index

_NAMED = 10
# Of 512 documents that may have moved.
_BATCHES = 200
# Files of an earlier reader that are read again at once, and those within a time limit, which is
# looked at between batches.
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
        """Whether the index is another than before."""
        return bool(self.added or self.changed or self.removed)


def remembered_sources(store: Store) -> list[Source]:
    """The sources that an index remembers, in the order of reading."""
    if not memory_path(store).exists():
        return []
    with SourceMemory(store) as memory:
        return memory.sources()


def remembered_files(store: Store) -> FilesReport:
    """The files of the sources that an index remembers, by what became of them."""
    if not memory_path(store).exists():
        return FilesReport()
    with SourceMemory(store) as memory:
        return memory.files_report()


@contextmanager
def remembered(
    store: Store, reader: CorpusReader, indexer: Indexer, *, on_long: str | None, prune: bool
) -> Iterator[Iterator[Document]]:
    """The documents of a reader, whose sources are remembered if the block does not raise."""
    with SourceMemory(store) as memory:
        entered = memory.enter(reader, on_long)
        changes = [memory.changes(one, every=True) for one in entered]
        memory.begin(changes)
        _note_moved(indexer, memory, changes)
        yield memory.noted(reader, entered)
        memory.finish(changes, removed=prune)
        if prune:
            kept = {one.number for one in entered}
            memory.forget([one.number for one in memory.sources() if one.number not in kept])


def refreshed(
    index: Index, *, prune: bool, progress: Progress | None, stage: Stage, seconds: float | None
) -> RefreshReport:
    """As `Index.refresh`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    if not remembered_sources(index.store):
        raise SourceError(
            f"{index.store}: the index remembers no sources; index them once more with `retriever "
            "index`, or in Python with Index.add(CorpusReader(...), remember=True)"
        )
    report = IndexingReport()
    readers = list[CorpusReader]()
    with SourceMemory(index.store) as memory:
        changes = _changes(memory, prune=prune)
        if not any(one.read or one.gone for one in changes):
            _measure_unchanged(index)
            if any(stamp for one in changes for stamp, _ in one.seen.values()):
                # It only saves the next refresh some work.
                with suppress(StorageError, IndexLockedError):
                    memory.finish(changes, removed=False)
            return _report(report, changes, readers, memory.count())
    with index._writer() as writer, SourceMemory(index.store) as memory:

        def read(changes: Sequence[Changes]) -> bool:
            """Read files again; returns whether some of them are to be read once more."""
            memory.begin(changes)
            # Files that are as they were bring nothing back that was deleted.
            are_outdated = any(change.outdated for change in changes)
            deleted_ids = memory.deleted_ids(writer.heads) if are_outdated else frozenset()
            for change in changes:
                if not change.read:
                    continue
                source = change.source
                reader = CorpusReader.again(source.path, source.options["reader"], change.read)
                readers.append(reader)
                on_long = source.options["on_long"]
                indexer = index._indexer(
                    writer, on_long, progress=progress, stage=stage, report=report
                )
                _note_moved(indexer, memory, changes)
                documents = memory.noted(reader, [source])
                indexer.add(entry for entry in documents if entry.id not in deleted_ids)
                indexer.merge()
            for ids in memory.stale_ids():
                report.deleted += writer.delete(ids)
            return memory.finish(changes, removed=True)

        is_open = True
        outdated: list[Changes] = []
        batch_size = _OUTDATED_BATCH if deadline is None else _TIMED_BATCH
        while is_open:
            # Another process may have refreshed it meanwhile.
            changes = _changes(memory, prune=prune)
            outdated = _without_outdated(changes, batch_size)
            is_open = read(changes)
            memory.forget([change.source.number for change in changes if change.missing])
        read_again = _read_outdated(outdated, read, stage, deadline)
        writer.merge(stage)
        measure_fit(index._opened, writer)
        result = _report(report, changes, readers, memory.count())
        postponed = sum(len(change.read) for change in outdated) - read_again
        return replace(result, outdated=read_again, postponed=postponed)


def _read_outdated(
    batches: Sequence[Changes],
    read: Callable[[Sequence[Changes]], object],
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


def _without_outdated(changes: Sequence[Changes], batch_size: int) -> list[Changes]:
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
                Changes(change.source, set(batch), set(batch), seen, left_out=change.left_out)
            )
    return batches


def _measure_unchanged(index: Index) -> None:
    """Measure the encoder's fit where a program has changed the index, as by `Index.delete`."""
    with index._opened.view() as view:
        measured = view.setting(FIT, {})
        languages = view.setting(LANGUAGES, {})
        if not measured or not is_due(measured, view.passage_count, languages):
            return
    # The next refresh that can write does it.
    with suppress(StorageError, IndexLockedError), index._writer() as writer:
        measure_fit(index._opened, writer)


def _note_moved(indexer: Indexer, memory: SourceMemory, changes: Sequence[Changes]) -> None:
    """Tell the indexer which documents files gave that are gone, and others that are read."""
    if any(one.gone for one in changes):
        for ids in islice(memory.stale_ids(), _BATCHES):
            indexer.note_moved(ids)


def _changes(memory: SourceMemory, *, prune: bool) -> list[Changes]:
    """What has changed in all sources; SourceError if one is missing, unless `prune`."""
    changes = [memory.changes(source) for source in memory.sources()]
    missing = [f"{one.source.path} {one.missing}" for one in changes if one.missing]
    if missing and not prune:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise SourceError(
            f"{', '.join(missing[:_NAMED])}{more}; nothing was changed: bring it back, or delete "
            "what the index has of it with `retriever refresh --prune`"
        )
    return changes


def _report(
    report: IndexingReport, changes: Sequence[Changes], readers: Sequence[CorpusReader], held: int
) -> RefreshReport:
    problems = [problem for one in changes for problem in one.unreadable]
    skipped = len(problems) + sum(reader.skipped for reader in readers)
    problems += [problem for reader in readers for problem in reader.problems]
    files = FilesReport()
    for reader in readers:
        files.update(reader.files)
    return RefreshReport(
        report.added,
        report.updated,
        report.deleted,
        held - report.added - report.updated,
        skipped,
        tuple(problems[:_NAMED]),
        dict(sum((one.left_out for one in changes), Counter())),
        files=files.to_json(),
    )


def watched(index: Index, stop: Event) -> Iterator[RefreshReport | BadInputError]:
    """Refreshes an index when a source changes, until `stop`: each change, and what forbids one."""
    require_extra("watch", "watching sources", "watchfiles")
    from watchfiles import watch

    # The system watches folders; files, which editors replace, are looked at once a second.
    own = f"{index.store.folder.resolve()}/" if index.store.folder else "\n"
    told: str | tuple[str, ...] = ""
    while not stop.is_set():
        sources = remembered_sources(index.store)
        folders = [one.path for one in sources if Path(one.path).is_dir()]
        due = True
        # The first refresh follows the first look, so that no change is between the two.
        for events in (
            watch(
                *folders,
                # The index may be below a folder that it is of.
                watch_filter=lambda _, path: not path.startswith(own),
                debounce=400,
                step=100,
                rust_timeout=1000,
                yield_on_timeout=True,
                ignore_permission_denied=True,
                stop_event=stop,
            )
            if folders
            else iter(lambda: stop.wait(1), True)
        ):
            try:
                if due or events or len(folders) < len(sources):
                    report = index.refresh()
                    due = False
                    before = told
                    told = report.problems
                    # Every refresh reports a file that cannot be read.
                    if report.is_change or (told and told != before):
                        yield report
            except IndexLockedError:
                # Another process writes; the next tick tries again.
                due = True
            except BadInputError as error:
                # A folder that comes back is another one.
                if told != (told := str(error)):
                    yield error
                stop.wait(1)
                break
            if remembered_sources(index.store) != sources:
                break
