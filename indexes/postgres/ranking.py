"""Ranking passages in the database: vectors there, BM25 here from postings that are read there.

Scores are computed in NumPy with the folder's own functions, from the stored vectors and postings,
so that they and their ties are the folder's. The database only proposes the nearest vectors: by a
scan, which is exact, or by the HNSW graph where there is one. With a filter that few passages pass,
those are looked up and scanned; wherever the graph finds too few, the scan answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from indexes.bm25.formulas import BM25Settings, formula_of, mean_okapi_idf, weights
from indexes.bm25.scoring import term_factors, top_places
from indexes.errors import ConfigError
from indexes.filters.grammar import Where
from indexes.postgres.filters import MATCHES_ALL, SqlCondition, condition
from indexes.postgres.postings import ids_of, passage_scores, vocabulary_frequencies
from indexes.postgres.schema import PostgresLocation, Tables, database_errors
from indexes.protocol import Candidates, Mode, Query, Stage, StructureSettings, Term
from indexes.vectors.choice import AUTO, FLAT_LIMIT
from indexes.vectors.flat import exact_scores, nearest_of, rounded, tie_slack
from indexes.vectors.library import FLAT

if TYPE_CHECKING:
    from indexes.postgres.view import PostgresView

GRAPH = "hnsw"
_MOST_DIMENSIONS = 2000  # of pgvector's graph
# The least `hnsw.ef_search`, and the most that pgvector takes.
_LEAST_EFFORT = 200
_MOST_EFFORT = 1000


def copy_passages(
    tables: Tables, columns: Sequence[NDArray[Any]], vectors: NDArray[np.float32]
) -> None:
    """Store passages; `columns` are their ids, documents, starts, stops and numbers of terms."""
    packed = np.zeros(len(vectors), [("head", ">i2", 2), ("values", ">f4", vectors.shape[1:])])
    packed["head"][:, 0], packed["values"] = vectors.shape[1], vectors
    statement = tables.statement(
        "COPY {passages} (passage, doc, start, stop, length, embedding) FROM STDIN (FORMAT BINARY)"
    )
    with tables.connection.cursor() as cursor, cursor.copy(statement) as copy:
        # The bytes are sent as they are: the server reads them as a vector.
        copy.set_types(["int8", "int8", "int4", "int4", "int4", "bytea"])
        for row, vector in zip(np.stack(columns, axis=1).tolist(), packed, strict=True):
            copy.write_row((*row, vector.tobytes()))


def unpacked_vectors(packed: Sequence[bytes], dimensions: int | None) -> NDArray[np.float32]:
    """(n, d) float32, from the binary form of pgvector."""
    width = dimensions or 0
    form = np.dtype([("head", ">i4"), ("values", ">f4", (width,))])
    return np.frombuffer(b"".join(packed), form)["values"].astype(np.float32)


def vector_text(vector: NDArray[np.float32]) -> str:
    """A vector as pgvector reads it, to the last bit."""
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def check_structures(
    settings: StructureSettings, dimensions: int | None, place: PostgresLocation
) -> None:
    """Refuse a structure that a database does not have with a `ConfigError`."""
    kind = settings.index_type
    limit = "" if settings.memory_bytes is None else " with a limit"
    if limit or kind not in (AUTO, FLAT, GRAPH):
        raise ConfigError(
            f"{place}: expected the index type auto, flat or hnsw without a memory limit, found "
            f"{kind!r}{limit}; other types and limits are for index folders"
        )
    if kind == GRAPH and (dimensions or 0) > _MOST_DIMENSIONS:
        raise ConfigError(
            f"{place}: expected vectors of at most {_MOST_DIMENSIONS:,} dimensions for hnsw, found "
            f"{dimensions:,}; use flat"
        )


def wants_graph(settings: StructureSettings, passages: int, dimensions: int | None) -> bool:
    """Whether an index of this size has a graph."""
    if not passages or dimensions is None or dimensions > _MOST_DIMENSIONS:
        return False
    return settings.index_type == GRAPH or (settings.index_type == AUTO and passages > FLAT_LIMIT)


def build_graph(tables: Tables, stage: Stage) -> None:
    """Build the graph in the place of an earlier one; the caller is in no transaction."""
    # Not CONCURRENTLY, which waits for every reader of the database, those of this process too.
    done = stage("building the HNSW graph", 1)
    drop_graph(tables)
    with tables.connection.transaction():
        tables.execute(
            "SELECT set_config('maintenance_work_mem', '1GB', true) WHERE "
            "pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes('1GB')"
        )
        tables.execute(
            f"CREATE INDEX hnsw_{tables.number:d} ON {{passages}} "
            "USING hnsw (embedding vector_ip_ops)"
        )
    tables.execute("UPDATE retriever.indexes SET efforts = '[]' WHERE number = %s", tables.number)
    done(1)


def drop_graph(tables: Tables) -> None:
    """Drop the graph if there is one, which waits for readers; the caller is in no transaction."""
    with tables.connection.transaction():
        tables.execute("SET LOCAL lock_timeout = '10s'")
        tables.execute(
            "UPDATE retriever.indexes SET efforts = NULL WHERE number = %s AND efforts IS NOT NULL",
            tables.number,
        )
        tables.execute("DROP INDEX IF EXISTS {hnsw}")


def graph_is_valid(tables: Tables) -> bool:
    """Whether the database has the graph, complete."""
    chosen = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
    return tables.rows(chosen, f"retriever.hnsw_{tables.number:d}") == [(True,)]


# What following the graph past one passage costs, in looked-up passages.
_STEP_COST = 6
# Filters that are remembered.
_FILTERS = 32
# Matches that are first compared with a filter, in multiples of those wanted.
_FIRST_ASKED = 4


class PostgresRanking:
    """Ranks the passages of one view; see `indexes.protocol.Ranking`."""

    def __init__(
        self, view: PostgresView, bm25: BM25Settings, where: Where | None, recall: float | None
    ) -> None:
        self._view = view
        self._row = view.row
        self._bm25 = bm25
        self._where = where
        self._condition = MATCHES_ALL if where is None else condition(where.expression)
        # The graph's recall is not known.
        self._has_graph = self._row.has_graph and recall is None

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        with database_errors(self._view.location):
            few = None
            if self._where is not None and (mode != "dense" or self._has_graph):
                few = self._few(depth)
            return [self._candidates(query, mode, depth, few) for query in queries]

    def _candidates(
        self, query: Query, mode: Mode, depth: int, few: NDArray[np.int64] | None
    ) -> Candidates:
        matched = np.empty(0, np.int64)
        scores = np.empty(0)
        if mode != "dense":
            matched, scores = self._matches(query.terms)
        best = self._best(matched, scores, depth, few)
        if mode == "bm25":
            everyone = np.ones(len(best), np.bool_)
            none = np.zeros(len(best))
            found = scores[np.searchsorted(matched, best)]
            return Candidates(best, none, found, everyone, len(best) < depth)
        vector = np.ascontiguousarray(query.vector, np.float32)
        passages, vectors = self._nearest(vector, depth, few)
        complete = len(passages) < depth
        others = np.setdiff1d(best, passages)
        passages = np.concatenate([passages, others])
        vectors = np.concatenate([vectors, self._view.vectors(others)])
        dense = rounded(exact_scores(vectors, np.arange(len(vectors)), vector))
        places = np.minimum(np.searchsorted(matched, passages), max(len(matched) - 1, 0))
        matches = np.zeros(len(passages), np.bool_)
        bm25 = np.zeros(len(passages))
        if len(matched):
            matches = matched[places] == passages
            bm25[matches] = scores[places[matches]]
        return Candidates(passages, dense, bm25, matches, complete)

    def _matches(self, terms: Sequence[Term]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """All live passages that hold a term, ascending, and their scores."""
        repetitions = Counter(terms)
        formula = formula_of(self._bm25, self._row.total_length / max(self._row.passages, 1))
        postings = self._view.postings(repetitions)
        factors = term_factors(
            self._bm25.variant,
            repetitions,
            {term: df for term, (_, df) in postings.items()},
            self._row.passages,
            lambda: self._floor,
        )
        contributions = []
        for term, factor in factors.items():
            rows, _ = postings[term]
            values = weights(formula, rows["frequency"], rows["length"])
            values *= factor
            contributions.append((rows["passage"], values))
        return passage_scores(contributions)

    @cached_property
    def _floor(self) -> float:
        """Okapi's replacement for negative idf; reads the whole vocabulary."""
        held = vocabulary_frequencies(self._view.tables, self._view.dead)
        return self._bm25.epsilon * mean_okapi_idf(held, self._row.passages)

    def _best(
        self,
        passages: NDArray[np.int64],
        scores: NDArray[np.float64],
        depth: int,
        few: NDArray[np.int64] | None,
    ) -> NDArray[np.int64]:
        """The `depth` best of some passages that pass the filter, equal scores by number."""
        if self._where is None or not len(passages):
            return _first(passages, scores, depth)
        if few is not None:
            kept = np.isin(passages, few)
            return _first(passages[kept], scores[kept], depth)
        asked = _FIRST_ASKED * depth
        while True:
            kept = np.ones(len(passages), np.bool_)
            if asked < len(passages):
                kept = scores >= np.partition(scores, len(scores) - asked)[len(scores) - asked]
            passing = self._passing(passages[kept])
            if len(passing) >= depth or kept.all():
                chosen = np.searchsorted(passages, passing)
                return _first(passing, scores[chosen], depth)
            asked *= 8

    def _few(self, depth: int) -> NDArray[np.int64] | None:
        """The passages that pass the filter, ascending; None if they are many."""
        # So many that following the graph until `depth` of them are met costs less.
        assert self._where is not None
        row = self._row
        filtered = self._view.filtered
        limit = math.isqrt(_STEP_COST * depth * max(row.passages, 1))
        key = (row.identity, row.generation, self._where.text, limit)
        found = filtered.get(key)
        if found is None:
            rows = self._view.rows(
                "SELECT string_agg(int8send(x.passage), ''::bytea) FROM ("
                "SELECT p.passage FROM {documents} AS d JOIN {passages} AS p USING (doc) "
                "WHERE {where} LIMIT %s) AS x",
                *self._condition.parameters,
                limit + 1,
                where=sql.SQL(self._condition.text),
            )
            found = np.sort(ids_of(rows[0][0]))
            if len(filtered) >= _FILTERS:
                filtered.clear()
            filtered[key] = found
        return found if len(found) <= limit else None

    def _passing(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of some passages that pass the filter, ascending."""
        rows = self._view.rows(
            "SELECT string_agg(int8send(p.passage), ''::bytea) "
            "FROM {passages} AS p JOIN {documents} AS d USING (doc) "
            "WHERE p.passage = ANY(%s) AND {where}",
            passages,
            *self._condition.parameters,
            where=sql.SQL(self._condition.text),
        )
        return np.sort(ids_of(rows[0][0]))

    def _nearest(
        self, vector: NDArray[np.float32], depth: int, few: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The `depth` nearest passages that pass the filter, and their vectors."""
        if few is not None:
            return self._scan(vector, depth, SqlCondition("p.passage = ANY(%s)", (few,)))
        if self._has_graph:
            found = self._from_graph(vector, depth)
            if len(found) >= min(depth, self._row.passages):
                return self._unpacked(found)
        return self._scan(vector, depth, self._condition)

    def _from_graph(self, vector: NDArray[np.float32], depth: int) -> list[tuple[Any, ...]]:
        """About the `depth` nearest, or fewer, by the HNSW graph."""
        # Any other way to the rows would sort them all: these settings leave the graph alone.
        forced = "sort", "seqscan", "bitmapscan", "hashjoin", "mergejoin"
        self._configure(
            {
                "hnsw.iterative_scan": "relaxed_order",
                "hnsw.ef_search": str(min(max(_LEAST_EFFORT, 2 * depth), _MOST_EFFORT)),
                **{f"enable_{one}": "off" for one in forced},
            }
        )
        join = "" if self._where is None else "JOIN {documents} AS d USING (doc) "
        found = self._view.rows(
            f"SELECT p.passage, p.embedding FROM {{passages}} AS p {join}"  # noqa: S608
            "WHERE {where} ORDER BY p.embedding <#> %s::vector LIMIT %s",
            *self._condition.parameters,
            vector_text(vector),
            depth,
            where=sql.SQL(self._condition.text),
        )
        self._configure({f"enable_{one}": "on" for one in forced})
        return found

    def _configure(self, settings: dict[str, str]) -> None:
        """Set parameters until the end of the transaction."""
        asked = "SELECT set_config(name, value, true) FROM unnest(%s::text[], %s::text[]) "
        self._view.rows(f"{asked} AS x (name, value)", list(settings), list(settings.values()))

    def _scan(
        self, vector: NDArray[np.float32], depth: int, among: SqlCondition
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Exactly the `depth` nearest passages that meet a condition, equal scores by number."""
        chosen = "SELECT p.passage, p.embedding FROM {passages} AS p "
        if among is self._condition and self._where is not None:
            chosen += "JOIN {documents} AS d USING (doc) "
        # The sum with 0 keeps the graph out of it.
        chosen, negated = f"{chosen} WHERE {{where}}", "(p.embedding <#> %s::vector) + 0"
        arguments = (*among.parameters, vector_text(vector))
        where = sql.SQL(among.text)
        nearest = f"{chosen} ORDER BY {negated} LIMIT %s"
        rows = self._view.rows(nearest, *arguments, depth + 1, where=where)
        passages, vectors = self._unpacked(rows)
        if len(rows) <= depth:
            return passages, vectors
        scores = exact_scores(vectors, np.arange(len(vectors)), vector)
        least = float(np.partition(scores, -depth)[-depth])
        slack = tie_slack(float(np.abs(scores).max()))
        if scores.min() < least - slack:
            return passages[:-1], vectors[:-1]
        tied = f"{chosen} AND {negated} <= %s ORDER BY p.passage"
        rows = self._view.rows(tied, *arguments, slack - least, where=where)
        passages, vectors = self._unpacked(rows)
        places = np.arange(len(rows))
        best, _ = nearest_of(places, exact_scores(vectors, places, vector), depth)
        return passages[best], vectors[best]

    def _unpacked(
        self, rows: Sequence[tuple[Any, ...]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        passages = np.array([row[0] for row in rows], np.int64)
        return passages, unpacked_vectors([row[1] for row in rows], self._row.dimensions)


def _first(
    passages: NDArray[np.int64], scores: NDArray[np.float64], depth: int
) -> NDArray[np.int64]:
    """The `depth` best of ascending passages, equal scores by number; ascending."""
    return np.sort(passages[top_places(scores, depth)])
