"""The forms in which searches take the passages that they may return."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from indexes.filters.allowed import Allowed, bits_between, bits_of, complement, packed_bits

# Runs, arrays and bitmaps over several containers of 65,536 positions, and gaps between them.
STRETCHES = st.lists(
    st.tuples(
        st.integers(0, 400_000), st.sampled_from([1, 3, 5_000, 70_000]), st.sampled_from([1, 2, 7])
    ),
    max_size=5,
)


def test_all_forms_say_the_same():
    some = Allowed.of(np.array([True, False, True]))
    assert (len(some), some.count) == (3, 2)
    assert some.positions.tolist() == [0, 2]
    assert np.unpackbits(some.bits, bitorder="little")[:3].tolist() == [1, 0, 1]
    for kind in (np.int64, np.int32, np.uint32):
        assert some.at(np.array([2, 1, 2], kind)).tolist() == [True, False, True]


@given(STRETCHES, st.booleans())
def test_bits_are_those_of_the_bitmap(stretches, optimized):
    bitmap = BitMap()
    for start, length, step in stretches:
        bitmap |= BitMap(range(start, min(start + length * step, 500_000), step))
    if optimized:
        bitmap.run_optimize()
    bits = np.unpackbits(packed_bits(bitmap, 500_000), bitorder="little")
    expected = np.zeros(len(bits), np.uint8)
    expected[list(bitmap)] = 1
    np.testing.assert_array_equal(bits, expected)


@given(STRETCHES, st.sampled_from([99_999, 100_000, 131_072]))
def test_positions_and_complements_are_those_of_the_bits(stretches, size):
    mask = np.zeros(size, np.bool_)
    for start, length, step in stretches:
        mask[start : start + length * step : step] = True
    some = Allowed.of(mask)
    positions = np.flatnonzero(mask)
    np.testing.assert_array_equal(some.positions, positions)
    np.testing.assert_array_equal(some.bits, bits_of(positions, size))
    assert some.count == len(positions)
    np.testing.assert_array_equal(complement(some.bits, size), Allowed.of(~mask).bits)


@pytest.mark.parametrize("position", [-1, 8, 2**40])
def test_a_position_beyond_the_bits_is_refused(position):
    with pytest.raises((ValueError, IndexError)):
        Allowed.of(np.ones(8, np.bool_)).at(np.array([position, 8 * 8192 + position]))


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 200, 70_001])
def test_bits_between_are_those_of_a_comparison(kind, size):
    greatest = int(np.iinfo(kind).max)
    numbers = np.random.default_rng(size).integers(0, greatest, size, kind, endpoint=True)
    for first, last in [
        (0, 0),
        (0, greatest),
        (greatest, greatest),
        (greatest // 3, greatest // 2),
    ]:
        expected = Allowed.of((numbers >= first) & (numbers <= last)).bits
        np.testing.assert_array_equal(bits_between(numbers, first, last), expected)
