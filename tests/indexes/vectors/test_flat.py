"""Exact inner-product search, against NumPy's sums over all vectors."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indexes.vectors.flat
from indexes.errors import MissingExtraError
from indexes.passage_mask import PassageMask
from indexes.vectors.flat import QuantizedVectors, search_flat, significant_decimals
from indexes.vectors.library import load_faiss


def brute_force(vectors, query, allowed):
    """Return the inner product with every vector, -inf where it is not allowed."""
    scores = vectors.astype(np.float64) @ query.astype(np.float64)
    return scores if allowed is None else np.where(allowed, scores, -np.inf)


def check(vectors, queries, k, allowed, quantized=None):
    mask = None if allowed is None else PassageMask(allowed)
    results = search_flat(vectors, queries, k, mask, quantized=quantized)
    permitted = len(vectors) if allowed is None else int(allowed.sum())
    assert len(results) == len(queries)
    for query, (positions, scores) in zip(queries, results, strict=True):
        assert positions.dtype == np.int64
        assert scores.dtype == np.float64
        assert len(positions) == len(scores) == min(k, permitted)
        assert len(set(positions.tolist())) == len(positions)
        assert ((positions >= 0) & (positions < len(vectors))).all()
        expected = brute_force(vectors, query, allowed)
        np.testing.assert_allclose(scores, expected[positions], rtol=1e-12, atol=1e-12)
        # The order is that of the scores with six digits, then that of the positions.
        largest = np.abs(np.sort(expected)[::-1][: len(scores)]).max(initial=1.0)
        rounded = np.round(expected, significant_decimals(largest))
        best = sorted(range(len(vectors)), key=lambda i: (-rounded[i], i))[: len(scores)]
        assert positions.tolist() == best


@st.composite
def searches(draw):
    n, d = draw(st.integers(0, 150)), draw(st.integers(1, 24))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.booleans()):
        vectors = chance.standard_normal((n, d)).astype(np.float32)
    else:
        vectors = chance.integers(-2, 3, (n, d)).astype(np.float32)  # many equal scores
    queries = chance.standard_normal((draw(st.integers(0, 5)), d)).astype(np.float32)
    share = draw(st.sampled_from([None, 0.0, 0.03, 0.5, 1.0]))
    allowed = None if share is None else chance.random(n) < share
    return vectors, queries, draw(st.integers(1, 100)), allowed


@settings(deadline=None, max_examples=200)
@given(searches())
def test_flat_search_returns_the_k_best_allowed_vectors(search):
    check(*search)


@settings(deadline=None, max_examples=200)
@given(searches(), st.sampled_from([1e-38, 1e-3, 1, 1e15]))
def test_flat_search_with_codes_returns_the_k_best_allowed_vectors(search, size):
    vectors, queries, k, allowed = search
    vectors[::7] *= 100
    vectors = vectors * np.float32(size)
    if len(vectors):
        for query in queries:
            check(vectors, query[np.newaxis], k, allowed, quantized_by(vectors, query))


def quantized_by(vectors, query):
    """Return quantized vectors after enough searches to have codes."""
    quantized = QuantizedVectors()
    for _ in range(20):
        quantized.candidate_positions(vectors, query, 1, None)
    return quantized


@pytest.mark.skipif(indexes.vectors.flat.compiled is None, reason="needs the compiled loops")
def test_codes_keep_few_candidates_including_the_best():
    chance = np.random.default_rng(0)
    vectors = chance.standard_normal((3000, 384)).astype(np.float32)
    vectors[5], vectors[6] = 0, 1e-40
    query = chance.standard_normal(384).astype(np.float32)
    quantized = QuantizedVectors()
    candidates = [quantized.candidate_positions(vectors, query, 20, None) for _ in range(20)]
    assert candidates[0] is None
    best = np.argsort(vectors.astype(np.float64) @ query.astype(np.float64))[-20:]
    assert set(best.tolist()) <= set(candidates[-1].tolist())
    assert len(candidates[-1]) < 100
    vectors[7, 3] = np.nan
    quantized = QuantizedVectors()
    candidates = [quantized.candidate_positions(vectors, query, 20, None) for _ in range(20)]
    assert candidates == [None] * 20


@pytest.mark.parametrize("is_light", [False, True])
@pytest.mark.parametrize("share", [None, 0.01, 1 / 16, 0.07, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize(("queries", "dimensions"), [(1, 1), (1, 31), (1, 32), (1, 100), (40, 48)])
def test_flat_search_is_exact_for_every_share_of_allowed_vectors(
    monkeypatch, is_light, share, queries, dimensions
):
    if is_light:
        monkeypatch.setattr(indexes.vectors.flat, "compiled", None)
        # None stands for what is not installed.
        monkeypatch.setitem(sys.modules, "faiss", None)
    chance = np.random.default_rng(dimensions)
    vectors = chance.standard_normal((3000 if queries > 1 else 700, dimensions)).astype(np.float32)
    allowed = None if share is None else chance.random(len(vectors)) < share
    query_vectors = chance.standard_normal((queries, dimensions)).astype(np.float32)
    for k in (1, 10, 699, 700, 900) if queries == 1 else (25, 2500):
        check(vectors, query_vectors, k, allowed)


@pytest.mark.parametrize("has_codes", [False, True])
@pytest.mark.parametrize("queries", [1, 30])
@pytest.mark.parametrize("share", [None, 0.7, 0.3, 0.05])
def test_flat_search_breaks_ties_by_lower_position(has_codes, queries, share):
    chance = np.random.default_rng(8)
    # 27 distinct vectors.
    vectors = chance.integers(-1, 2, (3000, 3)).astype(np.float32)
    allowed = None if share is None else chance.random(3000) < share
    query_vectors = chance.standard_normal((queries, 3)).astype(np.float32)
    quantized = quantized_by(vectors, query_vectors[0]) if has_codes else None
    for k in (1, 30, 400):
        check(vectors, query_vectors, k, allowed, quantized)


def test_vectors_mapped_read_only_and_queries_of_another_layout_are_searched(tmp_path):
    chance = np.random.default_rng(3)
    np.save(tmp_path / "vectors.npy", chance.standard_normal((500, 32)).astype(np.float32))
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r").view(np.ndarray)
    assert not mapped.flags.writeable
    queries = chance.standard_normal((32, 3)).astype(np.float32).T  # Fortran order
    check(mapped, queries, 20, None)
    check(mapped, queries.astype(np.float64), 20, chance.random(500) < 0.5)


def test_flat_search_over_nan_vectors_returns_no_negative_position():
    vectors = np.full((20, 4), np.nan, np.float32)
    vectors[3] = 1
    mask = np.arange(20) == 3
    for allowed in (None, PassageMask(np.ones(20, np.bool_)), PassageMask(mask)):
        for positions, _ in search_flat(vectors, np.ones((2, 4), np.float32), 5, allowed):
            assert (positions >= 0).all()


def test_a_missing_faiss_names_the_extras(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"layer-retriever\[cpu\]"):
        load_faiss()


def test_exact_search_needs_no_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    vectors = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)
    for share in (None, 0.05, 0.25, 0.4, 0.9):
        check(vectors, vectors[:3], 5, None if share is None else np.arange(400) < 400 * share)
