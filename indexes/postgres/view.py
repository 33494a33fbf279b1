"""The reader of an index, whose views are snapshots: read-only transactions.

A reader writes nothing and creates no temporary table, so a read replica can serve it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from psycopg import errors, pq, sql

from indexes.bm25.formulas import BM25Settings
from indexes.bm25.scoring import text_and_label_counts
from indexes.errors import ClosedIndexError, DamagedIndexError, NotAnIndexError
from indexes.filters.facets import counted_facet, summaries_of
from indexes.filters.grammar import Where, parse_field
from indexes.metadata import FieldType, document_checksum
from indexes.postgres.connection import Connection, PostgresLocation, connect, database_errors
from indexes.postgres.filters import MATCHES_ALL, decode_metadata, sql_condition
from indexes.postgres.postings import (
    read_deleted_ids,
    read_terms_with_prefix,
    stream_blocks,
    unpack_ids,
)
from indexes.postgres.ranking import PostgresRanking, graph_is_valid
from indexes.postgres.schema import FORMAT_VERSION, TABLES, Tables, find_index, has_tables
from indexes.postgres.snapshot import FilterCache, PostgresSnapshot, damaged
from indexes.protocol import (
    CONTENT_BYTES,
    LANGUAGES,
    AnyTerm,
    Facets,
    FieldSummary,
    Passage,
    StoredDocument,
    Term,
    View,
)

# Rows of a stream that are read together.
_STREAMED_ROWS = 500
# Connections that stay open between views.
_MAX_IDLE = 8
# Numbers in the names of cursors: several streams may be open.
_CURSORS = count()
# Without JIT, as compiling a statement takes longer than running it.
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL jit = off"


class PostgresReader:
    """Reads one index; each view has a connection of its own, and threads may share a reader.

    A forked child opens new connections.
    """

    def __init__(self, location: PostgresLocation, replaces: int | None = None) -> None:
        self._location = location
        self._replaces = replaces
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._filter_cache: FilterCache = {}
        connection = connect(location)
        self._idle: list[Connection] | None = [connection]  # None after `close`
        try:
            with database_errors(location):
                if not has_tables(connection, location):
                    raise missing(location)
            with self.view():
                pass
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close idle connections now, and the others at the end of their views."""
        with self._lock:
            idle = self._idle or []
            self._idle = None
        for connection in idle if self._process == os.getpid() else ():
            connection.close()

    @contextmanager
    def view(self) -> Iterator[PostgresView]:
        with database_errors(self._location):
            view = self._begin(self._acquire())
        try:
            yield view
        finally:
            self._release(view.tables.connection)

    def _begin(self, connection: Connection, *, is_retry: bool = False) -> PostgresView:
        """Begin a transaction that sees the index; retry once with a new connection."""
        try:
            connection.execute(_BEGIN)
            row = find_index(connection, self._location, self._replaces)
            if row is None:
                raise missing(self._location)
            tables = Tables(connection, row.number)
            return PostgresView(self._location, tables, row, self._filter_cache)
        except BaseException as error:
            connection.close()
            # There are no indexes, or this one was just replaced.
            is_missing = isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName)
            if is_missing and is_retry:
                raise missing(self._location) from None
            # The server or an administrator may have closed an idle connection.
            if is_retry or not (is_missing or isinstance(error, errors.OperationalError)):
                raise
        return self._begin(connect(self._location), is_retry=True)

    def _acquire(self) -> Connection:
        with self._lock:
            if self._idle is None:
                raise ClosedIndexError(f"{self._location}: the index was closed; open it again")
            if self._process != os.getpid():
                # The connections belong to the parent process.
                self._process = os.getpid()
                self._idle = []
            if self._idle:
                return self._idle.pop()
        return connect(self._location)

    def _release(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            connection.rollback()
        with self._lock:
            # An interrupted statement may still run.
            is_usable = connection.info.transaction_status == pq.TransactionStatus.IDLE
            if is_usable and self._idle is not None and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()


def missing(location: PostgresLocation) -> NotAnIndexError:
    """Return the error for a location without an index."""
    return NotAnIndexError(
        f"{location}: the database holds no index of that name: make one with `retriever index`, "
        "or check the name"
    )


class PostgresView(PostgresSnapshot, View):
    """One commit of an index, for the thread that opened it; see `indexes.protocol.View`."""

    @property
    def identity(self) -> UUID:
        return self.row.identity

    @property
    def generation(self) -> int:
        return self.row.generation

    @property
    def passage_count(self) -> int:
        return self.row.passages

    def ranking(
        self,
        bm25: BM25Settings | None = None,
        where: Where | None = None,
        recall: float | None = None,
    ) -> PostgresRanking:
        return PostgresRanking(self, bm25 or BM25Settings(), where, recall)

    def document_frequencies(self, terms: Iterable[AnyTerm]) -> dict[AnyTerm, int]:
        distinct = dict.fromkeys(terms)
        counts = {term: df for term, (_, df) in self.postings(distinct).items()}
        return text_and_label_counts(distinct, counts, self.row.passages)

    def terms_beginning(self, prefix: str, limit: int) -> list[str]:
        return read_terms_with_prefix(self.tables, prefix, limit)

    def unknown_fields(self, names: Iterable[str]) -> dict[str, list[str]]:
        statement = "SELECT name FROM retriever.fields WHERE number = %s ORDER BY name"
        field_names = [name for (name,) in self.rows(statement, self.row.number)]
        return dict.fromkeys(sorted(set(names).difference(field_names)), field_names)

    def has_type(self, name: str, types: Collection[FieldType]) -> bool:
        ((exists,),) = self.rows(
            "SELECT EXISTS (SELECT FROM {documents} AS d "
            "WHERE jsonb_typeof(d.metadata -> %s::text) = ANY(%s))",
            name,
            list(types),
        )
        return bool(exists)

    def facets(
        self, names: Sequence[str], where: Where | None, terms: Sequence[Term] | None, limit: int
    ) -> Facets:
        condition = MATCHES_ALL if where is None else sql_condition(where.expression)
        matching = [postings["passage"] for postings, _ in self.postings(terms or ()).values()]
        values = (np.concatenate([np.empty(0, np.int64), *matching]), *condition.parameters)
        text = sql.SQL(condition.text)
        counts = "count(*), count(*) FILTER (WHERE matches)"
        ((documents, matches),) = self.rows(f"SELECT {counts} {_PASSING}", *values, where=text)
        facets = {}
        for name in names:
            field = parse_field(name)[0]
            rows = self.rows(
                f"SELECT x.metadata -> %s::text AS value, {counts} {_PASSING} "
                "WHERE x.metadata -> %s::text IS NOT NULL GROUP BY value",
                *(field, *values, field),
                where=text,
            )
            facets[name] = counted_facet(name, rows, limit, queried=terms is not None)
        return Facets(documents, None if terms is None else matches, facets)

    def fields(self) -> list[FieldSummary]:
        """Summarize the metadata fields, ascending by name; reads all metadata."""
        rows = self._stream("SELECT metadata::text, exact FROM {documents}")
        return summaries_of(decode_metadata(*row) for row in rows)

    def documents_of(self, passages: Sequence[int]) -> dict[int, str]:
        rows = self.rows(
            "SELECT p.passage, d.id FROM {passages} AS p JOIN {documents} AS d USING (doc) "
            "WHERE p.passage = ANY(%s)",
            np.array(passages, np.int64),
        )
        return self.require_all(passages, dict(rows))

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        rows = self.rows(
            "SELECT p.passage, d.id, d.title, d.text, d.metadata::text, d.exact, p.start, "
            "p.stop, {outline} FROM {passages} AS p JOIN {documents} AS d USING (doc) "
            "WHERE p.passage = ANY(%s)",
            np.array(passages, np.int64),
            outline=self._outline,
        )
        stored = {
            passage: Passage(passage, id_, title, text, decode_metadata(metadata, exact), *place)
            for passage, id_, title, text, metadata, exact, *place in rows
        }
        return self.require_all(passages, stored)

    def document(self, id_: str) -> StoredDocument | None:
        rows = self.rows(f"{_DOCUMENT} WHERE d.id = %s", id_, outline=self._outline)
        return self._document_of(rows[0]) if rows else None

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        condition = MATCHES_ALL if where is None else sql_condition(where.expression)
        text = f"{_DOCUMENT} WHERE {{where}} ORDER BY d.id"
        rows = self._stream(text, *condition.parameters, where=sql.SQL(condition.text))
        return map(self._document_of, rows)

    def _stream(
        self, text: str, *values: Any, **parts: sql.Composable
    ) -> Iterator[tuple[Any, ...]]:
        name = f"streamed_{next(_CURSORS)}"
        with (
            database_errors(self.location),
            self.tables.connection.cursor(name, binary=True) as cursor,
        ):
            cursor.itersize = _STREAMED_ROWS
            cursor.execute(self.tables.statement(text, outline=self._outline, **parts), values)
            yield from cursor

    def _document_of(self, row: tuple[Any, ...]) -> StoredDocument:
        id_, title, text, metadata, exact, content_hash, checksum, outline, *spans = row
        passages = sorted(zip(*spans, strict=True))
        if document_checksum(passages, id_, title, text, "", content_hash, outline) != checksum:
            raise damaged(self.location, f"the document {id_!r} was altered")
        return StoredDocument(id_, title, text, decode_metadata(metadata, exact), passages, outline)

    def count_documents(self) -> int:
        return self.row.documents

    def count_copies(self) -> int:
        statement = "SELECT count(DISTINCT substring(hash FOR %s)) FROM {documents}"
        ((distinct,),) = self.rows(statement, CONTENT_BYTES)
        return self.count_documents() - int(distinct)

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        statement = "SELECT id, hash FROM {documents} WHERE id = ANY(%s)"
        return dict(self.rows(statement, list(ids)))

    def check_settings(self) -> None:
        if not self.row.is_sealed:
            raise damaged(self.location, "a setting was altered (the checksum of all differs)")

    def setting(self, key: str, default: Any = None) -> Any:
        return self.row.setting(key, default)

    def describe(self) -> dict[str, Any]:
        row = self.row
        info = self.tables.connection.info
        ((version, replica, size),) = self.rows(
            "SELECT extversion, pg_is_in_recovery(), (SELECT sum(pg_total_relation_size("
            "to_regclass(name)))::bigint FROM unnest(%s::text[]) AS name) "
            "FROM pg_extension WHERE extname = 'vector'",
            [f"retriever.{kind}_{row.number:d}" for kind in TABLES],
        )
        server = f"PostgreSQL {info.parameter_status('server_version')}"
        return {
            "format_version": FORMAT_VERSION,
            "generation": self.generation,
            "deleted_passages": row.dead,
            "uncounted_passages": self.tables.languages().uncounted,
            "mean_passage_terms": round(row.total_length / max(row.passages, 1), 3),
            "bytes": size,
            "store": {
                "server": f"{server}, pgvector {version}" + (", a read replica" if replica else ""),
                "vectors": "HNSW" if row.has_graph else "scanned",
                "postings": f"deleted passages: {row.dead:,}",
            },
        }

    def problems(self) -> Iterator[str]:
        """Read everything that the index holds; yield one line for each problem.

        The server checks its pages itself (``initdb --data-checksums``, ``pg_amcheck``).
        """
        location = self.location
        if not self.row.is_sealed:
            yield f"{location}: a setting was altered (the checksum of all differs)"
        if problem := self.tables.languages().problem(self.setting(LANGUAGES, {})):
            yield f"{location}: {problem}"
        document_count = 0
        span_count = 0
        for row in self._stream(_DOCUMENT):
            document_count += 1
            span_count += len(row[-1])
            try:
                self._document_of(row)
            except DamagedIndexError as error:
                yield str(error)
        yield from self._count_problems(document_count, span_count)
        if self.row.has_graph and not graph_is_valid(self.tables):
            yield (
                f"{location}: the HNSW graph is missing or invalid; `retriever compact "
                "--index-type hnsw` builds it again"
            )

    def _count_problems(self, document_count: int, span_count: int) -> Iterator[str]:
        """Compare the counts of the index with its rows, and lengths with postings."""
        ((packed,),) = self.rows(
            "SELECT string_agg(int8send(passage) || int8send(length), ''::bytea ORDER BY passage) "
            "FROM {passages}"
        )
        # A last row above all passages gives each posting a place.
        passages, lengths = np.append(unpack_ids(packed), [2**63 - 1, 0]).reshape(-1, 2).T
        deleted_ids = read_deleted_ids(self.tables)
        row = self.row
        for noun, expected, count_ in (
            ("documents", row.documents, document_count),
            ("passages", row.passages, len(passages) - 1),
            ("passages of documents", row.passages, span_count),
            ("terms", row.total_length, lengths.sum()),
            ("deleted passages", row.dead, len(deleted_ids)),
        ):
            if count_ != expected:
                yield (
                    f"{self.location}: expected {expected} {noun}, as the index says, found "
                    f"{count_}"
                )
        sums = np.zeros(len(passages), np.int64)
        wrong = np.int64(0)
        for *_, postings in stream_blocks(self.tables):
            ids = postings["passage"]
            places = np.searchsorted(passages, ids)
            is_live = passages[places] == ids
            np.add.at(sums, places[is_live], postings["frequency"][is_live])
            wrong += np.count_nonzero(postings["length"][is_live] != lengths[places[is_live]])
            wrong += np.count_nonzero(~np.isin(ids[~is_live], deleted_ids))
        differing = np.count_nonzero(sums != lengths)
        if differing or wrong:
            yield (
                f"{self.location}: the postings of {differing} passages do not add up to their "
                f"lengths, and {wrong} are of other passages or lengths; index again with "
                "--recreate"
            )


# Documents that pass a filter, each with whether it has one of the given passages.
_PASSING = (
    "FROM (SELECT d.metadata, m.doc IS NOT NULL AS matches FROM {documents} AS d LEFT JOIN "
    "(SELECT DISTINCT doc FROM {passages} WHERE passage = ANY(%s)) AS m USING (doc) "
    "WHERE {where}) AS x"
)
_DOCUMENT = (
    "SELECT d.id, d.title, d.text, d.metadata::text, d.exact, d.hash, d.checksum, {outline}, "
    "ARRAY(SELECT passage FROM {passages} AS p WHERE p.doc = d.doc ORDER BY passage), "
    "ARRAY(SELECT start FROM {passages} AS p WHERE p.doc = d.doc ORDER BY passage), "
    "ARRAY(SELECT stop FROM {passages} AS p WHERE p.doc = d.doc ORDER BY passage) "
    "FROM {documents} AS d"
)
