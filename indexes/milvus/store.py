"""The store of an index in Milvus, and its writer; see `indexes.protocol`.

There are no transactions: a row is written as a whole, and a run that was interrupted is run again.
It finds each document as it was, or as it is now, because the first row of a document, which has
the hash of its text, is written after all others and after those of its former passages are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError, DamagedIndexError
from indexes.filters.grammar import Where
from indexes.folder.documents import changed_counts, metadata_json
from indexes.milvus.collection import (
    ALL,
    UNCOUNTED,
    create_collection,
    expression_of,
    find_collection,
    index_type,
    metadata_fields,
    number_of,
    open_collection,
    passage_rows,
)
from indexes.milvus.connection import Connection, Location, Row, batches, parse_location
from indexes.milvus.view import MilvusReader, MilvusView
from indexes.protocol import (
    LANGUAGES,
    NewDocument,
    Stage,
    Store,
    StoredDocument,
    StoredHead,
    StructureSettings,
    Writer,
    no_progress,
)

# Rows of a request: the largest rows, times this, fit a message of 64 MB.
_UPSERTED = 200
_TOGETHER = 1000


class MilvusStore(Store):
    """An index in Milvus or, with `begun_with`, the one that is to replace it."""

    folder: Path | None = None

    def __init__(self, location: str | Location, begun_with: str | None = None) -> None:
        self.location = parse_location(location) if isinstance(location, str) else location
        self._begun_with = begun_with
        self._alias = self.location.index + ("" if begun_with is None else "_next")

    @property
    def name(self) -> str:
        return self.location.index

    def __str__(self) -> str:
        return str(self.location)

    def exists(self) -> bool:
        with closing(Connection(self.location)) as connection:
            return find_collection(connection, self._alias) is not None

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        index_type(self.location, settings.get("structures", {}))
        with closing(Connection(self.location)) as connection:
            if find_collection(connection, self._alias) is None:
                create_collection(connection, self._alias, self._begun_with or "", settings)

    def reader(self) -> MilvusReader:
        """Open it for reading; its first view says if there is no index."""
        return MilvusReader(Connection(self.location), self._alias)

    @contextmanager
    def writer(self, lock_timeout: float = 0.0) -> Iterator[MilvusWriter]:
        """Open it for writing; nothing keeps other writers out."""
        with closing(Connection(self.location)) as connection:
            view = MilvusView(connection, open_collection(connection, self._alias))
            writer = MilvusWriter(view)
            if UNCOUNTED in view.collection.settings:
                # A run was interrupted.
                writer.count()
            yield writer
            writer.end()

    @contextmanager
    def replacement(self, begun_with: str) -> Iterator[MilvusStore]:
        """A new collection, which takes over the alias of this one."""
        new = MilvusStore(self.location, begun_with)
        with closing(Connection(self.location)) as connection:
            left = find_collection(connection, new._alias)
            if left is not None and left.begun_with != begun_with:
                connection.call("drop_alias", new._alias)
                connection.call("drop_collection", left.name)
            yield new
            made, old = (find_collection(connection, alias) for alias in (new._alias, self._alias))
            if made is not None:
                moved = "create_alias" if old is None else "alter_alias"
                connection.call(moved, made.name, self._alias)
                connection.call("drop_alias", new._alias)
                if old is not None:
                    connection.call("drop_collection", old.name)

    def verify(self) -> list[str]:
        with closing(self.reader()) as reader, reader.view() as view:
            return list(view.problems())

    def damaged(self, reason: object) -> DamagedIndexError:
        return DamagedIndexError(f"{self}: {reason}; restore Milvus from a backup or index again")


class MilvusWriter(Writer):
    """Changes an index, row by row; see `indexes.protocol.Writer`."""

    def __init__(self, view: MilvusView) -> None:
        self._view = view
        self._touched: set[int] = set()

    def setting(self, key: str, default: Any = None) -> Any:
        return self._view.setting(key, default)

    def record(self, key: str, value: Any) -> None:
        self._alter(settings={**self._settings, key: value})

    def heads(self, ids: Sequence[str]) -> dict[str, StoredHead]:
        rows = [
            (row["id"], row["head"]["hash"], row["metadata"]) for row in self._view.heads_of(ids)
        ]
        return {id_: StoredHead(bytes.fromhex(one), metadata_json(held)) for id_, one, held in rows}

    def touch(self, ids: Sequence[str]) -> None:
        self._touched.update(map(number_of, ids))

    def count_touched(self) -> int:
        return len(self._touched)

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Add or replace documents, row by row; see `indexes.protocol.Committer`."""
        view = self._view
        terms = list(tokens)
        metadata = metadata or {}
        dimensions = view.collection.dimensions
        if terms and vectors.shape[1] != dimensions:
            raise ValueError(
                f"expected vectors of {dimensions} dimensions, found {vectors.shape[1]}"
            )
        described = {
            row["id"]: metadata_fields(row["id"], row["head"]["title"], metadata[row["id"]])
            for row in view.heads_of(metadata)
        }
        numbers = [number_of(document.id) for document in documents]
        replaced = list(view.among("document", numbers, ["length", "head"]))
        old = {row["passage"]: row["length"] for row in replaced}
        count = view.passage_count + len(terms) - len(old)
        total = view.collection.terms + sum(map(len, terms)) - sum(old.values())
        rows: list[Row] = []
        for document in documents:
            own = slice(len(rows), len(rows) + len(document.spans))
            rows += passage_rows(document, terms[own], vectors[own], max(total, 1) / count)
        gone = old.keys() - {row["passage"] for row in rows}
        for row in view.among("document", map(number_of, described), ["*"]):
            rows.append({**row, **described[row["id"]]})
        self._begin()
        self._delete("passage", gone)
        rows.sort(key=lambda row: row["ordinal"] == 0)
        for batch in batches(rows, _UPSERTED):
            view.connection.call("upsert", view.collection.name, batch)
        self._touched.update(numbers)
        new = [(languages, 1) for document in documents for languages in document.languages]
        self._alter(count - view.passage_count, terms=total, settings=self._counted(new, replaced))
        return True

    def delete(self, ids: Iterable[str]) -> int:
        return self._delete_documents(map(number_of, ids))

    def delete_where(self, where: Where) -> int:
        rows = self._view.heads(expression_of(where, self._view.count), [])
        return self._delete_documents([row["document"] for row in rows])

    def delete_untouched(self) -> int:
        held = [row["document"] for row in self._view.heads(fields=[])]
        return self._delete_documents(number for number in held if number not in self._touched)

    def compact(self, stage: Stage = no_progress, *, erase: bool = False) -> int:
        """Ask Milvus to drop what was deleted, and count the terms of all passages again."""
        self._view.connection.call("compact", self._view.collection.name)
        self.count()
        return 0

    def count(self) -> None:
        """Count the terms and the languages of all passages."""
        terms = sum(row["length"] for row in self._view.rows(ALL, ["length"]))
        stored = self._view.languages()
        counts = stored.counted
        if stored.uncounted:
            # Rows of earlier releases do not say theirs: rather too many than too few.
            counts |= Counter(self.setting(LANGUAGES, {}))
        self._alter(terms=terms, settings=self._with_all_counted({LANGUAGES: dict(counts)}))

    def end(self) -> None:
        """Note that everything was counted that this writer has changed."""
        if UNCOUNTED in self._settings:
            self._alter(settings=self._with_all_counted({}))

    def are_languages_counted(self) -> bool:
        stored = self._view.languages()
        return not stored.uncounted and stored.counted == self.setting(LANGUAGES, {})

    def count_languages(self, documents: Iterable[tuple[StoredDocument, Sequence[str]]]) -> None:
        self._begin()
        languages = {
            passage: own
            for document, of_passages in documents
            for (passage, _, _), own in zip(document.passages, of_passages, strict=True)
        }
        for batch in batches(languages, _UPSERTED):
            rows = [
                {**row, "head": {**row["head"], "languages": languages[row["passage"]]}}
                for row in self._view.among("passage", batch, ["*"])
            ]
            self._view.connection.call("upsert", self._view.collection.name, rows)
        self.count()

    def rebuild(self, structures: StructureSettings, stage: Stage = no_progress) -> int:
        """Refused: Milvus builds its own structures."""
        raise ConfigError(
            f"{self._view.location}: Milvus builds its search structures itself; for another one "
            "make the index again, with `retriever index --recreate --index-type`"
        )

    @property
    def _settings(self) -> dict[str, Any]:
        return self._view.collection.settings

    def _with_all_counted(self, new: Mapping[str, Any]) -> dict[str, Any]:
        settings = {**self._settings, **new}
        settings.pop(UNCOUNTED, None)
        return settings

    def _begin(self) -> None:
        """Note that rows change, for the writer after this one if it is interrupted."""
        if UNCOUNTED not in self._settings:
            self._alter(settings={**self._settings, UNCOUNTED: True})

    def _counted(self, added: Iterable[tuple[str, int]], deleted: Iterable[Row]) -> dict[str, Any]:
        """The settings with the languages of passages that were added and deleted."""
        deleted_languages = [(row["head"].get("languages"), 1) for row in deleted]
        before = self.setting(LANGUAGES, {})
        counts = changed_counts(before, added, deleted_languages, self._view.languages)
        return {**self._settings, LANGUAGES: counts} if counts != before else self._settings

    def _alter(self, passages: int = 0, **values: Any) -> None:
        """Add passages to the number of them, and change fields of the collection's description."""
        self._view.held += passages
        old = self._view.collection
        new = replace(old, frequencies={}, commits=old.commits + 1, **values)
        self._view.connection.call("alter_collection_properties", new.name, new.properties())
        self._view.collection = new

    def _delete(self, column: str, values: Iterable[int]) -> None:
        for batch in batches(values, _TOGETHER):
            name = self._view.collection.name
            self._view.connection.call("delete", name, filter=f"{column} in {batch}")

    def _delete_documents(self, numbers: Iterable[int]) -> int:
        deleted = 0
        for batch in batches(dict.fromkeys(numbers), _TOGETHER):
            fields = ["document", "ordinal", "length", "head"]
            rows = list(self._view.among("document", batch, fields))
            if rows:
                self._begin()
                self._delete("document", batch)
                terms = self._view.collection.terms - sum(row["length"] for row in rows)
                self._alter(-len(rows), terms=terms, settings=self._counted([], rows))
            held = [row["document"] for row in rows if not row["ordinal"]]
            self._touched.difference_update(held)
            deleted += len(held)
        return deleted
