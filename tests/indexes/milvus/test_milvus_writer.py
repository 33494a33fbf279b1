"""Rows are written so that an interrupted run is run again; indexes replace each other whole."""

from __future__ import annotations

import json
import math
from contextlib import suppress

import numpy as np
import pytest
from test_expansions import brute_force, document_of

from indexes import open_store
from indexes.bm25 import Expansion
from indexes.bm25.formulas import LABEL, LABEL_WEIGHT
from indexes.errors import ConfigError, FilterError, FormatVersionError, NotAnIndexError
from indexes.filters import compile_where
from indexes.milvus import store as store_module
from indexes.milvus.connection import call
from indexes.protocol import Query
from tests.indexes.store_samples import (
    DIMENSIONS,
    SETTINGS,
    check_outlines,
    check_replacement,
    documents,
    documents_in_languages,
    ids_of,
    languages_of,
    open_view,
    single_passage_document,
)

pytestmark = pytest.mark.milvus
WRITES = ("upsert", "delete", "alter_collection_properties")


class Killed(BaseException):
    """The error that ends a run in place of a killed process."""


def contents(store):
    with open_view(store) as view:
        stored = {d.id: (d.text, d.metadata, d.passages) for d in view.documents()}
        passages = sorted(p for _, _, spans in stored.values() for p, *_ in spans)
        frequencies = view.document_frequencies(["apple", "a", "b", "c"])
        assert len(view.vectors(passages)) == view.passage_count
        languages = view.setting("languages", {})
    return stored, frequencies, languages


def in_two_languages(ids, *args, **options):
    new_documents, vectors, terms = documents(ids, *args, **options)
    languages = ("english", "german")
    return [document._replace(languages=languages) for document in new_documents], vectors, terms


def run(store):
    """Replace "a" by a shorter text, update the others and delete "e"."""
    new_documents, vectors, terms = in_two_languages(["a", "b", "c", "d"], seed=5)
    new_documents[0] = new_documents[0]._replace(spans=[(0, 9)], languages=["greek"])
    terms[0], rows = ["apple"], {"a": [0], "b": [2, 3], "c": [4, 5], "d": [6, 7]}
    with store.writer() as writer:
        heads = writer.stored_versions(list(rows))
        changed = [
            document
            for document in new_documents
            if document.id not in heads or heads[document.id].hash != document.hash
        ]
        places = [row for document in changed for row in rows[document.id]]
        writer.commit(changed, vectors[places], [terms[row] for row in places])
        writer.commit([], vectors[:0], [], {"c": {"x": 1}})
        writer.delete(["e"])


def test_run_interrupted_anywhere_is_completed_by_the_next(store, milvus_file, monkeypatch):
    monkeypatch.setattr("indexes.milvus.store._WRITTEN_ROWS", 1)
    expected = open_store(f"{milvus_file}expected")
    for index in (expected, store):
        index.create(SETTINGS)
        with index.writer() as writer:
            writer.commit(*in_two_languages(["a", "b", "c", "e"], {"x": 0}))
    run(expected)
    torn = 0
    for step in range(100):
        writes_left = iter(range(step))

        def dying(location, method, *arguments, writes_left=writes_left, **options):
            if method in WRITES and next(writes_left, None) is None:
                raise Killed
            return call(location, method, *arguments, **options)

        with store.writer() as writer:
            writer.delete(["a", "b", "c", "d", "e"])
            writer.commit(*in_two_languages(["a", "b", "c", "e"], {"x": 0}))
        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(store_module, "call", dying)
            run(store)
            break
        torn += bool(store.verify())
        run(store)
        assert store.verify() == []
        assert contents(store) == contents(expected)
    assert step > 8
    assert torn > 0


def test_verify_names_a_document_with_missing_passages(store):
    with store.writer() as writer:
        writer.commit(*documents(["a", "b"]))
    with open_view(store) as view:
        view.call("delete", filter='id == "a" and ordinal == 1')
    assert ["'a': some passages are missing or old" in line for line in store.verify()] == [True]
    with pytest.raises(Exception, match="'a': some passages are missing"):
        ids_of(store)


