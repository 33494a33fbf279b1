"""Sums of blocks, and those of a segment: any changed byte is found by the read that meets it."""

import hashlib
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import checksums as block_sums
from indexes.checksums import BLOCK, UNGUARDED, BlockGuard, count_blocks, file_sums
from indexes.errors import DamagedIndexError
from indexes.files import save_array
from indexes.folder.checksums import SUMS_FILE
from indexes.folder.segment import open_segment, segment_folder, write_segment
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
from indexes.metadata import document_checksum
from indexes.passage_mask import PassageMask
from indexes.protocol import StructureSettings
from indexes.vectors.flat import search_flat
from indexes.vectors.structure import STRUCTURE_FILE
from tests.indexes.index_samples import document, flip, lookup, make_index, manifest_of

FILE = Path("folder") / "array.npy"
SIZES = [0, 1, 7, 8, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 13, 40 * BLOCK + 1]


def sums_of(content):
    return block_sums.block_sums(content)


def noise(size):
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


def guard_of(array, sums=None):
    content = array.reshape(-1).view(np.uint8)
    return BlockGuard(FILE, array, sums_of(content) if sums is None else sums)


@pytest.mark.parametrize("size", SIZES)
def test_block_sum_equals_the_sum_of_its_64_bit_words(size):
    content = noise(size).tobytes()
    expected = []
    for start in range(0, size, BLOCK):
        block = content[start : start + BLOCK].ljust(BLOCK, b"\0")
        words = [int.from_bytes(block[i : i + 8], "little") for i in range(0, BLOCK, 8)]
        expected.append(sum(words) % 2**64)
    assert sums_of(noise(size)).tolist() == expected
    assert len(expected) == count_blocks(size)


