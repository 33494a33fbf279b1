"""What the metadata of documents holds: facets, and the fields with some of their values."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from indexes.filters.columns import LONGEST, UNKEPT
from indexes.filters.facets import READ, FieldValues, counted_facet
from indexes.filters.grammar import parse_field
from indexes.filters.sql import Where
from indexes.postgres.filters import EVERYTHING, condition
from indexes.postgres.session import Session
from indexes.protocol import Facets, FieldSummary

# Documents that pass a filter, each with whether it holds one of some passages.
_PASSING = (
    "SELECT d.metadata, m.doc IS NOT NULL AS matches FROM {documents} AS d LEFT JOIN "
    "(SELECT DISTINCT doc FROM {passages} WHERE passage = ANY(%s)) AS m USING (doc) "
    "WHERE {where}"
)
# Of each field and JSON type: the least values, the greatest, and how many there are. The values
# that are too long to be shown have no type.
_FIELD_VALUES = """
SELECT key, kind, value::text, place, count FROM (
    SELECT key, kind, value, count(*) OVER (PARTITION BY key, kind) AS count,
        row_number() OVER (PARTITION BY key, kind ORDER BY
            CASE kind WHEN 'number' THEN value END, (value #>> ARRAY[]::text[]) COLLATE "C"
        ) AS place
    FROM (
        SELECT key, value, CASE WHEN length(value::text) <= %s THEN jsonb_typeof(value) END AS kind
        FROM {documents} AS d, jsonb_each(d.metadata)
        WHERE value <> 'null' GROUP BY key, value
    ) AS distinct_values
) AS ranked WHERE place <= %s OR place = count ORDER BY key, kind, place
"""
_KINDS = {
    "string": "text",
    "number": "real",
    "boolean": "true",
    "array": "array",
    "object": "object",
}


def facets(
    session: Session,
    names: Sequence[str],
    where: Where | None,
    matching: NDArray[np.int64] | None,
    limit: int,
) -> Facets:
    """How many of the documents that pass a filter have each value of some fields.

    Args:
        session: of the index.
        names: of metadata fields, as a filter writes them.
        where: the filter; None for all documents.
        matching: the passages that hold a term of a query; None for no query.
        limit: maximum number of values of each field.
    """
    chosen = EVERYTHING if where is None else condition(where.expression)
    passages = np.empty(0, np.int64) if matching is None else matching
    arguments, text = (passages, *chosen.parameters), sql.SQL(chosen.text)
    ((documents, matches),) = session.rows(
        f"SELECT count(*), count(*) FILTER (WHERE matches) FROM ({_PASSING}) AS x",  # noqa: S608
        *arguments,
        where=text,
    )
    found = {}
    for name in names:
        field = parse_field(name)[0]
        rows = session.rows(
            "SELECT x.metadata -> %s::text AS value, count(*), "  # noqa: S608
            f"count(*) FILTER (WHERE matches) FROM ({_PASSING}) AS x "
            "WHERE x.metadata -> %s::text IS NOT NULL GROUP BY value",
            field,
            *arguments,
            field,
            where=text,
        )
        found[name] = counted_facet(name, rows, limit, queried=matching is not None)
    return Facets(documents, None if matching is None else matches, found)


def field_summaries(session: Session) -> list[FieldSummary]:
    """The metadata fields of the documents, ascending by name; reads all metadata."""
    found: dict[str, FieldValues] = {}
    for name, kind, text, place, count in session.rows(_FIELD_VALUES, LONGEST, READ):
        one = found.setdefault(name, FieldValues())
        one.distinct += count if place == 1 else 0
        one.complete &= count < READ
        value = text if kind in ("array", "object") else json.loads(text)
        one.add(UNKEPT if kind is None else _KINDS[kind], value, example=place <= READ)
    return [one.summary(name) for name, one in sorted(found.items()) if one.types]
