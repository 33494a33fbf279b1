"""How long a structure will take to build: counted beforehand, and timed in the small.

How many multiplications it takes is a function of n, d and the structure. How long one takes
depends on the machine and on the vectors, so small structures of the same kinds are built from a
few of the vectors first, on one thread, which takes a second or two at the most. Several threads
are taken to share the work evenly.

A graph's new node is compared with more others the larger the graph is: with about as many as
log2(n / 300) says, for 1,000 to 20,000 vectors of 384 dimensions in 32 links.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from indexes.vectors.build import build_index
from indexes.vectors.choice import FLAT, Choice, StructureSpec, training_size
from indexes.vectors.factory import FactoryFacts
from indexes.vectors.flat import search_flat
from indexes.vectors.library import load_faiss
from indexes.vectors.recall import SAMPLED_QUERIES

# Rows that a trial is built from. A product quantiser's are more, since its speed depends on them.
TRIAL_ROWS = 4096
_GRAPH_ROWS, _LIST_ROWS, _TRIAL_LISTS = 2000, 2048, 512
_TRIAL_PARTS, _MOST_TRIAL_CENTROIDS = 2, 256
_TRIAL_QUERIES = 16  # from 20 on, FAISS computes in another way
_CLUSTERING_ROUNDS, _PRODUCT_ROUNDS = 10, 25
_PRODUCT_SAMPLE = 256  # vectors for each centroid
_CONSTRUCTION = 40
_SMALL_GRAPH = 300
# How often all vectors are read to measure the recall: exactly, and then with efforts that double;
# of lists behind filters, too.
_SCANS_OF_LISTS, _SCANS_OF_OTHERS = 3, 6


@dataclass(frozen=True, slots=True)
class Work:
    """Multiplications, about, that a build takes.

    Attributes:
        lists: to find centroids, and the nearest of them for each vector.
        product: the same in each part of a product quantiser.
        graph: to link each vector with its neighbours.
        scans: to measure the recall.
    """

    lists: int = 0
    product: int = 0
    graph: int = 0
    scans: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.lists + self.product + self.graph + self.scans


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds that one multiplication takes; the attributes are those of `Work`."""

    lists: float = 0.0
    product: float = 0.0
    graph: float = 0.0
    scans: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a build is expected to take; as text, a line for a person.

    Attributes:
        seconds: with the measuring of its recall; 0 for `flat`.
        at_least: the structure trains something else as well, which was not counted.
        build_bytes: memory at the most.
        file_bytes: of the structure's file.
    """

    seconds: float
    at_least: bool
    build_bytes: int
    file_bytes: int

    def __str__(self) -> str:
        more = " and what was not counted" if self.at_least else ""
        return (
            f"{_duration(self.seconds)}{more}, at most {_size(self.build_bytes)} of memory, "
            f"a file of {_size(self.file_bytes)}"
        )


def count_work(facts: FactoryFacts | None, n: int, d: int) -> Work:
    """What it takes to build a structure and to measure its recall.

    Args:
        facts: of the structure; None for `flat`, which takes nothing.
        n: vectors, at least 0.
        d: dimensions, at least 1.
    """
    if facts is None or n == 0:
        return Work()
    sample = training_size(n, facts.lists)
    quantised = min(sample, _PRODUCT_SAMPLE * facts.centroids)
    growth = max(1.0, math.log2(n / _SMALL_GRAPH))
    scans = 1 if facts.links else _SCANS_OF_LISTS if facts.lists else _SCANS_OF_OTHERS
    return Work(
        lists=(_CLUSTERING_ROUNDS * sample + n) * facts.lists * d,
        product=(_PRODUCT_ROUNDS * quantised + n) * facts.centroids * d,
        graph=int(n * _CONSTRUCTION * facts.links * d * growth),
        scans=scans * min(SAMPLED_QUERIES, n) * n * d,
    )


def seconds(work: Work, rates: Rates) -> float:
    """How long the work takes at these rates."""
    return (
        work.lists * rates.lists
        + work.product * rates.product
        + work.graph * rates.graph
        + work.scans * rates.scans
    )


def time_rates(facts: FactoryFacts | None, sample: NDArray[np.float32]) -> Rates:
    """Build small structures of the kinds that a structure consists of, and time them.

    Args:
        facts: of the structure; None for `flat`, which needs none.
        sample: (m, d) float32, C-contiguous: some of the vectors, about `TRIAL_ROWS`, or all.

    Raises:
        MissingExtraError: FAISS is not installed.
    """
    if facts is None or not len(sample):
        return Rates()
    d = sample.shape[1]
    nothing = replace(facts, lists=0, centroids=0, links=0)
    # FAISS loads what it needs with its first search.
    search_flat(sample[:1], sample[:1], 1)
    rates = Rates(scans=_scan_rate(sample))
    if facts.lists:
        rows = sample[:_LIST_ROWS]
        trial = replace(nothing, lists=max(1, min(facts.lists, _TRIAL_LISTS, len(rows) // 4)))
        took = _timed(lambda: _build(rows, f"IVF{trial.lists},Flat"))
        rates = replace(rates, lists=took / count_work(trial, *rows.shape).lists)
    if facts.links:
        rows = sample[:_GRAPH_ROWS]
        trial = replace(nothing, links=facts.links)
        took = _timed(lambda: _build(rows, f"HNSW{facts.links},Flat"))
        rates = replace(rates, graph=took / count_work(trial, *rows.shape).graph)
    if facts.centroids:
        parts = min(facts.parts, _TRIAL_PARTS)
        columns = parts * max(1, d // facts.parts)
        rows = np.ascontiguousarray(sample[:, :columns])
        bits = (min(facts.centroids, _MOST_TRIAL_CENTROIDS, len(rows))).bit_length() - 1
        trial = replace(nothing, centroids=2**bits, parts=parts)
        took = _timed(lambda: _build(rows, f"PQ{parts}x{bits}"))
        rates = replace(rates, product=took / count_work(trial, *rows.shape).product)
    return rates


def estimate(choice: Choice, work: Work, rates: Rates) -> Estimate:
    """What the build of a choice takes."""
    if choice.spec.name == FLAT or choice.facts is None:
        return Estimate(0.0, False, 0, 0)
    return Estimate(
        seconds(work, rates), not choice.facts.counted, choice.build_bytes, choice.memory_bytes
    )


def _build(rows: NDArray[np.float32], factory: str) -> object:
    return build_index(np.ascontiguousarray(rows), StructureSpec(factory, factory), 0)


def _scan_rate(sample: NDArray[np.float32]) -> float:
    queries = sample[:_TRIAL_QUERIES]
    took = _timed(lambda: search_flat(sample, queries, 10))
    return took / (len(queries) * sample.size)


def _timed(action: Callable[[], object]) -> float:
    """Seconds on one thread, divided by how many FAISS has: a trial is too small to share them."""
    faiss = load_faiss()
    threads = int(faiss.omp_get_max_threads())
    faiss.omp_set_num_threads(1)
    try:
        started = time.perf_counter()
        action()
        return (time.perf_counter() - started) / threads
    finally:
        faiss.omp_set_num_threads(threads)


def _duration(length: float) -> str:
    if length < 1:
        return "less than 1 s"
    if length < 100:
        return f"about {length:.0f} s"
    minutes = length / 60
    return f"about {minutes:.0f} min" if minutes < 100 else f"about {minutes / 60:.1f} h"


def _size(count: int) -> str:
    return f"{count / 10**6:,.1f} MB" if count < 10**9 else f"{count / 10**9:,.1f} GB"
