"""Recall@10 of filters that correlate with the position of vectors.

    python benchmarks/leaning_filters.py [--passages 1000000] [--type auto]

Vectors and queries are those of `benchmarks/scale`. A filter allows each passage with its own
probability: the same for all; by region, from half the mean to one and a half times the mean; or
the lower, the nearer a passage is to any of the queries.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.filters.allowed import Allowed
from indexes.protocol import StructureSettings
from indexes.vectors.flat import search_flat
from indexes.vectors.structure import SegmentStructure, build_structure, search_vectors

sys.path.insert(0, str(Path(__file__).parent / "scale"))
from synthetic import blocks, queries

QUERIES, TOP, REGIONS = 100, 10, 200
SHARES = (0.5, 0.05, 0.01)
LEANING = (2, 4, 10)


def main() -> None:
    """Build one structure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--type", default="auto")
    arguments = parser.parse_args()
    vectors = np.concatenate([part for _, _, part in blocks(0, arguments.passages)])
    _, asked = queries(QUERIES)
    n = len(vectors)
    chance = np.random.default_rng(0)
    nearness = np.max(vectors @ asked.T, axis=1)
    ranks = np.argsort(np.argsort(nearness)) / n
    regions = np.argmax(vectors @ vectors[chance.choice(n, REGIONS)].T, axis=1)
    by_region = 1 + chance.uniform(-0.5, 0.5, REGIONS)[regions]
    weights = {"evenly": np.ones(n), "by region, 1 to 3": by_region}
    for times in LEANING:
        farthest = 2 * times / (times + 1)
        weights[f"away from the queries, 1 to {times}"] = farthest * (1 - (1 - 1 / times) * ranks)
    with tempfile.TemporaryDirectory() as folder:
        structure = build_structure(Path(folder), vectors, StructureSettings(arguments.type))
        print(f"{n:,} passages, {structure.name}\n")
        print("| drawn | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |")
        print("|---" * (1 + len(SHARES)) + "|")
        for name, weight in weights.items():
            found = [
                _recall(structure, vectors, asked, chance.random(n) < share * weight)
                for share in SHARES
            ]
            print(f"| {name} | " + " | ".join(f"{recall:.3f}" for recall in found) + " |")


def _recall(
    structure: SegmentStructure,
    vectors: NDArray[np.float32],
    asked: NDArray[np.float32],
    mask: NDArray[np.bool_],
) -> float:
    allowed = Allowed.of(mask)
    exact = search_flat(vectors, asked, TOP, allowed)
    found = search_vectors(structure, vectors, asked, TOP, allowed)
    shared = [len(np.intersect1d(a[0], b[0])) for a, b in zip(exact, found, strict=True)]
    return float(np.mean(shared)) / TOP


if __name__ == "__main__":
    main()
