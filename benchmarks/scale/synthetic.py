"""Passages with Zipfian words and clustered vectors, any range of them, and measurements.

Words are ranks of a Zipf-Mandelbrot law over 500,000 words of which the 50 most frequent, the stop
words, are left out, as by an analyzer. Vectors come from 1,024 clusters of a space of 32
dimensions, projected to 384 with a little noise. Embeddings of real texts may be harder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 384
BLOCK = 10_000
STOP_WORDS = 50
VOCABULARY = 500_000
MEAN_LENGTH = 30
QUERY_WORDS = 8
_CLUSTERS, _INNER = 1024, 32
_SPREAD, _NOISE = 0.7, 0.02
_QUERY_SEED = 2**31
T = TypeVar("T")


def blocks(first: int, stop: int) -> Iterator[tuple[int, list[str], NDArray[np.float32]]]:
    """(number of the first, texts, vectors) of passages `first` to `stop`, a block at a time."""
    for number in range(first // BLOCK, -(-stop // BLOCK)):
        start = number * BLOCK
        rows = slice(max(first - start, 0), min(stop - start, BLOCK))
        chance = np.random.default_rng(number)
        texts, vectors = _texts(chance, BLOCK), _vectors(chance, BLOCK)
        yield start + rows.start, texts[rows], vectors[rows]


def queries(count: int) -> tuple[list[str], NDArray[np.float32]]:
    """Queries that belong to no passage: eight words of one text each, and a vector."""
    chance = np.random.default_rng(_QUERY_SEED)
    texts = _texts(chance, 4 * count)
    long = [text.split() for text in texts if len(set(text.split())) >= QUERY_WORDS]
    query_texts = [" ".join(list(dict.fromkeys(words))[:QUERY_WORDS]) for words in long[:count]]
    return query_texts, _vectors(chance, count)


def _texts(chance: np.random.Generator, count: int) -> list[str]:
    lengths = np.maximum(1, chance.lognormal(np.log(MEAN_LENGTH) - 0.125, 0.5, count).astype(int))
    ranks = np.searchsorted(_law(), chance.random(lengths.sum())) + STOP_WORDS
    ends = np.cumsum(lengths).tolist()
    words = [f"w{rank}" for rank in ranks.tolist()]
    return [" ".join(words[start:stop]) for start, stop in zip([0, *ends[:-1]], ends, strict=True)]


@cache
def _law() -> NDArray[np.float64]:
    weights = 1 / (np.arange(VOCABULARY) + 2.7)
    cumulative = np.cumsum(weights[STOP_WORDS:])
    return np.asarray(cumulative / cumulative[-1])


@cache
def _space() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    chance = np.random.default_rng(2**32)
    centers = chance.standard_normal((_CLUSTERS, _INNER), np.float32)
    # The spectrum of embeddings falls; so does this one.
    scale = np.arange(1, _INNER + 1, dtype=np.float32) ** -0.25
    turned = chance.standard_normal((_INNER, DIMENSIONS), np.float32) * scale[:, None]
    return centers, turned


def _vectors(chance: np.random.Generator, count: int) -> NDArray[np.float32]:
    centers, turned = _space()
    inner = centers[chance.integers(0, _CLUSTERS, count)]
    inner = inner + _SPREAD * chance.standard_normal(inner.shape, np.float32)
    vectors = inner @ turned
    vectors += (
        _NOISE
        * np.linalg.norm(vectors, axis=1, keepdims=True)
        * chance.standard_normal(vectors.shape, np.float32)
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Seconds that a call takes, and what it returns."""
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p95 in milliseconds."""
    p50, p95 = 1000 * np.percentile(seconds, [50, 95])
    return {"p50": float(p50), "p95": float(p95)}


def memory() -> dict[str, int]:
    """Bytes of this process: its own (`anonymous`), with mapped files (`resident`), the `peak`."""
    names = {"VmHWM": "peak", "VmRSS": "resident", "RssAnon": "anonymous"}
    measurements = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in names:
            measurements[names[name]] = 1024 * int(value.split()[0])
    return measurements


def size_of(folder: Path) -> int:
    """Bytes of every file below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
