"""Commits to Milvus are whole or not there at all, whatever kills the writer."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from milvus_samples import DIMENSIONS, SETTINGS, documents, ids_of, single

from indexes import compile_where, open_store
from indexes.errors import (
    ConfigError,
    DamagedIndexError,
    FilterError,
    IndexLockedError,
    NotAnIndexError,
    StorageError,
)
from indexes.milvus import filters as filters_module
from indexes.milvus import state as state_module
from indexes.milvus import view as view_module
from indexes.milvus.connection import Connection

pytestmark = pytest.mark.milvus


class Killed(BaseException):
    """What a dead process would not have raised."""


def dying(monkeypatch, step):
    """Every request after the first `step` writes fails; returns a list of the writes."""
    writes: list[str] = []
    write, call = Connection._write, Connection._call

    def counted(self, name, do):
        if len(writes) >= step:
            raise Killed
        writes.append(name)
        write(self, name, do)

    def checked(self, do):
        if len(writes) >= step:
            raise Killed
        return call(self, do)

    monkeypatch.setattr(Connection, "_write", counted)
    monkeypatch.setattr(Connection, "_call", checked)
    return writes


def contents(store):
    reader = store.reader()
    with reader.view() as view:
        found = {d.id: (d.text, d.metadata, d.passages) for d in view.documents()}
        passages = sorted(p for _, _, spans in found.values() for p, *_ in spans)
        terms = ["apple", "a", "b", "c", "d"]
        result = found, view.document_frequencies(terms), view.vectors(passages).tolist()
    reader.close()
    return result


CHANGES = {
    "commit": lambda w: w.commit(*documents(["b", "d"], seed=5), metadata={"a": {"x": 1}}),
    "delete": lambda w: w.delete(["a", "c"]),
    "terms": lambda w: w._merge_terms(),
    "purge": lambda w: w.delete(["a"]) and w.compact(),
}


def test_a_writer_that_dies_at_some_steps_tears_nothing(store, monkeypatch):
    killed_after(range(1, 30, 4), "commit", store, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("change", CHANGES)
def test_a_writer_that_dies_at_any_step_tears_nothing(store, monkeypatch, change):
    killed_after(range(30), change, store, monkeypatch)


def killed_after(steps, change, store, monkeypatch):
    with store.writer() as writer:
        writer.commit(*documents(["a", "b"], {"x": 0}))
        writer.commit(*documents(["c"], seed=1))
    before = contents(store)
    monkeypatch.setattr(state_module, "_is_running", lambda pid: False)
    unchanged = 0
    for step in steps:
        with monkeypatch.context() as patched:
            dying(patched, step)
            died = True
            with suppress(Killed), store.writer() as writer:
                CHANGES[change](writer)
                died = False
        now = contents(store)
        with store.writer() as writer:
            assert contents(store) == now
            assert writer._states.intended() == []
        assert store.verify() == []
        if now != before or not died:
            # Killed after the commit itself, the change is there as a whole.
            break
        unchanged += 1
    assert unchanged >= min(len(steps) - 1, 3)
    assert (now != before) == (change != "terms")


@pytest.mark.soak
def test_a_process_that_is_killed_tears_nothing(own_file, tmp_path):
    made = open_store(own_file)
    made.create(SETTINGS)
    with made.writer() as writer:
        writer.commit(*documents(["a", "b"]))
    script = """
import os, signal, sys
sys.path[:0] = [sys.argv[2]]
from milvus_samples import documents
from indexes import open_store
from indexes.milvus.state import States
def publish(self, state):
    os.kill(os.getpid(), signal.SIGKILL)
with open_store(sys.argv[1]).writer() as writer:
    States.publish = publish
    writer.commit(*documents(["b", "c"], seed=1))
