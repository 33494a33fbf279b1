"""Checksums of a segment's large files, verified by every read."""

import hashlib
import json

import numpy as np
import pytest
from index_samples import document, flip, lookup, make_index, manifest_of

from indexes.errors import DamagedIndexError
from indexes.filters.allowed import Allowed
from indexes.folder.checksums import SUMS_FILE, file_sums
from indexes.folder.segment import open_segment, segment_folder, write_segment
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
from indexes.protocol import StructureSettings
from indexes.vectors.flat import search_flat
from indexes.vectors.structure import STRUCTURE_FILE

N, D = 20_000, 8
CHANCE = np.random.default_rng(5)
VECTORS = CHANCE.standard_normal((N, D)).astype(np.float32)
TOKENS = [["all", f"term{i}"] for i in range(N)]
LARGE = [
    *("ids.npy", "postings.lengths.npy", "postings.offsets.npy"),
    *("postings.positions.npy", "postings.terms.utf8", "vectors.npy"),
]
READS = {
    "ids.npy": lambda segment: segment.ids_at(np.array([N // 2])),
    "postings.lengths.npy": lambda segment: segment.postings.check_lengths(np.array([N // 2])),
    "postings.offsets.npy": lambda segment: list(segment.postings.vocabulary()),
    "postings.positions.npy": lambda segment: lookup(segment.postings, "all"),
    "postings.terms.utf8": lambda segment: lookup(segment.postings, "all"),
    "vectors.npy": lambda segment: search_flat(
        segment.vectors, VECTORS[:1], 3, None, segment.vectors_guard
    ),
}


@pytest.fixture
def written(tmp_path):
    return write_segment(segment_folder(tmp_path, 1), np.arange(N), VECTORS, TOKENS)


def test_large_files_have_sums_in_the_order_of_their_names(tmp_path, written):
    folder = segment_folder(tmp_path, 1)
    manifest = manifest_of(folder)
    assert SUMS_FILE in manifest["files"]
    assert set(LARGE) <= set(manifest["sums"])
    assert {name for name in manifest["files"] if manifest["files"][name]["bytes"] > 65536} == {
        *manifest["sums"]
    }
    expected = {name: file_sums(folder / name) for name in sorted(manifest["sums"])}
    assert manifest["sums"] == {name: len(sums) for name, sums in expected.items()}
    sums = np.load(folder / SUMS_FILE)
    assert sums.dtype == np.dtype("<u8")
    np.testing.assert_array_equal(sums, np.concatenate(list(expected.values())))
    open_segment(tmp_path, 1, written)


@pytest.mark.parametrize("name", LARGE)
def test_a_changed_byte_is_found_by_who_reads_it(tmp_path, written, name):
    path = segment_folder(tmp_path, 1) / name
    READS[name](open_segment(tmp_path, 1, written))
    flip(path, path.stat().st_size // 2)
    segment = open_segment(tmp_path, 1, written)
    with pytest.raises(DamagedIndexError, match=rf"{name}: .*its content was altered"):
        READS[name](segment)


def test_altered_sums_are_named_themselves(tmp_path, written):
    path = segment_folder(tmp_path, 1) / SUMS_FILE
    # Like a file that is too large to be checked on opening: only its facts are read then.
    segment = open_segment(tmp_path, 1, written)
    altered = np.load(path)
    segment.vectors_guard._sums = altered[-len(segment.vectors_guard._sums) :] + np.uint64(1)
    flip(path, -1)
    with pytest.raises(DamagedIndexError, match=r"sums\.npy: its SHA-256"):
        segment.vectors_at(np.array([0]))
    with pytest.raises(DamagedIndexError, match=r"sums\.npy"):
        open_segment(tmp_path, 1, written)
    path.unlink()
    with pytest.raises(DamagedIndexError, match=r"vectors\.npy"):
        segment.vectors_at(np.array([0]))


def without_sums(folder):
    """Make a segment what an earlier release would have written; its manifest's new hash."""
    manifest = manifest_of(folder)
    del manifest["sums"], manifest["files"][SUMS_FILE]
    (folder / SUMS_FILE).unlink()
    return sealed(folder, manifest)


def sealed(folder, manifest):
    content = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def test_a_segment_of_an_earlier_release_does_without(tmp_path, written):
    del written
    segment = open_segment(tmp_path, 1, without_sums(segment_folder(tmp_path, 1)))
    for name, read in READS.items():
        read(segment)
        flip(segment.folder / name, -1)
    assert segment.vectors_guard.complete


def test_as_many_sums_as_blocks_are_asked_for(tmp_path, written):
    del written
    folder = segment_folder(tmp_path, 1)
    manifest = manifest_of(folder)
    manifest["sums"]["ids.npy"] -= 1
    manifest["sums"]["vectors.npy"] += 1
    with pytest.raises(DamagedIndexError, match=rf"{SUMS_FILE}: expected \d+ sums of"):
        open_segment(tmp_path, 1, sealed(folder, manifest))


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Two segments of which nearly every file counts as large, in many small blocks."""
    monkeypatch.setattr("indexes.files.SMALL", 200)
    monkeypatch.setattr("indexes.folder.checksums.BLOCK", 64)
    documents = [document(f"d{i}", f"word{i} word{i % 7}") for i in range(300)]
    return make_index(tmp_path / "index", documents[:100], documents[100:])


@pytest.mark.parametrize("structure", ["flat", "hnsw", "ivf", "ivf-sq8", "IVF8,PQ2x4", "SQ8"])
def test_merged_segments_have_sums_that_verify_recomputes(index, structure):
    with FolderWriter(index) as writer:
        writer.delete(["d5", "d120"])
        writer.rebuild(StructureSettings(structure))
        (live,) = writer.segments()
    manifest = manifest_of(live.segment.folder)
    assert {"ids.npy", "vectors.npy", "postings.positions.npy"} <= set(manifest["sums"])
    assert (STRUCTURE_FILE in manifest["sums"]) == (structure != "flat")
    assert verify(index) == []


def test_sums_that_were_wrong_from_the_start_are_found_by_verify(index):
    with pytest.MonkeyPatch.context() as patch, FolderWriter(index) as writer:
        patch.setattr("indexes.folder.checksums.file_sums", lambda path: file_sums(path) + 1)
        writer.compact()
    problems = verify(index)
    assert any("vectors.npy: the sums of its blocks" in problem for problem in problems)


@pytest.mark.parametrize("name", ["ids.npy", "vectors.npy", "postings.lengths.npy"])
def test_damage_is_not_merged_into_a_new_segment(index, name):
    flip(segment_folder(index, 2) / name, -1)
    with FolderWriter(index) as writer, pytest.raises(DamagedIndexError, match=name):
        writer.compact()


@pytest.mark.parametrize("structure", ["ivf", "ivf-sq8", "IVF8,PQ2x4", "hnsw", "IVF8,SQ6"])
def test_a_changed_byte_of_a_structure_changes_no_answer(index, structure):
    with FolderWriter(index) as writer:
        writer.rebuild(StructureSettings(structure))
        (live,) = writer.segments()
    path = live.segment.folder / STRUCTURE_FILE
    content = path.read_bytes()
    named = (live.segment.number, live.segment.manifest)
    queries = np.asarray(live.segment.vectors[::40])
    few = Allowed(np.arange(len(live.segment.ids)) % 2 == 0)

    def answers(effort):
        segment = open_segment(index, *named)
        assert segment.structure.structure is not None
        found = []
        for allowed in (None, few):
            found += segment.structure.structure.searcher.search(
                segment.vectors, queries, 3, allowed, effort, segment.vectors_guard
            )
        return [(positions.tolist(), scores.tolist()) for positions, scores in found]

    whole = {effort: answers(effort) for effort in (1, 4)}
    named_right = []
    for place in CHANCE.integers(0, len(content), 60).tolist():
        flip(path, place)
        for effort in (1, 4):
            try:
                assert answers(effort) == whole[effort], place
            except DamagedIndexError as error:
                named_right.append(str(path) in str(error))
        path.write_bytes(content)
    assert len(named_right) > 30
    assert all(named_right)


def test_only_the_lists_that_are_read_are_checked(index):
    with FolderWriter(index) as writer:
        writer.rebuild(StructureSettings("IVF8,Flat"))
        (live,) = writer.segments()
    structure, vectors = live.segment.structure.structure, np.asarray(live.segment.vectors)
    assert structure is not None
    # Somewhere in the lists: with one read of eight, most queries do not read it.
    flip(structure.path, (structure.facts.guarded + structure.facts.bytes) // 2)
    failed = 0
    for row in range(0, 300, 5):
        try:
            structure.searcher.search(vectors, vectors[row : row + 1], 1, None, 1)
        except DamagedIndexError:
            failed += 1
    assert 0 < failed < 40
    with pytest.raises(DamagedIndexError, match=STRUCTURE_FILE):
        structure.searcher.search(vectors, vectors, 1, None, 1)
