"""Postings against a Counter of each passage, on disk, in memory and merged, whole and damaged."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import indexes.bm25.merging
import indexes.bm25.postings
from indexes.bm25.merging import merge_postings
from indexes.bm25.postings import (
    COUNTS,
    FREQUENCIES,
    LENGTHS,
    OFFSETS,
    POSITIONS,
    TERMS,
    Postings,
)
from indexes.bm25.scoring import SearchableSegment
from indexes.checksums import BlockGuard, block_sums
from indexes.errors import DamagedIndexError
from tests.indexes.index_samples import lookup

NAMES = [COUNTS, FREQUENCIES, LENGTHS, OFFSETS, POSITIONS, TERMS]
PASSAGES = [["a", "b", "a"], [], ["b", "é", "日本"], ["a"]]
# Any code point at all, lone surrogates and the empty string included.
ANY_TERM = st.text(st.characters(codec=None), max_size=4)
TOKEN_LISTS = st.lists(
    st.lists(st.one_of(st.sampled_from(["a", "ab", "b", "é"]), ANY_TERM), max_size=8), max_size=8
)
SEGMENTS = st.lists(TOKEN_LISTS, min_size=1, max_size=4)


def expected(passages, term):
    return [(i, Counter(p)[term]) for i, p in enumerate(passages) if term in p]


def occurrences_of(postings, term):
    positions, frequencies = lookup(postings, term)
    return list(zip(positions.tolist(), frequencies.tolist(), strict=True))


def stored(passages, folder):
    Postings.build(passages).write(folder)
    return Postings.open(folder)


@given(TOKEN_LISTS, st.lists(ANY_TERM, max_size=4))
def test_lookup_finds_every_term_where_it_occurs(passages, strangers):
    built = Postings.build(passages)
    with tempfile.TemporaryDirectory() as folder:
        reopened = stored(passages, Path(folder))
        vocabulary = {term for passage in passages for term in passage}
        for postings in (built, reopened):
            for term in vocabulary.union(strangers):
                assert occurrences_of(postings, term) == expected(passages, term)
            assert postings.lengths.tolist() == [len(p) for p in passages]
            assert postings.total_length == sum(len(p) for p in passages)
            assert len(list(postings.vocabulary())) == len(vocabulary)
            spelled = [term.encode("utf-8", "surrogatepass") for term in vocabulary]
            assert list(postings.vocabulary()) == sorted(spelled)


def test_lookup_checks_only_the_blocks_of_terms_that_it_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(indexes.bm25.postings, "_CHECKED_TOGETHER", 16)
    terms = [f"term{i:05}" for i in range(5000)]
    Postings.build([term] for term in terms).write(tmp_path)
    sums, guards = {}, {}

    def guard(name, array):
        own = sums.setdefault(name, block_sums(array.reshape(-1).view(np.uint8)))
        guards[name] = BlockGuard(tmp_path / name, array, own)
        return guards[name]

    postings = Postings.open(tmp_path, guard)
    for i in (0, 4999, 1234, 2500, 2499):
        assert occurrences_of(postings, terms[i]) == [(i, 1)]
        assert (
            occurrences_of(postings, f"{terms[i]}x")
            == occurrences_of(postings, terms[i][:-1])
            == []
        )
    assert occurrences_of(postings, "a") == occurrences_of(postings, "z") == []
    assert not guards[TERMS].complete
    assert not guards[OFFSETS].complete
    assert all(occurrences_of(postings, term) == [(i, 1)] for i, term in enumerate(terms))
    text = bytearray((tmp_path / TERMS).read_bytes())
    text[9 * 1700] ^= 1
    (tmp_path / TERMS).write_bytes(text)
    postings = Postings.open(tmp_path, guard)
    assert occurrences_of(postings, terms[0]) == [(0, 1)]
    with pytest.raises(DamagedIndexError, match=TERMS):
        occurrences_of(postings, terms[1710])


@given(TOKEN_LISTS, st.randoms(use_true_random=False))
def test_document_frequencies_count_only_living_passages(passages, random):
    alive = np.array([random.random() < 0.5 for _ in passages], np.bool_)
    postings = Postings.build(passages)
    for mask in (None, alive):
        live_passages = [p for i, p in enumerate(passages) if mask is None or mask[i]]
        counts = Counter(t.encode("utf-8", "surrogatepass") for p in live_passages for t in set(p))
        frequencies = postings.document_frequencies(mask).tolist()
        assert frequencies == [counts[term] for term in postings.vocabulary()]


@pytest.mark.parametrize("repetitions", [255, 256, 65_535, 65_536])
def test_large_frequencies_are_stored_exactly(repetitions, tmp_path):
    postings = stored([["a"] * repetitions, ["a"]], tmp_path)
    assert occurrences_of(postings, "a") == [(0, repetitions), (1, 1)]


@pytest.fixture
def written(tmp_path):
    Postings.build(PASSAGES).write(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_opening_names_a_missing_or_resized_file(name, written):
    content = (written / name).read_bytes()
    for changed in (content[:-1], content + b"\0", b""):
        (written / name).write_bytes(changed)
        # What disagrees with the offsets may be the offsets: either file may be named.
        with pytest.raises(DamagedIndexError, match=rf"{name}|offsets") as error:
            Postings.open(written)
        assert "\n" not in str(error.value)
    (written / name).unlink()
    with pytest.raises(DamagedIndexError, match=rf"{name}: the file is missing"):
        Postings.open(written)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".npy")])
def test_opening_refuses_an_array_of_another_type_shape_or_order(name, written):
    values = np.load(written / name)
    for other in (values.astype(np.float32), values[..., None], np.array([{}], dtype=object)):
        np.save(written / name, other)
        with pytest.raises(DamagedIndexError, match=name):
            Postings.open(written)


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
def test_lookup_refuses_impossible_postings(name, index, value, written):
    damage(written, name, lambda values: values.__setitem__(index, value))
    postings = Postings.open(written)
    with pytest.raises(DamagedIndexError, match=name):
        _ = [lookup(postings, term) for term in ("a", "b", "é", "日本")]


def test_passage_length_below_its_frequencies_is_damage(written):
    damage(written, LENGTHS, lambda values: values.__setitem__(0, 1))
    postings = Postings.open(written)
    with pytest.raises(DamagedIndexError, match=LENGTHS):
        postings.lengths_of(*lookup(postings, "a"))


@pytest.mark.parametrize(("name", "value"), [(POSITIONS, 2**32 - 1), (OFFSETS, -5)])
def test_merge_refuses_impossible_postings(written, name, value):
    damage(written, name, lambda values: values.reshape(-1).__setitem__(3, value))
    (written / "new").mkdir()
    with pytest.raises(DamagedIndexError, match=name):
        merge_postings([SearchableSegment(Postings.open(written))], written / "new")


# A larger total length is possible: only reading every length could tell.
@pytest.mark.parametrize(
    ("index", "value"), [(i, v) for i in range(4) for v in (-1, 1 << 62) if (i, v) != (3, 1 << 62)]
)
def test_opening_refuses_impossible_counts(index, value, written):
    damage(written, "postings.counts.npy", lambda values: values.__setitem__(index, value))
    with pytest.raises(DamagedIndexError):
        Postings.open(written)


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
    """Read everything and return the message of DamagedIndexError, or None."""
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


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("block", [1, 3, 10**6])
def test_merged_postings_equal_postings_built_from_live_passages(block, monkeypatch):
    monkeypatch.setattr(indexes.bm25.merging, "_MERGED_TOGETHER", block)

    @settings(max_examples=50, deadline=None)
    @given(SEGMENTS, st.randoms(use_true_random=False))
    # Once two bytes are needed for a frequency, and once the passage that needed them is gone.
    @example([[["a"] * 300, ["b"]], [["a"]]], None)
    @example([[["a"] * 300, ["b"]], [["a"]]], False)
    def check(segments, random):
        masks = []
        for number, passages in enumerate(segments):
            if random is None or (random and random.random() < 0.3):
                masks.append(None)
            elif random is False:
                masks.append(np.array([i > 0 or number > 0 for i in range(len(passages))]))
            else:
                drawn = [random.random() < 0.6 for _ in passages]
                masks.append(np.array(drawn, np.bool_))
        with tempfile.TemporaryDirectory() as place:
            sources = []
            for number, passages in enumerate(segments):
                folder = Path(place) / str(number)
                folder.mkdir()
                Postings.build(passages).write(folder)
                sources.append(Postings.open(folder))
            merged, anew = Path(place) / "merged", Path(place) / "anew"
            merged.mkdir()
            anew.mkdir()
            merge_postings(list(map(SearchableSegment, sources, masks)), merged)
            live = [
                passage
                for passages, mask in zip(segments, masks, strict=True)
                for i, passage in enumerate(passages)
                if mask is None or mask[i]
            ]
            Postings.build(live).write(anew)
            assert files(merged) == files(anew)
            assert len(Postings.open(merged)) == len(live)

    check()
