"""What a reader of a database sees: one snapshot of an index, in one read-only transaction.

Nothing is written and no temporary table made, so that a read replica serves it too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import count
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import errors, pq, sql

from indexes.bm25.formulas import BM25Settings
from indexes.bm25.scoring import plain_terms, text_and_label_counts, with_labels
from indexes.errors import ClosedIndexError, DamagedIndexError, NotAnIndexError
from indexes.filters.facets import counted_facet, summaries_of
from indexes.filters.grammar import Where, parse_field
from indexes.folder.documents import document_checksum
from indexes.postgres.filters import MATCHES_ALL, condition, read_metadata
from indexes.postgres.postings import (
    all_blocks,
    expanded_postings,
    ids_of,
    read_dead,
    read_postings,
    read_terms_beginning,
)
from indexes.postgres.ranking import PostgresRanking, graph_is_valid, unpacked_vectors
from indexes.postgres.schema import (
    FORMAT_VERSION,
    TABLES,
    Connection,
    IndexRow,
    PostgresLocation,
    Tables,
    connect,
    database_errors,
    find_index,
    has_tables,
)
from indexes.protocol import (
    CONTENT_BYTES,
    LANGUAGES,
    AnyTerm,
    Expansion,
    Facets,
    FieldSummary,
    FieldType,
    Passage,
    StoredDocument,
    Term,
    View,
)

# By commit, filter and number, at most that many passages that pass the filter, and one more.
Filtered = dict[tuple[Any, ...], NDArray[np.int64]]
_STREAMED = 500
_IDLE = 8  # connections that are kept
# Of streams, several of which may be read side by side.
_CURSORS = count()
# Compiling a statement takes longer than running it.
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL jit = off"


class PostgresReader:
    """Threads read side by side, a view with its own connection; a forked child opens others."""

    def __init__(self, location: PostgresLocation, replaces: int | None = None) -> None:
        self._location = location
        self._replaces = replaces
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._filtered: Filtered = {}
        connection = connect(location)
        self._idle: list[Connection] | None = [connection]  # None once it is closed
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
        """Close what is idle now, and the other connections at the end of their views."""
        with self._lock:
            idle = self._idle or []
            self._idle = None
        for connection in idle if self._process == os.getpid() else ():
            connection.close()

    @contextmanager
    def view(self) -> Iterator[PostgresView]:
        with database_errors(self._location):
            view = self._begin(self._take())
        try:
            yield view
        finally:
            self._give_back(view.tables.connection)

    def _begin(self, connection: Connection, *, again: bool = False) -> PostgresView:
        """Begin a transaction that sees the index, once more where that fails."""
        try:
            connection.execute(_BEGIN)
            row = find_index(connection, self._location, self._replaces)
            if row is None:
                raise missing(self._location)
            tables = Tables(connection, row.number)
            return PostgresView(self._location, tables, row, self._filtered)
        except BaseException as error:
            connection.close()
            # There are no indexes, or another one took its place just now.
            gone = isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName)
            if gone and again:
                raise missing(self._location) from None
            # An idle connection may have been closed by the server, or by someone on it.
            if again or not (gone or isinstance(error, errors.OperationalError)):
                raise
        return self._begin(connect(self._location), again=True)

    def _take(self) -> Connection:
        with self._lock:
            if self._idle is None:
                raise ClosedIndexError(f"{self._location}: the index was closed; open it again")
            if self._process != os.getpid():
                # The connections are the parent's, which goes on using them.
                self._process = os.getpid()
                self._idle = []
            if self._idle:
                return self._idle.pop()
        return connect(self._location)

    def _give_back(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            connection.rollback()
        with self._lock:
            # An interrupted statement may still run.
            usable = connection.info.transaction_status == pq.TransactionStatus.IDLE
            if usable and self._idle is not None and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()


def missing(location: PostgresLocation) -> NotAnIndexError:
    """The error to raise where there is no index."""
    return NotAnIndexError(
        f"{location}: the database holds no index of that name: make one with `retriever index`, "
        "or check the name"
    )


class PostgresView(View):
    """One commit of an index; see `indexes.protocol.View`. It serves the thread that opened it."""

    def __init__(
        self, location: PostgresLocation, tables: Tables, row: IndexRow, filtered: Filtered
    ) -> None:
        self.location = location
        self.tables = tables
        self.row = row
        self.filtered = filtered
        # From here on, whoever drops the tables waits.
        has_outlines = "outline" in tables.document_columns()
        self._outline = sql.SQL("d.outline" if has_outlines else "''::text")

    def rows(self, text: str, *values: Any, **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """What a statement over the tables of the index returns."""
        with database_errors(self.location):
            return self.tables.rows(text, *values, **parts)

    @property
    def identity(self) -> UUID:
        return self.row.identity

    @property
    def generation(self) -> int:
        return self.row.generation

    @property
    def passage_count(self) -> int:
        return self.row.passages

    @cached_property
    def dead(self) -> NDArray[np.int64]:
        """(n,) int64: the deleted passages whose postings are still there."""
        return read_dead(self.tables) if self.row.dead else np.empty(0, np.int64)

    def postings(self, terms: Iterable[Term]) -> dict[Term, tuple[NDArray[Any], int]]:
        """The postings of live passages for each term, and its document frequency.

        Behind them are those of the plain terms in labels.
        """
        distinct = with_labels(terms)
        plain = read_postings(self.tables, plain_terms(distinct), self.dead)
        return {
            term: expanded_postings(term, plain)
            if isinstance(term, Expansion)
            else (plain[term], len(plain[term]))
            for term in distinct
        }

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

    def terms_beginning(
        self, prefix: str, limit: int, terms_of: Callable[[str], Iterable[str]]
    ) -> list[str]:
        return read_terms_beginning(self.tables, prefix, limit)

    def unknown_fields(self, names: Iterable[str]) -> dict[str, list[str]]:
        asked = "SELECT name FROM retriever.fields WHERE number = %s ORDER BY name"
        known = [name for (name,) in self.rows(asked, self.row.number)]
        return dict.fromkeys(sorted(set(names).difference(known)), known)

    def has_type(self, name: str, types: Collection[FieldType]) -> bool:
        ((found,),) = self.rows(
            "SELECT EXISTS (SELECT FROM {documents} AS d "
            "WHERE jsonb_typeof(d.metadata -> %s::text) = ANY(%s))",
            name,
            list(types),
        )
        return bool(found)

    def facets(
        self, names: Sequence[str], where: Where | None, terms: Sequence[Term] | None, limit: int
    ) -> Facets:
        chosen = MATCHES_ALL if where is None else condition(where.expression)
        matching = [postings["passage"] for postings, _ in self.postings(terms or ()).values()]
        values = np.concatenate([np.empty(0, np.int64), *matching]), *chosen.parameters
        text = sql.SQL(chosen.text)
        counted = "count(*), count(*) FILTER (WHERE matches)"
        ((documents, matches),) = self.rows(f"SELECT {counted} {_PASSING}", *values, where=text)
        found = {}
        for name in names:
            field = parse_field(name)[0]
            rows = self.rows(
                f"SELECT x.metadata -> %s::text AS value, {counted} {_PASSING} "
                "WHERE x.metadata -> %s::text IS NOT NULL GROUP BY value",
                *(field, *values, field),
                where=text,
            )
            found[name] = counted_facet(name, rows, limit, queried=terms is not None)
        return Facets(documents, None if terms is None else matches, found)

    def fields(self) -> list[FieldSummary]:
        """The metadata fields of the documents, ascending by name; reads all metadata."""
        rows = self._streamed("SELECT metadata::text, exact FROM {documents}")
        return summaries_of(read_metadata(*row) for row in rows)

    def documents_of(self, passages: Sequence[int]) -> dict[int, str]:
        rows = self.rows(
            "SELECT p.passage, d.id FROM {passages} AS p JOIN {documents} AS d USING (doc) "
            "WHERE p.passage = ANY(%s)",
            np.array(passages, np.int64),
        )
        return self._complete(passages, dict(rows))

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        rows = self.rows(
            "SELECT p.passage, d.id, d.title, d.text, d.metadata::text, d.exact, p.start, "
            "p.stop, {outline} FROM {passages} AS p JOIN {documents} AS d USING (doc) "
            "WHERE p.passage = ANY(%s)",
            np.array(passages, np.int64),
            outline=self._outline,
        )
        found = {
            passage: Passage(passage, id_, title, text, read_metadata(metadata, exact), *place)
            for passage, id_, title, text, metadata, exact, *place in rows
        }
        return self._complete(passages, found)

    def vectors(self, passages: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        wanted = np.array(passages, np.int64)
        chosen = "SELECT passage, embedding FROM {passages} WHERE passage = ANY(%s)"
        found = self._complete(wanted.tolist(), dict(self.rows(chosen, wanted)))
        packed = [found[passage] for passage in wanted.tolist()]
        return unpacked_vectors(packed, self.row.dimensions)

    def document(self, id_: str) -> StoredDocument | None:
        rows = self.rows(f"{_DOCUMENT} WHERE d.id = %s", id_, outline=self._outline)
        return self._stored(rows[0]) if rows else None

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        chosen = MATCHES_ALL if where is None else condition(where.expression)
        text = f"{_DOCUMENT} WHERE {{where}} ORDER BY d.id"
        where_part = sql.SQL(chosen.text)
        return map(self._stored, self._streamed(text, *chosen.parameters, where=where_part))

    def _streamed(
        self, text: str, *values: Any, **parts: sql.Composable
    ) -> Iterator[tuple[Any, ...]]:
        name = f"streamed_{next(_CURSORS)}"
        with (
            database_errors(self.location),
            self.tables.connection.cursor(name, binary=True) as cursor,
        ):
            cursor.itersize = _STREAMED
            cursor.execute(self.tables.statement(text, outline=self._outline, **parts), values)
            yield from cursor

    def _stored(self, row: tuple[Any, ...]) -> StoredDocument:
        id_, title, text, metadata, exact, content_hash, checksum, outline, *spans = row
        passages = sorted(zip(*spans, strict=True))
        if document_checksum(passages, id_, title, text, "", content_hash, outline) != checksum:
            raise damaged(self.location, f"the document {id_!r} was altered")
        return StoredDocument(id_, title, text, read_metadata(metadata, exact), passages, outline)

    def count_documents(self) -> int:
        return self.row.documents

    def count_copies(self) -> int:
        counted = "SELECT count(DISTINCT substring(hash FOR %s)) FROM {documents}"
        ((distinct,),) = self.rows(counted, CONTENT_BYTES)
        return self.count_documents() - int(distinct)

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        chosen = "SELECT id, hash FROM {documents} WHERE id = ANY(%s)"
        return dict(self.rows(chosen, list(ids)))

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
        """Read everything that the index has; one line per problem found.

        What pages hold is the server's to check (``initdb --data-checksums``, ``pg_amcheck``).
        """
        place = self.location
        row = self.row
        documents = 0
        owned = 0
        if not row.is_sealed:
            yield f"{place}: a setting was altered (the checksum of all differs)"
        if problem := self.tables.languages().problem(self.setting(LANGUAGES, {})):
            yield f"{place}: {problem}"
        for one in self._streamed(_DOCUMENT):
            documents = documents + 1
            owned = owned + len(one[-1])
            try:
                self._stored(one)
            except DamagedIndexError as error:
                yield str(error)
        ((packed,),) = self.rows(
            "SELECT string_agg(int8send(passage) || int8send(length), ''::bytea ORDER BY passage) "
            "FROM {passages}"
        )
        # The last row is of no passage, so that each posting has a place.
        passages, lengths = np.append(ids_of(packed), [2**63 - 1, 0]).reshape(-1, 2).T
        dead = read_dead(self.tables)
        for what, expected, found in (
            ("documents", row.documents, documents),
            ("passages", row.passages, len(passages) - 1),
            ("passages of documents", row.passages, owned),
            ("terms", row.total_length, lengths.sum()),
            ("deleted passages", row.dead, len(dead)),
        ):
            if found != expected:
                yield f"{place}: expected {expected} {what}, as the index says, found {found}"
        sums = np.zeros(len(passages), np.int64)
        wrong = np.int64(0)
        for *_, postings in all_blocks(self.tables):
            held = postings["passage"]
            places = np.searchsorted(passages, held)
            known = passages[places] == held
            np.add.at(sums, places[known], postings["frequency"][known])
            wrong += np.count_nonzero(postings["length"][known] != lengths[places[known]])
            wrong += np.count_nonzero(~np.isin(held[~known], dead))
        differing = np.count_nonzero(sums != lengths)
        if differing or wrong:
            yield (
                f"{place}: the postings of {differing} passages do not add up to their lengths, "
                f"and {wrong} are of other passages or lengths; index again with --recreate"
            )
        if row.has_graph and not graph_is_valid(self.tables):
            yield (
                f"{place}: the HNSW graph is missing or invalid; `retriever compact --index-type "
                "hnsw` builds it again"
            )

    def _complete(self, wanted: Iterable[int], found: dict[int, Any]) -> dict[int, Any]:
        for passage in {*wanted} - found.keys():
            raise damaged(self.location, f"passage {passage} belongs to no document")
        return found


# Documents that pass a filter, each with whether it holds one of some passages.
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


def damaged(location: PostgresLocation, reason: object) -> DamagedIndexError:
    """The error to raise if what is stored was altered."""
    return DamagedIndexError(
        f"{location}: {' '.join(str(reason).split())}; restore the database from a backup, or "
        "index again with --recreate"
    )
