"""The values of metadata as the database keeps them, and the passages that have them."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from indexes.folder.documents import MetadataChange, create_database
from indexes.folder.metadata_values import (
    _checksum,
    change_values,
    merge_values,
    unpacked,
    write_values,
)
from indexes.folder.value_ranks import Ranks, RanksCache
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
from indexes.metadata import UNKEPT, Value, metadata_json, values_of
from indexes.passage_mask import PassageMask
from tests.indexes.column_samples import allowed_ids
from tests.indexes.index_samples import alter, document, make_index
from tests.indexes.where_reference import NAMES, VALUES


@pytest.fixture
def connection(tmp_path):
    folder = tmp_path / "index"
    folder.mkdir()
    create_database(folder, {})
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        yield connection


def stored(connection, segment):
    by_field = {}
    for field, name in connection.execute("SELECT field, name FROM fields").fetchall():
        rows = connection.execute(
            "SELECT type, value, passages, checksum FROM metadata_values "
            "WHERE segment = ? AND field = ?",
            (segment, field),
        )
        for row in rows.fetchall():
            positions = unpacked(segment, field, *row)
            by_field.setdefault(name, {})[Value(*row[:2])] = list(positions)
    return by_field


def nonempty(fields):
    return {
        name: {key: sorted(positions) for key, positions in by_value.items()}
        for name, by_value in fields.items()
        if by_value
    }


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_metadata_types_and_values_equal_json_each(metadata):
    with closing(sqlite3.connect(":memory:")) as connection:
        rows = connection.execute(
            "SELECT key, type, value FROM json_each(?)", (metadata_json(metadata),)
        ).fetchall()
    expected = {key: (kind, value) for key, kind, value in rows if kind != "null"}
    fields = {name: by_value for name, by_value in values_of([([0], metadata)]).items() if by_value}
    assert {name: tuple(key) for name, by_value in fields.items() for key in by_value} == expected


def test_values_equal_in_python_but_of_different_types_stay_distinct():
    values = [1, 1.0, True, "1", [1], [1.0], 0, False, 2**53, 2.0**53, {}, {"a": 1}]
    fields = values_of(([i], {"f": value}) for i, value in enumerate(values))
    assert sorted(fields["f"].values()) == [[i] for i in range(len(values))]


@pytest.mark.parametrize("value", ["x" * 1025, "a\0b", ["a\0b"], {"k": "y" * 1025}])
def test_unstorable_value_is_marked(value):
    assert list(values_of([([3], {"f": value})])["f"].items()) == [(Value(UNKEPT, ""), [3])]


def test_field_name_ends_at_a_nul_and_its_value_is_marked():
    values = values_of([([0], {"a\0b": 1}), ([1], {"a": 2})])
    assert values == {"a": {Value(UNKEPT, ""): [0], Value("integer", 2): [1]}}


def test_written_metadata_values_are_read_back(connection):
    documents = [([i], {"n": i % 3, "s": "é", "all": True}) for i in range(70_000)]
    documents += [([i], {"alone": i}) for i in range(100)]
    fields = values_of(documents)
    write_values(connection, 5, fields)
    assert stored(connection, 5) == nonempty(fields)


def test_metadata_change_writes_only_changed_fields(connection):
    before = [([2 * i, 2 * i + 1], {"n": i % 2, "same": i}) for i in range(50)]
    write_values(connection, 1, values_of(before))
    statements = []
    connection.set_trace_callback(statements.append)
    changed = {"n": "new", "same": 3, "more": None}
    change_values(connection, 1, [MetadataChange([6, 7], before[3][1], changed)])
    connection.set_trace_callback(None)
    written = [
        statement
        for statement in statements
        if statement.startswith(("INSERT INTO meta", "DELETE"))
    ]
    # Of n the old value and the new one.
    assert len(written) == 4
    after = list(before)
    after[3] = ([6, 7], changed)
    assert stored(connection, 1) == nonempty(values_of(after))


def test_merging_moves_positions_and_drops_deleted_ones(connection):
    first = [([i], {"n": i % 2, "one": i}) for i in range(6)]
    second = [([i], {"n": i % 3}) for i in range(4)]
    write_values(connection, 1, values_of(first))
    write_values(connection, 2, values_of(second))
    sources = {1: np.array([0, -1, 1, -1, 2, 3]), 2: np.array([4, 5, -1, 6])}
    merge_values(connection, 3, sources)
    live = [
        ([int(sources[number][old])], metadata)
        for number, documents in ((1, first), (2, second))
        for (old,), metadata in documents
        if sources[number][old] >= 0
    ]
    assert stored(connection, 3) == nonempty(values_of(live))


@pytest.mark.parametrize(
    "change",
    [
        {"segment": 2},
        {"field": 2},
        {"kind": "real"},
        {"value": 8},
        {"stored": 4},
        {"stored": BitMap([3, 4]).serialize()},
        {"checksum": 0},
    ],
)
def test_an_altered_row_is_refused(connection, change):
    write_values(connection, 1, {"n": {Value("integer", 7): [3]}})
    names = ("segment", "field", "kind", "value", "stored", "checksum")
    (row,) = connection.execute("SELECT * FROM metadata_values").fetchall()
    whole = dict(zip(names, row, strict=True))
    assert list(unpacked(**whole)) == [3]
    with pytest.raises(ValueError, match="were altered"):
        unpacked(**{**whole, **change})


def test_stored_negative_zero_is_sound_and_merged_with_zero(tmp_path):
    folder = make_index(
        tmp_path / "index", [document("a", "one", {"n": 0.0})], [document("b", "two", {"n": -0.0})]
    )
    # As earlier releases wrote it.
    key = Value("real", -0.0)
    change = "UPDATE metadata_values SET value = ?, checksum = ? WHERE segment = 2"
    assert alter(folder, change, key.value, _checksum(2, 1, key, 0)) == 1
    assert verify(folder) == []
    assert allowed_ids(folder, "n = 0") == [1, 2]
    with FolderWriter(folder) as writer:
        writer.compact()
    assert verify(folder) == []
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        rows = connection.execute("SELECT type, value FROM metadata_values").fetchall()
    assert [repr(row) for row in rows] == ["('real', 0.0)"]


SIZE = 150_000
# Runs and gaps.
STRETCHES = st.lists(
    st.tuples(
        st.integers(0, 400_000), st.sampled_from([1, 3, 5_000, 70_000]), st.sampled_from([1, 2, 7])
    ),
    max_size=5,
)


@given(STRETCHES, st.sampled_from([0, 1, 63, 64, 99_999, 131_072]), st.randoms())
def test_passage_mask_bits_positions_and_count_agree(stretches, size, rng):
    mask = np.zeros(size, np.bool_)
    for start, length, step in stretches:
        mask[start : start + length * step : step] = True
    passage_mask = PassageMask(mask)
    np.testing.assert_array_equal(passage_mask.positions, np.flatnonzero(mask))
    assert (len(passage_mask), passage_mask.count, len(passage_mask.bits) % 8) == (
        size,
        mask.sum(),
        0,
    )
    bits = np.unpackbits(passage_mask.bits, bitorder="little")
    np.testing.assert_array_equal(bits[:size], mask)
    assert not bits[size:].any()
    places = [rng.randrange(size) for _ in range(20 if size else 0)]
    for kind in (np.int64, np.int32, np.uint32):
        assert passage_mask.at(np.array(places, kind)).tolist() == mask[places].tolist()


@pytest.mark.parametrize("count", [40, 300, 70_000])
def test_ranks_having_values_equal_their_bitmaps(connection, count):
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
    write_values(connection, 1, {"n": {**values, Value(UNKEPT, ""): [1]}})
    ranks = Ranks(connection, 1, 1, SIZE)
    keys = sorted(values)
    assert ranks.values() == list(map(tuple, keys))
    counts = ranks.counts(np.arange(SIZE)).tolist()
    assert counts == [SIZE - sum(map(len, values.values())), *(len(values[k]) for k in keys)]
    half = keys[: len(keys) // 2]
    for selected_keys in ([], keys[:1], keys[3:], half, keys[::3], [keys[-1], keys[0]], keys):
        expected = np.zeros(SIZE, np.bool_)
        for key in selected_keys:
            expected[values[key].to_array()] = True
        pairs = ", ".join(["(?, ?)"] * len(selected_keys)) or "(NULL, NULL)"
        parameters = [part for key in selected_keys for part in key]
        passages = ranks.having(f"(f0.type, f0.value) IN (VALUES {pairs})", parameters)
        np.testing.assert_array_equal(passages, expected)


def test_ranks_are_cached_up_to_a_size(connection, monkeypatch):
    write_values(connection, 1, {"n": {Value("integer", 7): BitMap([3])}})
    cache = RanksCache()
    first = cache.of(connection, 1, 1, SIZE)
    assert first.nbytes == SIZE + 100
    assert cache.of(connection, 1, 1, SIZE) is first
    monkeypatch.setattr("indexes.folder.value_ranks._CACHE_BYTES", first.nbytes - 1)
    small = RanksCache()
    assert small.of(connection, 1, 1, SIZE) is not small.of(connection, 1, 1, SIZE)
