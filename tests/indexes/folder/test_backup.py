"""A copy of an index made while others work on it: one commit, verified, or nothing."""

import errno
import os
import shutil

import pytest

import indexes.folder.store
from indexes.errors import ConfigError, DamagedIndexError, NotAnIndexError
from indexes.files import replace_folder
from indexes.folder.segment import read_manifest
from indexes.folder.store import snapshot_index
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
from tests.indexes.index_samples import SETTINGS, commit, document, make_index, viewing


def stored(folder):
    with viewing(folder) as view:
        return {
            document.id: (
                document.text,
                document.metadata,
                view.vectors([p for p, *_ in document.passages]).tolist(),
            )
            for document in view.documents()
        }


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def folder(tmp_path):
    folder = make_index(
        tmp_path / "my.index",
        [document("a", "red apples and pears", {"n": 1}, passages=2), document("b", "stones")],
        [document("c", "more stones"), document("d", "gone")],
    )
    with FolderWriter(folder) as writer:
        writer.delete(["d"])
    return folder


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copy"


def test_snapshot_is_sound_and_links_segment_files(folder, target, tmp_path):
    snapshot = snapshot_index(folder, target)
    assert verify(target) == []
    assert stored(target) == stored(folder)
    assert (snapshot.generation, snapshot.documents, snapshot.segments) == (3, 3, 2)
    shared = files(folder / "segments")
    assert (snapshot.linked, snapshot.copied) == (len(shared), 0)
    for path in shared:
        assert path.samefile(target / path.relative_to(folder))
    # With the empty log that users need who cannot write there.
    assert sorted(path.name for path in target.iterdir()) == [
        "index.sqlite",
        "index.sqlite-shm",
        "index.sqlite-wal",
        "segments",
    ]
    assert (target / "index.sqlite-wal").stat().st_size == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "my.index"]


def test_snapshot_and_index_change_independently(folder, target):
    before = stored(folder)
    snapshot_index(folder, target)
    with FolderWriter(folder) as writer:
        commit(writer, document("e", "new stones"))
        writer.compact()
    assert stored(target) == before
    with FolderWriter(target) as writer:
        writer.delete(["a"])
        writer.compact()
    assert set(stored(folder)) == {"a", "b", "c", "e"}
    assert verify(folder) == verify(target) == []


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_snapshot_copies_files_that_cannot_be_linked(folder, target, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    snapshot = snapshot_index(folder, target)
    assert (snapshot.linked, snapshot.copied) == (0, len(files(folder / "segments")))
    shutil.rmtree(folder)
    assert verify(target) == []
    assert set(stored(target)) == {"a", "b", "c"}


def meanwhile(monkeypatch, change, times=1):
    """Call `change` after a snapshot chose its commit and before it links the files."""
    done = []

    def read(folder, manifest):
        if len(done) < times:
            done.append(1)
            change()
        return read_manifest(folder, manifest)

    monkeypatch.setattr(indexes.folder.store, "read_manifest", read)
    return done


def test_snapshot_during_a_merge_copies_a_later_commit(folder, target, monkeypatch):
    def change():
        with FolderWriter(folder) as writer:
            commit(writer, document(f"e{len(done)}", "new stones"))
            writer.compact()

    done = meanwhile(monkeypatch, change, times=3)
    snapshot = snapshot_index(folder, target)
    assert len(done) == 3
    assert set(stored(target)) == {"a", "b", "c", "e1", "e2", "e3"}
    assert (snapshot.segments, snapshot.documents) == (1, 6)
    assert len(files(target / "segments")) == snapshot.linked
    assert verify(target) == []


def test_snapshot_during_a_replacement_copies_the_new_index(folder, target, tmp_path, monkeypatch):
    new = make_index(tmp_path / "new", [document("x", "other")])
    meanwhile(monkeypatch, lambda: replace_folder(new, folder))
    snapshot_index(folder, target)
    assert set(stored(target)) == {"x"}
    assert verify(target) == []


def test_snapshot_of_a_damaged_index_is_refused_naming_the_original_file(folder, target, tmp_path):
    vectors = folder / "segments" / "000001" / "vectors.npy"
    content = vectors.read_bytes()
    vectors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedIndexError) as caught:
        snapshot_index(folder, target)
    assert str(vectors) in str(caught.value)
    assert "\n" not in str(caught.value)
    vectors.unlink()
    with pytest.raises(DamagedIndexError, match=r"vectors\.npy: the file is missing"):
        snapshot_index(folder, target)
    assert [path.name for path in tmp_path.iterdir()] == ["my.index"]


def test_snapshot_of_an_empty_index_into_an_empty_folder(tmp_path, target):
    with FolderWriter(tmp_path / "empty", create=SETTINGS):
        pass
    target.mkdir()
    assert snapshot_index(tmp_path / "empty", target).documents == 0
    assert verify(target) == []


def test_snapshot_into_an_unsuitable_place_is_refused(folder, target, tmp_path):
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for place, message in (
        (target, r"found 'notes\.txt'"),
        (tmp_path / "file", "found a file"),
        (tmp_path / "no" / "where", "make the folder"),
        (folder, "the index itself"),
        (folder / "inside", "the index itself"),
    ):
        with pytest.raises(ConfigError, match=message):
            snapshot_index(folder, place)
    with pytest.raises(NotAnIndexError):
        snapshot_index(tmp_path / "nothing", tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "file", "my.index"]
    assert [path.name for path in target.iterdir()] == ["notes.txt"]
    assert not (folder / "inside").exists()
