"""Search every set of layers, compared with a naive vectorized search in the same run.

    python benchmarks/layer_search.py [--naive-sample N] [--output REPORT.md]

The case of Hosseini et al. 2023, Appendix A: 1,000 pairs, 13 hidden states of 768 dimensions, 8,191
sets, in float64, from the pooled vectors of the layers to the objective of every set (the paper:
5.65 s, and 1,067 s for its naive one). Then 24 layers with sets of up to 8, with the peak memory.
Vectors are random with a common part, so that cosines differ; some pairs are identical texts.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from eval.layers.search import Task, subset_values
from eval.layers.subsets import LayerSubsets, layer_subsets, pair_grams
from eval.metrics.correlation import CORRELATED_DECIMALS, Correlation

Vectors = NDArray[np.float32]
_DEEP = (350, 25, 1024)
_IDENTICAL = 20


def main() -> None:
    """Run both parts and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--hidden-states", type=int, default=13)
    parser.add_argument("--dimensions", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=5, help="searches; the median counts")
    parser.add_argument(
        "--naive-sample",
        type=int,
        help="number of sets that the naive way is timed on",
    )
    parser.add_argument("--output", type=Path, help="write the report here too")
    parser.add_argument("--deep", action="store_true", help="the 24-layer part alone")
    arguments = parser.parse_args()
    if arguments.deep:
        print("\n".join(_deep()))
        return
    # In a process of its own, so that its peak memory is its own; and first, because Linux counts
    # what a process held when it started another as the peak of that one.
    deep = subprocess.run(
        [sys.executable, __file__, "--deep"], check=True, capture_output=True, text=True
    ).stdout
    lines = [
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; "
        f"Python {platform.python_version()}, numpy {np.__version__}",
        "",
        *_against_naive(arguments),
        "",
        deep.rstrip(),
    ]
    report = "\n".join(lines)
    print(report)
    if arguments.output:
        arguments.output.write_text(report + "\n", encoding="utf-8")


def _against_naive(arguments: argparse.Namespace) -> list[str]:
    shape = (arguments.pairs, arguments.hidden_states, arguments.dimensions)
    left, right, gold = _made(*shape)
    subsets = layer_subsets(arguments.hidden_states)
    times = []
    for _ in range(arguments.repeats):
        start = time.perf_counter()
        values = _fast(left, right, gold, subsets)
        times.append(time.perf_counter() - start)
    fast = statistics.median(times)
    sample = arguments.naive_sample
    if sample is None or sample >= len(subsets):
        places: Sequence[int] = range(len(subsets))
    else:
        places = np.random.default_rng(1).choice(len(subsets), sample, replace=False).tolist()
    start = time.perf_counter()
    naive_values = _naive(left, right, gold, [subsets.layers(place) for place in places])
    measured = time.perf_counter() - start
    naive = measured * len(subsets) / len(places)
    apart = float(np.abs(naive_values - values[list(places)]).max())
    if apart > 1e-9:
        raise SystemExit(f"the two ways differ by {apart:.1e}: expected at most 1e-9")
    how = "in full" if len(places) == len(subsets) else f"extrapolated from {len(places):,} sets"
    return [
        f"{shape[0]:,} pairs, {shape[1]} hidden states, {shape[2]} dimensions, "
        f"{len(subsets):,} sets, Spearman, float64",
        "",
        "| | seconds |",
        "|---|---|",
        f"| search (median of {len(times)}; {min(times):.3f} to {max(times):.3f}) | {fast:.3f} |",
        f"| naive, {how} | {naive:.1f} |",
        f"| ratio | {naive / fast:,.0f} |",
        "",
        f"Largest difference between the objectives of the two: {apart:.1e}",
    ]


def _deep() -> list[str]:
    pairs, hidden_states, dimensions = _DEEP
    left, right, gold = _made(pairs, hidden_states, dimensions)
    subsets = layer_subsets(hidden_states, 8)
    before = _peak_mb()
    start = time.perf_counter()
    _fast(left, right, gold, subsets)
    seconds = time.perf_counter() - start
    return [
        f"{pairs} pairs, {hidden_states} hidden states, {dimensions} dimensions, sets of up to 8 "
        f"({len(subsets):,}): {seconds:.1f} s, peak memory {_peak_mb():.0f} MB, of which "
        f"{before:.0f} MB before the search (vectors and Python)"
    ]


def _fast(
    left: Vectors, right: Vectors, gold: NDArray[np.float64], subsets: LayerSubsets
) -> NDArray[np.float64]:
    return subset_values(Task(pair_grams(left, right), Correlation(gold)), subsets)


def _naive(
    left: Vectors, right: Vectors, gold: NDArray[np.float64], sets: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Each set separately: mean over its layers, cosines, ranks; in its fastest layout."""
    a, b = (
        np.ascontiguousarray(side.transpose(1, 0, 2), dtype=np.float64) for side in (left, right)
    )
    gold_ranks = rankdata(gold)
    values = np.empty(len(sets))
    for place, layers in enumerate(sets):
        x, y = a[list(layers)].mean(axis=0), b[list(layers)].mean(axis=0)
        products = np.einsum("ij,ij->i", x, y)
        squares = np.einsum("ij,ij->i", x, x) * np.einsum("ij,ij->i", y, y)
        ranks = rankdata(np.round(products / np.sqrt(squares), CORRELATED_DECIMALS))
        values[place] = np.corrcoef(ranks, gold_ranks)[0, 1]
    return values


def _made(
    pairs: int, hidden_states: int, dimensions: int
) -> tuple[Vectors, Vectors, NDArray[np.float64]]:
    random = np.random.default_rng(0)
    shared = random.standard_normal((pairs, 1, dimensions), dtype=np.float32)
    alike = random.random((pairs, 1, 1), dtype=np.float32)
    left, right = (
        random.standard_normal((pairs, hidden_states, dimensions), dtype=np.float32)
        for _ in range(2)
    )
    left += shared
    right += alike * shared
    right[:_IDENTICAL] = left[:_IDENTICAL]
    gold = np.round(5 * alike[:, 0, 0] + random.standard_normal(pairs), 1).astype(np.float64)
    return left, right, gold


def _peak_mb() -> float:
    # Kilobytes on Linux, bytes on macOS.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    main()
