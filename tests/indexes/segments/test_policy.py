"""What the merge policy promises: few segments, little writing, and termination."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes.segments.policy import FACTOR, FLOOR, next_merge, tier

SIZES = st.lists(st.integers(1, 40 * FLOOR), max_size=60)


def settled(sizes: list[int], dead: list[int] | None = None) -> tuple[list[int], int]:
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


@pytest.mark.parametrize(
    ("passages", "expected"),
    [(1, 0), (FLOOR, 0), (FLOOR + 1, 1), (FLOOR * FACTOR, 1), (FLOOR * FACTOR + 1, 2)],
)
def test_a_tier_is_so_many_times_the_one_below(passages: int, expected: int) -> None:
    assert tier(passages) == expected


@given(SIZES)
def test_segments_are_few_and_fall_in_size(sizes: list[int]) -> None:
    left, _ = settled(sizes)
    assert sum(left) == sum(sizes)
    tiers = [tier(size) for size in left]
    assert tiers == sorted(tiers, reverse=True)
    assert all(tiers.count(one) < FACTOR for one in tiers)
    assert len(left) < FACTOR * (tier(max(sum(sizes), 1)) + 1)


@given(SIZES, st.data())
def test_no_segment_stays_half_deleted(sizes: list[int], data: st.DataObject) -> None:
    dead = [data.draw(st.integers(0, size)) for size in sizes]
    left, _ = settled(sizes, dead)
    assert sum(sizes) - sum(dead) <= sum(left) <= sum(sizes)
    if all(2 * gone >= size for gone, size in zip(dead, sizes, strict=True)):
        assert sum(left) == sum(sizes) - sum(dead)


@pytest.mark.parametrize("batch", [1, 100, 1000, 20_000])
def test_a_passage_is_written_about_once_a_tier(batch: int) -> None:
    sizes: list[int] = []
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


def test_nothing_is_merged_without_need() -> None:
    assert next_merge([], []) is None
    assert next_merge([9 * FLOOR, 5 * FLOOR, 3, 1], [1, 2, 1, 0]) is None
    assert next_merge([3, 5 * FLOOR], [0, 0]) == range(2)
    assert next_merge([5 * FLOOR, *[1] * FACTOR], [0] * (FACTOR + 1)) == range(1, FACTOR + 1)
    assert next_merge([5, 4, 3], [0, 2, 1]) == range(1, 2)
