"""Commits in a database: batches of postings, deletions, several writers, replacement."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest
from store_samples import DIMENSIONS, SETTINGS, documents, ids_of, viewed

from indexes import IndexLockedError, NotAnIndexError, open_store
from indexes.postgres import postings as postings_module
from indexes.postgres import schema as locks_module
from indexes.postgres import store as writer_module


def frequencies(store, terms):
    with viewed(store) as view:
        return view.document_frequencies(terms)


def test_small_commits_are_joined_and_answers_stay(store):
    with store.writer() as writer:
        for number in range(40):
            writer.commit(*documents([f"d{number}"], seed=number))
            if number == 39:
                break
            writer.merge()
        before = frequencies(store, ["apple", "d3"])
        assert writer.compact() > 1
        assert frequencies(store, ["apple", "d3"]) == before == {"apple": 80, "d3": 2}
    assert store.verify() == []


def test_postings_of_deleted_passages_are_dropped_where_they_are_many(store, monkeypatch):
    monkeypatch.setattr(writer_module, "_FEW_DEAD", 5)
    with store.writer() as writer:
        writer.commit(*documents([f"d{n}" for n in range(20)]))
        reader = store.reader()
        with reader.view() as old:
            writer.delete(["d0"])
            assert writer.merge() == 0
            with reader.view() as view:
                assert view.session.row.dead == 2
                assert view.document_frequencies(["apple", "d0"]) == {"apple": 38, "d0": 0}
            writer.delete([f"d{n}" for n in range(15)])
            writer.merge()
            with reader.view() as view:
                assert view.session.row.dead == 0
                assert view.document_frequencies(["apple", "d19"]) == {"apple": 10, "d19": 2}
            # What an earlier view sees stays.
            assert old.document_frequencies(["apple", "d0"]) == {"apple": 40, "d0": 2}
        reader.close()
    assert store.verify() == []


@pytest.mark.parametrize("job", ["join_batches", "purge"])
def test_upkeep_that_another_one_overtakes_does_nothing(store, monkeypatch, job):
    with store.writer() as one, store.writer() as two:
        for number in range(3):
            one.commit(*documents([f"d{number}", f"e{number}"], seed=number))
        one.delete(["e0"])
        work = getattr(postings_module, job)
        arguments = {"least": 2} if job == "join_batches" else {}
        original = locks_module._lock

        def overtaken(connection, *statement):
            monkeypatch.setattr(locks_module, "_lock", original)
            connection.execute("SELECT 1")
            assert work(two._connection, two._tables, **arguments) > 0
            return original(connection, *statement)

        monkeypatch.setattr(locks_module, "_lock", overtaken)
        assert work(one._connection, one._tables, **arguments) == 0
        one._update("dead = (SELECT count(*) FROM retriever.deleted_" + f"{one._tables.number})")
    assert frequencies(store, ["apple"]) == {"apple": 10}
    assert store.verify() == []


@pytest.mark.parametrize("span", [1, 1000])
def test_the_scores_of_passages_are_sums_in_the_order_of_terms(span):
    chance = np.random.default_rng(0)
    parts = []
    for _ in range(3):
        held = np.sort(chance.choice(50, 20, replace=False)) * span
        parts.append((held.astype(np.int64), chance.random(20)))
    expected: dict[int, float] = {}
    for held, values in parts:
        for passage, value in zip(held.tolist(), values.tolist(), strict=True):
            expected[passage] = expected.get(passage, 0.0) + value
    passages, scores = postings_module.passage_scores(parts)
    assert passages.tolist() == sorted(expected)
    assert scores.tolist() == [expected[one] for one in sorted(expected)]


def test_blocks_count_terms():
    tokens = [["b", "a", "b"], [], ["a"]]
    found = dict(postings_module.blocks_of(tokens, np.array([4, 6, 9])))
    assert {term: one.tolist() for term, one in found.items()} == {
        b"a": [(4, 1, 3), (9, 1, 1)],
        b"b": [(4, 2, 3)],
    }
    assert dict(postings_module.blocks_of([[], []], np.array([1, 2]))) == {}


def test_several_writers_lose_nothing(store):
    rounds, names = 8, "abcd"
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
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


def test_only_what_a_run_has_seen_is_kept(store):
    with store.writer() as writer:
        writer.commit(*documents(["a", "b", "c", "d"]))
        assert writer.count_touched() == 4
    with store.writer() as writer:
        writer.touch(["a", "none"])
        writer.commit(*documents(["e"]), metadata={"b": {"x": 1}, "none": {"y": 1}})
        assert writer.delete_untouched() == 2
    assert ids_of(store) == ["a", "b", "e"]
    assert store.verify() == []


def test_dimensions_are_those_of_the_first_commit(store):
    with store.writer() as writer:
        writer.commit(*documents(["a"]))
        made, _, terms = documents(["b"])
        with pytest.raises(ValueError, match=f"expected vectors of {DIMENSIONS} dimensions"):
            writer.commit(made, np.ones((2, 3), np.float32), terms)
        with pytest.raises(ValueError, match="expected vectors and terms of 2 passages"):
            writer.commit(made, np.ones((1, DIMENSIONS), np.float32), terms)
    assert ids_of(store) == ["a"]


class TestReplacement:
    def test_it_takes_the_place_of_the_old_index_at_its_end(self, store):
        with store.writer() as writer:
            writer.commit(*documents(["old"]))
        reader = store.reader()
        with store.replacement("x") as new:
            assert not new.exists()
            new.create(SETTINGS)
            with new.writer() as writer:
                writer.commit(*documents(["new"]))
            assert (ids_of(store), ids_of(new)) == (["old"], ["new"])
            with pytest.raises(IndexLockedError, match="replacing it"), store.writer():
                pass
            with reader.view() as view:
                before = view.identity
        with reader.view() as view:
            assert view.identity != before
            assert view.has_document("new")
        reader.close()
        assert ids_of(store) == ["new"]
        assert store.verify() == []

    def test_it_is_resumed_with_the_same_settings_alone(self, store):
        for begun_with, expected in (("x", False), ("x", True), ("y", False)):
            with pytest.raises(RuntimeError), store.replacement(begun_with) as new:  # noqa: PT012
                assert new.exists() is expected
                new.create(SETTINGS)
                raise RuntimeError
        assert ids_of(store) == []

    def test_it_waits_for_no_writer(self, store):
        with (
            store.writer(),
            pytest.raises(IndexLockedError, match="a writer holds it"),
            store.replacement("x"),
        ):
            pass

    def test_where_there_is_no_index_it_is_the_index(self, postgres_url):
        missing = open_store(postgres_url)
        with missing.replacement("x") as new:
            new.create(SETTINGS)
        assert missing.exists()

    def test_old_tables_are_dropped_even_if_a_reader_kept_them_for_a_while(
        self, store, postgres_server
    ):
        reader = store.reader()
        with reader.view() as view:
            with store.replacement("x") as new:
                new.create(SETTINGS)
            assert view.count_documents() == 0
            assert not view.has_document("a")
        with store.replacement("x") as new:
            new.create(SETTINGS)
        reader.close()
        with postgres_server.connect() as connection:
            numbers = {n for (n,) in connection.execute("SELECT number FROM retriever.indexes")}
            tables = Counter(
                int(name.rsplit("_", 1)[1])
                for (name,) in connection.execute(
                    "SELECT relname FROM pg_class WHERE relname ~ '^documents_[0-9]+$'"
                )
            )
        assert set(tables) == numbers


def test_an_index_that_does_not_exist(postgres_url):
    missing = open_store(postgres_url)
    with pytest.raises(NotAnIndexError):
        missing.reader()
    with pytest.raises(NotAnIndexError), missing.writer():
        pass
    assert not missing.exists()


def test_settings_are_recorded_and_sealed(store, postgres_server):
    with store.writer() as writer:
        writer.record("computed", ["x"])
        assert writer.setting("computed") == ["x"]
        with pytest.raises(KeyError):
            writer.setting("none")
    reader = store.reader()
    with reader.view() as view:
        view.check_settings()
        number = view.session.row.number
    with postgres_server.connect() as connection:
        connection.execute(
            "UPDATE retriever.indexes SET settings = replace(settings, 'x', 'y') WHERE number = %s",
            (number,),
        )
    assert "a setting was altered" in store.verify()[0]
    reader.close()
