"""The metadata field `modified` of documents whose files have another time and the same content."""

from __future__ import annotations

import json
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
    pairs = memory.ids_of_files(change.source, change.touched)
    for batch in _batches(pairs):
        stored = writer.stored_versions(list(batch))
        metadata = {}
        for id_, version in stored.items():
            earlier, modified = change.touched[batch[id_]]
            values: dict[str, Any] = json.loads(version.metadata or "{}")
            if values.get("modified") == earlier != modified:
                metadata[id_] = {**values, "modified": modified}
        if metadata:
            writer.commit([], np.empty((0, 0), np.float32), [], metadata)


def _batches(pairs: Iterable[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the path of each document by its id, some at a time."""
    remaining = iter(pairs)
    while batch := {id_: path for path, id_ in islice(remaining, _BATCH)}:
        yield batch
