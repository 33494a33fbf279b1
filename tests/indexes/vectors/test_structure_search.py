"""Search through structures of every kind, against brute force over the kept vectors."""

from contextlib import nullcontext

import numpy as np
import pytest
from structure_samples import best, build, clustered

import indexes.vectors.search
from indexes.filters.allowed import Allowed
from indexes.vectors.flat import search_flat

N, D = 20_000, 32
NAMED = ["hnsw", "ivf", "ivf-sq8", "ivf-pq"]
FACTORY = ["Pad36,IVF100_HNSW16,SQ6", "PQ16x4fs"]
VECTORS, CLUSTER, QUERIES = clustered(N, D)
_CHANCE = np.random.default_rng(5).random(N)


def drawn(share, n=N):
    """(n,) bool: about this share of the first n vectors, drawn evenly."""
    return np.less(_CHANCE[:n], share)


@pytest.fixture(scope="module", params=NAMED + FACTORY)
def structure(request, tmp_path_factory):
    return build(tmp_path_factory.mktemp("structure") / "structure.faiss", VECTORS, request.param)


@pytest.fixture
def exact_scans(monkeypatch):
    """How many queries each exact scan answered."""
    scans = []

    def counted(vectors, queries, *rest):
        scans.append(len(queries))
        return search_flat(vectors, queries, *rest)

    monkeypatch.setattr(indexes.vectors.search, "search_flat", counted)
    return scans


def check(structure, k, allowed, vectors=VECTORS, some=None):
    """The recall, of results that are otherwise right; `some` is `allowed`, if given."""
    queries = QUERIES if k < 1000 else QUERIES[:5]
    if allowed is not None:
        some = some or Allowed(allowed)
    found = structure.searcher.search(vectors, queries, k, some)
    permitted = len(vectors) if allowed is None else int(allowed.sum())
    hits = wanted = 0
    assert len(found) == len(queries)
    for query, (positions, scores) in zip(queries, found, strict=True):
        assert positions.dtype == np.int64
        assert scores.dtype == np.float64
        assert len(positions) == len(scores) == len(set(positions.tolist())) == min(k, permitted)
        assert ((positions >= 0) & (positions < len(vectors))).all()
        assert allowed is None or allowed[positions].all()
        products = vectors[positions].astype(np.float64) @ query.astype(np.float64)
        np.testing.assert_allclose(scores, products, rtol=1e-12, atol=1e-12)
        assert (np.diff(np.round(scores, 5)) <= 0).all()
        hits += len(np.intersect1d(positions, best(vectors, query, k, allowed)))
        wanted += min(k, permitted)
    return hits / wanted if wanted else 1.0


def test_recall_without_a_filter(structure):
    assert check(structure, 10, None) >= 0.95


@pytest.mark.parametrize("name", ["ivf", "ivf-sq8"])
def test_a_filter_used_before_changes_no_answer(tmp_path, name):
    structure = build(tmp_path / "lists", VECTORS, name)
    mask = drawn(0.3)
    known = Allowed(mask)
    for start in (5, 0, 7):
        queries = QUERIES[start : start + 3]
        again = structure.searcher.search(VECTORS, queries, 10, known)
        new = structure.searcher.search(VECTORS, queries, 10, Allowed(mask))
        for one, other in zip(again, new, strict=True):
            np.testing.assert_array_equal(one[0], other[0])
            np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("name", ["ivf", "ivf-sq8"])
def test_behind_a_filter_of_half_few_passages_are_read(tmp_path, name, monkeypatch):
    vectors, _, queries = clustered(80_000, 8)
    structure = build(tmp_path / "lists", vectors, name)
    some = Allowed(np.random.default_rng(1).random(len(vectors)) < 0.5)
    asked = []
    at = Allowed.at
    monkeypatch.setattr(
        Allowed,
        "at",
        lambda self, positions: [asked.append(len(positions)), at(self, positions)][1],
    )
    structure.searcher.search(vectors, queries[:1], 10, some, effort=2)
    assert 0 < sum(asked) < len(vectors) / 2


@pytest.mark.parametrize("k", [1, 300, N + 5])
def test_never_fewer_than_k_while_k_exist(structure, k):
    assert check(structure, k, None) >= 0.9
    assert check(structure, k, drawn(0.5)) >= 0.9


def test_a_filter_that_leaves_few_is_answered_by_the_exact_scan(structure, exact_scans):
    assert check(structure, 10, drawn(0.01)) == 1
    assert exact_scans == [len(QUERIES)]


