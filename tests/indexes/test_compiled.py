"""The compiled functions against those of Python and NumPy."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indexes.bm25.scoring
import indexes.vectors.flat
from indexes.bm25.formulas import make_formula
from indexes.bm25.postings import (
    FREQUENCIES,
    LENGTHS,
    OFFSETS,
    POSITIONS,
    TERMS,
    Postings,
    TermPostings,
    find_by_python,
)
from indexes.bm25.scoring import (
    BM25Settings,
    SearchableSegment,
    search_segment,
    search_segment_by_numpy,
)
from indexes.compiled import compiled
from indexes.passage_mask import PassageMask
from indexes.vectors.flat import exact_scores

pytestmark = pytest.mark.skipif(compiled is None, reason="built without a compiler")

WORDS = ["a", "b", "c", "d", "e"]
# Sums of these are often equal, so that ties decide.
FACTORS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, -0.5]), min_size=6, max_size=6)
VARIANTS = ["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]
# More than two windows of the compiled form.
MANY = 40_000


def postings_of(rows, frequencies, lengths, n):
    """Return a segment of `n` passages; row i lists the passages of term i."""
    positions = np.array([p for row in rows for p in row], "<u4")
    files = {
        TERMS: b"",
        OFFSETS: np.zeros((1, 2), np.int64),
        POSITIONS: positions,
        FREQUENCIES: np.resize(np.array(frequencies, np.uint8), len(positions)),
        LENGTHS: np.resize(np.array(lengths, "<u4"), n),
    }
    postings = Postings(files, 0)
    counts = np.array([len(row) for row in rows], np.int64)
    return postings, TermPostings.of(positions, postings._frequencies, counts)


def check_equal(postings, read, formula, factors, k, allowed, *, deleted):
    n = len(postings)
    live = np.arange(n) % 5 > 0 if deleted else None
    segment = SearchableSegment(postings, live)
    hits = search_segment(segment, read, factors, formula, k, allowed)
    expected = search_segment_by_numpy(segment, read, factors, formula, k, allowed)
    assert hits.positions.tolist() == expected.positions.tolist()
    assert hits.scores.tobytes() == expected.scores.tobytes()
    ranked = np.lexsort((hits.positions, -hits.scores))
    assert ranked.tolist() == list(range(len(ranked)))


@settings(deadline=None)
@given(
    st.lists(st.sets(st.integers(0, MANY - 1), max_size=40), min_size=1, max_size=6),
    FACTORS,
    st.lists(st.integers(1, 3), min_size=1, max_size=5),
    st.lists(st.integers(3, 5), min_size=1, max_size=5),
    st.sampled_from(VARIANTS),
    st.integers(1, 50),
    st.sampled_from([None, 2, 3]),
    st.booleans(),
)
def test_compiled_search_equals_numpy_with_ties_filters_and_deletions(
    rows, factors, frequencies, lengths, variant, k, every, deleted
):
    postings, read = postings_of([sorted(row) for row in rows], frequencies, lengths, MANY)
    formula = make_formula(BM25Settings(variant), 4.0)
    allowed = None if every is None else PassageMask(np.arange(MANY) % every == 0)
    selected_factors = np.array(factors[: len(rows)])
    check_equal(postings, read, formula, selected_factors, k, allowed, deleted=deleted)


@pytest.mark.parametrize("k", [1, 10, 1000, 70_000])
@pytest.mark.parametrize("share", [None, 0.5, 0.001])
def test_compiled_search_of_many_passages_equals_numpy(k, share):
    chance = np.random.default_rng(k)
    rows = [np.flatnonzero(chance.random(100_000) < part) for part in (0.3, 0.001, 0.02, 0.3)]
    postings, read = postings_of([row.tolist() for row in rows], [1, 1, 2], [9, 8, 7, 6], 100_000)
    formula, factors = make_formula(BM25Settings(), 7.5), chance.random(4).round(2)
    allowed = None if share is None else PassageMask(chance.random(100_000) < share)
    check_equal(postings, read, formula, factors, k, allowed, deleted=share == 0.5)


@given(st.sets(st.binary(max_size=3), max_size=40), st.binary(max_size=3))
def test_compiled_term_lookup_equals_python(terms, lookup_terms):
    spellings = sorted(terms)
    offsets = np.zeros((len(spellings) + 1, 2), np.int64)
    offsets[1:, 0] = np.cumsum([len(spelling) for spelling in spellings])
    joined = b"".join(spellings)
    for low in range(len(spellings) + 1):
        arguments = (joined, offsets, low, len(spellings), lookup_terms)
        assert compiled.find(*arguments) == find_by_python(*arguments)
    place = compiled.find(joined, offsets, 0, len(spellings), lookup_terms)
    assert place == (spellings.index(lookup_terms) if lookup_terms in terms else -1)


def test_compiled_lookup_refuses_impossible_offsets_and_ranges():
    offsets = np.array([[0, 0], [1, 1], [2, 2], [3, 3]], np.int64)
    for low, high in ((-1, 1), (2, 1), (0, 4)):
        with pytest.raises(ValueError, match="do not fit"):
            compiled.find(b"abc", offsets, low, high, b"b")
    for value in (-1, 7, 1 << 62):
        offsets[1, 0] = value
        arguments = (b"abc", offsets, 0, 3, b"b")
        assert compiled.find(*arguments) == find_by_python(*arguments) == -3


def arrays(**changed):
    arguments = {
        "positions": np.array([0, 2, 1], np.uint32),
        "frequencies": np.ones(3, np.uint8),
        "ranges": np.array([[0, 2], [2, 3]], np.int64),
        "factors": np.ones(2),
        "lengths": np.full(3, 4, np.uint32),
        "lifted": False,
        "slope": 0.25,
        "constant": 0.25,
        "k1": 1.2,
        "scale": 1.0,
        "delta": 0.0,
        "live": np.empty(0, np.bool_),
        "allowed": np.empty(0, np.uint8),
        "best_positions": np.empty(2, np.int64),
        "best_scores": np.empty(2),
    }
    return list((arguments | changed).values())


@pytest.mark.parametrize(
    "changed",
    [
        {"frequencies": np.ones(2, np.uint8)},
        {"frequencies": np.ones(3, np.uint64)},
        {"ranges": np.array([[0, 2], [2, 4]], np.int64)},
        {"ranges": np.array([[0, 2]], np.int64)},
        {"ranges": np.array([[-1, 2], [2, 3]], np.int64)},
        {"ranges": np.array([[2, 0], [2, 3]], np.int64)},
        {"ranges": np.array([[0, 1 << 62], [2, 3]], np.int64)},
        {"factors": np.ones(3)},
        {"lengths": np.full(9, 4, np.uint32), "allowed": np.ones(1, np.uint8)},
        {"live": np.ones(2, np.bool_)},
        {"best_positions": np.empty(3, np.int64)},
        {"best_positions": np.empty(0, np.int64), "best_scores": np.empty(0)},
    ],
)
def test_compiled_search_refuses_mismatched_arrays(changed):
    with pytest.raises(ValueError, match="do not fit"):
        compiled.best(*arrays(**changed))
    assert compiled.best(*arrays()) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"positions": np.array([0, 3, 1], np.uint32)},
        {"positions": np.array([40_000, 2, 1], np.uint32)},
        {"positions": np.array([2, 2, 1], np.uint32)},
        {"positions": np.array([2, 0, 1], np.uint32)},
        {"frequencies": np.array([1, 0, 1], np.uint8)},
        {"frequencies": np.array([1, 5, 1], np.uint8)},
    ],
)
def test_compiled_search_refuses_impossible_postings_without_side_effects(changed):
    assert compiled.best(*arrays(**changed)) == -1
    positions, scores = np.empty(2, np.int64), np.empty(2)
    compiled.best(*arrays(best_positions=positions, best_scores=scores))
    assert positions.tolist() == [0, 1]
    assert scores.tolist() == [1 / ((4 * 0.25 + 0.25) * 1.2 + 1)] * 2


@pytest.mark.parametrize("dimensions", [1, 7, 8, 9, 384])
def test_compiled_inner_products_equal_numpy(dimensions, monkeypatch):
    chance = np.random.default_rng(dimensions)
    vectors = chance.standard_normal((50, dimensions)).astype(np.float32)
    query = chance.standard_normal(dimensions).astype(np.float32)
    positions = chance.integers(0, 50, 30)
    exact = vectors[positions].astype(np.float64) @ query.astype(np.float64)
    for form in (compiled, None):
        monkeypatch.setattr(indexes.vectors.flat, "compiled", form)
        scores = exact_scores(vectors, positions, query)
        np.testing.assert_allclose(scores, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("share", [None, 0.5])
@pytest.mark.parametrize("dimensions", [1, 15, 16, 17, 768])
def test_compiled_near_codes_equal_numpy(dimensions, share):
    chance = np.random.default_rng(dimensions)
    codes = chance.integers(-127, 128, (50, dimensions)).astype(np.int8)
    codes[0] = 127
    scales = chance.random(50).astype(np.float32)
    allowed = np.ones(50, np.bool_) if share is None else chance.random(50) < share
    bits = np.empty(0, np.uint8) if share is None else np.packbits(allowed, bitorder="little")
    most = min(2**15 - 1, (2**31 - 1) // (127 * dimensions))
    positions, scores = np.empty(50, np.int64), np.empty(50, np.float32)
    for query in (np.full(dimensions, most), chance.integers(-most, most + 1, dimensions)):
        exact = (codes.astype(np.int64) @ query).astype(np.float32) * scales
        quantized = codes, scales, query.astype(np.int16), bits
        for k, margin in ((1, 0.0), (10, 0.0), (10, float(np.ptp(exact)) / 5)):
            number = compiled.near(*quantized, k, margin, scores, positions)
            least = np.sort(exact[allowed])[-k] - margin
            above = np.flatnonzero(allowed & (exact > least))
            assert positions[:number].tolist() == above.tolist()
        assert np.array_equal(scores[allowed], exact[allowed])
    for k in (0, 51):
        with pytest.raises(ValueError, match="do not fit"):
            compiled.near(*quantized, k, 0.0, scores, positions)
    with pytest.raises(ValueError, match="do not fit"):
        compiled.near(*quantized, 1, 0.0, scores, positions[1:].copy())


@pytest.mark.parametrize(
    ("positions", "size"), [([3], 1), ([-1], 1), ([0, 1], 1), ([0], 2), ([2**62], 1)]
)
def test_compiled_inner_products_refuse_positions_out_of_range(positions, size):
    with pytest.raises(ValueError, match="do not fit"):
        compiled.dots(
            np.ones((3, 4), np.float32), np.array(positions, np.int64), np.ones(4), np.empty(size)
        )


def test_compiled_calls_leak_no_reference_to_none():
    # Built with the headers of Python 3.12, Py_RETURN_NONE loses one for Python 3.11.
    source = Path(compiled.__file__).with_name("inner_loops.c")
    assert "    Py_RETURN_NONE" not in source.read_text()
    rows, positions, scores = np.ones((3, 4), np.float32), np.zeros(1, np.int64), np.empty(1)
    before = sys.getrefcount(None)
    for _ in range(1000):
        compiled.dots(rows, positions, np.ones(4), scores)
    assert sys.getrefcount(None) > before - 500


def test_many_threads_can_search_at_once():
    chance = np.random.default_rng(0)
    rows = [np.flatnonzero(chance.random(60_000) < share).tolist() for share in (0.2, 0.01)]
    postings, read = postings_of(rows, [1, 2, 1], [5, 9, 3, 4], 60_000)
    arguments = (
        SearchableSegment(postings),
        read,
        chance.random(2),
        make_formula(BM25Settings(), 5.25),
    )
    expected = search_segment_by_numpy(*arguments, 100).scores.tobytes()

    def search(_):
        return search_segment(*arguments, 100).scores.tobytes()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(search, range(800))) == {expected}
