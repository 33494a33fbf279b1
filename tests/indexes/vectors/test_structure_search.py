"""Search through structures of every kind, against brute force over the kept vectors."""

from contextlib import nullcontext

import numpy as np
import pytest

import indexes.vectors.search
from indexes.passage_mask import PassageMask
from indexes.vectors.flat import search_flat
from tests.indexes.vectors.structure_samples import best, build, clustered, recall_of

N, D = 1 << 14, 32
TYPES = ["hnsw", "ivf", "ivf-sq8", "ivf-pq", "Pad36,IVF100_HNSW16,SQ6", "PQ16x4fs"]
VECTORS, CLUSTER, QUERIES = clustered(N, D)
FEW = np.ascontiguousarray(VECTORS[:3000])
_CHANCE = np.random.default_rng(5).random(N)


def drawn(share, n=N):
    """Draw a mask (n,) that allows about this share of the first n vectors."""
    return np.less(_CHANCE[:n], share)


@pytest.fixture(scope="module", params=TYPES)
def structure(request, tmp_path_factory):
    return build(tmp_path_factory.mktemp("structure") / "structure.faiss", VECTORS, request.param)


@pytest.fixture
def exact_scans(monkeypatch):
    """The number of queries that each exact scan answered."""
    scans = []

    def counted(vectors, queries, *rest):
        scans.append(len(queries))
        return search_flat(vectors, queries, *rest)

    monkeypatch.setattr(indexes.vectors.search, "search_flat", counted)
    return scans


def recall(structure, k, allowed, vectors=VECTORS, effort=None):
    queries = QUERIES if k < 1000 else QUERIES[:5]
    mask = None if allowed is None else PassageMask(allowed)
    results = structure.searcher.search(vectors, queries, k, mask, effort)
    return recall_of(results, vectors, queries, k, allowed)


@pytest.mark.parametrize(("k", "least"), [(1, 0.9), (10, 0.95), (300, 0.9), (N + 5, 0.9)])
def test_structure_search_has_high_recall_and_returns_k_hits_while_k_exist(structure, k, least):
    assert recall(structure, k, None) >= least
    assert recall(structure, k, drawn(0.5)) >= 0.9


def test_reused_passage_mask_gives_equal_results(structure):
    mask = drawn(0.3)
    used_mask = PassageMask(mask)
    for start in (5, 0, 7):
        queries = QUERIES[start : start + 3]
        again = structure.searcher.search(VECTORS, queries, 10, used_mask)
        new = structure.searcher.search(VECTORS, queries, 10, PassageMask(mask))
        for repeated, fresh in zip(again, new, strict=True):
            np.testing.assert_array_equal(repeated, fresh)


@pytest.mark.parametrize("name", ["ivf", "ivf-sq8"])
def test_search_under_a_half_filter_tests_few_passages(tmp_path, name, monkeypatch):
    vectors, _, queries = clustered(20_000, 8)
    structure = build(tmp_path / "lists", vectors, name)
    half = PassageMask(np.random.default_rng(1).random(len(vectors)) < 0.5)
    requests, at = [], PassageMask.at

    def counted(self, positions):
        requests.append(len(positions))
        return at(self, positions)

    monkeypatch.setattr(PassageMask, "at", counted)
    structure.searcher.search(vectors, queries[:1], 10, half, effort=2)
    assert 0 < sum(requests) < len(vectors) / 2


def test_selective_filter_is_answered_by_an_exact_scan(structure, exact_scans):
    assert recall(structure, 10, drawn(0.01)) == 1
    assert exact_scans == [len(QUERIES)]


@pytest.mark.parametrize("share", [None, 0.9])
def test_weak_or_no_filter_is_answered_by_the_structure(structure, exact_scans, share):
    recall(structure, 10, None if share is None else drawn(share))
    # A graph may fail to find enough for a query or two.
    assert sum(exact_scans) <= len(QUERIES) / 10


def test_half_filter_is_applied_inside_inverted_lists(tmp_path, exact_scans):
    structure = build(tmp_path / "lists", VECTORS, "ivf")
    recall(structure, 10, drawn(0.5))
    recall(structure, 10, CLUSTER >= 50)
    assert exact_scans == []