@pytest.mark.parametrize("share", [None, 0.9])
def test_others_are_answered_by_the_structure(structure, exact_scans, share):
    check(structure, 10, None if share is None else drawn(share))
    # A graph may fail to find enough for a query or two.
    assert sum(exact_scans) <= len(QUERIES) / 10


def test_a_filter_of_half_is_read_inside_inverted_lists(tmp_path, exact_scans):
    structure = build(tmp_path / "lists", VECTORS, "ivf")
    check(structure, 10, drawn(0.5))
    check(structure, 10, CLUSTER >= 50)
    assert exact_scans == []


@pytest.mark.parametrize(
    ("name", "efforts", "most"),
    [("ivf", tuple(2**i for i in range(10)), 1), ("PQ8x4fs", (1, 2, 4, 8, 16), 0.95)],
)
def test_more_effort_finds_more(tmp_path, name, efforts, most):
    structure = build(tmp_path / "structure", VECTORS, name)
    assert structure.searcher.efforts == efforts

    def recall(effort):
        found = structure.searcher.search(VECTORS, QUERIES, 10, effort=effort)
        pairs = zip(QUERIES, found, strict=True)
        return sum(len(np.intersect1d(p, best(VECTORS, q, 10))) for q, (p, _) in pairs) / 600

    assert recall(1) < recall(4) <= recall(efforts[-1])
    assert recall(efforts[-1]) >= most


def test_vectors_of_all_lengths(tmp_path):
    vectors = clustered(N, D, unit=False)[0]
    structure = build(tmp_path / "lists", vectors, "ivf-sq8")
    assert check(structure, 10, None, vectors) >= 0.95
    assert check(structure, 10, drawn(0.5), vectors) >= 0.95


@pytest.mark.parametrize(
    "name", ["IVF16,PQ4x4fs,RFlat", "IVF16,FlatDedup", "L2norm,PCA12,IVF16,Flat", "SQ4", "NSG16"]
)
def test_any_other_type_returns_what_is_allowed_and_never_too_little(tmp_path, name):
    vectors = np.ascontiguousarray(VECTORS[:3000])
    vectors[100:110] = vectors[100]
    structure = build(tmp_path / "other", vectors, name)
    slow = pytest.warns(UserWarning, match="all vectors are scanned")
    with slow if "Dedup" in name else nullcontext():
        for allowed in (None, drawn(0.5, 3000), CLUSTER[:3000] >= 50, drawn(0.01, 3000)):
            check(structure, 10, allowed, vectors)


def test_equal_vectors_are_all_found(tmp_path):
    vectors = np.tile(VECTORS[:30], (100, 1))
    structure = build(tmp_path / "equal", vectors, "ivf")
    ((positions, scores),) = structure.searcher.search(vectors, vectors[:1], 100)
    assert sorted(positions.tolist()) == list(range(0, 3000, 30))
    assert (np.diff(positions) > 0).all()
    assert len(set(scores.tolist())) == 1


def test_what_is_no_number_is_never_returned(tmp_path):
    vectors = np.ascontiguousarray(VECTORS[:3000])
    structure = build(tmp_path / "nan", vectors, "ivf")
    queries = np.full((2, D), np.nan, np.float32)
    queries[1] = QUERIES[1]
    nothing, found = structure.searcher.search(vectors, queries, 10)
    assert len(nothing[0]) == 0
    np.testing.assert_array_equal(found[0], best(vectors, QUERIES[1], 10))


def test_mapped_vectors_and_queries_of_another_layout(tmp_path):
    np.save(tmp_path / "vectors.npy", VECTORS[:3000])
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    structure = build(tmp_path / "lists", mapped, "ivf")
    queries = np.asfortranarray(QUERIES.astype(np.float64))
    found = structure.searcher.search(mapped, queries, 5, effort=structure.searcher.efforts[-1])
    for query, (positions, _) in zip(QUERIES, found, strict=True):
        np.testing.assert_array_equal(positions, best(VECTORS[:3000], query, 5))


def test_no_queries_have_no_answers(structure):
    assert structure.searcher.search(VECTORS, QUERIES[:0], 5) == []


def test_shapes_that_do_not_fit_are_refused(structure):
    with pytest.raises(ValueError, match=r"queries of shape \(q, 32\)"):
        structure.searcher.search(VECTORS, QUERIES[:, :-1], 5)


@pytest.mark.parametrize("name", ["hnsw", "ivf-sq8"])
def test_among_many_equal_vectors_others_are_found_and_little_is_scanned(
    tmp_path, name, exact_scans
):
    """Of the lists near to equal vectors, all but one are empty."""
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