@pytest.mark.parametrize(
    ("document", "terms"),
    [
        (single_passage_document(2), [f"w{n}" for n in range(4097)]),
        (single_passage_document(2, text="ä" * 40_000), ["w"]),
        (single_passage_document(2, {"a": "x" * 70_000}), ["w"]),
        (single_passage_document(2)._replace(outline=" " * 70_000 + "[]"), ["w"]),
    ],
)
def test_document_too_large_for_a_row_is_refused_before_writing(store, document, terms):
    vectors = np.ones((2, DIMENSIONS), np.float32)
    message = r"document '00002': expected at most 65,535 bytes .* and 4,096 distinct terms"
    with store.writer() as writer, pytest.raises(ConfigError, match=message):
        writer.commit([single_passage_document(1), document], vectors, [["w"], terms])
    assert ids_of(store) == []


def scores_of(store, terms):
    with open_view(store) as view:
        (candidates,) = view.ranking().candidates([Query(terms)], "bm25", 100)
        ids = view.documents_of(candidates.passages.tolist())
        assert candidates.matches.all()
        scores = zip(candidates.passages, candidates.bm25, strict=True)
        return {ids[passage]: score for passage, score in scores}


def test_bm25_uses_the_mean_length_of_the_first_commit(store):
    chance = np.random.default_rng(3)
    words = [*"abcdef", f"{LABEL}a"]
    passages = [chance.choice(words, size=n).tolist() for n in chance.integers(1, 12, 90)]
    new_documents = [document_of(place, terms) for place, terms in enumerate(passages)]
    vectors = np.ones((len(passages), DIMENSIONS), np.float32)
    with store.writer() as writer:
        writer.commit(new_documents[:40], vectors[:40], passages[:40])
        mean = sum(map(len, passages[:40])) / 40
        writer.commit(new_documents[40:], vectors[40:], passages[40:])
        writer.delete([f"{place:03}" for place in range(0, 90, 3)])
    living = [place for place in range(90) if place % 3]
    for terms in (["b"], ["b", "c", "c"], ["b", "unknown"]):
        expected = brute_force([passages[place] for place in living], terms, mean=mean)
        scores = scores_of(store, terms)
        assert scores == pytest.approx(
            {f"{place:03}": score for place, score in zip(living, expected, strict=True) if score},
            rel=1e-5,
        )
    # A word counts less in a label, and is as rare as the more frequent of the two.
    dfs = [sum(term in passages[place] for place in living) for term in ("a", f"{LABEL}a")]
    odds = (len(living) - max(dfs) + 0.5) / (max(dfs) + 0.5)
    expected = {}
    for place in living:
        norm = 1.2 * (0.25 + 0.75 * len(passages[place]) / mean)
        counts = [passages[place].count(term) for term in ("a", f"{LABEL}a")]
        text, label = (count / (count + norm) for count in counts)
        expected[f"{place:03}"] = math.log(1 + odds) * (text + LABEL_WEIGHT * label)
    expected = {id_: score for id_, score in expected.items() if score}
    assert scores_of(store, ["a"]) == pytest.approx(expected, rel=1e-5)


