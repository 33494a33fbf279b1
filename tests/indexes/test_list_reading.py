"""Which lists are read: chance is told from a filter that follows the lists."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from indexes.filters.allowed import Allowed
from indexes.vectors.lists import (
    Evenness,
    ListMembers,
    evenness_of,
    lists_behind,
    lists_to_read,
    to_meet,
)

SIZES = np.random.default_rng(1).integers(5, 200, 100)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5, 0.95])
@pytest.mark.parametrize("seed", range(5))
def test_a_filter_drawn_evenly_is_even(share: float, seed: int) -> None:
    assert evenness_of(np.random.default_rng(seed).binomial(SIZES, share), SIZES) is Evenness.EVEN


@pytest.mark.parametrize("lists", [1, 5, 50, 99])
def test_a_filter_of_whole_lists_is_uneven(lists: int) -> None:
    assert evenness_of(np.where(np.arange(100) < lists, SIZES, 0), SIZES) is Evenness.APART


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_a_filter_that_leans_a_little_is_uneven_where_there_are_many_lists(share: float) -> None:
    chance = np.random.default_rng(3)
    sizes = np.full(4000, 250)
    assert evenness_of(chance.binomial(sizes, share), sizes) is Evenness.EVEN
    # Chi-squared is 1.3 then.
    spread = np.sqrt(0.3 * share * (1 - share) / 250)
    shares = np.clip(chance.normal(share, spread, 4000), 0, 1)
    assert evenness_of(chance.binomial(sizes, shares), sizes) is Evenness.UNEVEN


def test_all_none_and_nothing_are_even() -> None:
    for held, sizes in ((SIZES, SIZES), (0 * SIZES, SIZES), (0 * SIZES, 0 * SIZES)):
        assert evenness_of(held, sizes) is Evenness.EVEN


def read(held: list[int], sizes: list[int], order: list[int], **rest: int) -> list[int]:
    """Which lists are read that hold so many, the allowed ones first."""
    members, allowed = listed(held, sizes)
    lists = members.filtered(allowed)
    ranked = np.array([order])
    lists.judge(allowed, ranked)
    enough = to_meet(lists, members.sizes, ranked, **rest)
    found, suffices = lists_to_read(lists.held, ranked, enough)
    assert suffices == (sum(held[number] for number in order if number >= 0) >= enough[0])
    return [number for number, chosen in zip(order, found[0], strict=True) if chosen]


def listed(held: Sequence[int], sizes: Sequence[int]) -> tuple[ListMembers, Allowed]:
    chance = np.random.default_rng(0)
    n = sum(sizes)
    flags = np.zeros(n, np.bool_)
    members = chance.permutation(n).astype(np.int32)
    start = 0
    for count, size in zip(held, sizes, strict=True):
        flags[members[start : start + count]] = True
        start += size
    return ListMembers(members, np.array(sizes, np.int64), sampled=n), Allowed.of(flags)


def test_behind_a_filter_what_was_measured_is_interpolated() -> None:
    behind = [(1 / 4, 8), (1 / 64, 128)]
    for share, expected in (
        (1.0, 4.0),
        (1 / 2, np.sqrt(4 * 8)),
        (1 / 4, 8.0),
        (1 / 16, 32.0),
        (1 / 64, 128.0),
        # As many allowed vectors in twice as many lists.
        (1 / 128, 256.0),
    ):
        assert lists_behind(share, 4, behind) == pytest.approx(expected)
        # Where nothing was measured, as many as without a filter.
        assert lists_behind(share, 4, []) == pytest.approx(4 / share)


def test_lists_are_read_in_their_order_until_enough_are_met() -> None:
    order = [3, 1, 0, 2]
    assert read([5, 5, 5, 5], [10] * 4, order, probes=1, met=5, farther=99) == [3]
    assert read([5, 5, 5, 5], [10] * 4, order, probes=1, met=6, farther=99) == [3, 1]
    assert read([5, 0, 5, 5], [10, 0, 10, 10], order, probes=1, met=11, farther=99) == [3, 0, 2]
    assert read([5, 5, 5, 5], [10] * 4, [3, -1, -1, -1], probes=2, met=99, farther=99) == [3]


def test_more_are_read_where_an_uneven_filter_bars_what_is_near() -> None:
    held, sizes = [100, 100, 0, 0], [100] * 4
    assert read(held, sizes, [0, 1, 2, 3], probes=1, met=50, farther=150) == [0]
    assert read(held, sizes, [2, 0, 1, 3], probes=1, met=50, farther=150) == [0, 1]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30),
    st.integers(1, 30),
    st.integers(1, 500),
    st.integers(0, 500),
)
def test_what_is_read_suffices_or_is_all_and_holds_allowed_vectors(
    pairs: list[tuple[int, int]], probes: int, met: int, more: int
) -> None:
    held = [allowed for allowed, _ in pairs]
    sizes = [allowed + barred for allowed, barred in pairs]
    order = np.random.default_rng(len(pairs)).permutation(len(pairs)).tolist()
    found = read(held, sizes, order, probes=min(probes, len(pairs)), met=met, farther=met + more)
    assert all(held[number] > 0 for number in found)
    assert sum(held[number] for number in found) >= min(met, sum(held))
    # A prefix of the lists that hold any.
    assert found == [number for number in order if held[number]][: len(found)]


SIZED = st.lists(st.integers(0, 9), min_size=1, max_size=20)


@given(SIZED, st.data())
def test_each_list_is_judged_when_it_is_first_reached(
    sizes: list[int], data: st.DataObject
) -> None:
    assume(sum(sizes))
    held = [data.draw(st.integers(0, size)) for size in sizes]
    members, some = listed(held, sizes)
    judged: list[int] = []

    def judge(at: Any) -> Any:
        judged.extend(at.tolist())
        return some.mask[at]

    allowed = Allowed(len(some), judge)
    lists = members.filtered(allowed)
    assert members.filtered(allowed) is lists
    assert lists.share == pytest.approx(sum(held) / max(1, sum(sizes)))
    assert lists.evenness is evenness_of(np.array(held), np.array(sizes))
    reached: set[int] = set()
    for order in data.draw(st.lists(st.lists(st.integers(-1, len(sizes) - 1), max_size=5))):
        judged.clear()
        lists.judge(allowed, np.array([order], np.int64))
        new = set(order) - reached - {-1}
        reached |= new
        assert sorted(judged) == sorted(members.of(np.array(sorted(new), np.int64)).tolist())
        for number in range(len(sizes)):
            assert lists.held[number] == (held[number] if number in reached else -1)
        known = members.of(np.array(sorted(reached), np.int64))
        unpacked = np.unpackbits(lists.bitmap, bitorder="little")[: len(allowed)]
        assert set(np.flatnonzero(unpacked)) == {place for place in known if some.mask[place]}


@given(st.lists(st.integers(30, 60), min_size=2, max_size=20), st.data())
def test_all_lists_are_known_of_a_filter_that_leaves_few(
    sizes: list[int], data: st.DataObject
) -> None:
    held = [0] * len(sizes)
    for number in data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=sum(sizes) // 32)):
        held[number] += 1
    members, some = listed(held, sizes)
    assert some.is_few
    lists = members.filtered(some)
    assert lists.held.tolist() == held
    assert lists.share == sum(held) / sum(sizes)
    assert lists.evenness is evenness_of(np.array(held), np.array(sizes))
    unpacked = np.unpackbits(lists.bitmap, bitorder="little")[: len(some)]
    np.testing.assert_array_equal(unpacked, some.mask)
    before = lists.bitmap.copy()
    lists.judge(some, np.arange(len(sizes)))
    np.testing.assert_array_equal(lists.bitmap, before)


def test_what_is_known_of_a_filter_goes_with_it() -> None:
    members, allowed = listed([1, 0], [2, 2])
    gone = weakref.ref(members.filtered(allowed))
    del allowed
    gc.collect()
    assert gone() is None


def test_a_large_segment_is_judged_by_a_sample() -> None:
    sizes = np.full(100, 1000)
    members = ListMembers(np.arange(100_000, dtype=np.int32), sizes, sampled=20)
    positions, lists = members.sample
    assert len(set(positions.tolist())) == len(positions) == 2000
    np.testing.assert_array_equal(lists, positions // 1000)
    assert np.bincount(lists, minlength=100).min() > 0
    for share, within in ((0.5, 0.06), (0.05, 0.03)):
        even = np.random.default_rng(1).random(100_000) < share
        lists_of = members.filtered(Allowed.of(even))
        assert abs(lists_of.share - share) < within
        assert lists_of.evenness is Evenness.EVEN
    apart = members.filtered(Allowed.of(np.arange(100_000) < 30_000))
    assert apart.evenness is Evenness.APART
