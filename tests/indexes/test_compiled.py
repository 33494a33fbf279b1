"""The compiled functions against those of Python and NumPy, bit by bit."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indexes.bm25.formulas
import indexes.bm25.top_k
import indexes.vectors.flat
from indexes.bm25.contributions import Contributions
from indexes.bm25.postings import Postings
from indexes.bm25.scoring import BM25, BM25Settings, SearchableSegment
from indexes.bm25.top_k import best_by_numpy, best_passages
from indexes.bm25.vocabulary import find_by_python
from indexes.compiled import compiled
from indexes.filters.allowed import Allowed, bits_at
from indexes.vectors.flat import exact_scores

pytestmark = pytest.mark.skipif(compiled is None, reason="built without a compiler")

WORDS = ["a", "b", "c", "d", "e"]
PASSAGES = st.lists(st.lists(st.sampled_from(WORDS), max_size=9), min_size=1, max_size=60)
# Sums of these are often equal, so that ties decide.
VALUES = st.sampled_from([0.0, 0.25, 0.5, 1.0, -0.5])


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes.bm25.top_k, "compiled", None)
    monkeypatch.setattr(indexes.bm25.formulas, "compiled", None)


def contributions_of(rows: list[list[int]], values: list[float]) -> Contributions:
    positions = np.array([p for row in rows for p in row], np.uint32)
    return Contributions(
        positions,
        np.resize(np.array(values), len(positions)),
        np.array([len(row) for row in rows], np.int64),
    )


def check_equal(contributions: Contributions, n: int, k: int) -> None:
    for order in (None, np.random.default_rng(n).permutation(n).astype(np.uint32)):
        found = best_passages(contributions, n, k, order)
        expected = best_by_numpy(contributions, n, k, order)
        assert found.positions.tolist() == expected.positions.tolist()
        assert found.scores.tobytes() == expected.scores.tobytes()
        if order is not None:
            ranked = np.lexsort((order[found.positions], -found.scores))
            assert ranked.tolist() == list(range(len(ranked)))


@settings(deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 60_000), max_size=40), min_size=1, max_size=6),
    st.lists(VALUES, min_size=7, max_size=7),
    st.integers(1, 50),
)
def test_the_best_are_those_of_numpy_with_ties_and_scores_of_zero_or_less(rows, values, k):
    rows = [sorted(row) for row in rows]
    if any(rows):
        check_equal(contributions_of(rows, values), 60_001, k)


@pytest.mark.parametrize("k", [1, 10, 1000, 70_000])
def test_the_best_of_many_passages_are_those_of_numpy(k):
    chance = np.random.default_rng(k)
    rows = [np.flatnonzero(chance.random(100_000) < share) for share in (0.3, 0.001, 0.02, 0.3)]
    positions = np.concatenate(rows).astype(np.uint32)
    values = chance.random(len(positions)).round(2)
    counts = np.array([len(row) for row in rows], np.int64)
    check_equal(Contributions(positions, values, counts), 100_000, k)


@given(
    PASSAGES,
    st.lists(st.sampled_from([*WORDS, "z"]), max_size=6),
    st.sampled_from(["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]),
    st.integers(1, 70),
    st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_searches_give_the_same_bits_as_without_a_compiler(passages, query, variant, k, random):
    half = len(passages) // 2
    live = np.array([random.random() < 0.7 for _ in passages[half:]], np.bool_)
    order = np.array(random.sample(range(len(live)), len(live)), np.uint32)
    segments = [
        SearchableSegment(Postings.build(passages[:half])),
        SearchableSegment(Postings.build(passages[half:]), live, order),
    ]
    drawn = np.array([random.random() < 0.5 for _ in passages[half:]], np.bool_)
    allowed = [None, Allowed.of(drawn)]
    found = []
    for without in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if without:
                plain(patch)
            bm25 = BM25(segments, BM25Settings(variant))
            found.append([*bm25.search(query, k), *bm25.search(query, k, allowed)])
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("repetitions", [1, 255, 256, 65_536])
def test_frequencies_of_every_width_weigh_the_same(repetitions, monkeypatch):
    postings = Postings.build([["a"] * repetitions + ["b"], ["a", "b", "b"], ["b"]])
    bm25 = BM25([SearchableSegment(postings)])
    found = bm25.search(["a", "b"], 3)
    plain(monkeypatch)
    assert found.scores.tobytes() == bm25.search(["a", "b"], 3).scores.tobytes()


@given(st.sets(st.binary(max_size=3), max_size=40), st.binary(max_size=3))
def test_terms_are_found_where_python_finds_them(terms, wanted):
    spellings = sorted(terms)
    offsets = np.zeros((len(spellings) + 1, 2), np.int64)
    offsets[1:, 0] = np.cumsum([len(spelling) for spelling in spellings])
    joined = b"".join(spellings)
    for low in range(len(spellings) + 1):
        arguments = (joined, offsets, low, len(spellings), wanted)
        assert compiled.find(*arguments) == find_by_python(*arguments)
    place = compiled.find(joined, offsets, 0, len(spellings), wanted)
    assert place == (spellings.index(wanted) if wanted in terms else -1)


@pytest.mark.parametrize("value", [-1, 7, 1 << 62])
def test_impossible_bytes_of_a_term_are_named_alike(value):
    offsets = np.array([[0, 0], [1, 1], [2, 2], [3, 3]], np.int64)
    offsets[1, 0] = value
    arguments = (b"abc", offsets, 0, 3, b"b")
    assert compiled.find(*arguments) == find_by_python(*arguments) == -3


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (2, 1), (0, 4)])
def test_a_range_of_terms_that_does_not_exist_is_refused(low, high):
    offsets = np.array([[0, 0], [1, 1], [2, 2], [3, 3]], np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        compiled.find(b"abc", offsets, low, high, b"b")


def arrays(**changed: Any) -> list[Any]:
    given = {
        "positions": np.array([0, 2, 1], np.uint32),
        "values": np.ones(3),
        "counts": np.array([2, 1], np.int64),
        "ranks": np.empty(0, np.uint32),
        "best_positions": np.empty(2, np.int64),
        "best_scores": np.empty(2),
    }
    return list((given | changed).values())


@pytest.mark.parametrize(
    "changed",
    [
        {"values": np.ones(2)},
        {"counts": np.array([2, 2], np.int64)},
        {"counts": np.array([2], np.int64)},
        {"counts": np.array([-1, 4], np.int64)},
        {"counts": np.array([1 << 62, 1 << 62], np.int64)},
        {"best_positions": np.empty(3, np.int64)},
        {"best_positions": np.empty(0, np.int64), "best_scores": np.empty(0)},
        {"positions": np.array([2, 2, 1], np.uint32)},
        {"positions": np.array([40_000, 2, 1], np.uint32)},
        {"ranks": np.array([1, 0], np.uint32)},
    ],
)
def test_arrays_that_do_not_fit_are_refused_and_harm_nothing(changed):
    with pytest.raises(ValueError, match=r"do not fit|do not ascend"):
        compiled.best(*arrays(**changed))
    check_equal(contributions_of([[0, 2], [1]], [1.0]), 3, 2)


@pytest.mark.parametrize(
    ("positions", "frequencies"),
    [([0, 3], [1, 1]), ([0, 0], [1, 1]), ([1, 0], [1, 1]), ([0, 1], [1, 0]), ([0, 1], [1, 9])],
)
def test_impossible_postings_are_not_weighed(positions, frequencies):
    values = np.empty(2)
    weighed = compiled.weigh(
        np.array(positions, np.uint32),
        np.array(frequencies, np.uint8),
        np.array([2], np.int64),
        np.ones(1),
        np.array([3, 3, 3], np.uint32),
        0.25,
        0.25,
        1.2,
        values,
    )
    assert not weighed


@pytest.mark.parametrize(
    "changed",
    [
        {0: np.zeros(3, np.uint32)},
        {2: np.array([1], np.int64)},
        {2: np.array([3], np.int64)},
        {3: np.ones(2)},
        {8: np.ones(1)},
    ],
)
def test_arrays_that_cannot_be_weighed_are_refused(changed):
    given = [np.array([0, 1], np.uint32), np.ones(2, np.uint8), np.array([2], np.int64)]
    given += [np.ones(1), np.full(3, 3, np.uint32), 0.25, 0.25, 1.2, np.empty(2)]
    for place, value in changed.items():
        given[place] = value
    with pytest.raises(ValueError, match="do not fit"):
        compiled.weigh(*given)


@given(st.lists(st.integers(0, 255), max_size=40), st.sampled_from([np.int32, np.int64]), st.data())
def test_bits_are_read_as_by_numpy(content, kind, data):
    bits = np.array([*content, 7], np.uint8)
    places = data.draw(st.lists(st.integers(0, 8 * len(bits) - 1), max_size=60))
    positions = np.array(places, kind)
    mask = np.empty(len(positions), np.bool_)
    compiled.bits_at(bits, positions, positions.itemsize, mask)
    assert mask.tolist() == bits_at(bits, positions).tolist()
    assert mask.tolist() == [bool(np.unpackbits(bits, bitorder="little")[i]) for i in places]


@pytest.mark.parametrize(
    ("positions", "width", "size"),
    [([8], 8, 1), ([-1], 8, 1), ([0], 8, 2), ([0], 2, 1), ([2**62], 8, 1)],
)
def test_bits_that_do_not_exist_are_refused(positions, width, size):
    with pytest.raises(ValueError, match="do not fit"):
        compiled.bits_at(
            np.ones(1, np.uint8), np.array(positions, np.int64), width, np.empty(size, np.bool_)
        )


@pytest.mark.parametrize("dimensions", [1, 7, 8, 9, 384])
def test_inner_products_have_the_same_bits_as_without_a_compiler(dimensions, monkeypatch):
    chance = np.random.default_rng(dimensions)
    vectors = chance.standard_normal((50, dimensions)).astype(np.float32)
    query = chance.standard_normal(dimensions).astype(np.float32)
    positions = chance.integers(0, 50, 30)
    found = exact_scores(vectors, positions, query)
    monkeypatch.setattr(indexes.vectors.flat, "compiled", None)
    assert found.tobytes() == exact_scores(vectors, positions, query).tobytes()
    exact = vectors[positions].astype(np.float64) @ query.astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("positions", "size"), [([3], 1), ([-1], 1), ([0, 1], 1), ([0], 2), ([2**62], 1)]
)
def test_vectors_that_do_not_exist_are_refused(positions, size):
    with pytest.raises(ValueError, match="do not fit"):
        compiled.dots(
            np.ones((3, 4), np.float32), np.array(positions, np.int64), np.ones(4), np.empty(size)
        )


def test_many_threads_can_search_at_once():
    chance = np.random.default_rng(0)
    rows = [np.flatnonzero(chance.random(60_000) < share) for share in (0.2, 0.01)]
    counts = np.array([len(row) for row in rows], np.int64)
    positions = np.concatenate(rows).astype(np.uint32)
    contributions = Contributions(positions, chance.random(len(positions)), counts)
    expected = best_by_numpy(contributions, 60_000, 100)
    wrong = []

    def search() -> None:
        for _ in range(100):
            found = best_passages(contributions, 60_000, 100)
            if found.scores.tobytes() != expected.scores.tobytes():
                wrong.append(found)

    threads = [threading.Thread(target=search) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
