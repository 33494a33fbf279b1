"""The store of an index in Milvus, and its writer; see `indexes.protocol`.

There are no transactions: a run that was interrupted is run again. The first row of a document,
whose hash says that the document is stored, is written after all others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ClosedIndexError, DamagedIndexError
from indexes.filters.grammar import Where
from indexes.metadata import metadata_json
from indexes.milvus.collection import (
    Row,
    create_collection,
    find_collection,
    open_collection,
    passage_rows,
)
from indexes.milvus.connection import MilvusLocation, call, parse_location
from indexes.milvus.filters import NOTHING, text_list, text_literal
from indexes.milvus.view import MilvusView
from indexes.protocol import (
    NewDocument,
    Store,
    StoredVersion,
    Writer,
)

# Rows that are written together: the largest rows, times this, fit a message of 64 MB.
_ROWS = 200


class MilvusStore(Store):
    """An index in Milvus or, with `begun_with`, the one that is to replace it."""

    folder: Path | None = None

    def __init__(
        self, location: str | MilvusLocation, begun_with: str = "", suffix: str = ""
    ) -> None:
        self.location = parse_location(location) if isinstance(location, str) else location
        self._begun_with = begun_with
        self._alias = self.location.index + suffix

    @property
    def name(self) -> str:
        return self.location.index

    def __str__(self) -> str:
        return str(self.location)

    def exists(self) -> bool:
        return find_collection(self.location, self._alias) is not None

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        if not self.exists():
            create_collection(self.location, self._alias, self._begun_with, dict(settings))

    def reader(self) -> MilvusReader:
        """Open it for reading; its first view says if there is no index."""
        return MilvusReader(self.location, self._alias)

    @contextmanager
    def writer(self, lock_timeout: float = 0.0) -> Iterator[MilvusWriter]:
        """Open it for writing; nothing keeps other writers out."""
        yield MilvusWriter(MilvusView(self.location, open_collection(self.location, self._alias)))

    @contextmanager
    def replacement(self, begun_with: str) -> Iterator[MilvusStore]:
        """Open a new collection, which takes over the alias of this one."""
        new = MilvusStore(self.location, begun_with, "_next")
        unfinished = find_collection(self.location, new._alias)
        if unfinished is not None and unfinished.begun_with != begun_with:
            call(self.location, "drop_alias", new._alias)
            call(self.location, "drop_collection", unfinished.name)
        yield new
        replacement = find_collection(self.location, new._alias)
        former = find_collection(self.location, self._alias)
        if replacement is not None:
            change = "create_alias" if former is None else "alter_alias"
            call(self.location, change, replacement.name, self._alias)
            call(self.location, "drop_alias", new._alias)
            if former is not None:
                call(self.location, "drop_collection", former.name)

    def verify(self) -> list[str]:
        """Return one line for each document that an interrupted run left unfinished."""
        with self.reader().view() as view:
            counts = Counter((row["id"], row["hash"]) for row in view.rows("", ["id", "hash"]))
            for row in view.first_rows(["id", "hash", "passages"]):
                counts[row["id"], row["hash"]] -= row["passages"]
        return [
            f"{self}: document {id_!r:.80}: some passages are missing or old; a run was "
            "interrupted: run that again"
            for id_ in sorted({id_ for (id_, _), count in counts.items() if count})
        ]

    def damaged(self, reason: object) -> DamagedIndexError:
        return DamagedIndexError(f"{self}: {reason}; restore Milvus from a backup or index again")


class MilvusReader:
    """Reads one index; see `indexes.protocol.Reader`."""

    def __init__(self, location: MilvusLocation, alias: str) -> None:
        self._location = location
        self._alias = alias
        self._view: MilvusView | None = None
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    @contextmanager
    def view(self) -> Iterator[MilvusView]:
        """Read what the index holds now; raises `NotAnIndexError`, `FormatVersionError`."""
        if self._is_closed:
            raise ClosedIndexError(f"{self._location}: the index was closed; open it again")
        collection = open_collection(self._location, self._alias)
        if self._view is None or self._view.collection != collection:
            self._view = MilvusView(self._location, collection)
        yield self._view


class MilvusWriter(Writer):
    """Changes an index; see `indexes.protocol.Writer`."""

    def __init__(self, view: MilvusView) -> None:
        self._view = view
        self._touched: set[str] = set()

    def setting(self, key: str, default: Any = None) -> Any:
        return self._view.setting(key, default)

    def record(self, key: str, value: Any) -> None:
        self._describe(settings={**self._view.collection.settings, key: value})

    def stored_versions(self, ids: Sequence[str]) -> dict[str, StoredVersion]:
        return self._view.stored_versions(ids)

    def mark_seen(self, ids: Sequence[str]) -> None:
        self._touched.update(ids)

    def count_seen(self) -> int:
        return len(self._touched)

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Add or replace documents, row by row; see `indexes.protocol.Committer`."""
        terms = list(tokens)
        collection = self._view.collection
        mean_length = collection.mean_length or sum(map(len, terms)) / max(len(terms), 1)
        rows: list[Row] = []
        for document in documents:
            part = slice(len(rows), len(rows) + len(document.spans))
            rows += passage_rows(document, terms[part], vectors[part], mean_length)
        languages = {*collection.languages, *(name for row in rows for name in row["languages"])}
        for row in self._view.rows(f"id in {text_list(metadata or {})}", ["*"]):
            rows.append({**row, "metadata": json.loads(metadata_json((metadata or {})[row["id"]]))})
        self._describe(mean_length=mean_length, languages=sorted(languages))
        self._upsert([row for row in rows if row["ordinal"]])
        superfluous = [
            f"id == {text_literal(document.id)} and ordinal >= {len(document.spans)}"
            for document in documents
        ]
        self._view.call("delete", filter=" or ".join(superfluous) or NOTHING)
        self._upsert([row for row in rows if not row["ordinal"]])
        self._touched.update(document.id for document in documents)
        self._describe()
        return True

    def delete(self, ids: Iterable[str]) -> int:
        ids = list(ids)
        stored = self.stored_versions(ids)
        self._view.call("delete", filter=f"id in {text_list(ids)}")
        self._touched.difference_update(stored)
        self._describe()
        return len(stored)

    def delete_where(self, where: Where) -> int:
        return self.delete([row["id"] for row in self._view.first_rows(["id"], where)])

    def delete_unseen(self) -> int:
        return self.delete({row["id"] for row in self._view.first_rows(["id"])} - self._touched)

    def _upsert(self, rows: Sequence[Row]) -> None:
        for start in range(0, len(rows), _ROWS):
            self._view.call("upsert", data=rows[start : start + _ROWS])

    def _describe(self, **values: Any) -> None:
        """Change the description of the collection, which tells readers of a commit."""
        old = self._view.collection
        collection = replace(old, commits=old.commits + 1, **values)
        self._view.call("alter_collection_properties", properties=collection.properties())
        self._view = MilvusView(self._view.location, collection)
