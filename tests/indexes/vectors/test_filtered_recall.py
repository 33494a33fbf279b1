"""Filtered recall@10 against brute force: every type, every share of allowed vectors, every place.

Filters are drawn evenly, lean away from the queries, or leave the clusters that lie farthest;
passages may be deleted as well. Where k allowed vectors exist, k come back.
"""

import numpy as np
import pytest

from indexes.passage_mask import PassageMask
from indexes.protocol import StructureSettings
from indexes.vectors.segment_structure import build_structure
from tests.indexes.vectors.structure_samples import best, clustered, recall_of

N, D, K = 12_000, 16, 10
VECTORS, CLUSTER, QUERIES = clustered(N, D)
# What takes long to train is built of fewer.
FEWER = {"OPQ4,IVF16,PQ4": 2000}
TYPES = [
    "flat",
    "hnsw",
    "ivf",
    "ivf-sq8",
    "ivf-pq",
    "HNSW16,SQ8",
    "IVF16_HNSW8,Flat",
    "PCA12,IVF32,SQ8",
    "SQ8",
    "PQ8x4",
    *FEWER,
]
SHARES = [0.5, 0.05, 0.001]

_ORDER = np.random.default_rng(3).permutation(N)
_DEAD = np.random.default_rng(4).random(N) < 0.2


def drawn_evenly(n, count):
    drawn = _ORDER[n > _ORDER][:count]
    return np.isin(np.arange(n), drawn)


def nearness_of_clusters(n):
    """Return for each vector how near its cluster's best vector is to any query."""
    scores = (VECTORS[:n] @ QUERIES.T).max(axis=1)
    nearness = np.array([scores[CLUSTER[:n] == cluster].max() for cluster in range(100)])
    return np.asarray(nearness[CLUSTER[:n]])


def farthest_clusters(n, count):
    """Allow whole clusters, beginning with the one farthest from any query."""
    order = np.argsort(nearness_of_clusters(n), kind="stable")
    return np.isin(np.arange(n), order[:count])


def leaning(n, count):
    """Allow vectors of all clusters, twice as many of the farthest as of the nearest."""
    ranks = np.argsort(np.argsort(nearness_of_clusters(n), kind="stable")) / n
    waiting = np.random.default_rng(6).exponential(1 / (1 - ranks / 2))
    return np.isin(np.arange(n), np.argsort(waiting)[:count])


@pytest.fixture(scope="module", params=TYPES)
def structure(request, tmp_path_factory):
    vectors = VECTORS[: FEWER.get(request.param, N)]
    built = build_structure(
        tmp_path_factory.mktemp("segment"), vectors, StructureSettings(request.param)
    )
    assert built.name == request.param
    return built


def recall(structure, k, allowed):
    vectors = VECTORS[: len(allowed)]
    results = structure.search(vectors, QUERIES, k, PassageMask(allowed))
    return recall_of(results, vectors, QUERIES, k, allowed)


@pytest.mark.parametrize("deleted", [False, True], ids=["all-live", "some-deleted"])
@pytest.mark.parametrize("where", [drawn_evenly, leaning, farthest_clusters])
@pytest.mark.parametrize("share", SHARES)
def test_recall_is_high_for_filters_of_any_share_and_place(structure, share, where, deleted):
    n = FEWER.get(structure.name, N)
    allowed = where(n, round(share * n))
    assert int(allowed.sum()) == round(share * n)
    if deleted:
        allowed &= ~_DEAD[:n]
    assert recall(structure, K, allowed) >= 0.95


@pytest.mark.parametrize("where", [drawn_evenly, farthest_clusters])
@pytest.mark.parametrize("count", [0, 1, 7, 400])
def test_k_above_the_allowed_count_returns_all_allowed(structure, count, where):
    n = FEWER.get(structure.name, N)
    assert recall(structure, 500, where(n, count)) == 1


def test_farthest_clusters_sample_is_far_from_the_queries():
    """The nearest hundredth of all vectors holds none of them, for nearly all queries."""
    far = farthest_clusters(N, N // 20)
    assert np.mean([far[best(VECTORS, query, N // 100)].any() for query in QUERIES]) < 0.05


@pytest.mark.parametrize("name", ["ivf", "ivf-sq8"])
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_inverted_lists_reach_recall_when_allowed_vectors_are_far(tmp_path, name, share):
    # In more dimensions, the centroids of far clusters tell their vectors apart less well.
    vectors, cluster, queries = clustered(N, 64)
    built = build_structure(tmp_path, vectors, StructureSettings(name))
    allowed = cluster >= 100 - round(50 * 2 * share)
    results = built.search(vectors, queries, K, PassageMask(allowed))
    assert recall_of(results, vectors, queries, K, allowed) >= 0.95
