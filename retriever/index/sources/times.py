"""The metadata field `modified` of documents whose files have another time and the same content."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from indexes import Writer
    from retriever.index.sources.files import SourceChanges
    from retriever.index.sources.memory import SourceMemory

# Documents whose metadata is read and written together.
_BATCH = 512


def update_times(writer: Writer, memory: SourceMemory, change: SourceChanges) -> None:
    """Give the documents of touched files the new time, unless they state a time of their own."""
    for batch in _batches(_ids_of_files(memory, change)):
        stored = writer.stored_versions(list(batch))
        metadata = {}
        for id_, version in stored.items():
            earlier, modified = change.touched[batch[id_]]
            values: dict[str, Any] = json.loads(version.metadata or "{}")
            if values.get("modified") == earlier != modified:
                metadata[id_] = {**values, "modified": modified}
        if metadata:
            writer.commit([], np.empty((0, 0), np.float32), [], metadata)


def _ids_of_files(memory: SourceMemory, change: SourceChanges) -> Iterator[tuple[str, str]]:
    """Yield the path and the id of each document that a touched file gave."""
    for path in change.touched:
        row = change.source.number, os.fsencode(path)
        with memory.transaction() as database:
            ids = database.execute(
                "SELECT id FROM origins WHERE (source, path) = (?, ?)", row
            ).fetchall()
        yield from ((path, id_) for (id_,) in ids)


def _batches(pairs: Iterable[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the path of each document by its id, some at a time."""
    remaining = iter(pairs)
    while batch := {id_: path for path, id_ in islice(remaining, _BATCH)}:
        yield batch
