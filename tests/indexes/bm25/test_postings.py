"""Postings against a Counter of each passage, on disk and in memory, whole and damaged."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_samples import lookup

from indexes.bm25.postings import COUNTS, FREQUENCIES, LENGTHS, OFFSETS, POSITIONS, TERMS, Postings
from indexes.errors import DamagedIndexError

NAMES = [COUNTS, FREQUENCIES, LENGTHS, OFFSETS, POSITIONS, TERMS]
PASSAGES = [["a", "b", "a"], [], ["b", "é", "日本"], ["a"]]
# Any code point at all, lone surrogates and the empty string included.
ANY_TERM = st.text(st.characters(codec=None), max_size=4)
TOKEN_LISTS = st.lists(
    st.lists(st.one_of(st.sampled_from(["a", "ab", "b", "é"]), ANY_TERM), max_size=8), max_size=8
)


def expected(passages, term):
    return [(i, Counter(p)[term]) for i, p in enumerate(passages) if term in p]


def found(postings, term):
    positions, frequencies = lookup(postings, term)
    return list(zip(positions.tolist(), frequencies.tolist(), strict=True))


def stored(passages, folder):
    Postings.build(passages).write(folder)
    return Postings.open(folder)


@given(TOKEN_LISTS, st.lists(ANY_TERM, max_size=4))
def test_every_term_is_found_where_it_occurs_and_no_other(passages, strangers):
    built = Postings.build(passages)
    with tempfile.TemporaryDirectory() as folder:
        reopened = stored(passages, Path(folder))
        vocabulary = {term for passage in passages for term in passage}
        for postings in (built, reopened):
            for term in vocabulary.union(strangers):
                assert found(postings, term) == expected(passages, term)
            assert postings.lengths.tolist() == [len(p) for p in passages]
            assert postings.total_length == sum(len(p) for p in passages)
            assert len(list(postings.vocabulary())) == len(vocabulary)
            spelled = [term.encode("utf-8", "surrogatepass") for term in vocabulary]
            assert list(postings.vocabulary()) == sorted(spelled)


@given(TOKEN_LISTS, st.randoms(use_true_random=False))
def test_document_frequencies_count_only_living_passages(passages, random):
    alive = np.array([random.random() < 0.5 for _ in passages], np.bool_)
    postings = Postings.build(passages)
    for mask in (None, alive):
        kept = [p for i, p in enumerate(passages) if mask is None or mask[i]]
        counts = Counter(t.encode("utf-8", "surrogatepass") for p in kept for t in set(p))
        frequencies = postings.document_frequencies(mask).tolist()
        assert frequencies == [counts[term] for term in postings.vocabulary()]


@pytest.mark.parametrize("repetitions", [255, 256, 65_535, 65_536])
def test_frequencies_take_the_width_they_need(repetitions, tmp_path):
    postings = stored([["a"] * repetitions, ["a"]], tmp_path)
    assert found(postings, "a") == [(0, repetitions), (1, 1)]


@pytest.mark.parametrize("passages", [[], [[]], [[], [], []], [[""]]])
def test_segments_without_passages_or_without_words_can_be_stored(passages, tmp_path):
    postings = stored(passages, tmp_path)
    assert len(postings) == len(passages)
    assert found(postings, "a") == []
    assert found(postings, "") == expected(passages, "")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(name, tmp_path):
    Postings.build(PASSAGES).write(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DamagedIndexError, match=rf"{name}: the file is missing"):
        Postings.open(tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["one byte less", "one byte more", "empty"])
def test_a_file_of_another_size_is_refused_at_opening(name, change, tmp_path):
    Postings.build(PASSAGES).write(tmp_path)
    content = (tmp_path / name).read_bytes()
    changed = {"one byte less": content[:-1], "one byte more": content + b"\0", "empty": b""}
    (tmp_path / name).write_bytes(changed[change])
    with pytest.raises(DamagedIndexError) as error:
        Postings.open(tmp_path)
    assert "\n" not in str(error.value)
    # What disagrees with the offsets may be the offsets: either file may be named.
    assert name in str(error.value) or "offsets" in str(error.value)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".npy")])
def test_another_type_shape_or_order_is_refused_at_opening(name, tmp_path):
    Postings.build(PASSAGES).write(tmp_path)
    values = np.load(tmp_path / name)
    for other in (values.astype(np.float32), values[..., None], np.array([{}], dtype=object)):
        np.save(tmp_path / name, other)
        with pytest.raises(DamagedIndexError, match=name):
            Postings.open(tmp_path)


def damage(folder, name, change):
    values = np.load(folder / name)
    change(values)
    np.save(folder / name, values)


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("postings.positions.npy", 0, 4),
        ("postings.positions.npy", 1, 4_000_000_000),
        ("postings.positions.npy", 0, 3),
        ("postings.frequencies.npy", 0, 0),
        ("postings.offsets.npy", (1, 1), 0),
        ("postings.offsets.npy", (1, 1), -5),
        ("postings.offsets.npy", (1, 1), 1 << 60),
        ("postings.offsets.npy", (1, 0), 1 << 60),
        ("postings.offsets.npy", (1, 0), -1),
    ],
)
def test_impossible_values_are_found_by_the_lookup_that_meets_them(name, index, value, tmp_path):
    Postings.build(PASSAGES).write(tmp_path)
    damage(tmp_path, name, lambda values: values.__setitem__(index, value))
    postings = Postings.open(tmp_path)
    with pytest.raises(DamagedIndexError, match=name):
        _ = [lookup(postings, term) for term in ("a", "b", "é", "日本")]


def test_a_passage_shorter_than_its_terms_is_found(tmp_path):
    Postings.build(PASSAGES).write(tmp_path)
    damage(tmp_path, "postings.lengths.npy", lambda values: values.__setitem__(0, 1))
    postings = Postings.open(tmp_path)
    with pytest.raises(DamagedIndexError, match=r"postings\.lengths\.npy"):
        postings.lengths_of(*lookup(postings, "a"))


# A larger total length is possible: only reading every length could tell.
@pytest.mark.parametrize(
    ("index", "value"), [(i, v) for i in range(4) for v in (-1, 1 << 62) if (i, v) != (3, 1 << 62)]
)
def test_impossible_counts_are_refused_at_opening(index, value, tmp_path):
    Postings.build(PASSAGES).write(tmp_path)
    damage(tmp_path, "postings.counts.npy", lambda values: values.__setitem__(index, value))
    with pytest.raises(DamagedIndexError):
        Postings.open(tmp_path)


@given(st.sampled_from(NAMES), st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_makes_a_lookup_reach_out_of_bounds(name, place, flip):
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        Postings.build(PASSAGES).write(folder)
        content = bytearray((folder / name).read_bytes())
        content[place % len(content)] ^= flip
        (folder / name).write_bytes(content)
        message = complaint(folder)
    assert message is None or ("postings." in message and "\n" not in message)


def complaint(folder):
    """Reads everything; what DamagedIndexError said, or None when all that was read is possible."""
    try:
        postings = Postings.open(folder)
        for term in ("a", "b", "é", "日本", "c"):
            positions, frequencies = lookup(postings, term)
            assert len(positions) == len(frequencies)
            assert all(position < len(postings) for position in positions)
            assert sorted(set(positions.tolist())) == positions.tolist()
            postings.lengths_of(positions, frequencies)
        postings.document_frequencies(np.ones(len(postings), np.bool_))
    except DamagedIndexError as error:
        return str(error)
    return None
