"""Commits in a database: batches of postings, deletions, several writers, replacement."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from indexes import open_store
from indexes.errors import IndexLockedError, NotAnIndexError
from indexes.postgres import postings as postings_module
from indexes.postgres import schema as locks_module
from indexes.postgres import writer as writer_module
from tests.indexes.store_samples import (
    DIMENSIONS,
    SETTINGS,
    check_languages,
    check_outlines,
    check_replacement,
    documents,
    documents_in_languages,
    ids_of,
    languages_of,
    open_view,
)


def frequencies(store, terms):
    with open_view(store) as view:
        return view.document_frequencies(terms)


def test_small_commits_are_joined_and_answers_stay(store):
    with store.writer() as writer:
        joined = []
        for number in range(40):
            writer.commit(*documents([f"d{number}"], seed=number))
            joined.append(writer.merge())
        assert writer.count_seen() == 40
        before = frequencies(store, ["apple", "d3"])
        # The one that was joined, and those since.
        assert [sum(joined), joined[31], writer.compact(), writer.compact()] == [32, 32, 9, 0]
        assert frequencies(store, ["apple", "d3"]) == before == {"apple": 80, "d3": 2}
    assert store.verify() == []


def test_postings_of_deleted_passages_are_dropped_where_they_are_many(store, monkeypatch):
    monkeypatch.setattr(writer_module, "_MAX_DELETED", 5)
    with store.writer() as writer:
        writer.commit(*documents([f"d{n}" for n in range(20)]))
        reader = store.reader()
        with reader.view() as old:
            writer.delete(["d0"])
            assert writer.merge() == 0
            with reader.view() as view:
                assert view.row.dead == 2
                assert view.document_frequencies(["apple", "d0"]) == {"apple": 38, "d0": 0}
            writer.delete([f"d{n}" for n in range(15)])
            writer.merge()
            with reader.view() as view:
                assert view.row.dead == 0
                assert view.document_frequencies(["apple", "d19"]) == {"apple": 10, "d19": 2}
            # What an earlier view sees stays.
            assert old.document_frequencies(["apple", "d0"]) == {"apple": 40, "d0": 2}
        reader.close()
    assert store.verify() == []


@pytest.mark.parametrize("job", ["join_batches", "purge_postings"])
def test_maintenance_overtaken_by_another_writer_does_nothing(store, monkeypatch, job):
    with store.writer() as first, store.writer() as second:
        for number in range(3):
            first.commit(*documents([f"d{number}", f"e{number}"], seed=number))
        first.delete(["e0"])
        work = getattr(postings_module, job)
        arguments = {"least": 2} if job == "join_batches" else {}
        original = locks_module._lock

        def overtaken(connection, *statement):
            monkeypatch.setattr(locks_module, "_lock", original)
            connection.execute("SELECT 1")
            assert work(second._tables, **arguments) > 0
            return original(connection, *statement)

        monkeypatch.setattr(locks_module, "_lock", overtaken)
        assert work(first._tables, **arguments) == 0
        first._update(
            "dead = (SELECT count(*) FROM retriever.deleted_" + f"{first._tables.number})"
        )
    assert frequencies(store, ["apple"]) == {"apple": 10}
    assert store.verify() == []


@pytest.mark.parametrize("span", [1, 1000])
def test_sum_scores_adds_terms_in_their_order(span):
    chance = np.random.default_rng(0)
    parts = []
    for _ in range(3):
        numbers = np.sort(chance.choice(50, 20, replace=False)) * span
        parts.append((numbers.astype(np.int64), chance.random(20)))
    expected: dict[int, float] = {}
    for numbers, values in parts:
        for passage, value in zip(numbers.tolist(), values.tolist(), strict=True):
            expected[passage] = expected.get(passage, 0.0) + value
    passages, scores = postings_module.sum_scores(parts)
    assert passages.tolist() == sorted(expected)
    assert scores.tolist() == [expected[passage] for passage in sorted(expected)]


def test_several_writers_of_a_new_database_lose_nothing(postgres_server):
    rounds, names = 8, "abcd"
    errors: list[BaseException] = []
    with postgres_server.connect() as connection:
        connection.execute("CREATE DATABASE several")
    store = open_store(postgres_server.url(database="several"))

    def work(name: str) -> None:
        try:
            store.create(SETTINGS)
            with store.writer() as writer:
                for number in range(rounds):
                    # All of them replace `shared`, and each has documents of its own.
                    writer.commit(*documents([f"{name}{number}", "shared"], seed=number))
                    writer.delete([f"{name}{number - 2}"])
                    writer.merge()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert ids_of(store) == sorted([f"{name}{n}" for name in names for n in (6, 7)] + ["shared"])
    assert frequencies(store, ["apple", "shared"]) == {"apple": 18, "shared": 2}
    assert store.verify() == []


def test_first_commit_fixes_the_dimensions(store):
    with store.writer() as writer:
        writer.commit(*documents(["a"]))
        new_documents, _, terms = documents(["b"])
        with pytest.raises(ValueError, match=f"expected vectors of {DIMENSIONS} dimensions"):
            writer.commit(new_documents, np.ones((2, 3), np.float32), terms)
        with pytest.raises(ValueError, match="argument 2 is shorter"):
            writer.commit(new_documents, np.ones((1, DIMENSIONS), np.float32), terms)
    assert ids_of(store) == ["a"]


def test_a_replacement_takes_the_place_of_the_old_index(store, postgres_url):
    check_replacement(store, locks=True)
    with (
        store.writer(),
        pytest.raises(IndexLockedError, match="a writer holds it"),
        store.replacement("x"),
    ):
        pass
    missing = open_store(f"{postgres_url}-missing")
    with missing.replacement("x") as new:
        new.create(SETTINGS)
    assert missing.exists()


def test_old_tables_are_dropped_even_if_a_reader_kept_them_for_a_while(store, postgres_server):
    with open_view(store) as view:
        with store.replacement("x") as new:
            new.create(SETTINGS)
        assert view.count_documents() == 0
        assert not view.content_hashes(["a"])
    with store.replacement("x") as new:
        new.create(SETTINGS)
    with postgres_server.connect() as connection:
        numbers = {str(n) for (n,) in connection.execute("SELECT number FROM retriever.indexes")}
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^documents_[0-9]+$'"
        )
        assert {name.rpartition("_")[2] for (name,) in tables} == numbers


def test_opening_a_missing_index_is_refused(postgres_url):
    missing = open_store(postgres_url)
    with pytest.raises(NotAnIndexError):
        missing.reader()
    with pytest.raises(NotAnIndexError), missing.writer():
        pass
    assert not missing.exists()


def test_tables_of_an_earlier_release_are_read_and_get_outlines_from_a_writer(store):
    with store.writer() as writer:
        writer.commit(*documents(["old"]))
        writer._tables.execute("ALTER TABLE {documents} DROP COLUMN outline")
    with open_view(store) as view:
        assert [document.outline for document in view.documents()] == [""]
        passages = [passage for passage, *_ in view.document("old").passages]
        assert [view.passages([passage])[passage].outline for passage in passages] == ["", ""]
    assert store.verify() == []
    with store.writer() as writer:
        writer.delete(["old"])
    check_outlines(store)


def test_languages_are_counted_with_the_passages(store):
    def forget(writer):
        writer._tables.execute("UPDATE {documents} SET languages = NULL")

    check_languages(store, forget)


def test_tables_of_an_earlier_release_get_languages_from_a_writer(store):
    with store.writer() as writer:
        writer.commit(*documents(["old"]))
        writer._tables.execute("ALTER TABLE {documents} DROP COLUMN languages")
    assert languages_of(store) == ({}, 1)
    with store.writer() as writer:
        writer.commit(*documents_in_languages(["new"], "english", ""))
    assert languages_of(store) == ({"english": 1}, 1)
    assert store.verify() == []
