"""A segment's files: what is written is what is mapped, damage is named; and which are merged."""

import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexes.folder.segment
from indexes.errors import DamagedIndexError, StorageError
from indexes.files import file_facts
from indexes.folder.merging import (
    FACTOR,
    FLOOR,
    GROWTH,
    SegmentCost,
    faster_merge,
    next_merge,
    query_cost,
    tier,
)
from indexes.folder.segment import open_segment, read_manifest, segment_folder, write_segment
from tests.indexes.index_samples import LISTED_FILES, SEGMENT_FILES, in_child, lookup, manifest_of

IDS = np.array([3, 4, 9], np.int64)
VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)
TOKENS = [["cat", "sat"], [], ["cat", "cat"]]


@pytest.fixture
def written(tmp_path):
    """The manifest's hash of a segment number 7 in `tmp_path`."""
    return write_segment(segment_folder(tmp_path, 7), IDS, VECTORS, TOKENS)


def rewrite(folder, name, array):
    """Replace an array, update the manifest and return its new hash."""
    np.save(folder / name, array)
    manifest = manifest_of(folder)
    manifest["files"][name] = file_facts(folder / name)
    content = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def test_opened_segment_maps_the_written_arrays_read_only(tmp_path, written):
    segment = open_segment(tmp_path, 7, written)
    assert (segment.number, segment.folder) == (7, tmp_path / "segments" / "000007")
    for array, expected in ((segment.ids, IDS), (segment.vectors, VECTORS)):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert segment.postings.lengths.tolist() == [2, 0, 2]
    positions, frequencies = lookup(segment.postings, "cat")
    assert (positions.tolist(), frequencies.tolist()) == ([0, 2], [1, 2])


def test_the_manifest_names_every_file_with_size_and_hash(tmp_path, written):
    folder = segment_folder(tmp_path, 7)
    content = (folder / "manifest.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() == written
    manifest = read_manifest(folder, written)
    assert (manifest["passages"], manifest["dimensions"]) == (3, 4)
    assert sorted(manifest["files"]) == sorted(LISTED_FILES)
    assert {path.name for path in folder.iterdir()} == set(SEGMENT_FILES)
    for name, facts in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert facts == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_equal_segments_have_equal_bytes(tmp_path, written):
    assert write_segment(segment_folder(tmp_path / "other", 7), IDS, VECTORS, TOKENS) == written


def test_segment_files_are_flushed_before_the_hash_is_returned(tmp_path, monkeypatch):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("the system does not tell which file a descriptor is")
    flushed = {}

    def fsync(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        flushed[Path(path).name] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", fsync)
    folder = segment_folder(tmp_path, 7)
    write_segment(folder, IDS, VECTORS, TOKENS)
    # Each with all of its bytes, then the folder, then its parent.
    for path in folder.iterdir():
        assert flushed[path.name] == path.stat().st_size
    assert list(flushed)[-2:] == ["000007", "segments"]


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("ids.npy", IDS.astype(np.int32)),
        ("ids.npy", IDS[:2]),
        ("vectors.npy", VECTORS.astype(np.float64)),
        ("vectors.npy", VECTORS[:, :3]),
        ("vectors.npy", np.asfortranarray(VECTORS)),
    ],
)
def test_opening_names_an_array_of_another_type_or_shape(tmp_path, written, name, array):
    del written
    altered = rewrite(segment_folder(tmp_path, 7), name, array)
    with pytest.raises(DamagedIndexError, match=name):
        open_segment(tmp_path, 7, altered)


def test_a_failed_write_leaves_no_folder(tmp_path, monkeypatch):
    def refuse(path, array):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(indexes.folder.segment, "save_array", refuse)
    folder = segment_folder(tmp_path, 7)
    with pytest.raises(StorageError, match=r"ids\.npy: the disk is full"):
        write_segment(folder, IDS, VECTORS, TOKENS)
    assert not folder.exists()


@pytest.mark.parametrize("tokens", [[["a"]] * 2, [["a"]] * 4])
def test_writing_needs_a_term_list_for_each_passage(tmp_path, tokens):
    with pytest.raises(ValueError, match="3 passages"):
        write_segment(segment_folder(tmp_path, 7), IDS, VECTORS, tokens)
    assert not segment_folder(tmp_path, 7).exists()


def test_large_arrays_are_mapped_and_not_read(tmp_path):
    vectors = np.random.default_rng(1).standard_normal((2000, 64)).astype(np.float32)
    folder = segment_folder(tmp_path, 7)
    written = write_segment(folder, np.arange(2000), vectors, [["word"]] * 2000)
    segment = open_segment(tmp_path, 7, written)
    np.testing.assert_array_equal(segment.vectors, vectors)
    with (folder / "vectors.npy").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(7).tobytes())
    assert segment.vectors[-1, -1] == 7


def test_more_segments_than_files_may_be_open_can_be_read(tmp_path):
    """Mapping keeps a file open in Python: small files are read instead."""
    outcome = in_child(
        """
import resource, sys
from pathlib import Path
from tests.indexes.index_samples import document, make_index, texts

folder = make_index(Path(sys.argv[1]), *([document(str(i), f"word{i}")] for i in range(40)))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(len(texts(folder)))
""",
        tmp_path / "index",
    )
    assert outcome.stdout == "40\n", outcome.stderr


SIZES = st.lists(st.integers(1, 40 * FLOOR), max_size=60)


