"""Filters answered from columns allow exactly the passages that their SQL does."""

import json
import random
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes.errors import DamagedIndexError
from indexes.filters.grammar import compile_where
from indexes.folder.filtering import condition_of
from indexes.folder.verify import verify
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter
from indexes.protocol import NewDocument
from tests.indexes.column_samples import (
    allowed_ids,
    allowed_ids_by_documents,
    allowed_ids_of,
    documents_refused,
    matching_ids,
    numbered,
)
from tests.indexes.index_samples import SETTINGS, alter, commit, document, make_index
from tests.indexes.where_reference import (
    DOCUMENTS,
    FILTERS,
    LARGEST,
    NAMES,
    VALUES,
    evaluate,
    quoted,
    render,
)

TYPES = {int: "number", float: "number", bool: "boolean", str: "string", list: "array"}
TYPES |= {dict: "object"}
IDS = st.sampled_from([f"i{letter}" for letter in "abcdef"])
METADATA = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)
COMMITS = st.dictionaries(
    IDS, st.tuples(st.none() | st.sampled_from(["t", "É"]), METADATA, st.integers(1, 3)), max_size=4
)
STEPS = st.one_of(
    st.tuples(st.just("commit"), COMMITS, st.dictionaries(IDS, METADATA, max_size=3)),
    st.tuples(st.just("delete"), st.lists(IDS, max_size=2)),
    st.sampled_from([("merge",), ("replace",), ("compact",), ("reopen",)]),
)


def perform(writer, step):
    match step:
        case ("commit", given_, changed):
            new = []
            for id_, (title, metadata, passages) in given_.items():
                plain = document(id_, "one two three", metadata, passages=passages)
                new.append(NewDocument(id_, title, plain.text, metadata, plain.hash, plain.spans))
            commit(writer, *new, metadata=changed)
        case ("delete", ids):
            writer.delete(ids)
        case ("merge",):
            writer.merge()
        case ("replace",):
            if live := writer.segments()[:2]:
                writer.replace(live)
        case ("compact",):
            writer.compact()


@settings(max_examples=25)
@given(
    steps=st.lists(STEPS, min_size=2, max_size=6),
    filters=st.lists(FILTERS, min_size=12, max_size=12),
    rng=st.randoms(use_true_random=False),
    pending=st.sampled_from([0, 3, 512]),
)
def test_metadata_values_agree_with_documents_after_random_changes(
    tmp_path_factory, steps, filters, rng, pending
):
    folder = tmp_path_factory.mktemp("life") / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("indexes.metadata.LONGEST", 14)
        writer = FolderWriter(folder, SETTINGS, pending_limit=pending).__enter__()
        for step in steps:
            perform(writer, step)
            if step == ("reopen",):
                writer.__exit__(None, None, None)
                writer = FolderWriter(folder, pending_limit=pending).__enter__()
        writer.__exit__(None, None, None)
        assert verify(folder) == []
        with closing(FolderReader(folder)) as reader, reader.view() as view:
            stored = list(view.documents())
            for node in filters:
                text = render(node, rng)
                matching_ids = [
                    document
                    for document in stored
                    if evaluate(
                        node,
                        {"id": document.id, "title": document.title, "metadata": document.metadata},
                    )
                ]
                expected = [
                    passage for document in matching_ids for passage, *_ in document.passages
                ]
                assert allowed_ids_of(reader, text) == sorted(expected), text
                assert list(view.documents(compile_where(text))) == matching_ids
            metadata = [document.metadata for document in stored]
            for name in NAMES:
                types = {
                    TYPES[type(values[name])] for values in metadata if values.get(name) is not None
                }
                assert {type_ for type_ in TYPES.values() if view.has_type(name, [type_])} == types
                assert view.has_type(name, ["array", "number"]) == bool(types & {"array", "number"})


