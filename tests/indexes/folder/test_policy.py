"""What the merge policy promises: few segments, little writing, and termination."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes.folder.segment import (
    FACTOR,
    FLOOR,
    GROWTH,
    Part,
    faster_merge,
    next_merge,
    query_cost,
    tier,
)

SIZES = st.lists(st.integers(1, 40 * FLOOR), max_size=60)


def settled(sizes, dead=None):
    """Merge until nothing is due; the sizes left, and the number of passages written."""
    dead = dead or [0] * len(sizes)
    sizes, dead, written = list(sizes), list(dead), 0
    while (chosen := next_merge(sizes, dead)) is not None:
        assert list(chosen) == list(range(chosen.start, chosen.stop))
        assert 0 <= chosen.start < chosen.stop <= len(sizes)
        place = slice(chosen.start, chosen.stop)
        left = sum(sizes[place]) - sum(dead[place])
        sizes[place], dead[place] = ([left], [0]) if left else ([], [])
        written += left
    return sizes, written


def test_a_tier_is_so_many_times_the_one_below():
    sizes = [1, FLOOR, FLOOR + 1, FLOOR * FACTOR, FLOOR * FACTOR + 1]
    assert [tier(size) for size in sizes] == [0, 0, 1, 1, 2]


@given(SIZES)
def test_segments_are_few_and_fall_in_size(sizes):
    left, _ = settled(sizes)
    assert sum(left) == sum(sizes)
    tiers = [tier(size) for size in left]
    assert tiers == sorted(tiers, reverse=True)
    assert all(tiers.count(one) < FACTOR for one in tiers)
    assert len(left) < FACTOR * (tier(max(sum(sizes), 1)) + 1)


@given(SIZES, st.data())
def test_no_segment_stays_half_deleted(sizes, data):
    dead = [data.draw(st.integers(0, size)) for size in sizes]
    left, _ = settled(sizes, dead)
    assert sum(sizes) - sum(dead) <= sum(left) <= sum(sizes)
    if all(2 * gone >= size for gone, size in zip(dead, sizes, strict=True)):
        assert sum(left) == sum(sizes) - sum(dead)


@pytest.mark.parametrize("batch", [1, 100, 1000, 20_000])
def test_a_passage_is_written_about_once_a_tier(batch):
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


def test_nothing_is_merged_without_need():
    assert next_merge([], []) is None
    assert next_merge([9 * FLOOR, 5 * FLOOR, 3, 1], [1, 2, 1, 0]) is None
    assert next_merge([3, 5 * FLOOR], [0, 0]) == range(2)
    assert next_merge([5 * FLOOR, *[1] * FACTOR], [0] * (FACTOR + 1)) == range(1, FACTOR + 1)
    assert next_merge([5, 4, 3], [0, 2, 1]) == range(1, 2)


LIMIT = 50_000
PARTS = st.lists(st.builds(Part, st.integers(0, 400_000), st.booleans()), max_size=8)


def is_scanned(passages):
    return passages <= LIMIT


def after(parts, chosen):
    merged = sum(part.passages for part in parts[chosen.start : chosen.stop])
    left = [Part(merged, is_scanned(merged))] if merged else []
    return [*parts[: chosen.start], *left, *parts[chosen.stop :]]


@given(PARTS, st.integers(0, 100_000))
def test_a_faster_merge_saves_a_quarter_and_reads_little(parts, added):
    chosen = faster_merge(parts, added, is_scanned)
    if chosen is None:
        return
    read = parts[chosen.start : chosen.stop]
    new = max(added, sum(part.passages for part in read if part.scanned))
    assert read
    assert sum(part.passages for part in read) <= GROWTH * new
    before, left = sum(map(query_cost, parts)), sum(map(query_cost, after(parts, chosen)))
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
        ([Part(65_536, True), Part(65_536, True), Part(17_506, True)], 148_578, range(3)),
        ([Part(65_536, True), Part(65_536, True), Part(17_506, True)], 0, range(3)),
        ([Part(65_536, True)], 65_536, range(1)),
        # A few passages beside many.
        ([Part(1_000_000, False), Part(1000, True)], 1000, None),
        ([Part(1_000_000, False), *[Part(1000, True)] * 6], 1000, range(1, 7)),
        # As many as are there, and far fewer.
        ([Part(148_578, False), Part(60_000, True)], 60_000, range(2)),
        ([Part(1_000_000, False), Part(60_000, True)], 60_000, range(1, 2)),
        # Several slow runs of one small corpus.
        ([Part(3000, True)] * 5, 15_000, range(5)),
        ([Part(40_000, True), Part(8000, True)], 8000, None),
        ([Part(10, True)], 10, None),
        ([], 0, None),
    ],
)
def test_which_merge_is_worth_its_cost(parts, added, expected):
    assert faster_merge(parts, added, is_scanned) == expected


@pytest.mark.parametrize("batch", [600, 5000, 60_000])
def test_faster_merges_write_a_passage_a_few_times(batch):
    parts, written = [], 0

    def merge(chosen):
        nonlocal parts, written
        written += sum(part.passages for part in parts[chosen.start : chosen.stop])
        parts = after(parts, chosen)

    for _ in range(150):
        parts.append(Part(batch, True))
        while (due := next_merge([part.passages for part in parts], [0] * len(parts))) is not None:
            merge(due)
        if (chosen := faster_merge(parts, batch, is_scanned)) is not None:
            merge(chosen)
        # A scan of all would cost up to nine millions.
        assert sum(map(query_cost, parts)) <= 150_000
    assert written <= 8 * 150 * batch
