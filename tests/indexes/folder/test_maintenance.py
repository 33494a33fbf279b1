"""Merging and compacting equal an index built from the same documents at once."""

import random
import shutil

import numpy as np
import pytest
from index_samples import (
    commit,
    document,
    found_by,
    live_passages,
    make_index,
    texts,
    texts_in,
    vector_of,
    viewing,
)

import indexes.folder.segment
import indexes.folder.view
from indexes.errors import DamagedIndexError
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
from indexes.protocol import Query

WORDS = [f"w{i}" for i in range(40)]


def answers(folder, queries):
    """For each query its passages: their document, and their scores by vectors and by BM25."""
    with viewing(folder) as view:
        asked = [Query(words, vector_of(" ".join(words))) for words in queries]
        found = view.ranking().candidates(asked, "hybrid", 10**6)
        return [
            sorted(
                zip(
                    map(view.documents_of(one.passages.tolist()).get, one.passages.tolist()),
                    one.dense.tolist(),
                    one.bm25.round(6).tolist(),
                    one.matches.tolist(),
                    strict=True,
                )
            )
            for one in found
        ]


def sample(chance, id_):
    return document(
        id_, " ".join(chance.choices(WORDS, k=chance.randint(1, 12))), passages=chance.randint(1, 3)
    )


def test_compacting_drops_what_is_deleted_from_the_disk(tmp_path):
    documents = [document(f"d{i}", f"common only{i}") for i in range(20)]
    folder = make_index(tmp_path / "index", documents[:10], documents[10:])
    with FolderWriter(folder) as writer:
        writer.delete([one.id for one in documents[:3]])
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


def test_an_index_of_which_all_is_deleted_has_no_segment(tmp_path):
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
            assert len(segments) < indexes.folder.segment.FACTOR
            ids = np.concatenate([one.segment.ids for one in segments])
            assert (np.diff(ids) > 0).all()
    assert len(texts(tmp_path)) == 50
    assert verify(tmp_path) == []


def test_a_reader_goes_on_with_segments_that_are_merged_away(tmp_path):
    folder = make_index(tmp_path, [document("a", "one")], [document("b", "two")])
    with viewing(folder) as view:
        with FolderWriter(folder) as writer:
            writer.delete(["a"])
            writer.compact()
        assert len(list((folder / "segments").iterdir())) == 1
        assert texts_in(view) == {"a": "one", "b": "two"}
        assert found_by(view, "one") == {"a"}
    assert texts(folder) == {"b": "two"}


def test_segments_merged_while_a_reader_opens_them_are_read_anew(tmp_path, monkeypatch):
    folder = make_index(tmp_path, [document("a", "one")], [document("b", "two")])
    real, calls = indexes.folder.view.live_segments, []

    def slow(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            with FolderWriter(folder) as writer:
                writer.compact()
        return real(*arguments)

    monkeypatch.setattr(indexes.folder.view, "live_segments", slow)
    with viewing(folder) as view:
        assert texts_in(view) == {"a": "one", "b": "two"}
    assert len(calls) == 2


def test_a_segment_that_is_really_gone_is_damage(tmp_path):
    folder = make_index(tmp_path, [document("a", "one")], [document("b", "two")])
    shutil.rmtree(folder / "segments" / "000001")
    with pytest.raises(DamagedIndexError, match="000001"), viewing(folder):
        pass
    with pytest.raises(DamagedIndexError, match="000001"), FolderWriter(folder) as writer:
        writer.compact()
    assert "000001" in verify(folder)[0]


def test_a_settled_index_answers_as_before(tmp_path, monkeypatch):
    monkeypatch.setattr("indexes.vectors.choice.FLAT_LIMIT", 200)
    chance = random.Random(7)
    parts = [[sample(chance, f"d{part}-{i}") for i in range(100)] for part in range(4)]
    folder = make_index(tmp_path / "index", *parts)
    with FolderWriter(folder) as writer:
        commit(writer, sample(chance, "waiting"))
        writer.delete(["d0-1", "d2-50"])
        queries = [[word] for word in WORDS[:5]] + [chance.choices(WORDS, k=4)]
        expected = answers(folder, queries)
        assert writer.settle(400) == 5
        assert writer.settle(0) == 0
        (only,) = writer.segments()
        assert only.segment.structure.name == "ivf-sq8"
        assert only.live is None
    assert verify(folder) == []
    assert answers(folder, queries) == expected


def test_a_large_segment_is_left_alone_by_a_small_addition(tmp_path, monkeypatch):
    monkeypatch.setattr("indexes.vectors.choice.FLAT_LIMIT", 200)
    monkeypatch.setattr("indexes.folder.segment.SEGMENT_COST", 100)
    chance = random.Random(8)
    folder = make_index(tmp_path / "index", [sample(chance, f"a{i}") for i in range(400)])
    with FolderWriter(folder, pending_limit=0) as writer:
        assert writer.settle(400) == 1
        (large,) = writer.segments()
        for number in range(6):
            commit(writer, sample(chance, f"b{number}"))
            writer.settle(1)
            assert writer.segments()[0].segment.number == large.segment.number
        # The small ones became few among themselves.
        assert len(writer.segments()) <= 3
