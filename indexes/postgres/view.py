"""What a reader of a database sees: one snapshot of an index, in one read-only transaction.

Nothing is written and no temporary table made, so that a read replica serves it too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import errors

from indexes.bm25.formulas import BM25Settings
from indexes.errors import DamagedIndexError, NotAnIndexError
from indexes.filters.facets import summaries_of
from indexes.filters.grammar import Where
from indexes.folder.documents import document_checksum
from indexes.postgres.connection import Location, Pool, database_errors
from indexes.postgres.filters import facets, read_metadata
from indexes.postgres.postings import all_blocks, ids_of, passages_of, read_dead, read_postings
from indexes.postgres.ranking import PostgresRanking, graph_is_valid, unpacked_vectors
from indexes.postgres.schema import FORMAT_VERSION, Session, check_format, find_index
from indexes.protocol import Facets, FieldSummary, FieldType, Passage, StoredDocument

# By commit, filter and number, at most that many passages that pass the filter, and one more.
Filtered = dict[tuple[Any, ...], NDArray[np.int64]]
_STREAMED = 500
# Of streams, several of which may be read side by side.
_CURSORS = count()
# Compiling a statement takes longer than running it.
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL jit = off"


class PostgresReader:
    """Reads one index; `replaces` is the number of the one that a hidden one is to replace."""

    def __init__(self, location: Location, replaces: int | None = None) -> None:
        self._location = location
        self._replaces = replaces
        self._pool = Pool(location)
        self._filtered: Filtered = {}
        try:
            connection = self._pool.take()
            try:
                with database_errors(location):
                    check_format(connection, location)
            finally:
                self._pool.give_back(connection)
            with self.view():
                pass
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    @contextmanager
    def view(self) -> Iterator[PostgresView]:
        """One consistent view of the latest commit, valid inside the `with` block."""
        with database_errors(self._location):
            session = self._begin()
        try:
            yield PostgresView(session, self._filtered)
        finally:
            self._pool.give_back(session.connection)

    def _begin(self) -> Session:
        """Begin a transaction that sees the index, once more where that fails."""
        for again in (False, True):
            connection = self._pool.take(fresh=again)
            try:
                connection.execute(_BEGIN)
                row = find_index(connection, self._location, self._replaces)
                if row is not None:
                    session = Session(self._location, connection, row)
                    # From here on, whoever drops the tables waits.
                    connection.execute(session.tables.statement("SELECT FROM {documents} LIMIT 0"))
                    return session
                check_format(connection, self._location)
            except BaseException as error:
                self._pool.give_back(connection)
                # The server, or someone on it, closed the connection while it was idle; or
                # there is no index, or another took its place just now.
                gone = isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName)
                if again and gone:
                    break
                if again or not (gone or isinstance(error, errors.OperationalError)):
                    raise
            else:
                self._pool.give_back(connection)
                break
        raise missing(self._location)


def missing(location: Location) -> NotAnIndexError:
    """The error to raise where there is no index."""
    return NotAnIndexError(
        f"{location}: the database holds no index of that name: make one with `retriever index`, "
        "or check the name"
    )


class PostgresView:
    """One commit of an index; see `indexes.protocol.View`. It serves the thread that opened it."""

    def __init__(self, session: Session, filtered: Filtered) -> None:
        self.session = session
        self.filtered = filtered
        self._row = session.row

    @property
    def identity(self) -> UUID:
        """Which index this is; another after the index was replaced."""
        return self._row.identity

    @property
    def generation(self) -> int:
        """Increases with every commit."""
        return self._row.generation

    @property
    def passage_count(self) -> int:
        """Number of live passages."""
        return self._row.passages

    @cached_property
    def dead(self) -> NDArray[np.int64]:
        """(n,) int64: the deleted passages whose postings are still there."""
        if not self._row.dead:
            return np.empty(0, np.int64)
        return read_dead(self.session.connection, self.session.tables)

    def ranking(
        self,
        bm25: BM25Settings | None = None,
        where: Where | None = None,
        recall: float | None = None,
    ) -> PostgresRanking:
        """Ranks passages; see `indexes.protocol.View`."""
        return PostgresRanking(self, bm25 or BM25Settings(), where, recall)

    def document_frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """For each term, the number of live passages that hold it."""
        return {term: len(held) for term, held in self._postings(terms).items()}

    def _postings(self, terms: Iterable[str]) -> dict[str, NDArray[Any]]:
        session = self.session
        return read_postings(session.connection, session.tables, terms, self.dead)

    def unknown_fields(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Those metadata fields among some that no document has had, each with all known fields."""
        rows = self.session.rows(
            "SELECT name FROM retriever.fields WHERE number = %s ORDER BY name",
            self._row.number,
        )
        known = [name for (name,) in rows]
        return dict.fromkeys(sorted(set(names).difference(known)), known)

    def has_type(self, name: str, types: Collection[FieldType]) -> bool:
        """Whether a document has a value of one of some types; reads until it finds one."""
        ((found,),) = self.session.rows(
            "SELECT EXISTS (SELECT FROM {documents} AS d "
            "WHERE jsonb_typeof(d.metadata -> %s::text) = ANY(%s))",
            name,
            list(types),
        )
        return bool(found)

    def facets(
        self, names: Sequence[str], where: Where | None, terms: Sequence[str] | None, limit: int
    ) -> Facets:
        """How many of the documents that pass a filter have each value; see the protocol."""
        held = None if terms is None else passages_of(self._postings(terms))
        return facets(self.session, names, where, held, limit)

    def fields(self) -> list[FieldSummary]:
        """The metadata fields of the documents, ascending by name; reads all metadata."""
        rows = self._streamed("SELECT metadata::text, exact FROM {documents}")
        return summaries_of(read_metadata(*row) for row in rows)

    def documents_of(self, passages: Sequence[int]) -> dict[int, str]:
        """For each passage id, the user's id of its document."""
        rows = self.session.rows(
            "SELECT p.passage, d.id FROM {passages} AS p JOIN {documents} AS d USING (doc) "
            "WHERE p.passage = ANY(%s)",
            np.array(passages, np.int64),
        )
        return self._complete(passages, dict(rows))

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        """The stored passages with these ids."""
        rows = self.session.rows(
            "SELECT p.passage, d.id, d.title, d.text, d.metadata::text, d.exact, p.start, "
            "p.stop FROM {passages} AS p JOIN {documents} AS d USING (doc) "
            "WHERE p.passage = ANY(%s)",
            np.array(passages, np.int64),
        )
        found = {
            passage: Passage(passage, id_, title, text, read_metadata(metadata, exact), start, stop)
            for passage, id_, title, text, metadata, exact, start, stop in rows
        }
        return self._complete(passages, found)

    def vectors(self, passages: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """(passages, d) float32: their stored vectors, in the given order."""
        wanted = np.array(passages, np.int64)
        chosen = "SELECT passage, embedding FROM {passages} WHERE passage = ANY(%s)"
        found = self._complete(wanted.tolist(), dict(self.session.rows(chosen, wanted)))
        packed = [found[passage] for passage in wanted.tolist()]
        return unpacked_vectors(packed, self._row.dimensions)

    def document(self, id_: str) -> StoredDocument | None:
        """One document, or None if the index has none with that id."""
        if not storable(id_):
            return None
        rows = self.session.rows(f"{_DOCUMENT} WHERE d.id = %s", id_)
        return self._stored(rows[0]) if rows else None

    def documents(self) -> Iterator[StoredDocument]:
        """Every document, as a stream in ascending order of ids (by code point)."""
        return map(self._stored, self._streamed(f"{_DOCUMENT} ORDER BY d.id"))

    def _streamed(self, text: str) -> Iterator[tuple[Any, ...]]:
        name = f"streamed_{next(_CURSORS)}"
        with (
            database_errors(self.session.location),
            self.session.connection.cursor(name, binary=True) as cursor,
        ):
            cursor.itersize = _STREAMED
            cursor.execute(self.session.tables.statement(text))
            yield from cursor

    def _stored(self, row: tuple[Any, ...]) -> StoredDocument:
        id_, title, text, metadata, exact, content_hash, checksum, *spans = row
        passages = sorted(zip(*spans, strict=True))
        if document_checksum(id_, title, text, "", content_hash, passages) != checksum:
            raise damaged(self.session.location, f"the document {id_!r} was altered")
        return StoredDocument(id_, title, text, read_metadata(metadata, exact), passages)

    def has_document(self, id_: str) -> bool:
        """Whether the index holds a document with that id."""
        if not storable(id_):
            return False
        return bool(self.session.rows("SELECT 1 FROM {documents} WHERE id = %s", id_))

    def count_documents(self) -> int:
        """Number of documents."""
        return self._row.documents

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The stored hash of title and text of those of `ids` that the index holds."""
        wanted = list(filter(storable, ids))
        return dict(
            self.session.rows("SELECT id, hash FROM {documents} WHERE id = ANY(%s)", wanted)
        )

    def check_settings(self) -> None:
        """Raise `DamagedIndexError` if the settings were altered."""
        if not self._row.is_sealed:
            raise damaged(
                self.session.location, "a setting was altered (the checksum of all differs)"
            )

    def setting(self, key: str, default: Any = None) -> Any:
        """The JSON value of a setting; KeyError if there is none and no default."""
        return self._row.setting(key, default)

    def describe(self) -> dict[str, Any]:
        """Server, structure and sizes; see `indexes.protocol.View`."""
        row, info = self._row, self.session.connection.info
        ((version, replica, batches),) = self.session.rows(
            "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector'), "
            "pg_is_in_recovery(), "
            "(SELECT count(*) FROM retriever.batches WHERE number = %s)",
            row.number,
        )
        parts = self.sizes()
        server = f"PostgreSQL {info.server_version // 10_000}.{info.server_version % 10_000}"
        return {
            "format_version": FORMAT_VERSION,
            "generation": self.generation,
            "deleted_passages": row.dead,
            "mean_passage_terms": round(row.total_length / max(row.passages, 1), 3),
            "bytes": sum(parts.values()),
            "parts": parts,
            "store": {
                "server": f"{server}, pgvector {version}" + (", a read replica" if replica else ""),
                "vectors": "HNSW" if row.has_graph else "scanned",
                "postings": f"batches: {batches:,}, deleted passages: {row.dead:,}",
            },
        }

    def sizes(self) -> dict[str, int]:
        """Bytes of each table with its indexes; those of the graph apart."""
        tables = ("documents", "passages", "postings", "deleted")
        asked = ", ".join(["coalesce(pg_total_relation_size(to_regclass(%s)), 0)"] * 5)
        names = [f"retriever.{kind}_{self._row.number:d}" for kind in (*tables, "hnsw")]
        ((*sizes, graph),) = self.session.rows(f"SELECT {asked}", *names)
        parts = dict(zip(tables, sizes, strict=True))
        parts["passages"] -= graph
        return {**parts, "hnsw": graph}

    def _complete(self, wanted: Iterable[int], found: dict[int, Any]) -> dict[int, Any]:
        for passage in wanted:
            if passage not in found:
                raise damaged(self.session.location, f"passage {passage} belongs to no document")
        return found


_DOCUMENT = (
    "SELECT d.id, d.title, d.text, d.metadata::text, d.exact, d.hash, d.checksum, "
    "ARRAY(SELECT passage FROM {passages} AS p WHERE p.doc = d.doc ORDER BY passage), "
    "ARRAY(SELECT start FROM {passages} AS p WHERE p.doc = d.doc ORDER BY passage), "
    "ARRAY(SELECT stop FROM {passages} AS p WHERE p.doc = d.doc ORDER BY passage) "
    "FROM {documents} AS d"
)


def damaged(location: Location, reason: object) -> DamagedIndexError:
    """The error to raise if what is stored was altered."""
    return DamagedIndexError(
        f"{location}: {' '.join(str(reason).split())}; restore the database from a backup, or "
        "index again with --recreate"
    )


def storable(id_: str) -> bool:
    """Whether the database could hold an id; others are looked for in vain."""
    return "\0" not in id_ and not any("\ud800" <= c <= "\udfff" for c in id_)


_COUNTS = {
    "documents": "SELECT count(*)::bigint FROM {documents}",
    "passages": "SELECT count(*)::bigint FROM {passages}",
    "terms": "SELECT coalesce(sum(length), 0)::bigint FROM {passages}",
    "deleted passages": "SELECT count(*)::bigint FROM {deleted}",
}
_STRAYS = {
    "passages of no document": "SELECT count(*)::bigint FROM {passages} AS p "
    "WHERE NOT EXISTS (SELECT FROM {documents} AS d WHERE d.doc = p.doc)",
    "documents without passages": "SELECT count(*)::bigint FROM {documents} AS d "
    "WHERE NOT EXISTS (SELECT FROM {passages} AS p WHERE p.doc = d.doc)",
    "passages that are marked as deleted": "SELECT count(*)::bigint FROM {passages} "
    "JOIN {deleted} USING (passage)",
    "metadata fields that are not registered": "SELECT count(DISTINCT key)::bigint "
    "FROM {documents} AS d, jsonb_object_keys(d.metadata) AS key WHERE NOT EXISTS "
    "(SELECT FROM retriever.fields AS f WHERE f.name = key AND f.number = %s)",
}


def verify(view: PostgresView) -> list[str]:
    """Read everything that the index has; one line per problem found.

    What pages hold is the server's to check (``initdb --data-checksums``, ``pg_amcheck``).
    """
    with database_errors(view.session.location):
        return list(_problems(view))


def _problems(view: PostgresView) -> Iterator[str]:
    session, row = view.session, view.session.row
    place = session.location
    try:
        view.check_settings()
    except DamagedIndexError as error:
        yield str(error)
    stated = (row.documents, row.passages, row.total_length, row.dead)
    for (what, statement), expected in zip(_COUNTS.items(), stated, strict=True):
        ((found,),) = session.rows(statement)
        if found != expected:
            yield f"{place}: expected {expected} {what}, as the index says, found {found}"
    for what, statement in _STRAYS.items():
        parameters = (row.number,) if "%s" in statement else ()
        ((found,),) = session.rows(statement, *parameters)
        if found:
            yield f"{place}: {found} {what}"
    try:
        for _ in view.documents():
            pass
    except DamagedIndexError as error:
        yield str(error)
    yield from _postings_problems(view)
    if row.has_graph and not graph_is_valid(session.connection, session.tables):
        yield (
            f"{place}: the HNSW graph is missing or invalid; `retriever compact --index-type hnsw` "
            "builds it again"
        )


def _postings_problems(view: PostgresView) -> Iterator[str]:
    session = view.session
    ((packed,),) = session.rows(
        "SELECT string_agg(int8send(passage) || int8send(length), ''::bytea ORDER BY passage) "
        "FROM {passages}"
    )
    table = ids_of(packed).reshape(-1, 2)
    passages, lengths = table[:, 0], table[:, 1]
    sums, wrong, strays = np.zeros(len(passages), np.int64), 0, 0
    dead = view.dead
    for _, first, _, postings in all_blocks(session.connection, session.tables):
        held = postings["passage"]
        if not len(held) or held.min() < first:
            yield f"{session.location}: a block of postings begins before its first passage {first}"
            continue
        places = np.minimum(np.searchsorted(passages, held), max(len(passages) - 1, 0))
        known = passages[places] == held if len(passages) else np.zeros(len(held), np.bool_)
        np.add.at(sums, places[known], postings["frequency"][known])
        wrong += int(np.count_nonzero(postings["length"][known] != lengths[places[known]]))
        strays += int(np.count_nonzero(~np.isin(held[~known], dead)))
    if strays:
        yield f"{session.location}: {strays} postings of passages that do not exist"
    differing = int(np.count_nonzero(sums != lengths))
    if differing or wrong:
        yield (
            f"{session.location}: the postings of {differing} passages do not add up to their "
            f"lengths, and {wrong} postings name another length; index again with --recreate"
        )
