"""Rows are written so that an interrupted run is run again; indexes replace each other whole."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from store_samples import (
    DIMENSIONS,
    SETTINGS,
    check_languages,
    check_outlines,
    check_replacement,
    documents,
    ids_of,
    single,
    viewed,
)

from indexes import compile_where, open_store
from indexes.errors import ConfigError, FilterError, FormatVersionError, NotAnIndexError
from indexes.milvus import collection as collection_module
from indexes.milvus.collection import ALL, number_of
from indexes.milvus.connection import Connection
from indexes.protocol import Query, StructureSettings

pytestmark = pytest.mark.milvus
WRITES = ("upsert", "delete", "alter_collection_properties", "compact")


class Killed(BaseException):
    """What a dead process would not have raised."""


def contents(store):
    with viewed(store) as view:
        held = {d.id: (d.text, d.metadata, d.passages) for d in view.documents()}
        passages = sorted(p for _, _, spans in held.values() for p, *_ in spans)
        found = held, view.document_frequencies(["apple", "a", "b", "c"]), view.passage_count
        assert len(view.vectors(passages)) == view.passage_count
        mean = view.describe()["mean_passage_terms"]
        languages = view.setting("languages", {})
    return found, mean, languages


def spoken(ids, *args, **options):
    made, vectors, terms = documents(ids, *args, **options)
    return [one._replace(languages=("english", "german")) for one in made], vectors, terms


def run(store):
    """Replace "a" by a shorter text and the others, as the product does it; "e" goes."""
    made, vectors, terms = spoken(["a", "b", "c", "d"], seed=5)
    made[0] = made[0]._replace(spans=[(0, 9)], languages=["greek"])
    terms[0], rows = ["apple"], {"a": [0], "b": [2, 3], "c": [4, 5], "d": [6, 7]}
    with store.writer() as writer:
        heads = writer.heads(list(rows))
        new = [one for one in made if one.id not in heads or heads[one.id].hash != one.hash]
        chosen = [row for one in new for row in rows[one.id]]
        writer.commit(new, vectors[chosen], [terms[row] for row in chosen])
        writer.commit([], vectors[:0], [], {"c": {"x": 1}})
        writer.delete(["e"])


def test_a_run_that_was_interrupted_anywhere_is_run_again(store, milvus_file, monkeypatch):
    monkeypatch.setattr("indexes.milvus.store._UPSERTED", 1)
    expected = open_store(f"{milvus_file}expected")
    for one in (expected, store):
        one.create(SETTINGS)
        with one.writer() as writer:
            writer.commit(*spoken(["a", "b", "c", "e"], {"x": 0}))
    run(expected)
    call, torn = Connection.call, 0
    for step in range(100):
        left = iter(range(step))

        def dying(self, method, *arguments, left=left, **options):
            if method in WRITES and next(left, None) is None:
                raise Killed
            return call(self, method, *arguments, **options)

        with store.writer() as writer:
            writer.delete(["a", "b", "c", "d", "e"])
            writer.commit(*spoken(["a", "b", "c", "e"], {"x": 0}))
        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(Connection, "call", dying)
            run(store)
            break
        torn += bool(store.verify())
        run(store)
        assert store.verify() == []
        assert contents(store) == contents(expected)
    assert step > 8
    assert torn > 0


def test_a_document_that_is_not_whole_is_told(store):
    with store.writer() as writer:
        writer.commit(*documents(["a", "b"]))
        view = writer._view
        (row,) = view.rows(f"ordinal == 1 and document == {number_of('a')}", [])
        view.connection.call(
            "delete", view.collection.name, filter=f"passage in [{row['passage']}]"
        )
    assert ["some passages are missing" in one for one in store.verify()] == [True]
    with pytest.raises(Exception, match="'a': some passages are missing"):
        ids_of(store)


@pytest.mark.parametrize(
    ("made", "tokens", "message"),
    [
        (single(2), [f"w{n}" for n in range(4097)], "distinct terms of a passage: expected 4,096"),
        (single(2, text="ä" * 40_000), ["w"], "bytes of a passage: expected 65,535 or less"),
        (single(2, {"a": "x" * 70_000}), ["w"], "bytes of id, title and metadata: expected 65,535"),
        (single(2, {"a": list(range(4096))}), ["w"], "fields and values in the metadata"),
    ],
)
def test_what_does_not_fit_into_a_row_is_refused_before_anything_is_written(
    store, made, tokens, message
):
    vectors = np.ones((2, DIMENSIONS), np.float32)
    with store.writer() as writer, pytest.raises(ConfigError, match=message):
        writer.commit([single(1), made], vectors, [["w"], tokens])
    assert ids_of(store) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n < 0.0000001", ["a", "b"]),
        ("n > -1e-7 and not (s = 'x')", "beyond 2"),
        ("s = 'it\\'s \"x\" \\\\ {y}'", ["a"]),
        ("not (t < 'm')", ["a", "c"]),
        ('`a "b"\\\\`.`c\'` = true', ["b"]),
        ("l contains 1", ["a"]),
        ("s contains 'x'", "a string that 'contains'"),
        ("s like '%'", ["a", "b", "c"]),
    ],
)
def test_names_and_values_mean_what_they_say(store, text, expected):
    with store.writer() as writer:
        writer.commit(*documents(["a"], {"n": -2.5, "s": 'it\'s "x" \\ {y}', "l": [True, 1.0]}))
        writer.commit(*documents(["b"], {"n": 0, "s": "\t", 'a "b"\\': {"c'": True}, "t": "k"}))
        writer.commit(
            *documents(["c"], {"n": 2**53 + 1 if "not" in text else 9e9, "s": "k" * 2000})
        )
    with viewed(store) as view:
        if isinstance(expected, str):
            with pytest.raises(FilterError, match=expected):
                view.ranking(where=compile_where(text))
            return
        query = Query((), np.ones(DIMENSIONS, np.float32))
        (found,) = view.ranking(where=compile_where(text)).candidates([query], "dense", 50)
        assert sorted(set(view.documents_of(found.passages.tolist()).values())) == expected


def test_a_replacement_takes_the_place_of_the_old_index(store):
    with store.writer() as writer:
        former = writer._view.collection.name
    check_replacement(store, locks=False)
    with viewed(store) as view:
        assert not view.connection.call("has_collection", former)


def test_what_is_no_index_of_this_release_is_refused(store, milvus_file, monkeypatch):
    foreign = open_store(f"{milvus_file}foreign")
    connection = Connection(foreign.location)
    connection.call("create_collection", foreign.location.index, dimension=2)
    connection.close()
    with pytest.raises(NotAnIndexError, match="of that name is no index"):
        foreign.exists()
    monkeypatch.setattr(collection_module, "FORMAT", 1)
    with pytest.raises(FormatVersionError, match="upgrade"):
        ids_of(store)


def test_an_index_that_does_not_exist(milvus_file, own_file):
    for missing in (open_store(f"{milvus_file}none"), open_store(own_file)):
        for refused in (missing.reader().view, missing.writer):
            with pytest.raises(NotAnIndexError, match="`retriever index` makes one"), refused():
                pass
        assert not missing.exists()


def test_other_structures_and_dimensions_are_refused(store):
    if store.location.file is not None:
        with pytest.raises(ConfigError, match="index type: expected auto, flat, found 'hnsw'"):
            store.create({"structures": {"index_type": "hnsw"}})
    with store.writer() as writer:
        made, _, terms = documents(["b"])
        with pytest.raises(ValueError, match=f"expected vectors of {DIMENSIONS} dimensions"):
            writer.commit(made, np.ones((2, 3), np.float32), terms)
        with pytest.raises(ConfigError, match="make the index again"):
            writer.rebuild(StructureSettings("flat"))


def test_a_file_is_not_pinged(own_file, monkeypatch):
    """Its server closes a connection that is: "too_many_pings"."""
    import grpc

    intervals, connect = [], grpc.insecure_channel

    def connected(address, options):
        intervals.append(dict(options)["grpc.keepalive_time_ms"])
        return connect(address, options)

    monkeypatch.setattr(grpc, "insecure_channel", connected)
    open_store(own_file).create(SETTINGS)
    assert intervals
    assert min(intervals) > 24 * 3_600_000


def test_an_outline_is_stored_in_parts_with_its_passages(store):
    check_outlines(store)


def test_languages_are_counted_with_the_passages(store):
    def forget(writer):
        view = writer._view
        rows = list(view.rows(ALL, ["*"]))
        for row in rows:
            del row["head"]["languages"]
        view.connection.call("upsert", view.collection.name, rows)

    check_languages(store, forget)
