"""The tables of an index at one commit: its rows, postings and vectors.

The view answers from them, and the ranking scores passages with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from indexes.bm25.scoring import plain_terms, with_labels
from indexes.errors import DamagedIndexError
from indexes.postgres.connection import PostgresLocation, database_errors
from indexes.postgres.postings import merge_expansion, read_deleted_ids, read_postings
from indexes.postgres.schema import IndexRow, Tables
from indexes.protocol import Expansion, Term

# Passages that pass a filter, by commit, filter and limit: at most one more than the limit.
FilterCache = dict[tuple[Any, ...], NDArray[np.int64]]


class PostgresSnapshot:
    """The tables of an index at one commit, for the thread that opened it."""

    def __init__(
        self, location: PostgresLocation, tables: Tables, row: IndexRow, filter_cache: FilterCache
    ) -> None:
        self.location = location
        self.tables = tables
        self.row = row
        self.filter_cache = filter_cache
        # From here on, the tables cannot be dropped.
        has_outlines = "outline" in tables.document_columns()
        self._outline = sql.SQL("d.outline" if has_outlines else "''::text")

    def rows(self, text: str, *values: Any, **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Run a statement over the tables of the index and return its rows."""
        with database_errors(self.location):
            return self.tables.rows(text, *values, **parts)

    @cached_property
    def deleted_ids(self) -> NDArray[np.int64]:
        """The (n,) int64 ids of deleted passages whose postings are still stored."""
        return read_deleted_ids(self.tables) if self.row.dead else np.empty(0, np.int64)

    def postings(self, terms: Iterable[Term]) -> dict[Term, tuple[NDArray[Any], int]]:
        """Return, for each term, the postings of live passages and the document frequency.

        The plain terms come again, after the others, as terms of labels.
        """
        distinct = with_labels(terms)
        plain = read_postings(self.tables, plain_terms(distinct), self.deleted_ids)
        return {
            term: merge_expansion(term, plain)
            if isinstance(term, Expansion)
            else (plain[term], len(plain[term]))
            for term in distinct
        }

    def vectors(self, passages: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the (n, d) float32 vectors of passages, in the given order."""
        ids = np.array(passages, np.int64)
        statement = "SELECT passage, embedding FROM {passages} WHERE passage = ANY(%s)"
        stored = self.require_all(ids.tolist(), dict(self.rows(statement, ids)))
        packed = [stored[passage] for passage in ids.tolist()]
        return unpack_vectors(packed, self.row.dimensions)

    def require_all(self, passages: Iterable[int], stored: dict[int, Any]) -> dict[int, Any]:
        """Return `stored`; raise DamagedIndexError if a passage is not in it."""
        for passage in {*passages} - stored.keys():
            raise damaged(self.location, f"passage {passage} belongs to no document")
        return stored


def unpack_vectors(packed: Sequence[bytes], dimensions: int | None) -> NDArray[np.float32]:
    """Return (n, d) float32 vectors from the binary form of pgvector."""
    width = dimensions or 0
    row_type = np.dtype([("head", ">i4"), ("values", ">f4", (width,))])
    return np.frombuffer(b"".join(packed), row_type)["values"].astype(np.float32)


def damaged(location: PostgresLocation, reason: object) -> DamagedIndexError:
    """Return the error for altered data."""
    return DamagedIndexError(
        f"{location}: {' '.join(str(reason).split())}; restore the database from a backup, or "
        "index again with --recreate"
    )