"""
    killed = subprocess.run(
        [sys.executable, "-c", script, own_file, str(Path(__file__).parent)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert ids_of(made) == ["a", "b"]
    # The lease of a process that is gone holds nobody up.
    with made.writer() as writer:
        assert writer.delete(["a"]) == 1
    assert ids_of(made) == ["b"]
    assert made.verify() == []


def test_a_view_stays_the_same_while_a_writer_changes_everything(store):
    with store.writer() as writer:
        writer.commit(*documents(["a", "b"], {"x": 1}))
        reader = store.reader()
        with reader.view() as view:
            writer.commit(*documents(["a", "c"], seed=1), metadata={"b": {"x": 2}})
            writer.delete(["b"])
            writer.compact()
            assert [d.id for d in view.documents()] == ["a", "b"]
            assert view.document("b").metadata == {"x": 1}
            assert view.document_frequencies(["apple", "b", "c"]) == {"apple": 4, "b": 2, "c": 0}
            assert view.facets(["x"], None, ["b"], 5).fields["x"].values[0].matches == 1
        with reader.view() as view:
            assert [d.id for d in view.documents()] == ["a", "c"]
        reader.close()


def test_a_view_that_lost_rows_says_so(store, monkeypatch):
    with store.writer() as writer:
        writer.commit(*documents(["a", "b"]))
        reader = store.reader()
        with reader.view() as view:
            monkeypatch.setattr(view_module, "GRACE", -1.0)
            monkeypatch.setattr("indexes.milvus.writer.GRACE", -1.0)
            writer.delete(["a"])
            assert writer._state.dead == 2
            assert writer.compact() >= 1
            assert writer._state.dead == 0
            with pytest.raises(StorageError, match="run the command again"):
                list(view.documents())
        reader.close()
    assert ids_of(store) == ["b"]
    assert store.verify() == []


def test_rows_of_terms_are_merged_once_each_term_has_several(store, monkeypatch):
    monkeypatch.setattr("indexes.milvus.writer._TERM_ROWS", 0)
    with store.writer() as writer:
        merges = []
        for seed in range(6):
            writer.commit(*documents([f"d{seed}"], seed=seed))
            merges.append(writer.merge())
        # The first commit has one row for each term.
        assert merges[0] == 0
        assert sum(merges) == 1
    assert store.verify() == []


def test_one_writer_at_a_time(store):
    with (
        store.writer(),
        pytest.raises(IndexLockedError, match=r"another writer holds the index: process \d+ on"),
        store.writer(),
    ):
        pass
    with store.writer(lock_timeout=1.0) as writer:
        assert writer.delete(["none"]) == 0


def test_a_lease_that_was_not_renewed_ends(store, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(state_module, "_LEASE", -1.0)
        stalled = store.writer()
        stalled.__enter__()
    with store.writer() as other:
        other.commit(*documents(["a"]))
    monkeypatch.setattr(state_module, "_LEASE", -1.0)
    with pytest.raises(StorageError, match="the right to write was lost"):
        stalled.commit(*documents(["b"]))
    stalled.__exit__(None, None, None)
    assert ids_of(store) == ["a"]


def test_long_texts_are_whole(store):
    text = "äpfel 🍏 " * 30_000
    made = single(1, text=text)
    with store.writer() as writer:
        writer.commit([made], np.ones((1, DIMENSIONS), np.float32), [["äpfel"] * 9])
        writer.commit([], np.empty((0, DIMENSIONS), np.float32), [], {"00001": {"x": 1}})
        writer.commit(*documents(["b"]))
    reader = store.reader()
    with reader.view() as view:
        stored = view.document("00001")
    reader.close()
    assert (stored.text, stored.metadata) == (text, {"x": 1})
    assert store.verify() == []


@pytest.mark.parametrize(
    ("metadata", "tokens", "message"),
    [
        ({}, [f"w{n}" for n in range(4097)], "4,097 distinct terms"),
        ({}, ["w" * 70_000], "terms of a passage: expected 65,535 bytes or less"),
        ({"a": "x" * 70_000}, ["w"], "id, title and metadata: expected 65,535 bytes or less"),
        ({"a": list(range(4096))}, ["w"], "its metadata has 4,103 fields"),
    ],
)
def test_what_does_not_fit_into_a_row_is_refused(store, metadata, tokens, message):
    made = [single(1), single(2, metadata)]
    with store.writer() as writer:
        writer.commit(*documents(["a"]))
        with pytest.raises(ConfigError, match=message):
            writer.commit(made, np.ones((2, DIMENSIONS), np.float32), [["w"], tokens])
        writer.commit(*documents(["b"]))
    assert ids_of(store) == ["a", "b"]
    assert store.verify() == []


def test_a_filter_that_needs_too_long_a_list_is_refused(store, monkeypatch):
    monkeypatch.setattr(filters_module, "_MOST_LISTED", 2)
    with store.writer() as writer:
        for letter in "xy":
            writer.commit(*documents([f"{letter}{n}" for n in range(3)], {"l": letter}))
    reader = store.reader()
    with reader.view() as view:
        with pytest.raises(FilterError, match="cannot evaluate 'like'"):
            view.ranking(where=compile_where("l like 'X%'"))
        facets = view.facets(["l"], compile_where("l like 'X%' and id in ('x1', 'y1')"), None, 5)
        assert facets.documents == 1
        # Few of those that the expression selects do not match.
        where = compile_where("id != 'y1' and id != 'y2' and l like 'X%'")
        assert view.facets(["l"], where, None, 5).documents == 3
    reader.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n < 0.0000001", ["a", "b"]),
        ("n > -1e-7", ["b", "c"]),
        ("n >= -2.5 and not (n > 9007199254740992)", ["a", "b"]),
        ("n > 9007199254740992", ["c"]),
        ("s = 'it\\'s \"x\" \\\\ {y}'", ["a"]),
        ("s >= 'it\\'s \"x\" \\\\ {y}' and s < 'z'", ["a", "c"]),
        ('`a "b"\\\\`.`c\'` = true', ["b"]),
        ("s < '\x1f'", ["b"]),
    ],
)
def test_names_and_values_mean_what_they_say(store, text, expected):
    with store.writer() as writer:
        writer.commit(*documents(["a"], {"n": -2.5, "s": 'it\'s "x" \\ {y}'}))
        writer.commit(*documents(["b"], {"n": 0, "s": "\t", 'a "b"\\': {"c'": True}}))
        writer.commit(*documents(["c"], {"n": 2**53 + 1, "s": "k" * 2000}))
    reader = store.reader()
    with reader.view() as view:
        (found,) = view.ranking(where=compile_where(text)).candidates([view_query()], "dense", 50)
        ids = view.documents_of(found.passages.tolist())
    reader.close()
    assert sorted(set(ids.values())) == expected


def view_query():
    from indexes.protocol import Query

    return Query((), np.ones(DIMENSIONS, np.float32))


class TestReplacement:
    def test_it_takes_the_place_of_the_old_index_at_its_end(self, store, monkeypatch):
        with store.writer() as writer:
            writer.commit(*documents(["old"]))
        reader = store.reader()
        with store.replacement("x") as new:
            assert not new.exists()
            new.create(SETTINGS)
            with new.writer() as writer:
                writer.commit(*documents(["new"]))
            assert (ids_of(store), ids_of(new)) == (["old"], ["new"])
            with pytest.raises(IndexLockedError), store.writer():
                pass
            with reader.view() as view:
                before = view.identity
        with reader.view() as view:
            assert view.identity != before
            assert view.has_document("new")
            former = view._state.former[0][0]
        reader.close()
        monkeypatch.setattr("indexes.milvus.writer.GRACE", -1.0)
        with store.writer() as writer:
            rows = writer._names.documents, f"build == {former}"
            assert writer._connection.count(*rows) == 1
            writer.compact()
            assert writer._connection.count(*rows) == 0
            assert writer._state.former == ()
        assert ids_of(store) == ["new"]
        assert store.verify() == []

    def test_it_is_resumed_with_the_same_settings_alone(self, store):
        for begun_with, expected in (("x", False), ("x", True), ("y", False)):
            with pytest.raises(RuntimeError), store.replacement(begun_with) as new:  # noqa: PT012
                assert new.exists() is expected
                new.create(SETTINGS)
                raise RuntimeError
        assert ids_of(store) == []


def test_tenants_do_not_see_each_other(milvus_file):
    ours, theirs = (open_store(f"{milvus_file}?tenant={name}") for name in ("ours", "theirs"))
    for one, ids in ((ours, ["a", "b"]), (theirs, ["b", "c"])):
        one.create(SETTINGS)
        with one.writer() as writer:
            writer.commit(*documents(ids))
    with theirs.writer() as writer:
        writer.delete(["b"])
    assert (ids_of(ours), ids_of(theirs)) == (["a", "b"], ["c"])
    assert ours.verify() == theirs.verify() == []


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


def test_an_index_that_does_not_exist(milvus_file, own_file):
    for missing in (open_store(f"{milvus_file}?tenant=none"), open_store(own_file)):
        with pytest.raises(NotAnIndexError):
            missing.reader()
        with pytest.raises(NotAnIndexError), missing.writer():
            pass
        assert not missing.exists()


def test_other_structures_and_dimensions_are_refused(store):
    if store.location.file is not None:
        with pytest.raises(ConfigError, match="index type: expected auto or flat"):
            store.create({"structures": {"index_type": "hnsw"}})
    with pytest.raises(ConfigError, match="index type: expected auto, flat, hnsw or diskann"):
        store.create({"structures": {"index_type": "ivf-pq"}})
    with store.writer() as writer:
        writer.commit(*documents(["a"]))
        made, _, terms = documents(["b"])
        with pytest.raises(ValueError, match=f"expected vectors of {DIMENSIONS} dimensions"):
            writer.commit(made, np.ones((2, 3), np.float32), terms)
    assert ids_of(store) == ["a"]


def test_what_was_altered_is_found(store):
    with store.writer() as writer:
        writer.commit(*documents(["a", "b"]))
        connection, names = writer._connection, writer._names
        rows = connection.query(names.documents, writer._visible, ["*"])
        altered = [{**row, "piece": row["piece"].replace("a apple", "an apple")} for row in rows]
        connection.delete_keys(names.documents, [row["row"] for row in rows])
        connection.insert(names.documents, [{**row, "row": row["row"] - 10} for row in altered])
    assert "was altered" in store.verify()[0]
    reader = store.reader()
    with reader.view() as view, pytest.raises(DamagedIndexError, match="'a' was altered"):
        view.document("a")
    reader.close()
