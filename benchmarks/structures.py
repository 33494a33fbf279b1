"""Search structures beside each other on embeddings of real texts, in turns.

    retriever encode CORPUS -o vectors.npy && retriever encode QUERIES -o queries.npy
    python benchmarks/structures.py vectors.npy queries.npy [--types ...]

Each structure is built and searched as in an index: candidates are scored again with the kept
vectors. The effort is the least that reaches a recall@10 of 0.95 for the
queries. *share* is the size of the structure beside that of the kept vectors. Times are medians for
the 10 and the 100 best, of the processor, on one thread: other processes change them little.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.protocol import StructureSettings
from indexes.vectors.flat import search_flat
from indexes.vectors.recall import recall_at
from indexes.vectors.structure import Structure, open_structure, write_structure

# {lists} is 4 √n.
TYPES = (
    "ivf;ivf-sq8;ivf-pq;hnsw;HNSW32,SQ8;IVF{lists},SQ4;IVF{lists},SQ6;IVF{lists},RaBitQ;"
    "IVF{lists},RaBitQfs;IVF{lists},RaBitQ4;IVF{lists},RaBitQfs4;RR{d},IVF{lists},RaBitQfs;"
    "IVF{lists},PQ{half}x4fs"
)
RECALL = 0.95
_ROUNDS = 3


def main() -> None:
    """Build all structures, then measure them in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vectors", type=Path, help="(n, d) float32 of length 1")
    parser.add_argument("queries", type=Path, help="(q, d) float32 of length 1")
    parser.add_argument("--types", default=TYPES, help="separated by semicolons")
    parser.add_argument("--asked", type=int, default=200, help="number of queries")
    arguments = parser.parse_args()
    import faiss

    vectors = np.ascontiguousarray(np.load(arguments.vectors))
    queries = np.load(arguments.queries)[: arguments.asked]
    n, d = vectors.shape
    exact = search_flat(vectors, queries, 10)
    print(f"{n:,} vectors of {d} dimensions, {4 * n * d / 1e6:.0f} MB; FAISS {faiss.__version__}\n")
    with tempfile.TemporaryDirectory() as place:
        built: dict[str, tuple[Structure, int, float, float]] = {}
        for number, index_type in enumerate(arguments.types.split(";")):
            name = index_type.format(lists=int(4 * n**0.5), d=d, half=d // 2)
            path = Path(place) / f"{number}"
            started = time.process_time()
            write_structure(path, vectors, StructureSettings(name).choice(n, d))
            seconds = time.process_time() - started
            structure = open_structure(path, n, d)
            effort, recall = _effort(structure, vectors, queries, exact)
            built[name] = structure, effort, recall, seconds
        faiss.omp_set_num_threads(1)
        took: dict[tuple[str, int], list[float]] = {}
        for _ in range(_ROUNDS):
            for name, (structure, effort, *_) in built.items():
                for k in (10, 100):
                    for query in queries:
                        started = time.process_time()
                        structure.searcher.search(vectors, query[None], k, effort=effort)
                        seconds = time.process_time() - started
                        took.setdefault((name, k), []).append(seconds)
        print("| structure | size | share | recall@10 | effort | 10, ms | 100, ms | build, s |")
        print("|---|---|---|---|---|---|---|---|")
        for name, (structure, effort, recall, seconds) in built.items():
            size = structure.facts.bytes
            print(
                f"| {name} | {size / 1e6:.0f} MB | {size / (4 * n * d):.2f} "
                f"| {recall:.3f} | {effort} | {1000 * statistics.median(took[name, 10]):.2f} "
                f"| {1000 * statistics.median(took[name, 100]):.2f} | {seconds:.0f} |"
            )


def _effort(
    structure: Structure, vectors: NDArray[np.float32], queries: NDArray[np.float32], exact: Any
) -> tuple[int, float]:
    """The least effort that reaches the recall, or the best there is, and its recall."""
    best = (structure.searcher.default_effort, 0.0)
    for effort in structure.searcher.efforts:
        results = structure.searcher.search(vectors, queries, 10, effort=effort)
        recall = recall_at(results, exact)
        if recall > best[1]:
            best = effort, recall
        if recall >= RECALL:
            break
    return best


if __name__ == "__main__":
    main()
