"""The recall of a search structure, measured against exact search on queries like real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.vectors.flat import Nearest, QuantizedVectors, rank_nearest, search_flat

if TYPE_CHECKING:
    from indexes.vectors.search import Searcher

# Queries that a recall is measured with.
SAMPLED_QUERIES = 200
# Length of the noise in a query, relative to the passage's vector: their cosine is about 0.9.
_NOISE = 0.5
# Scores that differ by less, relative to the larger of 1 and the score, count as equal.
_TOLERANCE = 1e-6
# Vectors that all queries are compared with before the next are read from the disk.
_BLOCK_ROWS = 65_536


class Measured(NamedTuple):
    """The recall@10, from 0 to 1, that one search effort reaches."""

    effort: int
    recall: float


def measure(
    searcher: Searcher,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    origins: NDArray[np.int64],
) -> list[Measured]:
    """Measure recall@10, effort by effort, up to the first that finds everything.

    `origins` (q,) are the positions that the queries were made from, which do not count.
    """
    exact = _without_origins(_search_in_blocks(vectors, queries, 11), origins)
    measured: list[Measured] = []
    for effort in searcher.efforts:
        nearest = searcher.search(vectors, queries, 11, effort=effort)
        measured.append(Measured(effort, recall_at(_without_origins(nearest, origins), exact)))
        if measured[-1].recall == 1:
            break
    return measured


def recall_at(nearest: Sequence[Nearest], exact: Sequence[Nearest], k: int = 10) -> float:
    """Return recall@k: the share of the k best vectors that a search found.

    Vectors of equal scores stand for each other.
    """
    hits = relevant = 0
    for (_, scores), (_, exact_scores) in zip(nearest, exact, strict=True):
        best = exact_scores[:k]
        if len(best):
            last = float(best[-1])
            floor = last - _TOLERANCE * max(1.0, abs(last))
            hits += min(len(best), int(np.count_nonzero(scores[:k] >= floor)))
            relevant += len(best)
    return hits / relevant if relevant else 1.0


def sample_queries(
    vectors: NDArray[np.float32], count: int = SAMPLED_QUERIES, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Make (q, d) queries like real ones, and return (q,) the positions they are made from.

    The positions ascend.
    """
    # A structure was trained on stored vectors: noise of half their length is added to them.
    generator = np.random.default_rng(seed)
    origins = np.sort(generator.choice(len(vectors), min(count, len(vectors)), replace=False))
    originals = vectors[origins].astype(np.float64)
    noise = generator.standard_normal(originals.shape)
    # Noise is never zero, unlike vectors, whose length may be.
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    noise *= np.linalg.norm(originals, axis=1, keepdims=True)
    return (originals + _NOISE * noise).astype(np.float32), origins.astype(np.int64)


def _search_in_blocks(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int
) -> list[Nearest]:
    """Find the `k` nearest vectors of each query exactly, reading each vector once."""
    blocks = []
    for start in range(0, len(vectors), _BLOCK_ROWS):
        block = vectors[start : start + _BLOCK_ROWS]
        nearest = search_flat(block, queries, k, quantized=QuantizedVectors())
        blocks.append([(start + positions, scores) for positions, scores in nearest])
    return [
        rank_nearest(
            np.concatenate([positions for positions, _ in parts]),
            np.concatenate([scores for _, scores in parts]),
            k,
        )
        for parts in zip(*blocks, strict=True)
    ]


def _without_origins(nearest: Sequence[Nearest], origins: NDArray[np.int64]) -> list[Nearest]:
    """Drop from each result the vector that its query was made from."""
    return [
        (positions[positions != origin], scores[positions != origin])
        for (positions, scores), origin in zip(nearest, origins, strict=True)
    ]
