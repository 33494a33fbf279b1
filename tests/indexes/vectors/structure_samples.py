"""Vectors in clusters, structures over them, and the recall of what they find."""

import numpy as np
from numpy.typing import NDArray

from indexes.vectors.choice import resolve
from indexes.vectors.structure import open_structure, write_structure

Vectors = NDArray[np.float32]


def clustered(n, d, *, unit=True):
    """Return n vectors, the cluster (of 100) of each, and 60 queries near clusters 0 to 49."""
    chance = np.random.default_rng(11)
    centres = chance.standard_normal((100, d))
    cluster = chance.integers(0, 100, n)
    vectors = centres[cluster] + 0.4 * chance.standard_normal((n, d))
    if unit:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    else:
        vectors *= np.exp(0.3 * chance.standard_normal((n, 1)))
    queries = centres[np.arange(60) % 50] + 0.5 * chance.standard_normal((60, d))
    return vectors.astype(np.float32), cluster, queries.astype(np.float32)


def build(path, vectors, name):
    write_structure(path, vectors, resolve(name, *vectors.shape, None))
    return open_structure(path, *vectors.shape)


def best(vectors, query, k, allowed=None):
    """Return the positions of the k allowed vectors with the largest inner products."""
    positions = np.arange(len(vectors)) if allowed is None else np.flatnonzero(allowed)
    scores = vectors[positions].astype(np.float64) @ query.astype(np.float64)
    return positions[largest(scores, k)]


def largest(scores, k):
    """Return the positions of the k largest scores, descending, ties by position."""
    least = np.partition(scores, -k)[-k] if 0 < k < len(scores) else -np.inf
    among = np.flatnonzero(scores >= least)
    return among[np.argsort(-scores[among], kind="stable")[:k]]


def recall_of(results, vectors, queries, k, allowed=None):
    """Assert that results are allowed, complete and exactly scored; return their recall@k."""
    hits = expected_count = 0
    candidates = np.arange(len(vectors)) if allowed is None else np.flatnonzero(allowed)
    exact = vectors[candidates].astype(np.float64) @ queries.T.astype(np.float64)
    assert len(results) == len(queries)
    for query, all_scores, (positions, scores) in zip(queries, exact.T, results, strict=True):
        expected = candidates[largest(all_scores, k)]
        assert positions.dtype == np.int64
        assert scores.dtype == np.float64
        assert len(positions) == len(scores) == len(set(positions.tolist())) == len(expected)
        assert ((positions >= 0) & (positions < len(vectors))).all()
        assert allowed is None or allowed[positions].all()
        products = vectors[positions].astype(np.float64) @ query.astype(np.float64)
        np.testing.assert_allclose(scores, products, rtol=1e-12, atol=1e-12)
        assert (np.diff(np.round(scores, 5)) <= 0).all()
        hits += len(np.intersect1d(positions, expected))
        expected_count += len(expected)
    return hits / expected_count if expected_count else 1.0
