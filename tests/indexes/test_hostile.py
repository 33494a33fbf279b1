"""A malicious index folder reaches nothing outside itself."""

import hashlib
import json
import re

import pytest

from indexes.errors import DamagedIndexError, RetrieverError
from indexes.folder.store import snapshot_index
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
from tests.indexes.index_samples import alter, commit, document, make_index, texts


@pytest.fixture
def index(tmp_path):
    return make_index(tmp_path / "index", [document("a", "one")], [document("b", "two")])


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    (folder / "000009").mkdir(parents=True)
    (folder / "000009" / "treasure").write_text("kept")
    (folder / "file").write_text("kept")
    return folder


def state(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(index):
    with FolderWriter(index) as writer:
        commit(writer, document("c", "three"))
        writer.delete(["a"])
        writer.replace(writer.segments())


@pytest.mark.parametrize(
    "name", ["index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "segments", "writer.lock"]
)
def test_symbolic_links_in_place_of_index_files_are_refused(index, outside, name):
    target = outside if name == "segments" else outside / "file"
    before = state(outside)
    (index / name).rename(index.parent / "away") if (index / name).exists() else None
    (index / name).symlink_to(target)
    with pytest.raises(DamagedIndexError, match=f"{name}: expected .* found a link"):
        write(index)
    with pytest.raises(DamagedIndexError, match="found a link"):
        texts(index)
    assert state(outside) == before


def test_a_link_among_the_segments_is_removed_and_not_followed(index, outside):
    before = state(outside)
    (index / "segments" / "000009").symlink_to(outside / "000009")
    (index / "segments" / "000003").symlink_to(outside)
    write(index)
    assert state(outside) == before
    assert texts(index) == {"b": "two", "c": "three"}
    assert verify(index) == []


def test_a_link_in_the_place_of_a_live_segment_is_refused_and_kept(index, tmp_path):
    segment, moved = index / "segments" / "000001", tmp_path / "moved"
    segment.rename(moved)
    segment.symlink_to(moved)
    before = {path.name: path.read_bytes() for path in moved.iterdir()}
    refusal = r"segments/000001: expected .* found a link"
    for use in (texts, write, lambda index: snapshot_index(index, tmp_path / "snapshot")):
        with pytest.raises(DamagedIndexError, match=refusal):
            use(index)
    (problem,) = verify(index)
    assert re.search(refusal, problem)
    assert segment.readlink() == moved
    assert {path.name: path.read_bytes() for path in moved.iterdir()} == before
    segment.unlink()
    moved.rename(segment)
    write(index)
    assert verify(index) == []


@pytest.mark.parametrize("name", ["../../outside/file", "/etc/passwd", "a/../ids.npy", ".."])
def test_a_manifest_that_names_files_elsewhere_is_refused(index, outside, name):
    path = index / "segments" / "000001" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = {"bytes": 4, "sha256": hashlib.sha256(b"kept").hexdigest()}
    content = json.dumps(manifest).encode()
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    alter(index, "UPDATE segments SET manifest = ? WHERE segment = 1", digest)
    with pytest.raises(DamagedIndexError, match="expected names of files of its own folder"):
        texts(index)
    assert any("of its own folder" in problem for problem in verify(index))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON documents BEGIN DELETE FROM documents; END",
        "CREATE VIEW v AS SELECT * FROM documents",
    ],
)
def test_triggers_and_views_are_refused(index, statement):
    alter(index, statement)
    for action in (write, texts, verify):
        with pytest.raises(DamagedIndexError, match=r"an index has no (trigger|view)"):
            action(index)


@pytest.mark.parametrize("value", ["10000000000000", "-1"])
def test_huge_declared_sizes_are_refused_without_reserving_memory(index, value):
    path = index / "segments" / "000001" / "ids.npy"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"(1,)", f"({value},)".encode())[: len(content)])
    with pytest.raises(RetrieverError, match=r"ids\.npy"):
        texts(index)
