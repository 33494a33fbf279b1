"""Which passages a search may return: bits of masks, and ranks in place of hundreds of bitmaps."""

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from indexes.filters import columns
from indexes.filters.allowed import Allowed, Ranks, RanksCache
from indexes.filters.columns import UNKEPT, Value
from indexes.folder.connection import connect
from indexes.folder.documents import create_database

SIZE = 150_000
# Runs and gaps.
STRETCHES = st.lists(
    st.tuples(
        st.integers(0, 400_000), st.sampled_from([1, 3, 5_000, 70_000]), st.sampled_from([1, 2, 7])
    ),
    max_size=5,
)


@given(STRETCHES, st.sampled_from([0, 1, 63, 64, 99_999, 131_072]), st.randoms())
def test_bits_positions_and_count_are_those_of_the_mask(stretches, size, rng):
    mask = np.zeros(size, np.bool_)
    for start, length, step in stretches:
        mask[start : start + length * step : step] = True
    some = Allowed(mask)
    np.testing.assert_array_equal(some.positions, np.flatnonzero(mask))
    assert (len(some), some.count, len(some.bits) % 8) == (size, mask.sum(), 0)
    bits = np.unpackbits(some.bits, bitorder="little")
    np.testing.assert_array_equal(bits[:size], mask)
    assert not bits[size:].any()
    places = [rng.randrange(size) for _ in range(20 if size else 0)]
    for kind in (np.int64, np.int32, np.uint32):
        assert some.at(np.array(places, kind)).tolist() == mask[places].tolist()


@pytest.mark.parametrize("position", [-1, 8, 2**40])
def test_a_position_beyond_the_bits_is_refused(position):
    with pytest.raises((ValueError, IndexError)):
        Allowed(np.ones(8, np.bool_)).at(np.array([position, 8 * 8192 + position]))


def stored(folder, values):
    folder.mkdir()
    create_database(folder, {})
    connection = connect(folder, "rw")
    connection.execute("BEGIN")
    columns.write_values(connection, 1, {"n": values})
    connection.execute("COMMIT")
    return connection


@pytest.mark.parametrize("count", [40, 300, 70_000])
def test_passages_having_values_are_those_of_their_bitmaps(tmp_path, count):
    chance = np.random.default_rng(count)
    # A third has no value; 1 and 1.0 are two values.
    drawn = chance.integers(0, count * 3 // 2, SIZE)

    def value(number):
        if number >= count - 10:
            return Value("text", f"t{number}")
        return Value("real", float(number)) if number % 5 == 0 else Value("integer", number)

    values = {
        value(number): BitMap(np.flatnonzero(drawn == number).astype(np.uint32))
        for number in np.unique(drawn[drawn < count])[:400].tolist()
    }
    with closing(stored(tmp_path / "index", {**values, Value(UNKEPT, ""): [1]})) as connection:
        ranks = Ranks(connection, 1, 1, SIZE)
        keys = sorted(values)
        assert ranks.values() == list(map(tuple, keys))
        counts = ranks.counts(np.arange(SIZE)).tolist()
        assert counts == [SIZE - sum(map(len, values.values())), *(len(values[k]) for k in keys)]
        half = keys[: len(keys) // 2]
        for chosen in ([], keys[:1], keys[3:], half, keys[::3], [keys[-1], keys[0]], keys):
            expected = np.zeros(SIZE, np.bool_)
            for key in chosen:
                expected[values[key].to_array()] = True
            pairs = ", ".join(["(?, ?)"] * len(chosen)) or "(NULL, NULL)"
            parameters = [part for key in chosen for part in key]
            found = ranks.having(f"(f0.type, f0.value) IN (VALUES {pairs})", parameters)
            np.testing.assert_array_equal(found, expected)


def test_ranks_are_remembered_unless_they_are_too_large(tmp_path, monkeypatch):
    with closing(stored(tmp_path / "index", {Value("integer", 7): BitMap([3])})) as connection:
        cache = RanksCache()
        first = cache.of(connection, 1, 1, SIZE)
        assert first.nbytes == SIZE + 100
        assert cache.of(connection, 1, 1, SIZE) is first
        monkeypatch.setattr("indexes.filters.allowed._CACHE_BYTES", first.nbytes - 1)
        small = RanksCache()
        assert small.of(connection, 1, 1, SIZE) is not small.of(connection, 1, 1, SIZE)
