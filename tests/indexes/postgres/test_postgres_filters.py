"""Filters in the database against an independent evaluator, and that none reaches its SQL."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from indexes import NewDocument
from indexes.errors import SourceError
from indexes.filters import compile_where
from indexes.metadata import metadata_json
from indexes.postgres.filters import decode_metadata, encode_metadata, sql_condition
from tests.indexes.store_samples import DIMENSIONS, open_view
from tests.indexes.where_reference import DOCUMENTS, FILTERS, evaluate, quoted, render


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=75)
@given(FILTERS, DOCUMENTS, st.randoms(use_true_random=False))
def test_a_condition_agrees_with_an_independent_evaluator(rows, node, documents, rng):
    where = sql_condition(compile_where(render(node, rng)).expression)
    stored = [(d["id"], d["title"], encode_metadata(d["metadata"])[0]) for d in documents]
    text = (
        "SELECT {where} IS TRUE "
        "FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS u (i, t, m, n), "
        'LATERAL (SELECT u.i COLLATE "C" AS id, u.t COLLATE "C" AS title, '
        "u.m::jsonb AS metadata) AS d ORDER BY u.n"
    )
    query = sql.SQL(text).format(where=sql.SQL(where.text))
    columns = list(map(list, zip(*stored, strict=True)))
    ids = [row[0] for row in rows.execute(query, (*where.parameters, *columns))]
    assert ids == [evaluate(node, document) for document in documents], where


@pytest.fixture(scope="module")
def rows(postgres_server):
    with postgres_server.connect() as connection:
        yield connection


def test_an_index_over_a_field_answers_a_range(store, postgres_server):
    where = sql_condition(compile_where("year >= 2020 and lang = 'en'").expression)
    with open_view(store) as view:
        tables = view.tables
    with postgres_server.connect() as connection:
        connection.execute(tables.statement("CREATE INDEX ON {documents} ((metadata -> 'year'))"))
        connection.execute("SET enable_seqscan = off")
        text = "EXPLAIN SELECT FROM {documents} AS d WHERE {where}"
        query = tables.statement(text, where=sql.SQL(where.text))
        plan = str(connection.execute(query, where.parameters).fetchall())
        alone = sql_condition(compile_where("year >= 2020").expression)
        query = tables.statement(text, where=sql.SQL(alone.text))
        ranged = str(connection.execute(query, alone.parameters).fetchall())
    assert "metadata @>" in plan
    assert "Index Cond: ((metadata -> 'year'" in ranged


@pytest.mark.parametrize(
    "hostile",
    ["'; DROP SCHEMA retriever CASCADE; --", "%s {documents} %(a)s $1", '"', "\\"],
)
def test_no_name_value_or_term_reaches_sql(store, hostile):
    name = quoted(hostile, "`")
    where = compile_where(f"{name} = {quoted(hostile, chr(39))}")
    assert (
        sql_condition(where.expression).text
        == sql_condition(compile_where("a = 'b'").expression).text
    )
    hostile_document = NewDocument(
        hostile, hostile, hostile, {hostile: hostile, "x": [hostile]}, b"h", [(0, 1)]
    )
    with store.writer() as writer:
        writer.commit(
            [hostile_document], np.ones((1, DIMENSIONS), np.float32), [[hostile, "\0", "\ud800"]]
        )
        assert writer.stored_versions([hostile])[hostile].metadata == metadata_json(
            hostile_document.metadata
        )
    with open_view(store) as view:
        assert view.document_frequencies([hostile, "\0", "\ud800", "x"]) == {
            hostile: 1, "\0": 1, "\ud800": 1, "x": 0,
        }  # fmt: skip
        assert [hostile_document.id for hostile_document in view.documents(where)] == [hostile]
        facets = view.facets([name], where, [hostile], 5)
        assert (facets.documents, facets.matches) == (1, 1)
        assert facets.fields[name].values[0].value == hostile
        assert view.unknown_fields([hostile, "y"]) == {"y": sorted([hostile, "x"])}
        document = view.document(hostile)
        assert document is not None
        assert document.metadata == hostile_document.metadata
    with store.writer() as writer:
        assert writer.delete([hostile, "a\0b", "\ud800"]) == 1
    assert store.verify() == []


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": 1e16, "b": -0.0, "c": 1e300, "d": 2.0, "e": 1, "f": 0.1, "g": 1e-7, "h": -(2**63)},
        {"z": {"bb": 1, "a": 2, "é": [1.0, {"y": 1, "x": 2}]}, "text": ["1e+16", "\\u0000"]},
        {},
    ],
)
def test_metadata_comes_back_as_it_was(rows, metadata):
    stored, exact = encode_metadata(metadata)
    (again,) = rows.execute("SELECT %s::jsonb::text", (stored,)).fetchone()
    decoded = decode_metadata(again, exact)
    assert metadata_json(decoded) == metadata_json(metadata)
    assert json.dumps(decoded) == json.dumps(json.loads(metadata_json(metadata)))


def test_a_nul_character_is_refused_and_names_the_document(store):
    document = NewDocument("n7", None, "a\0b", {}, b"h", [(0, 1)])
    with store.writer() as writer, pytest.raises(SourceError, match="'n7'"):
        writer.commit([document], np.ones((1, DIMENSIONS), np.float32), [["a"]])
    assert store.verify() == []
