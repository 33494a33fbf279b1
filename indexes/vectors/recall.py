"""How much of the exact answer a structure finds, and the least effort that finds enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError
from indexes.vectors.flat import Nearest, search_flat
from indexes.vectors.search.searcher import Searcher

Found = Sequence[Nearest]

# Length of the noise against that of the passage's vector: their cosine is about 0.9.
_NOISE = 0.5
_ROUNDING = 1e-6
# Queries that a recall is measured with.
SAMPLED_QUERIES = 200


@dataclass(frozen=True, slots=True)
class Measured:
    """What one search effort finds.

    Attributes:
        effort: as `Searcher.search` takes it.
        recall: from 0 to 1, see `recall_at`.
    """

    effort: int
    recall: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Queries made from passages of the segment.

    Attributes:
        queries: (q, d) float32.
        own: (q,) int64, ascending: the position of the passage that each was made from.
    """

    queries: NDArray[np.float32]
    own: NDArray[np.int64]


def recall_at(found: Found, exact: Found, k: int = 10) -> float:
    """Recall@k: the share of the k best vectors that was found, over all queries.

    A vector whose score equals that of the k-th best counts as one of them, so that equal
    vectors, of which either may be returned, cost nothing.

    Args:
        found: for each query (positions, scores), best first, the scores exact.
        exact: the same from an exact search with at least `k` results if there are as many.
        k: at least 1.

    Returns:
        From 0 to 1; 1 if there is nothing to find.

    Raises:
        ValueError: not as many queries in both.
    """
    hits = wanted = 0
    for (_, scores), (_, best) in zip(found, exact, strict=True):
        least = best[:k]
        if len(least):
            last = float(least[-1])
            floor = last - _ROUNDING * max(1.0, abs(last))
            hits += min(len(least), int(np.count_nonzero(scores[:k] >= floor)))
            wanted += len(least)
    return hits / wanted if wanted else 1.0


def sample_queries(
    vectors: NDArray[np.float32], count: int = SAMPLED_QUERIES, seed: int = 0
) -> Sample:
    """Queries like real ones: vectors of the segment with noise.

    A stored vector makes a structure look too good: the structure was trained on it, and a graph
    holds its neighbors. So noise of half its length is added, in a uniform direction, which
    leaves a cosine of about 0.9; and `measure` drops the passage itself.

    Args:
        vectors: (n, d) float32; may be memory-mapped.
        count: number of queries; n if that is less.
        seed: equal arguments give equal samples.
    """
    chance = np.random.default_rng(seed)
    own = np.sort(chance.choice(len(vectors), min(count, len(vectors)), replace=False))
    chosen = vectors[own].astype(np.float64)
    noise = chance.standard_normal(chosen.shape)
    noise *= np.linalg.norm(chosen, axis=1, keepdims=True)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return Sample((chosen + _NOISE * noise).astype(np.float32), own.astype(np.int64))


def measure(
    searcher: Searcher, vectors: NDArray[np.float32], sample: Sample, k: int = 10
) -> list[Measured]:
    """Recall@k of a structure against exact search, at one effort after another.

    Stops at the first effort that finds everything.

    Args:
        searcher: over `vectors`.
        vectors: (n, d) float32.
        sample: see `sample_queries`.
        k: at least 1.
    """
    exact = _without(search_flat(vectors, sample.queries, k + 1), sample.own)
    measured: list[Measured] = []
    for effort in searcher.efforts:
        found = searcher.search(vectors, sample.queries, k + 1, effort=effort)
        measured.append(Measured(effort, recall_at(_without(found, sample.own), exact, k)))
        if measured[-1].recall == 1:
            break
    return measured


def cheapest(measured: Sequence[Measured], target: float) -> int:
    """The least effort whose recall is `target` or more.

    Args:
        measured: at least one.
        target: above 0, at most 1.

    Raises:
        ConfigError: none reaches it, or the target is no such number.
    """
    if not 0 < target <= 1:
        raise ConfigError(f"--recall {target}: expected a number above 0 and at most 1")
    enough = [one.effort for one in measured if one.recall >= target]
    if not enough:
        best = max(measured, key=lambda one: one.recall)
        raise ConfigError(
            f"--recall {target}: the best that this structure reaches is {best.recall:.4f}, at "
            f"effort {best.effort}; ask for less, or `retriever rebuild` with another --index-type"
        )
    return min(enough)


def _without(found: Found, own: NDArray[np.int64]) -> Found:
    """Results without the passage that each query was made from."""
    kept = [positions != mine for (positions, _), mine in zip(found, own, strict=True)]
    return [
        (positions[keep], scores[keep])
        for (positions, scores), keep in zip(found, kept, strict=True)
    ]
