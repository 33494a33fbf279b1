"""The sources that an index remembers, and those of a run, which it remembers from then on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from retriever.documents.report import FilesReport
from retriever.errors import StorageError
from retriever.index.sources.changes import find_changes
from retriever.index.sources.files import Source, SourceChanges
from retriever.index.sources.memory import SourceMemory, memory_path
from retriever.index.sources.recording import record_documents

if TYPE_CHECKING:
    from indexes import Store
    from retriever.documents.document import Document
    from retriever.documents.reader import CorpusReader
    from retriever.index.indexing.indexer import Indexer

# Batches, of 512 documents each, of documents that may have moved.
_MOVED_BATCHES = 200


def remembered_sources(store: Store) -> list[Source]:
    """Return the sources that an index remembers, in the order of reading."""
    path = memory_path(store)
    if not path.exists():
        return []
    try:
        with SourceMemory(store) as memory:
            return memory.sources()
    except StorageError:
        # The index may have been moved away since, which a watched folder can be at any time.
        if path.exists():
            raise
        return []


def remembered_files(store: Store) -> FilesReport:
    """Return the files of the sources that an index remembers, by what became of them."""
    if not memory_path(store).exists():
        return FilesReport()
    with SourceMemory(store) as memory:
        return memory.files_report()


@contextmanager
def remember_sources(
    store: Store, reader: CorpusReader, indexer: Indexer, *, on_long: str | None, prune: bool
) -> Iterator[Iterator[Document]]:
    """Yield the documents of a reader; remember its sources if the block does not raise."""
    with SourceMemory(store) as memory:
        sources = memory.enter(reader, on_long)
        changes = [find_changes(memory, source, every=True) for source in sources]
        memory.begin(changes)
        note_moved(indexer, memory, changes)
        yield record_documents(memory, reader, sources)
        memory.finish(changes, removed=prune)
        if prune:
            numbers = {source.number for source in memory.sources()}
            memory.forget(sorted(numbers - {source.number for source in sources}))


def note_moved(indexer: Indexer, memory: SourceMemory, changes: Sequence[SourceChanges]) -> None:
    """Tell the indexer which documents files gave that are gone or read again."""
    if any(change.removed for change in changes):
        for ids in islice(memory.stale_ids(), _MOVED_BATCHES):
            indexer.note_moved(ids)
