"""Readers have one consistent view, whatever a writer does, and name what is damaged."""

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import indexes.folder.documents
import indexes.folder.segment
import indexes.folder.view
from indexes.errors import DamagedIndexError, NotAnIndexError
from indexes.files import replace_folder
from indexes.filters.grammar import compile_where
from indexes.folder.segment import Segment, open_segment
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter
from indexes.protocol import Query, StructureSettings
from tests.indexes.index_samples import (
    alter,
    commit,
    document,
    found_by,
    live_passages,
    make_index,
    mask_of,
    texts,
    texts_in,
    vector_of,
    viewing,
)


@pytest.fixture
def index(tmp_path):
    return make_index(
        tmp_path / "index",
        [document("a", "apple", {"n": 1}), document("b", "bread crumbs", {"n": 2}, passages=2)],
        [document("c", "cherry", {"n": 3})],
    )


def other_index(tmp_path):
    return make_index(tmp_path / "new", [document("z", "zest")])


def test_a_view_stays_as_it_is_while_a_writer_commits(index, reader):
    with reader.view() as view:
        before = (texts_in(view), view.generation, view.commit.bm25.statistics)
        allowed = view.allowed(compile_where("n = 2"))
        with FolderWriter(index) as writer:
            commit(writer, document("a", "avocado"), document("d", "dates"))
            writer.delete(["b", "c"])
        assert (texts_in(view), view.generation, view.commit.bm25.statistics) == before
        assert found_by(view, "cherry") == {"c"}
        assert found_by(view, "avocado") == set()
        assert view.count_documents() == 3
        assert view.describe()["deleted_passages"] == 0
        # Of the same commit, whether it was judged before the writer's or is now.
        for masks in (allowed, view.allowed(compile_where("n = 2.0"))):
            assert [mask_of(mask) for mask in masks] == [[False, True, True], [False]]
    with reader.view() as view:
        assert texts_in(view) == {"a": "avocado", "d": "dates"}
        assert view.generation == before[1] + 2


def test_live_mask_of_a_gapless_segment_reads_no_ids(index, monkeypatch):
    with FolderWriter(index) as writer:
        writer.delete(["b"])

    def refuse(_):
        raise AssertionError("ids are read")

    monkeypatch.setattr(Segment, "all_ids", refuse)
    with viewing(index) as view:
        assert view.segments[0].live.tolist() == [True, False, False]


def test_filter_masks_are_cached_for_each_commit(index, reader, monkeypatch):
    monkeypatch.setattr(indexes.folder.view, "_FILTERS", 2)
    with reader.view() as view:
        first = view.allowed(compile_where("n = 2"))
        assert view.allowed(compile_where("n = 2")) is first
        # Equal in Python, and another filter.
        assert not any(mask.count for mask in view.allowed(compile_where("n = true")))
        assert mask_of(view.allowed(compile_where("n = 1"))[0]) == [True, False, False]
        # Two other filters have replaced it in the cache.
        assert view.allowed(compile_where("n = 2")) is not first
    with FolderWriter(index) as writer:
        writer.delete(["b"])
    with reader.view() as view:
        assert not any(mask.count for mask in view.allowed(compile_where("n = 2")))


def test_passages_map_to_their_documents_and_unknown_passages_are_damage(reader):
    with reader.view() as view:
        for passage in live_passages(view):
            assert view.documents_of([passage]) == {passage: view.passages([passage])[passage].id}
        ids = live_passages(view)
        stored = view.passages(ids)
        texts = [stored[id_].text[stored[id_].start : stored[id_].stop] for id_ in ids]
        assert texts == ["apple", "bread", "crumbs", "cherry"]
        owners = view.documents_of(ids)
        assert [owners[id_] for id_ in ids] == ["a", "b", "b", "c"]
        for ask in (view.passages, view.documents_of):
            assert ask([]) == {}
            with pytest.raises(DamagedIndexError, match=r"index\.sqlite: passage 1000000"):
                ask([1, 10**6])


def test_document_of_several_passages_is_compared_with_its_checksum_once(reader, monkeypatch):
    calls = []
    check = indexes.folder.view.checked_passages

    def count(connection, row):
        calls.append(row[1])
        return check(connection, row)

    monkeypatch.setattr(indexes.folder.view, "checked_passages", count)
    with reader.view() as view:
        for passage in live_passages(view):
            view.passages([passage])
    assert calls == ["b"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET metadata = '{' WHERE id = 'a'",
        "UPDATE documents SET metadata = NULL WHERE id = 'a'",
        "UPDATE documents SET text = CAST(x'ff' AS TEXT) WHERE id = 'a'",
        "UPDATE settings SET key = 'x' WHERE key = 'generation'",
        "UPDATE settings SET value = 'x' WHERE key = 'generation'",
        "UPDATE segments SET manifest = NULL WHERE segment = 1",
        "ALTER TABLE passages RENAME COLUMN start TO other",
        "ALTER TABLE segments RENAME TO other",
    ],
)
def test_malformed_rows_and_schema_are_damage_of_the_database(index, statement):
    with closing(sqlite3.connect(index / "index.sqlite")) as connection:
        # What damage can do no statement can, unless the schema allows it.
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '')")
        connection.commit()
    alter(index, statement)
    with pytest.raises(DamagedIndexError) as caught:
        texts(index)
    assert str(index) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET text = 'ample' WHERE id = 'a'",
        "UPDATE documents SET title = 'a title' WHERE id = 'a'",
        "UPDATE documents SET metadata = '{\"n\": 9}' WHERE id = 'a'",
        "UPDATE documents SET id = 'aa' WHERE id = 'a'",
        "UPDATE passages SET start = 1 WHERE passage = 1",
        "UPDATE passages SET doc = 2 WHERE passage = 1",
    ],
)
def test_reading_an_altered_document_is_refused(index, statement):
    # The first passage.
    assert alter(index, statement) == 1
    with viewing(index) as view:
        first = live_passages(view)[0]
        later_passages = [passage for passage in live_passages(view) if passage > first + 2]
        assert len(view.passages(later_passages)) == len(later_passages) > 0
        for _ in range(2):
            with pytest.raises(DamagedIndexError, match=r"index\.sqlite: .*(altered|another)"):
                view.passages([first])