def test_an_expansion_scores_as_its_alternatives_do_or_is_refused(store):
    passages = [["a", "x"], ["b", "x"], ["c", "x"], ["b", "c"], ["x", "y"]]
    new_documents = [document_of(place, terms) for place, terms in enumerate(passages)]
    with store.writer() as writer:
        writer.commit(new_documents, np.ones((5, DIMENSIONS), np.float32), passages)
    expansion = Expansion("a", (("a",),), (("b",), ("c",)), 0.5)
    scores = scores_of(store, ["a", expansion])
    expected = brute_force(passages, ["a", expansion])
    assert scores.keys() == {"000", "001", "002", "003"}
    assert scores["001"] == pytest.approx(expected[1], rel=1e-5)
    assert scores["003"] == pytest.approx(2 * scores["001"], rel=1e-5)
    with pytest.raises(ConfigError, match="synonym of several words, such as 'b c'"):
        scores_of(store, [Expansion("a", (("a",),), (("b", "c"),), 0.5)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n < 0.0000001", ["a", "b"]),
        ("n > -1e-7 and not (s = 'x')", ["b", "c"]),
        ("n >= 9007199254740993", "compare exactly with a number such as 9007199254740993"),
        ("s = 'it\\'s \"x\" \\\\ {y}'", ["a"]),
        ("not (t < 'm')", "cannot evaluate not '<'"),
        ("t >= 'm' or t is null", ["a", "c"]),
        ("not (t = 'k' or l contains 1)", ["c"]),
        ("not title exists", ["a", "b", "c"]),
        ("id in ('a', 'c') and id > 'b'", ["c"]),
        ("id != 'a' and not id contains 'c'", ["b"]),
        ('`a "b"\\\\`.`c\'` = true', ["b"]),
        ("l contains 1", ["a"]),
        ("s contains '\"x\" '", ["a"]),
        ("not s contains 'k'", ["a", "b"]),
        ("id contains '%' or title = 5", []),
        ("s like '%'", "cannot evaluate 'like'"),
    ],
)
def test_special_characters_in_names_and_values_are_filtered_literally(store, text, expected):
    with store.writer() as writer:
        writer.commit(*documents(["a"], {"n": -2.5, "s": 'it\'s "x" \\ {y}', "l": [True, 1.0]}))
        writer.commit(*documents(["b"], {"n": 0, "s": "\t", 'a "b"\\': {"c'": True}, "t": "k"}))
        writer.commit(*documents(["c"], {"n": 2**53 + 1, "s": "k" * 2000}))
    with open_view(store) as view:
        if isinstance(expected, str):
            with pytest.raises(FilterError, match=expected):
                view.ranking(where=compile_where(text))
            return
        query = Query((), np.ones(DIMENSIONS, np.float32))
        ranking = view.ranking(where=compile_where(text))
        (candidates,) = ranking.candidates([query], "dense", 50)
        ids = view.documents_of(candidates.passages.tolist()).values()
        assert sorted({*ids}) == expected


def test_a_replacement_takes_the_place_of_the_old_index(store):
    with open_view(store) as view:
        former = view.collection.name
    check_replacement(store, locks=False)
    assert not call(store.location, "has_collection", former)


def test_foreign_collection_or_format_is_refused(store, milvus_file):
    foreign = open_store(f"{milvus_file}foreign")
    call(foreign.location, "create_collection", foreign.location.index, dimension=2)
    with pytest.raises(NotAnIndexError, match="of that name is no index"):
        foreign.exists()
    for description in ([2, "", SETTINGS], {"format": 4}):
        with open_view(store) as view:
            properties = {"retriever.index": json.dumps(description)}
            view.call("alter_collection_properties", properties=properties)
            for refused in (store.exists, store.verify, lambda: store.create(SETTINGS)):
                with pytest.raises(FormatVersionError, match="`retriever export FILE") as error:
                    refused()
                assert "\n" not in str(error.value)
            view.call("alter_collection_properties", properties=view.collection.properties())


def test_opening_a_missing_index_is_refused(milvus_file, tmp_path):
    for url in (f"{milvus_file}none", f"milvus+lite://{tmp_path}/own.db"):
        missing = open_store(url)
        for refused in (missing.reader().view, missing.writer):
            with pytest.raises(NotAnIndexError, match="`retriever index` makes one"), refused():
                pass
        assert not missing.exists()


def test_unsupported_search_structures_are_refused(milvus_file):
    other = open_store(f"{milvus_file}other")
    with pytest.raises(ConfigError, match="index type: expected auto or flat, found 'hnsw'"):
        other.create({**SETTINGS, "structures": {"index_type": "hnsw"}})
    other.create({**SETTINGS, "structures": {"index_type": "flat"}})
    with other.writer() as writer, pytest.raises(ConfigError, match="--recreate --index-type"):
        writer.rebuild(None)


def test_an_outline_is_stored_with_its_document(store):
    check_outlines(store)


def test_languages_are_counted_with_the_passages(store):
    with store.writer() as writer:
        writer.commit(*documents_in_languages(["a", "b", "c"], "english", "english russian"))
        writer.commit(*documents_in_languages(["d"], "german", ""))
    assert languages_of(store) == ({"english": 6, "russian": 3, "german": 1}, 0)
    with store.writer() as writer:
        writer.commit(*documents_in_languages(["a"], "german", "german"), {"b": {"n": 1}})
        assert (writer.delete(["c", "never"]), writer.delete(["c"])) == (1, 0)
        assert writer.are_languages_counted()
        assert writer.setting("languages") == {"english": 2, "russian": 1, "german": 3}
        writer.delete(["b"])
    assert languages_of(store) == ({"german": 3}, 0)
