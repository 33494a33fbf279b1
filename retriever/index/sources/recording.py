"""Remember which file gives each document, before the document is indexed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from retriever.documents.document import Document
from retriever.documents.file_kinds import KINDS
from retriever.documents.reader import CorpusReader, PlacedDocument
from retriever.documents.sources import normalize_name

if TYPE_CHECKING:
    from retriever.index.sources.files import Source
    from retriever.index.sources.memory import SourceMemory

# Documents that are recorded together, by number and by the characters of their texts.
_BATCH = 512
_BATCH_CHARACTERS = 1 << 20
# Characters of the losses of one file that are kept, and of the reason for skipping one.
_LOSSES_LENGTH = 10_000
_FAULT_LENGTH = 500


def record_documents(
    memory: SourceMemory, reader: CorpusReader, sources: Iterable[Source]
) -> Iterator[Document]:
    """Yield the documents of a reader; each is recorded before it is yielded."""
    numbers = {source.path: source.number for source in sources}
    batch: list[PlacedDocument] = []
    characters = 0
    try:
        for placed in reader.placed():
            batch.append(placed)
            characters += len(placed.document.text)
            if len(batch) == _BATCH or characters >= _BATCH_CHARACTERS:
                full_batch = batch
                batch = []
                characters = 0
                yield from _record_batch(memory, full_batch, numbers)
    except Exception:
        # The documents before a fault are indexed.
        yield from _record_batch(memory, batch, numbers)
        raise
    yield from _record_batch(memory, batch, numbers)
    _record_faults(memory, reader, numbers)


def _record_batch(
    memory: SourceMemory, batch: Sequence[PlacedDocument], numbers: Mapping[str, int]
) -> Iterator[Document]:
    """Record documents and how their files were read; yield those that are not repeated."""
    numbered = [(numbers.get(os.path.abspath(placed.source)), placed) for placed in batch]
    identified = [(number, _with_stored_id(memory, number, placed)) for number, placed in numbered]
    rows = [
        (number, os.fsencode(placed.file), placed.document.id)
        for number, placed in identified
        if number is not None and not placed.document.is_empty
    ]
    readings = [
        (
            placed.kind,
            KINDS[placed.kind].reader_version,
            "".join(f"{loss.kind}: {loss.detail}\n" for loss in placed.losses),
            placed.document.is_empty,
            number,
            os.fsencode(placed.file),
        )
        for number, placed in identified
        if number is not None and placed.kind
    ]
    with memory.transaction() as database:
        database.executemany("INSERT OR REPLACE INTO origins VALUES (?, ?, ?, 0)", rows)
        database.executemany(
            f"UPDATE readings SET kind = ?, version = ?, "  # noqa: S608
            f"losses = substr(losses || ?, 1, {_LOSSES_LENGTH}), is_empty = ? "
            "WHERE (source, path) = (?, ?)",
            readings,
        )
    yield from (placed.document for _, placed in identified if not placed.is_repeated)


def _with_stored_id(
    memory: SourceMemory, number: int | None, placed: PlacedDocument
) -> PlacedDocument:
    """Give a document the id that an earlier release gave it, where that is not composed."""
    document = placed.document
    if number is None or document.id.isascii():
        return placed
    with memory.transaction() as database:
        row = (number, os.fsencode(placed.file))
        rows = database.execute("SELECT id FROM origins WHERE (source, path) = (?, ?)", row)
        stored = [
            id_ for (id_,) in rows if id_ != document.id and normalize_name(id_) == document.id
        ]
    if not stored:
        return placed
    return placed._replace(document=replace(document, id=stored[0]))


def _record_faults(memory: SourceMemory, reader: CorpusReader, numbers: Mapping[str, int]) -> None:
    """Record why files were skipped; a file that cannot be read any more keeps its documents."""
    faults = [
        {
            "source": numbers.get(os.path.abspath(source)),
            "path": os.fsencode(path),
            "fault": fault[:_FAULT_LENGTH],
        }
        for source, path, fault in reader.unread
    ]
    with memory.transaction() as database:
        database.executemany(
            "UPDATE readings SET fault = :fault WHERE (source, path) = (:source, :path) "
            "AND NOT EXISTS (SELECT 1 FROM origins "
            "WHERE (source, path) = (:source, :path) AND NOT stale)",
            faults,
        )
        database.executemany(
            "UPDATE origins SET stale = 0 WHERE (source, path) = (:source, :path) "
            "AND NOT EXISTS (SELECT 1 FROM origins "
            "WHERE (source, path) = (:source, :path) AND NOT stale)",
            faults,
        )