@given(st.integers(1, 5 * BLOCK), st.data(), st.integers(1, 255))
def test_changed_byte_changes_only_the_sum_of_its_block(size, data, flip):
    place = data.draw(st.integers(0, size - 1))
    content = noise(size)
    before = sums_of(content)
    content[place] ^= flip
    assert np.flatnonzero(sums_of(content) != before).tolist() == [place // BLOCK]
    guard = guard_of(content, before)
    with pytest.raises(DamagedIndexError, match=r"array\.npy: .*its content was altered"):
        guard.check()


@pytest.mark.parametrize("size", SIZES)
def test_file_sums_equal_the_sums_of_the_content(tmp_path, size):
    content = noise(size)
    (tmp_path / "plain").write_bytes(content.tobytes())
    np.testing.assert_array_equal(file_sums(tmp_path / "plain"), sums_of(content))
    numbers = content[: size // 8 * 8].view("<u4").reshape(-1, 2)
    save_array(tmp_path / "array.npy", numbers)
    expected = sums_of(numbers.reshape(-1).view(np.uint8))
    np.testing.assert_array_equal(file_sums(tmp_path / "array.npy"), expected)


def test_a_large_file_is_summed_in_bounded_memory(tmp_path):
    path = tmp_path / "plain"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        assert len(file_sums(path)) == (64 << 20) // BLOCK
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@given(
    st.sampled_from([(np.uint8, ()), (np.int64, ()), (np.float32, (384,)), (np.int64, (2,))]),
    st.integers(1, 30),
    st.booleans(),
    st.data(),
)
def test_guard_finds_a_changed_byte_in_the_rows_that_are_read(form, blocks, altered, data):
    """Rows, ranges and many ranges, of rows that fill, divide or cross blocks."""
    dtype, columns = form
    row_bytes = int(np.dtype(dtype).itemsize * np.prod(columns, dtype=int))
    count = max(1, blocks * BLOCK // row_bytes - 3)
    content = noise(count * row_bytes)
    sums = sums_of(content)
    row = data.draw(st.integers(0, count - 1))
    if altered:
        content[row * row_bytes + data.draw(st.integers(0, row_bytes - 1))] ^= 0x10
    array = content.view(dtype).reshape(count, *columns)
    other_rows = data.draw(st.lists(st.integers(0, count - 1), max_size=3))
    before, after = data.draw(st.integers(0, row)), data.draw(st.integers(row + 1, count))
    for check in ("rows", "range"):
        guard = guard_of(array, sums)
        for _ in range(2):
            try:
                if check == "rows":
                    guard.check_rows(np.array([*other_rows, row], np.uint32))
                else:
                    guard.check(before, after)
            except DamagedIndexError:
                assert altered, check
            else:
                assert not altered, check


def test_each_block_is_compared_once(monkeypatch):
    summed = 0

    def count_blocks_summed(content):
        nonlocal summed
        sums = sums_of_content(content)
        summed += len(sums)
        return sums

    sums_of_content = block_sums.block_sums
    array = noise(20 * BLOCK + 5).view(np.uint8)
    guard = guard_of(array)
    monkeypatch.setattr(block_sums, "block_sums", count_blocks_summed)
    guard.check(BLOCK, 3 * BLOCK)
    assert (summed, guard.complete) == (2, False)
    guard.check(BLOCK + 1, 3 * BLOCK - 1)
    guard.check_rows(np.array([BLOCK, 2 * BLOCK]))
    assert summed == 2
    guard.check()
    assert guard.complete
    summed = 0
    guard.check()
    guard.check_rows(np.arange(len(array)))
    assert summed == 0


def test_guard_ignores_rows_outside_the_array():
    guard = guard_of(noise(3 * BLOCK))
    guard.check(-5, 0)
    guard.check(3 * BLOCK, 4 * BLOCK)
    assert not guard.complete
    guard.check(-5, 4 * BLOCK)
    assert guard.complete


@pytest.mark.parametrize("shape", [(0,), (0, 384), (0, 2)])
def test_guard_of_an_empty_array_is_complete(shape):
    guard = guard_of(np.empty(shape, np.float32))
    assert guard.complete
    guard.check()
    assert UNGUARDED.complete
    UNGUARDED.check_rows(np.array([10**12]))
    UNGUARDED.check(0, 10**12)


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


def test_segment_stores_block_sums_of_large_files_in_name_order(tmp_path, written):
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
def test_reading_a_changed_byte_of_a_large_file_is_refused(tmp_path, written, name):
    path = segment_folder(tmp_path, 1) / name
    READS[name](open_segment(tmp_path, 1, written))
    flip(path, path.stat().st_size // 2)
    segment = open_segment(tmp_path, 1, written)
    with pytest.raises(DamagedIndexError, match=rf"{name}: .*its content was altered"):
        READS[name](segment)


def test_altered_sums_file_is_named(tmp_path, written):
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
    """Rewrite a segment as an earlier release did; return its manifest's new hash."""
    manifest = manifest_of(folder)
    del manifest["sums"], manifest["files"][SUMS_FILE]
    (folder / SUMS_FILE).unlink()
    return sealed(folder, manifest)


def sealed(folder, manifest):
    content = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def test_segment_without_sums_is_read_unchecked(tmp_path, written):
    del written
    segment = open_segment(tmp_path, 1, without_sums(segment_folder(tmp_path, 1)))
    for name, read in READS.items():
        read(segment)
        flip(segment.folder / name, -1)
    assert segment.vectors_guard.complete


def test_wrong_number_of_block_sums_is_refused(tmp_path, written):
    del written
    folder = segment_folder(tmp_path, 1)
    manifest = manifest_of(folder)
    manifest["sums"]["ids.npy"] -= 1
    manifest["sums"]["vectors.npy"] += 1
    with pytest.raises(DamagedIndexError, match=rf"{SUMS_FILE}: expected \d+ sums of"):
        open_segment(tmp_path, 1, sealed(folder, manifest))


@pytest.fixture
def index(tmp_path, monkeypatch):
    """An index of two segments whose files count as large and have many small blocks."""
    monkeypatch.setattr("indexes.files.SMALL", 200)
    monkeypatch.setattr("indexes.checksums.BLOCK", 64)
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


def test_verify_finds_sums_that_were_written_wrong(index):
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
    every_second = PassageMask(np.arange(len(live.segment.ids)) % 2 == 0)

    def answers(effort):
        segment = open_segment(index, *named)
        assert segment.structure.structure is not None
        results = []
        for allowed in (None, every_second):
            results += segment.structure.structure.searcher.search(
                segment.vectors, queries, 3, allowed, effort, segment.vectors_guard
            )
        return [(positions.tolist(), scores.tolist()) for positions, scores in results]

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


def test_search_checks_only_the_inverted_lists_that_it_reads(index):
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


@given(
    st.lists(st.tuples(*[st.integers(0, 2**60)] * 3), max_size=3),
    *(st.text(), st.none() | st.text(), st.text(), st.text(), st.binary(), st.text()),
)
def test_document_checksum_is_the_hash_of_its_json(
    passages, id_, title, text, metadata, content_hash, outline
):
    parts = [id_, title, text, metadata, content_hash.hex(), passages, *filter(None, [outline])]
    expected = hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()
    rest = (id_, title, text, metadata, content_hash, outline)
    assert document_checksum(passages, *rest) == expected
