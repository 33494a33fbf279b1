"""Metadata by fields, and codes as they are stored."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from where_reference import NAMES, VALUES

from indexes.filters.columns import ABSENT, CHUNK, cells_of, fields_of, pack, unpack
from indexes.store.documents import MetadataChange, metadata_json


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_each_field_stands_alone_as_metadata_would_have_it(metadata):
    found = fields_of(metadata_json(metadata))
    assert found == {name: metadata_json({name: value}) for name, value in metadata.items()}


def test_values_that_are_equal_in_python_are_different_ones():
    values = [1, 1.0, True, "1", [1], [1.0], None, 0, -0.0, 2**53, 2.0**53, {}, {"a": 1}]
    assert len({fields_of(metadata_json({"f": value}))["f"] for value in values}) == len(values)


def test_names_end_at_a_nul():
    metadata = {"a": 1, "a\0b": 2, "c": 3}
    found = fields_of(metadata_json(metadata))
    assert {field: json.loads(value) for field, value in found.items()} == {
        "a": {"a": 1, "a\0b": 2},
        "c": {"c": 3},
    }


@pytest.mark.parametrize("metadata", ["", "{", "[]", "1", "null", '{"a":NaN}'])
def test_what_is_no_json_object_is_refused(metadata):
    with pytest.raises((ValueError, AttributeError)):
        fields_of(metadata)


def test_a_change_says_what_it_changes_and_takes_away():
    cells = cells_of(
        [
            MetadataChange([1, 2], "{}", '{"a":1}'),
            MetadataChange([7], '{"a":1,"b":2,"c":1}', '{"b":3,"c":1}'),
        ]
    )
    assert cells.keys() == {"a", "b"}
    assert cells["a"].passages == [1, 2, 7]
    assert cells["a"].values == ['{"a":1}', '{"a":1}', ABSENT]
    assert (cells["b"].passages, cells["b"].values) == ([7], ['{"b":3}'])


@given(st.lists(st.sampled_from([0, 0, 1, 255, 256, 65535]), max_size=40))
def test_codes_come_back_without_what_is_zero_at_the_end(codes):
    array = np.array(codes, np.uint16)
    blob, checksum = pack("f", 3, array)
    found = unpack("f", 3, blob, checksum)
    assert found.dtype == np.uint16
    assert found.tolist() == np.trim_zeros(array, "b").tolist()


def test_codes_are_stored_little_endian():
    assert pack("f", 0, np.array([1, 0, 258], np.uint16))[0] == b"\1\0\0\0\2\1"


@pytest.mark.parametrize(
    ("field", "chunk", "blob"),
    [
        ("f", 0, b"\1\0\3\0"),
        ("f", 0, b"\1\0"),
        ("f", 0, b"\1\0\2\0\0\0"),
        ("g", 0, b"\1\0\2\0"),
        ("f", 1, b"\1\0\2\0"),
    ],
)
def test_codes_that_were_altered_or_moved_are_refused(field, chunk, blob):
    stored, checksum = pack("f", 0, np.array([1, 2], np.uint16))
    assert unpack("f", 0, stored, checksum).tolist() == [1, 2]
    with pytest.raises(ValueError, match=f"'{field}' in chunk {chunk} were altered"):
        unpack(field, chunk, blob, checksum)


def test_more_codes_than_a_chunk_has_are_refused():
    blob, checksum = pack("f", 0, np.ones(CHUNK, np.uint16))
    assert len(unpack("f", 0, blob, checksum)) == CHUNK
    blob, checksum = pack("f", 0, np.ones(CHUNK + 1, np.uint16))
    with pytest.raises(ValueError, match="altered"):
        unpack("f", 0, blob, checksum)
