"""The cost of adding as an index grows: batches of random vectors and Zipfian words.

    python benchmarks/adding.py [--passages N] [--batch N] [--dimensions D]

Nothing is encoded. Committing a batch and merging are timed separately. Write amplification is the
size of all segments ever written, over the size of the one that is left at the end.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.folder.segment import LiveSegment
from indexes.folder.writer import FolderWriter
from indexes.protocol import NewDocument

WORDS_OF_A_PASSAGE = 30
VOCABULARY = 200_000


def main() -> None:
    """Add batch after batch and print a table of tenths of the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--dimensions", type=int, default=384)
    arguments = parser.parse_args()
    batches = arguments.passages // arguments.batch
    with (
        tempfile.TemporaryDirectory() as place,
        FolderWriter(Path(place) / "index", create={}) as writer,
    ):
        known: set[int] = set()
        commits, merges, written = [], [], 0
        print(
            "| passages | segments | commit, ms (median) | merging, ms a batch (mean) | written |"
        )
        print("|---|---|---|---|---|")
        for number in range(batches):
            documents, vectors, tokens = _batch(number, arguments.batch, arguments.dimensions)
            start = time.perf_counter()
            writer.commit(documents, vectors, tokens)
            committed = time.perf_counter()
            written += _new_bytes(writer.segments(), known)
            commits.append(committed - start)
            merging = 0.0
            # Each batch is a run of its own, as a call of `Index.add` is.
            is_settled = False
            while not is_settled:
                before = time.perf_counter()
                is_settled = not writer.merge_once()
                if is_settled:
                    writer.settle(arguments.batch)
                merging += time.perf_counter() - before
                written += _new_bytes(writer.segments(), known)
            merges.append(merging)
            live = writer.segments()
            if (number + 1) % max(1, batches // 10) == 0:
                size = sum(map(_bytes, live))
                print(
                    f"| {(number + 1) * arguments.batch:,} | {len(live)} "
                    f"| {1000 * statistics.median(commits):.0f} "
                    f"| {1000 * statistics.fmean(merges):.0f} | {written / size:.2f} |",
                    flush=True,
                )
                commits, merges = [], []
        start = time.perf_counter()
        writer.compact()
        print(f"\ncompact: {time.perf_counter() - start:.1f} s")


def _batch(
    number: int, size: int, dimensions: int
) -> tuple[list[NewDocument], NDArray[np.float32], Iterator[list[str]]]:
    chance = np.random.default_rng(number)
    vectors = chance.standard_normal((size, dimensions), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = np.minimum(chance.zipf(1.2, (size, WORDS_OF_A_PASSAGE)), VOCABULARY)
    tokens = [[f"w{word}" for word in row] for row in words]
    documents = [
        NewDocument(f"{number}-{i}", None, " ".join(row), {}, bytes(16), [(0, len(" ".join(row)))])
        for i, row in enumerate(tokens)
    ]
    return documents, vectors, iter(tokens)


def _new_bytes(live: tuple[LiveSegment, ...], known: set[int]) -> int:
    """The size of the segments that were not known before."""
    new = [one for one in live if one.segment.number not in known]
    known.update(one.segment.number for one in new)
    return sum(map(_bytes, new))


def _bytes(live: LiveSegment) -> int:
    return sum(path.stat().st_size for path in live.segment.folder.iterdir())


if __name__ == "__main__":
    main()