def database(documents):
    """Return a database in memory with the tables of documents, one passage each."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (doc, id TEXT PRIMARY KEY, title TEXT, metadata)")
    connection.execute("CREATE TABLE passages (passage, doc)")
    for number, row_document in enumerate(documents):
        metadata = json.dumps(row_document["metadata"], ensure_ascii=number % 2 == 0)
        row = (number, f"{row_document['id']}-{number}", row_document["title"], metadata)
        connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
        connection.execute("INSERT INTO passages VALUES (?, ?)", (number, number))
    return connection


@given(FILTERS, DOCUMENTS, st.randoms(use_true_random=False))
def test_filters_agree_with_an_independent_evaluator(node, documents, rng):
    text = render(node, rng)
    with closing(database(documents)) as connection:
        expected = [
            number
            for number, each in enumerate(documents)
            if evaluate(node, {**each, "id": f"{each['id']}-{number}"})
        ]
        assert matching_ids(connection, text) == expected, text


def matches(text, metadata, title=None):
    with closing(database([{"id": "d", "title": title, "metadata": metadata}])) as connection:
        return matching_ids(connection, text) == [0]


def test_a_condition_on_id_uses_the_index_of_the_table():
    condition = condition_of(compile_where("id in ('a', 'b')").expression)
    with closing(database([])) as connection:
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN SELECT 1 FROM documents d WHERE {condition.sql}",
            condition.parameters,
        ).fetchall()
    assert any("SEARCH d" in row[3] for row in plan)


@pytest.mark.parametrize(
    "hostile",
    [
        "x' OR '1'='1",
        'x" OR 1=1 --',
        "$.a') OR 1=1 --",
        "? OR 1",
        "{0} %s",
        "\\' OR 1=1 --",
        '"].b["',
    ],
)
def test_hostile_names_and_values_are_bound_as_parameters(hostile):
    field, value = quoted(hostile, "`"), quoted(hostile, "'")
    condition = condition_of(compile_where(f"{field}.{field} = {value}").expression)
    assert condition == replace(
        condition_of(compile_where("a.b = 'c'").expression),
        field=hostile,
        parameters=(hostile, hostile),
    )
    assert matches(f"{field}.{field} = {value}", {hostile: {hostile: hostile}})
    assert not matches(f"{field}.{field} = {value}", {"a": {"b": "c"}})


@pytest.mark.parametrize("text", LARGEST)
def test_largest_allowed_filters_run(text):
    assert not matches(text, {"a": 2, "b": 2})


def test_a_filter_on_metadata_reads_no_document(tmp_path):
    folder = make_index(tmp_path / "index", numbered(5), numbered(3, first=5))
    assert alter(folder, "UPDATE documents SET metadata = 'not read'") == 8
    with documents_refused():
        assert allowed_ids(folder, "n >= 2 and n < 6") == [3, 4, 5, 6]
        assert allowed_ids(folder, "not (n < 7 or other = 1)") == [8]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("never = null", [1, 2]),
        ("not never = 1", [1, 2]),
        ("never exists", []),
        ("never = 1 or n = 0", [1]),
        ("never.below = null and n = 1", [2]),
    ],
)
def test_a_field_that_no_document_has_is_absent_in_all(tmp_path, text, expected):
    folder = make_index(tmp_path / "index", numbered(2))
    with documents_refused():
        assert allowed_ids(folder, text) == expected


def test_filter_reads_values_too_long_to_be_stored_from_documents(tmp_path):
    long, nul = "x" * 2000, "a\0b"
    folder = make_index(
        tmp_path / "index",
        [document(f"d{i}", f"t{i}", {"f": value}) for i, value in enumerate([long, nul, "x", 1])],
        [document("none", "t")],
    )
    for text in (
        "f like 'x%'",
        "not f = 'x'",
        "f != 'x'",
        "f exists",
        "f = null",
        "f > 'x'",
        "f = 1 or f like '%xx'",
    ):
        assert allowed_ids(folder, text) == allowed_ids_by_documents(folder, text), text


def test_field_names_equal_up_to_a_nul_are_filtered_as_by_sqlite(tmp_path):
    folder = make_index(
        tmp_path / "index",
        [document("a", "one", {"f\0x": 1}), document("b", "two", {"f": 2, "f\0x": 1})],
    )
    for text in ("f = 1", "f = 2", "f exists", "not f = 2"):
        assert allowed_ids(folder, text) == allowed_ids_by_documents(folder, text), text
    assert verify(folder) == []


def test_condition_on_many_values_is_filtered_with_and_without_ranks(tmp_path, monkeypatch):
    """With ranks, and without them where a segment is too large to keep any."""
    chance = random.Random(4)
    documents = [
        document(f"d{i}", f"t{i}", {"n": chance.choice([i, i / 2, str(i), True])})
        for i in range(150)
    ]
    folder = make_index(tmp_path / "index", documents)
    for size in (2**20, 1):
        monkeypatch.setattr("indexes.folder.value_ranks._CACHE_BYTES", size)
        with closing(FolderReader(folder)) as reader, documents_refused():
            for text in (
                "n >= 3 and n < 140",
                "n != 7",
                'n like "1%" or n < 99',
                "n > 9 and n < 44",
            ):
                assert allowed_ids_of(reader, text) == allowed_ids_by_documents(folder, text), text


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE metadata_values SET passages = 'text'",
        "UPDATE metadata_values SET passages = x'01000200ff00'",
        "UPDATE metadata_values SET passages = passages + 1",
        "UPDATE metadata_values SET checksum = checksum + 1",
        "UPDATE metadata_values SET value = 9 - value",
        "UPDATE metadata_values SET segment = 1, value = value + 0.0",
    ],
)
def test_filter_over_an_altered_value_is_damage_of_the_database(tmp_path, statement):
    folder = make_index(
        tmp_path / "index", [document(f"d{i}", f"t{i}", {"n": i, "m": -i}) for i in range(3)]
    )
    assert alter(folder, statement) > 0
    for text in ("n < 90 or m > 9", "m > -90 and n exists"):
        with pytest.raises(DamagedIndexError, match=r"index\.sqlite: ") as caught:
            allowed_ids(folder, text)
        assert "\n" not in str(caught.value)
    assert verify(folder) != []


def test_metadata_values_are_rebuilt_in_batches(tmp_path, monkeypatch):
    documents = [document(f"d{i}", f"t{i}", {"n": i % 3, "m": i}) for i in range(8)]
    folder = make_index(tmp_path / "index", documents)
    with FolderWriter(folder) as writer:
        writer.delete(["d4"])
    assert alter(folder, "UPDATE metadata_values SET passages = passages + 1 WHERE value = 7") == 1
    monkeypatch.setattr("indexes.folder.metadata_values._BATCH", 3)
    with FolderWriter(folder) as writer:
        writer.compact()
    assert verify(folder) == []
    for text in ("n = 1", "m > 2", "n = 2 or m = 7"):
        assert allowed_ids(folder, text) == allowed_ids_by_documents(folder, text)


def test_commit_refuses_to_change_an_altered_value(tmp_path):
    folder = make_index(tmp_path / "index", numbered(3))
    assert alter(folder, "UPDATE metadata_values SET passages = passages + 1") == 3
    with (
        FolderWriter(folder) as writer,
        pytest.raises(DamagedIndexError, match="value 1 of a field"),
    ):
        commit(writer, metadata={"d1": {}})
