"""Changing an index: what a commit makes visible and deletes, what a failure leaves, merging."""

import json
import random
from contextlib import closing
from functools import partial

import numpy as np
import pytest

import indexes.folder.segment
import indexes.folder.view
import indexes.folder.writer
from indexes.filters.grammar import compile_where
from indexes.folder.segment import write_segment
from indexes.folder.store import FolderStore
from indexes.folder.verify import verify
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter, NewDocument
from indexes.protocol import Query
from tests.indexes.index_samples import (
    SETTINGS,
    alter,
    commit,
    document,
    found_by,
    live_passages,
    make_index,
    mask_of,
    metadata,
    texts,
    texts_in,
    vector_of,
    viewing,
)
from tests.indexes.store_samples import check_languages, check_outlines


@pytest.fixture
def index(tmp_path):
    """An index with documents a and b in one segment, c in another."""
    return make_index(
        tmp_path / "index",
        [document("a", "apple pie", {"kind": "fruit"}), document("b", "bread", {"kind": "grain"})],
        [document("c", "cherry cake", {"kind": "fruit"})],
    )


def generation(reader):
    with reader.view() as view:
        return view.generation


def segments(folder):
    return {path.name for path in (folder / "segments").iterdir()}


def test_a_commit_is_visible_after_it_and_not_before(index, reader, monkeypatch):
    during = {}

    def look(folder, *arguments):
        written = write_segment(folder, *arguments)
        during.update(texts(index))
        return written

    with FolderWriter(index, pending_limit=0) as writer:
        monkeypatch.setattr(indexes.folder.writer, "write_segment", look)
        commit(writer, document("d", "dates"), document("a", "apricot"))
        with reader.view() as view:
            after = texts_in(view)
    assert during == {"a": "apple pie", "b": "bread", "c": "cherry cake"}
    assert after == {"a": "apricot", "b": "bread", "c": "cherry cake", "d": "dates"}


def test_metadata_change_writes_no_segment(index, reader):
    before = segments(index)
    with FolderWriter(index) as writer:
        commit(writer, metadata={"a": {"kind": "dessert"}, "unknown": {}})
    assert segments(index) == before
    assert metadata(index)["a"] == {"kind": "dessert"}
    assert texts(index)["a"] == "apple pie"
    with reader.view() as view:
        allowed = view.allowed(compile_where('kind = "fruit"'))
        assert [mask_of(mask) for mask in allowed] == [[False, False], [True]]


def test_stored_versions_have_hash_and_metadata_of_stored_documents(index):
    with FolderWriter(index) as writer:
        heads = writer.stored_versions(["a", "unknown"])
        assert list(heads) == ["a"]
        assert heads["a"].hash == b"apple pie"
        assert json.loads(heads["a"].metadata) == {"kind": "fruit"}
        # More ids than SQLite has room for parameters.
        assert set(writer.stored_versions([str(n) for n in range(50_000)] + ["b"])) == {"b"}


def test_each_change_raises_the_generation_by_one(index, reader):
    seen = [generation(reader)]
    with FolderWriter(index) as writer:
        for change in (
            lambda: commit(writer, document("d", "dates")),
            lambda: commit(writer, metadata={"d": {"x": 1}}),
            lambda: writer.delete(["a"]),
            lambda: writer.delete_where(compile_where('kind = "grain"')),
            writer.delete_unseen,
        ):
            change()
            seen.append(generation(reader))
    assert seen == list(range(seen[0], seen[0] + 6))


def test_passage_ids_are_never_reused(index):
    def ids():
        with viewing(index) as view:
            return {int(id_) for live in view.segments for id_ in live.segment.ids}

    seen = ids()
    for round_ in range(3):
        with FolderWriter(index) as writer:
            writer.delete(["a", "b", "c"])
            commit(writer, document("a", f"round {round_}"), document("b", "x y", passages=2))
        new = ids() - seen
        assert len(new) == 3
        assert min(new) > max(seen)
        seen |= new


def test_stray_file_among_segments_is_ignored(index):
    stray = index / "segments" / ".DS_Store"
    stray.write_text("Finder")
    with FolderWriter(index) as writer:
        commit(writer, document("d", "dates"))
    assert stray.read_text() == "Finder"
    assert "d" in texts(index)


def test_a_commit_that_fails_leaves_the_index_as_it_was(index):
    bad = NewDocument("d", None, "dates", {"x": float("nan")}, b"", [(0, 5)])
    with FolderWriter(index) as writer:
        before = texts(index)
        with pytest.raises(ValueError, match="JSON"):
            commit(writer, document("a", "avocado"), bad)
        assert texts(index) == before
        commit(writer, document("a", "avocado"))
    assert texts(index) == {**before, "a": "avocado"}
    assert verify(index) == []


@pytest.mark.parametrize("vectors", [0, 1, 3])
def test_commit_needs_a_vector_for_each_passage(index, vectors):
    with FolderWriter(index) as writer, pytest.raises(ValueError, match="2 passages"):
        writer.commit(
            [document("d", "dates figs", passages=2)],
            np.ones((vectors, 6), np.float32),
            [["x"]] * vectors,
        )
    assert verify(index) == []
    assert set(texts(index)) == {"a", "b", "c"}


def test_create_opens_an_existing_index_and_makes_parent_folders(index, tmp_path):
    with FolderWriter(index, create={"encoder": "another"}) as writer:
        assert writer.setting("encoder") == SETTINGS["encoder"]
    make_index(tmp_path / "x" / "y")
    assert set(texts(index)) == {"a", "b", "c"}


