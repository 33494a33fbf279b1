"""Which lists are read: chance is told from a filter that follows the lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes.list_reading import ListMembers, is_uneven, lists_to_read

SIZES = np.random.default_rng(1).integers(5, 200, 100)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5, 0.95])
@pytest.mark.parametrize("seed", range(5))
def test_a_filter_drawn_evenly_is_even(share: float, seed: int) -> None:
    assert not is_uneven(np.random.default_rng(seed).binomial(SIZES, share), SIZES)


@pytest.mark.parametrize("lists", [1, 5, 50, 99])
def test_a_filter_of_whole_lists_is_uneven(lists: int) -> None:
    assert is_uneven(np.where(np.arange(100) < lists, SIZES, 0), SIZES)


def test_all_none_and_nothing_are_even() -> None:
    for held, sizes in ((SIZES, SIZES), (0 * SIZES, SIZES), (0 * SIZES, 0 * SIZES)):
        assert not is_uneven(held, sizes)


def read(held: list[int], sizes: list[int], order: list[int], **rest: int) -> list[int]:
    allowed, members = np.array(held), np.array(sizes)
    uneven = is_uneven(allowed, members)
    found = lists_to_read(allowed, members, uneven, np.array([order]), **rest)
    return [number for number, chosen in zip(order, found[0], strict=True) if chosen]


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
    lists: list[tuple[int, int]], probes: int, met: int, more: int
) -> None:
    held = np.array([allowed for allowed, _ in lists])
    sizes = held + np.array([barred for _, barred in lists])
    order = np.random.default_rng(len(lists)).permutation(len(lists))[np.newaxis]
    uneven = is_uneven(held, sizes)
    (found,) = lists_to_read(held, sizes, uneven, order, min(probes, len(lists)), met, met + more)
    counts = held[order[0]]
    assert (counts[found] > 0).all()
    assert counts[found].sum() >= min(met, held.sum())
    # A prefix of the lists that hold any.
    assert (np.diff(found[counts > 0].astype(int)) <= 0).all()


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=60))
def test_allowed_vectors_are_counted_in_each_list(members: list[tuple[int, bool]]) -> None:
    list_of = np.array([number for number, _ in members], np.int32)
    allowed = np.array([permitted for _, permitted in members])
    found = ListMembers(list_of, 7)
    prepared = found.prepared(allowed)
    for number in range(7):
        assert found.sizes[number] == (list_of == number).sum()
        assert prepared.held[number] == ((list_of == number) & allowed).sum()
    unpacked = np.unpackbits(prepared.bitmap, bitorder="little")[: len(allowed)]
    np.testing.assert_array_equal(unpacked, allowed)
    assert prepared.uneven == is_uneven(prepared.held, found.sizes)


def test_a_mask_is_remembered_only_while_nobody_can_change_it() -> None:
    members = ListMembers(np.array([0, 0, 1], np.int32), 2)
    mask = np.array([True, False, True])
    assert members.prepared(mask).held.tolist() == [1, 1]
    mask[1] = True
    assert members.prepared(mask).held.tolist() == [2, 1]
    mask.flags.writeable = False
    assert members.prepared(mask) is members.prepared(mask)
