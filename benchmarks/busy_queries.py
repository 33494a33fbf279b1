"""Warm queries on an idle and on a busy machine: what threads that wait for each other cost.

    python benchmarks/busy_queries.py [--passages 10000,150000] [--busy N] [--queries N]

Passages are those of `benchmarks/scale/synthetic.py`, added as `retriever index` adds them; nothing
is encoded. Each size is searched by a scan and with the structure that it gets. Rounds of queries
run in turns: alone, and beside N processes that compute all the time (default: one per core).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "scale"))
from synthetic import blocks
from synthetic import queries as synthetic_queries

from indexes import Query
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter
from indexes.protocol import NewDocument, StructureSettings
from retriever import SearchSettings
from retriever.search.engine import Engine

_COMMITTED = 60_000
_ROUNDS = 3


def main() -> None:
    """Build each index and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", default="10000,150000")
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--queries", type=int, default=100)
    arguments = parser.parse_args()
    texts, vectors = synthetic_queries(arguments.queries)
    asked = [Query(text.split(), vector) for text, vector in zip(texts, vectors, strict=True)]
    print(
        "| passages | structure | mode | alone, ms (p50 / p95) | busy, ms (p50 / p95) | p95 / p50 |"
    )
    print("|---|---|---|---|---|---|")
    for size in map(int, arguments.passages.split(",")):
        for kind in ("flat", "auto"):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "index"
                names = _build(folder, size, kind)
                if kind == "auto" and names == {"flat"}:
                    continue
                for mode, (alone, busy) in _measured(folder, asked, arguments.busy).items():
                    print(
                        f"| {size:,} | {', '.join(sorted(names))} | {mode} | {_shown(alone)} "
                        f"| {_shown(busy)} | {_p95(busy) / statistics.median(busy):.1f} |",
                        flush=True,
                    )


def _build(folder: Path, size: int, kind: str) -> set[str]:
    """Make an index; the names of its structures."""
    settings = {"encoder": {}, "structures": StructureSettings(kind).to_json()}
    with FolderWriter(folder, create=settings) as writer:
        for start in range(0, size, _COMMITTED):
            parts = list(blocks(start, min(start + _COMMITTED, size)))
            texts = [text for _, part, _ in parts for text in part]
            documents = [
                NewDocument(f"{number}", None, text, {}, bytes(16), [(0, len(text))])
                for number, text in enumerate(texts, start=start)
            ]
            vectors = np.concatenate([vectors for _, _, vectors in parts])
            writer.commit(documents, vectors, (text.split() for text in texts))
            writer.merge()
        writer.settle(size)
        return {live.segment.structure.name for live in writer.segments()}


def _measured(
    folder: Path, asked: Sequence[Query], processes: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of each query by mode, alone and beside busy processes."""
    seconds: dict[tuple[str, bool], list[float]] = defaultdict(list)
    modes = ("dense", "hybrid")
    reader = FolderReader(folder)
    for mode in modes:
        _round(reader, asked, mode)
    for _ in range(_ROUNDS):
        for is_busy in (False, True):
            with busy(processes if is_busy else 0):
                for mode in modes:
                    seconds[mode, is_busy] += _round(reader, asked, mode)
    reader.close()
    return {mode: (seconds[mode, False], seconds[mode, True]) for mode in modes}


def _round(reader: FolderReader, asked: Sequence[Query], mode: str) -> list[float]:
    settings, seconds = SearchSettings(mode=mode, k=10), []  # type: ignore[arg-type]
    for query in asked:
        started = time.perf_counter()
        with reader.view() as view:
            Engine(view, settings).search([query])
        seconds.append(time.perf_counter() - started)
    return seconds


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that compute until the block ends."""
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=_compute, daemon=True) for _ in range(processes)]
    for process in running:
        process.start()
    if running:
        time.sleep(1)
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.join()


def _compute() -> None:
    while True:
        sum(range(10_000))


def _shown(seconds: Sequence[float]) -> str:
    return f"{1000 * statistics.median(seconds):.2f} / {1000 * _p95(seconds):.2f}"


def _p95(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(0.95 * len(seconds))]


if __name__ == "__main__":
    main()
