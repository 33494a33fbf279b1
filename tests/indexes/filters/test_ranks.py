"""Ranks of values give what a union of hundreds of bitmaps gives."""

from contextlib import closing

import numpy as np
import pytest
from pyroaring import BitMap

from indexes.filters import columns
from indexes.filters.allowed import Ranks, RanksCache, packed_bits
from indexes.filters.columns import Value
from indexes.folder.connection import connect
from indexes.folder.documents import create_database

# Several containers of a bitmap, of which the last is not full.
SIZE = 150_000


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
    values = {
        Value(
            "real" if number % 5 == 0 else "integer", float(number) if number % 5 == 0 else number
        )
        if number < count - 10
        else Value("text", f"t{number}"): BitMap(np.flatnonzero(drawn == number).astype(np.uint32))
        for number in np.unique(drawn[drawn < count])[:400].tolist()
    }
    with closing(stored(tmp_path / "index", values)) as connection:
        ranks = Ranks.of(connection, 1, 1, SIZE)
        keys = sorted(values)
        for chosen in (
            [],
            keys[:1],
            keys[3:],
            keys[: len(keys) // 2],
            keys[::3],
            [keys[-1], keys[0]],
            keys,
        ):
            expected = BitMap.union(*(values[key] for key in chosen)) if chosen else BitMap()
            pairs = ", ".join(["(?, ?)"] * len(chosen)) or "(NULL, NULL)"
            parameters = [part for key in chosen for part in key]
            found = ranks.values(f"(f0.type, f0.value) IN (VALUES {pairs})", parameters)
            assert [(kind, value) for kind, value, _ in found] == list(map(tuple, sorted(chosen)))
            numbers = ranks.numbers(f"(f0.type, f0.value) IN (VALUES {pairs})", parameters)
            assert numbers.tolist() == [number for _, _, number in found]
            assert np.array_equal(ranks.having(numbers), packed_bits(expected, SIZE))


def test_a_segment_too_large_to_keep_has_none(tmp_path, monkeypatch):
    values = {Value("integer", 7): BitMap([3])}
    with closing(stored(tmp_path / "index", values)) as connection:
        cache = RanksCache()
        assert cache.held(1, 1) is None
        first = cache.read(connection, 1, 1, SIZE)
        assert first is not None
        assert cache.held(1, 1) is first
        monkeypatch.setattr("indexes.filters.allowed._CACHE_BYTES", 4 * SIZE - 1)
        assert cache.read(connection, 1, 2, SIZE) is None
