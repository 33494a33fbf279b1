"""The ranking of passages: nearest vectors by the database, BM25 from its postings.

NumPy computes all scores with the folder's functions from the stored vectors and postings. Scores
and ties therefore equal the folder's. The database proposes the nearest vectors: by a scan, which
is exact, or by the HNSW graph where there is one. If few passages pass a filter, they are looked up
and scanned. If the graph finds too few passages, a scan answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from indexes.bm25.formulas import BM25Settings, make_formula, mean_okapi_idf, weights
from indexes.bm25.scoring import term_factors, top_places
from indexes.errors import ConfigError
from indexes.filters.grammar import Where
from indexes.postgres.connection import PostgresLocation, database_errors
from indexes.postgres.filters import MATCHES_ALL, SqlCondition, sql_condition
from indexes.postgres.postings import sum_scores, unpack_ids, vocabulary_frequencies
from indexes.postgres.schema import Tables
from indexes.postgres.snapshot import PostgresSnapshot, unpack_vectors
from indexes.protocol import Candidates, Mode, Query, Stage, StructureSettings, Term
from indexes.vectors.choice import AUTO, FLAT_LIMIT
from indexes.vectors.flat import exact_scores, rank_nearest, rounded, tie_slack
from indexes.vectors.library import FLAT

GRAPH = "hnsw"
_MOST_DIMENSIONS = 2000  # of pgvector's graph
# The lowest `hnsw.ef_search` of a query, and the highest that pgvector takes.
_LEAST_EFFORT = 200
_MOST_EFFORT = 1000
# Cost of a step of the graph, in passages that are looked up.
_STEP_COST = 6
# Filters whose passages are cached.
_CACHED_FILTERS = 32
# Matches that are first compared with a filter, as a multiple of the depth.
_FIRST_BATCH = 4


def copy_passages(
    tables: Tables, columns: Sequence[NDArray[Any]], vectors: NDArray[np.float32]
) -> None:
    """Store passages; `columns` are their ids, documents, starts, stops and numbers of terms."""
    packed = np.zeros(len(vectors), [("head", ">i2", 2), ("values", ">f4", vectors.shape[1:])])
    packed["head"][:, 0] = vectors.shape[1]
    packed["values"] = vectors
    statement = tables.statement(
        "COPY {passages} (passage, doc, start, stop, length, embedding) FROM STDIN (FORMAT BINARY)"
    )
    with tables.connection.cursor() as cursor, cursor.copy(statement) as copy:
        # The bytes are sent as they are: the server reads them as a vector.
        copy.set_types(["int8", "int8", "int4", "int4", "int4", "bytea"])
        for row, vector in zip(np.stack(columns, axis=1).tolist(), packed, strict=True):
            copy.write_row((*row, vector.tobytes()))


def vector_text(vector: NDArray[np.float32]) -> str:
    """Return a vector as text that pgvector reads without rounding."""
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def check_structures(
    settings: StructureSettings, dimensions: int | None, location: PostgresLocation
) -> None:
    """Raise ConfigError for a search structure that a database does not have."""
    kind = settings.index_type
    limit = "" if settings.memory_bytes is None else " with a limit"
    if limit or kind not in (AUTO, FLAT, GRAPH):
        raise ConfigError(
            f"{location}: expected the index type auto, flat or hnsw without a memory limit, found "
            f"{kind!r}{limit}; other types and limits are for index folders"
        )
    if kind == GRAPH and (dimensions or 0) > _MOST_DIMENSIONS:
        raise ConfigError(
            f"{location}: expected vectors of at most {_MOST_DIMENSIONS:,} dimensions for hnsw, "
            f"found {dimensions:,}; use flat"
        )


def wants_graph(settings: StructureSettings, passages: int, dimensions: int | None) -> bool:
    """Return whether an index of this size has a graph."""
    if not passages or dimensions is None or dimensions > _MOST_DIMENSIONS:
        return False
    return settings.index_type == GRAPH or (settings.index_type == AUTO and passages > FLAT_LIMIT)


def build_graph(tables: Tables, stage: Stage) -> None:
    """Build the graph, in place of an earlier one; the caller is in no transaction."""
    # Not CONCURRENTLY, which waits for every reader of the database, this process included.
    report_progress = stage("building the HNSW graph", 1)
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
    report_progress(1)


def drop_graph(tables: Tables) -> None:
    """Drop the graph if there is one, after its readers; the caller is in no transaction."""
    with tables.connection.transaction():
        tables.execute("SET LOCAL lock_timeout = '10s'")
        tables.execute(
            "UPDATE retriever.indexes SET efforts = NULL WHERE number = %s AND efforts IS NOT NULL",
            tables.number,
        )
        tables.execute("DROP INDEX IF EXISTS {hnsw}")


def graph_is_valid(tables: Tables) -> bool:
    """Return whether the database has the complete graph."""
    statement = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
    return tables.rows(statement, f"retriever.hnsw_{tables.number:d}") == [(True,)]


class PostgresRanking:
    """Ranks the passages of one view; see `indexes.protocol.Ranking`."""

    def __init__(
        self,
        snapshot: PostgresSnapshot,
        bm25: BM25Settings,
        where: Where | None,
        recall: float | None,
    ) -> None:
        self._snapshot = snapshot
        self._row = snapshot.row
        self._bm25 = bm25
        self._where = where
        self._condition = MATCHES_ALL if where is None else sql_condition(where.expression)
        # The recall of the graph is unknown.
        self._has_graph = self._row.has_graph and recall is None

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        with database_errors(self._snapshot.location):
            filtered_ids = None
            if self._where is not None and (mode != "dense" or self._has_graph):
                filtered_ids = self._filtered_ids(depth)
            return [self._candidates(query, mode, depth, filtered_ids) for query in queries]

    def _candidates(
        self, query: Query, mode: Mode, depth: int, filtered_ids: NDArray[np.int64] | None
    ) -> Candidates:
        matching_ids = np.empty(0, np.int64)
        scores = np.empty(0)
        if mode != "dense":
            matching_ids, scores = self._score_matches(query.terms)
        best = self._best(matching_ids, scores, depth, filtered_ids)
        if mode == "bm25":
            best_scores = scores[np.searchsorted(matching_ids, best)]
            matches = np.ones(len(best), np.bool_)
            return Candidates(best, np.zeros(len(best)), best_scores, matches, len(best) < depth)
        vector = np.ascontiguousarray(query.vector, np.float32)
        passages, vectors = self._nearest(vector, depth, filtered_ids)
        is_complete = len(passages) < depth
        remaining = np.setdiff1d(best, passages)
        passages = np.concatenate([passages, remaining])
        vectors = np.concatenate([vectors, self._snapshot.vectors(remaining)])
        dense = rounded(exact_scores(vectors, np.arange(len(vectors)), vector))
        matches = np.zeros(len(passages), np.bool_)
        bm25 = np.zeros(len(passages))
        if len(matching_ids):
            places = np.minimum(np.searchsorted(matching_ids, passages), len(matching_ids) - 1)
            matches = matching_ids[places] == passages
            bm25[matches] = scores[places[matches]]
        return Candidates(passages, dense, bm25, matches, is_complete)

    def _score_matches(
        self, terms: Sequence[Term]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return all live passages that hold a term, ascending, and their scores."""
        repetitions = Counter(terms)
        formula = make_formula(self._bm25, self._row.total_length / max(self._row.passages, 1))
        postings = self._snapshot.postings(repetitions)
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
        return sum_scores(contributions)

    @cached_property
    def _floor(self) -> float:
        """Okapi's replacement for a negative idf; reads the whole vocabulary."""
        frequencies = vocabulary_frequencies(self._snapshot.tables, self._snapshot.deleted_ids)
        return self._bm25.epsilon * mean_okapi_idf(frequencies, self._row.passages)

    def _best(
        self,
        passages: NDArray[np.int64],
        scores: NDArray[np.float64],
        depth: int,
        filtered_ids: NDArray[np.int64] | None,
    ) -> NDArray[np.int64]:
        """Return the `depth` best of the passages that pass the filter; ties by number."""
        if self._where is None or not len(passages):
            return _best_ids(passages, scores, depth)
        if filtered_ids is not None:
            passes = np.isin(passages, filtered_ids)
            return _best_ids(passages[passes], scores[passes], depth)
        batch_size = _FIRST_BATCH * depth
        while True:
            is_compared = np.ones(len(passages), np.bool_)
            if batch_size < len(passages):
                rank = len(scores) - batch_size
                is_compared = scores >= np.partition(scores, rank)[rank]
            passing = self._passing(passages[is_compared])
            if len(passing) >= depth or is_compared.all():
                places = np.searchsorted(passages, passing)
                return _best_ids(passing, scores[places], depth)
            batch_size *= 8

    def _filtered_ids(self, depth: int) -> NDArray[np.int64] | None:
        """Return the passages that pass the filter, ascending; None if they are many.

        They are many if it costs less to follow the graph to `depth` of them.
        """
        assert self._where is not None
        row = self._row
        cache = self._snapshot.filter_cache
        limit = math.isqrt(_STEP_COST * depth * max(row.passages, 1))
        key = (row.identity, row.generation, self._where.text, limit)
        passages = cache.get(key)
        if passages is None:
            rows = self._snapshot.rows(
                "SELECT string_agg(int8send(x.passage), ''::bytea) FROM ("
                "SELECT p.passage FROM {documents} AS d JOIN {passages} AS p USING (doc) "
                "WHERE {where} LIMIT %s) AS x",
                *self._condition.parameters,
                limit + 1,
                where=sql.SQL(self._condition.text),
            )
            passages = np.sort(unpack_ids(rows[0][0]))
            if len(cache) >= _CACHED_FILTERS:
                cache.clear()
            cache[key] = passages
        return passages if len(passages) <= limit else None

    def _passing(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the passages that pass the filter, ascending."""
        rows = self._snapshot.rows(
            "SELECT string_agg(int8send(p.passage), ''::bytea) "
            "FROM {passages} AS p JOIN {documents} AS d USING (doc) "
            "WHERE p.passage = ANY(%s) AND {where}",
            passages,
            *self._condition.parameters,
            where=sql.SQL(self._condition.text),
        )
        return np.sort(unpack_ids(rows[0][0]))

    def _nearest(
        self, vector: NDArray[np.float32], depth: int, filtered_ids: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the `depth` nearest passages that pass the filter, and their vectors."""
        if filtered_ids is not None:
            return self._scan(vector, depth, SqlCondition("p.passage = ANY(%s)", (filtered_ids,)))
        if self._has_graph:
            rows = self._search_graph(vector, depth)
            if len(rows) >= min(depth, self._row.passages):
                return self._unpack(rows)
        return self._scan(vector, depth, self._condition)

    def _search_graph(self, vector: NDArray[np.float32], depth: int) -> list[tuple[Any, ...]]:
        """Return rows of the approximately nearest passages, at most `depth`, by the HNSW graph."""
        # Without these plans, only the graph remains; they would sort all rows.
        disabled_plans = "sort", "seqscan", "bitmapscan", "hashjoin", "mergejoin"
        self._configure(
            {
                "hnsw.iterative_scan": "relaxed_order",
                "hnsw.ef_search": str(min(max(_LEAST_EFFORT, 2 * depth), _MOST_EFFORT)),
                **{f"enable_{plan}": "off" for plan in disabled_plans},
            }
        )
        join = "" if self._where is None else "JOIN {documents} AS d USING (doc) "
        rows = self._snapshot.rows(
            f"SELECT p.passage, p.embedding FROM {{passages}} AS p {join}"  # noqa: S608
            "WHERE {where} ORDER BY p.embedding <#> %s::vector LIMIT %s",
            *self._condition.parameters,
            vector_text(vector),
            depth,
            where=sql.SQL(self._condition.text),
        )
        self._configure({f"enable_{plan}": "on" for plan in disabled_plans})
        return rows

    def _configure(self, settings: dict[str, str]) -> None:
        """Set parameters until the end of the transaction."""
        self._snapshot.rows(
            "SELECT set_config(name, value, true) FROM unnest(%s::text[], %s::text[]) "
            "AS x (name, value)",
            list(settings),
            list(settings.values()),
        )

    def _scan(
        self, vector: NDArray[np.float32], depth: int, condition: SqlCondition
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return exactly the `depth` nearest passages that meet a condition; ties by number."""
        join = ""
        if condition is self._condition and self._where is not None:
            join = "JOIN {documents} AS d USING (doc) "
        select = f"SELECT p.passage, p.embedding FROM {{passages}} AS p {join} WHERE {{where}}"  # noqa: S608
        # The sum with 0 rules out the graph.
        negated = "(p.embedding <#> %s::vector) + 0"
        arguments = (*condition.parameters, vector_text(vector))
        where = sql.SQL(condition.text)
        nearest = f"{select} ORDER BY {negated} LIMIT %s"
        rows = self._snapshot.rows(nearest, *arguments, depth + 1, where=where)
        passages, vectors = self._unpack(rows)
        if len(rows) <= depth:
            return passages, vectors
        scores = exact_scores(vectors, np.arange(len(vectors)), vector)
        lowest = float(np.partition(scores, -depth)[-depth])
        slack = tie_slack(float(np.abs(scores).max()))
        if scores.min() < lowest - slack:
            return passages[:-1], vectors[:-1]
        tied = f"{select} AND {negated} <= %s ORDER BY p.passage"
        rows = self._snapshot.rows(tied, *arguments, slack - lowest, where=where)
        passages, vectors = self._unpack(rows)
        places = np.arange(len(rows))
        best, _ = rank_nearest(places, exact_scores(vectors, places, vector), depth)
        return passages[best], vectors[best]

    def _unpack(
        self, rows: Sequence[tuple[Any, ...]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        passages = np.array([row[0] for row in rows], np.int64)
        return passages, unpack_vectors([row[1] for row in rows], self._row.dimensions)


def _best_ids(
    passages: NDArray[np.int64], scores: NDArray[np.float64], depth: int
) -> NDArray[np.int64]:
    """Return the `depth` best of ascending passages, ascending; ties by number."""
    return np.sort(passages[top_places(scores, depth)])