def test_a_small_change_reads_no_table_from_end_to_end(tmp_path, monkeypatch):
    """Neither does a filter: the cost must not grow with the index."""
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 2)
    plans = []

    def planned(connection, action):
        statements = []
        connection.set_trace_callback(statements.append)
        action()
        connection.set_trace_callback(None)
        for statement in statements:
            if statement.startswith(("SELECT", "INSERT", "DELETE", "UPDATE")):
                rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
                plans.extend(f"{row[3]}: {statement}" for row in rows)

    with FolderWriter(tmp_path / "index", create=SETTINGS) as writer:
        commit(writer, *(document(f"d{i}", f"text {i}", {"n": i}) for i in range(9)))
        planned(writer._connection, lambda: commit(writer, document("d1", "new", {"n": 2})))
        planned(writer._connection, lambda: commit(writer, metadata={"d3": {"n": 4}}))
        planned(writer._connection, lambda: writer.delete(["d5", "d6"]))
        commit(writer, document("d7", "waits", {"n": 7}))
        with closing(FolderReader(tmp_path / "index")) as reader, reader.view() as view:
            for where in ("n > 3", "n = 7 or m exists"):
                planned(view._connection, partial(view.allowed, compile_where(where)))
    large = ("passages", "documents", "p", "d")
    scans = [
        plan for plan in plans if plan.split(":")[0].split()[:2] in (["SCAN", x] for x in large)
    ]
    assert [plan for plan in scans if "VIRTUAL TABLE" not in plan] == []
    assert len(plans) > 20


TERMS = [f"w{i}" for i in range(40)]


def answers(folder, queries):
    """Return for each query the documents, dense scores, BM25 scores and matches."""
    with viewing(folder) as view:
        prepared_queries = [Query(words, vector_of(" ".join(words))) for words in queries]
        candidates = view.ranking().candidates(prepared_queries, "hybrid", 10**6)
        return [
            sorted(
                zip(
                    map(
                        view.documents_of(ranking.passages.tolist()).get, ranking.passages.tolist()
                    ),
                    ranking.dense.tolist(),
                    ranking.bm25.round(6).tolist(),
                    ranking.matches.tolist(),
                    strict=True,
                )
            )
            for ranking in candidates
        ]


def sample(chance, id_):
    return document(
        id_, " ".join(chance.choices(TERMS, k=chance.randint(1, 12))), passages=chance.randint(1, 3)
    )


def test_compact_removes_deleted_passages_from_disk(tmp_path):
    documents = [document(f"d{i}", f"common only{i}") for i in range(20)]
    folder = make_index(tmp_path / "index", documents[:10], documents[10:])
    with FolderWriter(folder) as writer:
        writer.delete([stored_document.id for stored_document in documents[:3]])
        assert writer.compact() == 2
        assert writer.compact() == 0
        (only,) = writer.segments()
        assert len(only.segment.ids) == 17
        assert only.live is None
    assert [path.name for path in (folder / "segments").iterdir()] == ["000003"]
    assert verify(folder) == []
    with viewing(folder) as view:
        assert found_by(view, "common") == {f"d{i}" for i in range(3, 20)}
        assert live_passages(view) == sorted(live_passages(view))


def test_index_without_documents_has_no_segment(tmp_path):
    folder = make_index(tmp_path / "index", [document("a", "one"), document("b", "two")])
    with FolderWriter(folder) as writer:
        writer.delete(["a", "b"])
        assert writer.merge() == 1
        assert writer.segments() == ()
    assert list((folder / "segments").iterdir()) == []
    assert verify(folder) == []
    with FolderWriter(folder) as writer:
        commit(writer, document("c", "three"))
    assert texts(folder) == {"c": "three"}
    assert verify(folder) == []


def test_small_commits_are_merged_and_ids_stay_in_order(tmp_path):
    with FolderWriter(tmp_path, create={}, pending_limit=0) as writer:
        for i in range(50):
            commit(writer, document(f"d{i}", f"word{i}"))
            writer.merge()
            segments = writer.segments()
            assert len(segments) < indexes.folder.merging.FACTOR
            ids = np.concatenate([live.segment.ids for live in segments])
            assert (np.diff(ids) > 0).all()
    assert len(texts(tmp_path)) == 50
    assert verify(tmp_path) == []


def test_optimize_after_run_keeps_answers(tmp_path, monkeypatch):
    monkeypatch.setattr("indexes.vectors.choice.FLAT_LIMIT", 200)
    chance = random.Random(7)
    parts = [[sample(chance, f"d{part}-{i}") for i in range(100)] for part in range(4)]
    folder = make_index(tmp_path / "index", *parts)
    with FolderWriter(folder) as writer:
        commit(writer, sample(chance, "waiting"))
        writer.delete(["d0-1", "d2-50"])
        queries = [[word] for word in TERMS[:5]] + [chance.choices(TERMS, k=4)]
        expected = answers(folder, queries)
        assert writer.optimize_after_run(400) == 5
        assert writer.optimize_after_run(0) == 0
        (only,) = writer.segments()
        assert only.segment.structure.name == "ivf-sq8"
        assert only.live is None
    assert verify(folder) == []
    assert answers(folder, queries) == expected


def test_an_outline_is_stored_with_its_document(tmp_path):
    store = FolderStore(tmp_path / "index")
    store.create(SETTINGS)
    check_outlines(store)
    alter(store.folder, "UPDATE documents SET outline = '[[0,\"page\",\"9\"]]' WHERE id = 'b'")
    assert [line for line in store.verify() if "'b' was altered" in line]


def test_languages_are_counted_with_the_passages(tmp_path):
    def forget(writer):
        writer._connection.execute("UPDATE passages SET languages = NULL")

    store = FolderStore(tmp_path / "index")
    store.create(SETTINGS)
    check_languages(store, forget)