@pytest.mark.parametrize(
    ("name", "efforts", "most"),
    [("ivf", (*(2**i for i in range(9)), N // 39), 1), ("PQ8x4fs", (1, 2, 4, 8, 16), 0.95)],
)
def test_recall_grows_with_effort(tmp_path, name, efforts, most):
    structure = build(tmp_path / "structure", VECTORS, name)
    assert structure.searcher.efforts == efforts
    low, middle, high = (
        recall(structure, 10, None, effort=effort) for effort in (1, 4, efforts[-1])
    )
    assert low < middle <= high
    assert high >= most


def test_structure_search_of_unnormalized_vectors_has_high_recall(tmp_path):
    vectors = clustered(N, D, unit=False)[0]
    structure = build(tmp_path / "lists", vectors, "ivf-sq8")
    assert recall(structure, 10, None, vectors) >= 0.95
    assert recall(structure, 10, drawn(0.5), vectors) >= 0.95


@pytest.mark.parametrize(
    "name", ["IVF16,PQ4x4fs,RFlat", "IVF16,FlatDedup", "L2norm,PCA12,IVF16,Flat", "SQ4", "NSG16"]
)
def test_other_faiss_types_return_k_allowed_vectors(tmp_path, name):
    vectors = FEW.copy()
    vectors[100:110] = vectors[100]
    structure = build(tmp_path / "other", vectors, name)
    slow = pytest.warns(UserWarning, match="all vectors are scanned")
    with slow if "Dedup" in name else nullcontext():
        for allowed in (None, drawn(0.5, 3000), CLUSTER[:3000] >= 50, drawn(0.01, 3000)):
            recall(structure, 10, allowed, vectors)


def test_structure_search_finds_all_equal_vectors(tmp_path):
    vectors = np.tile(VECTORS[:30], (100, 1))
    structure = build(tmp_path / "equal", vectors, "ivf")
    ((positions, scores),) = structure.searcher.search(vectors, vectors[:1], 100)
    assert positions.tolist() == list(range(0, 3000, 30))
    assert len(set(scores.tolist())) == 1


def test_nan_query_has_no_hits(tmp_path):
    structure = build(tmp_path / "nan", FEW, "ivf")
    queries = np.full((2, D), np.nan, np.float32)
    queries[1] = QUERIES[1]
    no_hits, hits = structure.searcher.search(FEW, queries, 10)
    assert len(no_hits[0]) == 0
    np.testing.assert_array_equal(hits[0], best(FEW, QUERIES[1], 10))


def test_mapped_vectors_and_fortran_order_queries_are_searched(tmp_path):
    np.save(tmp_path / "vectors.npy", FEW)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    searcher = build(tmp_path / "lists", mapped, "ivf").searcher
    queries = np.asfortranarray(QUERIES.astype(np.float64))
    results = searcher.search(mapped, queries, 5, effort=searcher.efforts[-1])
    assert recall_of(results, FEW, QUERIES, 5) == 1
    assert searcher.search(mapped, QUERIES[:0], 5) == []
    with pytest.raises(ValueError, match=r"queries of shape \(q, 32\)"):
        searcher.search(mapped, QUERIES[:, :-1], 5)


@pytest.mark.parametrize("name", ["hnsw", "ivf-sq8"])
def test_search_among_many_equal_vectors_needs_no_exact_scan(tmp_path, name, exact_scans):
    """All lists near the equal vectors are empty but one."""
    vectors = VECTORS[:6000].copy()
    equal = np.sort(np.random.default_rng(7).permutation(6000)[:3000])
    vectors[equal] = vectors[equal[0]]
    structure = build(tmp_path / "structure.faiss", vectors, name)
    near = vectors[equal[:1]] + 1e-3 * QUERIES
    for positions, scores in structure.searcher.search(vectors, near, 10, effort=1):
        assert np.isin(positions, equal).all()
        assert (np.diff(positions) > 0).all()
        assert (np.diff(scores) == 0).all()
    assert exact_scans == []