def settled(sizes, dead=None):
    """Merge until nothing is due; return the final sizes and the passages written."""
    dead = dead or [0] * len(sizes)
    sizes, dead, written = list(sizes), list(dead), 0
    while (merge := next_merge(sizes, dead)) is not None:
        assert list(merge) == list(range(merge.start, merge.stop))
        assert 0 <= merge.start < merge.stop <= len(sizes)
        place = slice(merge.start, merge.stop)
        left = sum(sizes[place]) - sum(dead[place])
        sizes[place], dead[place] = ([left], [0]) if left else ([], [])
        written += left
    return sizes, written


def test_tiers_grow_by_the_factor():
    sizes = [1, FLOOR, FLOOR + 1, FLOOR * FACTOR, FLOOR * FACTOR + 1]
    assert [tier(size) for size in sizes] == [0, 0, 1, 1, 2]


@given(SIZES)
def test_merging_leaves_few_segments_in_descending_tiers(sizes):
    left, _ = settled(sizes)
    assert sum(left) == sum(sizes)
    tiers = [tier(size) for size in left]
    assert tiers == sorted(tiers, reverse=True)
    assert all(tiers.count(number) < FACTOR for number in tiers)
    assert len(left) < FACTOR * (tier(max(sum(sizes), 1)) + 1)


@given(SIZES, st.data())
def test_merging_rewrites_segments_that_are_half_deleted(sizes, data):
    dead = [data.draw(st.integers(0, size)) for size in sizes]
    left, _ = settled(sizes, dead)
    assert sum(sizes) - sum(dead) <= sum(left) <= sum(sizes)
    if all(2 * deleted >= size for deleted, size in zip(dead, sizes, strict=True)):
        assert sum(left) == sum(sizes) - sum(dead)


@pytest.mark.parametrize("batch", [1, 100, 1000, 20_000])
def test_merging_writes_a_passage_about_once_per_tier(batch):
    sizes = []
    written = most = 0
    batches = 3000 if batch == 1 else 200
    for _ in range(batches):
        sizes, more = settled([*sizes, batch])
        written += batch + more
        most = max(most, len(sizes))
    passages = batches * batch
    assert sum(sizes) == passages
    above_the_floor = math.ceil(math.log(max(passages / max(batch, FLOOR), 1), FACTOR))
    # In the lowest tier a segment grows by seven batches at a time.
    within_the_floor = FLOOR / batch / (FACTOR - 1) / 2 + 1 if batch < FLOOR else 0
    assert written <= passages * (2 + above_the_floor + within_the_floor)
    assert most < FACTOR * (above_the_floor + 2)


def test_next_merge_is_none_or_the_smallest_needed_range():
    assert next_merge([], []) is None
    assert next_merge([9 * FLOOR, 5 * FLOOR, 3, 1], [1, 2, 1, 0]) is None
    assert next_merge([3, 5 * FLOOR], [0, 0]) == range(2)
    assert next_merge([5 * FLOOR, *[1] * FACTOR], [0] * (FACTOR + 1)) == range(1, FACTOR + 1)
    assert next_merge([5, 4, 3], [0, 2, 1]) == range(1, 2)


LIMIT = 50_000
PARTS = st.lists(st.builds(SegmentCost, st.integers(0, 400_000), st.booleans()), max_size=8)


def is_scanned(passages):
    return passages <= LIMIT


def after(parts, merge):
    merged = sum(part.passages for part in parts[merge.start : merge.stop])
    left = [SegmentCost(merged, is_scanned(merged))] if merged else []
    return [*parts[: merge.start], *left, *parts[merge.stop :]]


@given(PARTS, st.integers(0, 100_000))
def test_faster_merge_saves_a_quarter_of_query_cost_within_its_read_limit(parts, added):
    merge = faster_merge(parts, added, is_scanned)
    if merge is None:
        return
    read = parts[merge.start : merge.stop]
    new = max(added, sum(part.passages for part in read if part.scanned))
    assert read
    assert sum(part.passages for part in read) <= GROWTH * new
    before, left = sum(map(query_cost, parts)), sum(map(query_cost, after(parts, merge)))
    assert left <= 0.75 * before
    # No other merge within the same bound is better.
    for start in range(len(parts)):
        for stop in range(start + 1, len(parts) + 1):
            if sum(part.passages for part in parts[start:stop]) <= GROWTH * added:
                other = after(parts, range(start, stop))
                is_same = stop == start + 1 and is_scanned(parts[start].passages)
                assert is_same or sum(map(query_cost, other)) >= left


@pytest.mark.parametrize(
    ("parts", "added", "expected"),
    [
        # A bulk run, and the same one resumed after it was killed in the merge.
        (
            [SegmentCost(65_536, True), SegmentCost(65_536, True), SegmentCost(17_506, True)],
            148_578,
            range(3),
        ),
        (
            [SegmentCost(65_536, True), SegmentCost(65_536, True), SegmentCost(17_506, True)],
            0,
            range(3),
        ),
        ([SegmentCost(65_536, True)], 65_536, range(1)),
        # A few passages beside many.
        ([SegmentCost(1_000_000, False), SegmentCost(1000, True)], 1000, None),
        ([SegmentCost(1_000_000, False), *[SegmentCost(1000, True)] * 6], 1000, range(1, 7)),
        # As many as are there, and far fewer.
        ([SegmentCost(148_578, False), SegmentCost(60_000, True)], 60_000, range(2)),
        ([SegmentCost(1_000_000, False), SegmentCost(60_000, True)], 60_000, range(1, 2)),
        # Several slow runs of one small corpus.
        ([SegmentCost(3000, True)] * 5, 15_000, range(5)),
        ([SegmentCost(40_000, True), SegmentCost(8000, True)], 8000, None),
        ([SegmentCost(10, True)], 10, None),
        ([], 0, None),
    ],
)
def test_faster_merge_of_typical_runs(parts, added, expected):
    assert faster_merge(parts, added, is_scanned) == expected