def test_a_document_is_checked_once(index, reader):
    with reader.view() as view, pytest.MonkeyPatch.context() as patch:
        everything = live_passages(view)
        passages = view.passages(everything)
        for module in (indexes.folder.documents, indexes.folder.view):
            patch.setattr(module, "document_checksum", lambda *_: b"another")
        assert view.passages(everything) == passages


def test_segments_stay_mapped_from_commit_to_commit(index, reader):
    with reader.view() as first, reader.view() as second:
        assert first.segments is second.segments
    with reader.view() as third:
        assert third.segments is first.segments
    with FolderWriter(index) as writer:
        commit(writer, document("d", "dates"))
    with reader.view() as view:
        after = [live.segment for live in view.segments]
    assert len(after) == 3
    assert all(before.segment is now for before, now in zip(first.segments, after[:2], strict=True))


def test_an_empty_index_has_an_empty_view(tmp_path):
    with viewing(make_index(tmp_path / "index")) as view:
        assert (view.segments, view.count_documents()) == ((), 0)
        assert view.allowed(compile_where("n = 1")) == []


def test_view_survives_replacement_of_its_folder_and_the_next_view_is_new(index, tmp_path, reader):
    with reader.view() as view:
        before = texts_in(view)
        replace_folder(other_index(tmp_path), index)
        assert texts_in(view) == before
        assert found_by(view, "cherry") == {"c"}
    with reader.view() as view:
        assert texts_in(view) == {"z": "zest"}
        assert found_by(view, "apple") == set()
    with FolderWriter(index) as writer:
        commit(writer, document("y", "yam"))
    with reader.view() as view:
        assert texts_in(view) == {"y": "yam", "z": "zest"}


@pytest.mark.parametrize("generations", [0, 1, 2])
def test_a_new_folder_is_recognized_whatever_its_generation(index, tmp_path, reader, generations):
    with reader.view() as view:
        assert view.generation == 2
    new = make_index(tmp_path / "new", *([document("z", f"zest{g}")] for g in range(generations)))
    replace_folder(new, index)
    with reader.view() as view:
        assert set(texts_in(view)) == ({"z"} if generations else set())


@pytest.mark.parametrize("merged", [True, False])
def test_reader_takes_a_later_commit_if_segments_vanish_while_opening(
    index, tmp_path, monkeypatch, merged
):
    expected, opened = texts(index) if merged else {"z": "zest"}, []

    def change_then_open(folder, *key):
        opened.append(key)
        if len(opened) == 1 and merged:
            with FolderWriter(index) as writer:
                writer.compact()
        elif len(opened) == 1:
            replace_folder(other_index(tmp_path), index)
        return open_segment(folder, *key)

    monkeypatch.setattr(indexes.folder.segment, "open_segment", change_then_open)
    assert texts(index) == expected
    assert len(opened) > 1


def test_a_reader_that_was_interrupted_reads_again(index, reader, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(indexes.folder.view, "live_segments", interrupt)
        with pytest.raises(KeyboardInterrupt), reader.view():
            pass
    with reader.view() as view:
        assert set(texts_in(view)) == {"a", "b", "c"}


def test_a_removed_folder_is_no_index_and_comes_back(index, tmp_path, reader):
    index.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(NotAnIndexError), reader.view():
            pass
    (tmp_path / "away").rename(index)
    with reader.view() as view:
        assert set(texts_in(view)) == {"a", "b", "c"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_vectors_behind_a_structure_are_not_read_ahead_but_for_a_scan(tmp_path):
    many = [document(str(i), f"text {i}") for i in range(4_000)]
    folder = make_index(tmp_path / "index", many)

    def is_read_ahead():
        maps = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.M)
        (flags,) = [
            line.split()
            for part in maps
            if str(folder) in part and "vectors.npy" in part
            for line in part.splitlines()
            if line.startswith("VmFlags:")
        ]
        return "rr" not in flags

    def search(depth):
        with reader.view() as view:
            query = Query(vector=vector_of("text 7"))
            view.ranking().candidates([query], "dense", depth)
        return is_read_ahead()

    with closing(FolderReader(folder)) as reader:
        assert search(3)
    with FolderWriter(folder) as writer:
        writer.rebuild(StructureSettings("ivf"))
    with closing(FolderReader(folder)) as reader:
        assert not search(3)
        assert search(len(many))
