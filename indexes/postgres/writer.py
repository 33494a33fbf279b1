"""The writer of an index; see `indexes.protocol.Writer`."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from psycopg import errors

from indexes.errors import ConfigError, SourceError, StorageError
from indexes.filters.grammar import Where
from indexes.languages import changed_counts
from indexes.metadata import metadata_json
from indexes.postgres.connection import PostgresLocation, database_errors
from indexes.postgres.documents import copy_documents, remove_documents, store_passages
from indexes.postgres.filters import decode_metadata, encode_metadata, sql_condition
from indexes.postgres.postings import join_batches, purge_postings
from indexes.postgres.ranking import build_graph, check_structures, drop_graph, wants_graph
from indexes.postgres.schema import (
    TABLES,
    IndexRow,
    Tables,
    checksum_of_settings,
    drop_retired,
    encode_settings,
    fix_dimensions,
    read_row,
)
from indexes.protocol import (
    LANGUAGES,
    NewDocument,
    Stage,
    StoredDocument,
    StoredVersion,
    StructureSettings,
    Writer,
    no_progress,
)

T = TypeVar("T")

# Attempts at a transaction that fails with one of the errors.
_ATTEMPTS = 5
_RETRIED_ERRORS = (errors.SerializationFailure, errors.DeadlockDetected)
# Dimensions of a vector of pgvector.
_MOST_DIMENSIONS = 16_000
# Postings of deleted passages stay while these are at most so many, or this share of the others.
_MAX_DELETED = 1000
_MAX_DELETED_SHARE = 0.2


class PostgresWriter(Writer):
    """One of the writers of an index; see `indexes.protocol.Writer`."""

    def __init__(self, location: PostgresLocation, tables: Tables) -> None:
        self._location = location
        self._tables = tables
        self._connection = tables.connection

    def _row(self, *, lock: bool = False) -> IndexRow:
        """Read the current row of the index; a lock puts the commits of writers in a sequence."""
        # This lock lets others insert rows that refer to the index. Two transactions that have done
        # so could not both take a stronger lock.
        condition = f"number = %s{' FOR NO KEY UPDATE' * lock}"
        row = read_row(self._connection, condition, self._tables.number)
        if row is None:
            raise StorageError(
                f"{self._location}: the index was replaced or dropped meanwhile; run the same "
                "command again"
            )
        return row

    def setting(self, key: str, default: Any = None) -> Any:
        with database_errors(self._location):
            return self._row().setting(key, default)

    def record(self, key: str, value: Any) -> None:
        self._in_transaction(lambda: self._record(self._row(lock=True), key, value))

    def _record(self, row: IndexRow, key: str, value: Any) -> None:
        text = encode_settings({**row.settings, key: value})
        self._update("settings = %s, seal = %s", text, checksum_of_settings(text))

    def stored_versions(self, ids: Sequence[str]) -> dict[str, StoredVersion]:
        statement = "SELECT id, hash, metadata::text, exact FROM {documents} WHERE id = ANY(%s)"
        with database_errors(self._location):
            return {
                id_: StoredVersion(content_hash, metadata_json(decode_metadata(metadata, exact)))
                for id_, content_hash, metadata, exact in self._tables.rows(statement, list(ids))
            }

    def mark_seen(self, ids: Sequence[str]) -> None:
        with database_errors(self._location):
            self._mark_seen("SELECT id FROM {documents} WHERE id = ANY(%s)", list(ids))

    def _mark_seen(self, query: str, ids: Sequence[str]) -> None:
        self._tables.execute(f"INSERT INTO touched {query} ON CONFLICT DO NOTHING", ids)

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Add or replace documents in one transaction; repeating the call changes nothing."""
        terms = list(tokens)
        passages = sum(len(document.spans) for document in documents)
        for document in documents:
            if "\0" in document.text:
                raise SourceError(
                    f"document {document.id!r}: expected text without NUL characters, which "
                    "PostgreSQL cannot store, found one; remove it from the source"
                )
        encoded = [encode_metadata(document.metadata) for document in documents]
        changes = {id_: encode_metadata(new) for id_, new in (metadata or {}).items()}
        if passages:
            self._require_dimensions(vectors.shape[1])
        self._in_transaction(lambda: self._commit(documents, encoded, vectors, terms, changes))
        return True

    def _commit(
        self,
        documents: Sequence[NewDocument],
        encoded: Sequence[tuple[str, str | None]],
        vectors: NDArray[np.float32],
        terms: Sequence[Sequence[str]],
        changes: Mapping[str, tuple[str, str | None]],
    ) -> None:
        """Add or replace documents, inside a transaction.

        Args:
            documents: with distinct ids.
            encoded: the metadata of each document, by `encode_metadata`.
            vectors: (n, d) float32, one row per passage, documents in order.
            terms: the terms of each of the n passages.
            changes: new metadata of stored documents, by id.
        """
        tables = self._tables
        passages = store_passages(tables, documents, vectors, terms)
        row = self._row(lock=True)
        ids = [document.id for document in documents]
        removed = remove_documents(tables, "d.id = ANY(%s)", (ids,), row.generation + 1)
        copy_documents(tables, documents, encoded, passages)
        if changes:
            statement = "UPDATE {documents} SET metadata = %s, exact = %s WHERE id = %s"
            with self._connection.cursor() as cursor:
                cursor.executemany(
                    tables.statement(statement), [(*new, id_) for id_, new in changes.items()]
                )
        fields = {name for text, _ in (*encoded, *changes.values()) for name in json.loads(text)}
        tables.execute(
            "INSERT INTO retriever.fields SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING",
            tables.number,
            sorted(fields),
        )
        self._mark_seen("SELECT unnest(%s::text[])", [*ids, *changes])
        added = Counter(" ".join(document.languages) for document in documents)
        self._change_languages(row, added.items(), removed.languages)
        self._count(
            len(documents) - removed.documents,
            len(terms) - removed.passages,
            sum(map(len, terms)) - removed.length,
            removed.passages,
        )

    def delete(self, ids: Iterable[str]) -> int:
        # The database can hold no other ids.
        storable = [id_ for id_ in ids if not re.search("[\0\ud800-\udfff]", id_)]
        return self._delete("d.id = ANY(%s)", (storable,))

    def delete_where(self, where: Where) -> int:
        condition = sql_condition(where.expression)
        return self._delete(condition.text, condition.parameters)

    def delete_unseen(self) -> int:
        return self._delete("NOT EXISTS (SELECT FROM touched AS t WHERE t.id = d.id)", ())

    def count_seen(self) -> int:
        with database_errors(self._location):
            return int(self._tables.rows("SELECT count(*) FROM touched")[0][0])

    def merge(self, stage: Stage = no_progress) -> int:
        """Join small batches; drop the postings of deleted passages if they are many."""
        del stage
        with database_errors(self._location):
            joined = join_batches(self._tables)
            row = self._row()
            if row.dead > max(_MAX_DELETED, _MAX_DELETED_SHARE * row.passages):
                self._purge()
            return joined

    def optimize_after_run(self, added: int, stage: Stage = no_progress) -> int:
        """Refresh the statistics of the planner, and build the graph if it is due."""
        with database_errors(self._location):
            row = self._row()
            if 10 * added >= row.passages:
                self._analyze("ANALYZE")
            if row.has_graph or not wants_graph(row.structures, row.passages, row.dimensions):
                return 0
            build_graph(self._tables, stage)
            return 1

    def are_languages_counted(self) -> bool:
        with database_errors(self._location):
            stored = self._tables.languages()
            return not stored.uncounted and stored.counted == self.setting(LANGUAGES, {})

    def count_languages(self, documents: Iterable[tuple[StoredDocument, Sequence[str]]]) -> None:
        rows = [(" ".join(languages), document.id) for document, languages in documents]

        def change() -> None:
            row = self._row(lock=True)
            statement = "UPDATE {documents} SET languages = %s WHERE id = %s"
            with self._connection.cursor() as cursor:
                cursor.executemany(self._tables.statement(statement), rows)
            self._record(row, LANGUAGES, self._tables.languages().counted)
            self._count(0, 0, 0, 0)

        self._in_transaction(change)

    def compact(self, stage: Stage = no_progress, *, erase: bool = False) -> int:
        """Join all batches, drop the postings of deleted passages, and VACUUM the tables."""
        report_progress = stage("compacting", 3)
        with database_errors(self._location):
            joined = join_batches(self._tables, least=2)
            report_progress(1)
            purged = self._purge() if self._row().dead else 0
            report_progress(1)
            self._analyze("VACUUM (ANALYZE)")
            drop_retired(self._connection)
            report_progress(1)
        return joined + (1 if purged else 0)

    def rebuild(self, structures: StructureSettings, stage: Stage = no_progress) -> int:
        """Build the graph again, or drop it; ConfigError for the structures of folders."""
        with database_errors(self._location):
            row = self._row()
            check_structures(structures, row.dimensions, self._location)
            self.record("structures", asdict(structures))
            if wants_graph(structures, row.passages, row.dimensions):
                build_graph(self._tables, stage)
            else:
                drop_graph(self._tables)
            return 1

    def _in_transaction(self, change: Callable[[], T]) -> T:
        """Run a change in one transaction; repeat it after `_RETRIED_ERRORS`."""
        with database_errors(self._location):
            for attempt in range(_ATTEMPTS):
                try:
                    with self._connection.transaction():
                        return change()
                except _RETRIED_ERRORS:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    time.sleep(0.01 * 2**attempt)
        raise AssertionError("unreachable")

    def _update(self, assignments: str, *values: Any) -> None:
        statement = f"UPDATE retriever.indexes SET {assignments} WHERE number = %s"  # noqa: S608
        self._tables.execute(statement, *values, self._tables.number)

    def _count(self, documents: int, passages: int, length: int, deleted: int) -> None:
        """Add to the counts of the index, and increase its generation."""
        self._update(
            "generation = generation + 1, documents = documents + %s, passages = passages + %s, "
            "total_length = total_length + %s, dead = dead + %s",
            *(documents, passages, length, deleted),
        )

    def _change_languages(
        self,
        row: IndexRow,
        added: Iterable[tuple[str, int]],
        deleted: Iterable[tuple[str | None, int]],
    ) -> None:
        before = row.setting(LANGUAGES, {})
        counts = changed_counts(before, added, deleted, self._tables.languages)
        if counts != before:
            self._record(row, LANGUAGES, counts)

    def _delete(self, where: str, parameters: Sequence[Any]) -> int:
        def change() -> int:
            row = self._row(lock=True)
            removed = remove_documents(self._tables, where, parameters, row.generation + 1)
            self._change_languages(row, [], removed.languages)
            self._count(-removed.documents, -removed.passages, -removed.length, removed.passages)
            return removed.documents

        return self._in_transaction(change)

    def _require_dimensions(self, dimensions: int) -> None:
        def fix() -> int:
            row = self._row(lock=True)
            if row.dimensions is None:
                check_structures(row.structures, dimensions, self._location)
                fix_dimensions(self._tables, dimensions)
            return row.dimensions or dimensions

        if dimensions > _MOST_DIMENSIONS:
            raise ConfigError(
                f"{self._location}: expected vectors of at most {_MOST_DIMENSIONS:,} dimensions, "
                f"which is what pgvector stores, found {dimensions:,}"
            )
        with database_errors(self._location):
            expected = self._row().dimensions
        expected = expected or self._in_transaction(fix)
        if expected != dimensions:
            raise ValueError(f"expected vectors of {expected} dimensions, found {dimensions}")

    def _purge(self) -> int:
        purged = purge_postings(self._tables)
        self._update("dead = greatest(dead - %s, 0)", purged)
        return purged

    def _analyze(self, command: str) -> None:
        for kind in TABLES:
            self._tables.execute(f"{command} {{{kind}}}")
