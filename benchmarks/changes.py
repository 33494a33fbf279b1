"""The cost of changes: batch after batch, one document a call, equal ids, fields, equal scores.

    python benchmarks/changes.py [--passages 100000] [--batch 1000] [--documents 1000]

- Batches of random vectors and Zipfian words, each a run of its own, with the merge that ends it.
  *Written* is the bytes of all segments ever written over those of the segments that are left.
- One document per call of `add`, with encoding, each durable when the call returns.
- 200 updates of one document in one call, and 200 documents with distinct ids.
- 16,384 documents of 1 and of 100 metadata fields; then one more, and the bytes that it writes.
- Searches where half of the passages have equal scores, and searches where none have.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from indexes import Query
from indexes.folder.writer import FolderWriter
from indexes.protocol import NewDocument, no_progress
from retriever import Document, Index, SearchSettings
from retriever.search.engine import ranked_hits

DIMENSIONS = 384
WORDS, VOCABULARY = 30, 200_000
QUERIES = 20


def main() -> None:
    """Measure all and print two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=1000, help="added one at a time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for line in batches(folder / "batches", arguments.passages, arguments.batch):
            print(line, flush=True)
        print("\n| | |\n|---|---|")
        for measured in (
            one_at_a_time(folder / "one", arguments.documents),
            updates_of_one(folder / "updates"),
            many_fields(folder),
            ties(folder / "ties", arguments.passages),
        ):
            for name, value in measured:
                print(f"| {name} | {value} |", flush=True)


def batches(folder: Path, passages: int, size: int) -> Iterator[str]:
    """The lines of a table of tenths of the way."""
    number_of_batches = passages // size
    segment_bytes: dict[int, int] = {}
    commits: list[float] = []
    merges: list[float] = []
    yield "| passages | segments | commit, ms (median) | merging, ms a batch (mean) | written |"
    yield "|---|---|---|---|---|"
    with _writer(folder) as writer:

        def counted(name: str, total: int) -> Callable[[int], object]:
            # What is merged again in the same run is written too.
            _count(writer, segment_bytes)
            return no_progress(name, total)

        for number in range(number_of_batches):
            chance = np.random.default_rng(number)
            words = np.minimum(chance.zipf(1.2, (size, WORDS)), VOCABULARY)
            terms = [[f"w{word}" for word in row] for row in words]
            documents = [
                _document(f"{number}-{i}", " ".join(row), {}) for i, row in enumerate(terms)
            ]
            commits.append(_timed(partial(writer.commit, documents, _vectors(chance, size), terms)))
            _count(writer, segment_bytes)
            before = time.perf_counter()
            writer.merge(counted)
            writer.optimize_after_run(size, counted)
            merges.append(time.perf_counter() - before)
            _count(writer, segment_bytes)
            if (number + 1) % max(1, number_of_batches // 10) == 0:
                remaining = [segment_bytes[live.segment.number] for live in writer.segments()]
                yield (
                    f"| {(number + 1) * size:,} | {len(remaining)} "
                    f"| {1000 * statistics.median(commits):.0f} "
                    f"| {1000 * statistics.fmean(merges):.0f} "
                    f"| {sum(segment_bytes.values()) / sum(remaining):.2f} |"
                )
                commits, merges = [], []
        yield f"\ncompact: {_timed(writer.compact):.1f} s"


def _count(writer: FolderWriter, segment_bytes: dict[int, int]) -> None:
    """Note the bytes of each segment by its number."""
    for live in writer.segments():
        folder = live.segment.folder
        segment_bytes.setdefault(
            live.segment.number, sum(path.stat().st_size for path in folder.iterdir())
        )


def one_at_a_time(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    """Adding one document a call to an index of the default encoder."""
    with Index.create(folder) as index:
        index.add([Document("first", "The first document loads the encoder.")])
        seconds = [_timed(partial(index.add, [_sentence(number)])) for number in range(count)]
        hits = index.search(f"number {count - 1}", SearchSettings(mode="bm25", k=1))
        assert hits[0].id == f"d{count - 1}"
    p50, p95 = 1000 * np.percentile(seconds, [50, 95])
    mean = 1000 * statistics.fmean(seconds)
    name = f"adding one document, mean of {count:,} / p50 / p95, ms"
    yield name, f"{mean:.1f} / {p50:.1f} / {p95:.1f}"


def updates_of_one(folder: Path) -> Iterator[tuple[str, str]]:
    """Equal and distinct ids in one call."""
    with Index.create(folder) as index:
        index.add([_sentence(0)])
        equal = [Document("same", f"The version of number {number}.") for number in range(200)]
        took = _timed(lambda: index.add(equal))
        assert len(index.search("version", SearchSettings(mode="bm25", k=3))) == 1
        distinct = [Document(f"e{number}", equal[number].text) for number in range(200)]
        again = _timed(lambda: index.add(distinct))
    yield "200 updates of one id / of distinct ids, s", f"{took:.2f} / {again:.2f}"


def many_fields(folder: Path) -> Iterator[tuple[str, str]]:
    """A commit of documents with few and with many fields."""
    for fields in (1, 100):
        chance = np.random.default_rng(fields)
        values = chance.integers(0, 50, (16_385, fields))
        rows = [{f"f{i}": int(value) for i, value in enumerate(row)} for row in values]
        documents = [_document(f"d{i}", "word", row) for i, row in enumerate(rows)]
        vectors, terms = _vectors(chance, 16_384), [["word"]] * 16_384
        with _writer(folder / f"fields{fields}") as writer:
            took = _timed(partial(writer.commit, documents[:-1], vectors, terms))
            before = _written()
            again = _timed(partial(writer.commit, documents[-1:], vectors[:1], terms[:1]))
        name = f"16,384 documents of {fields} fields, s; one more, ms; which writes"
        yield name, f"{took:.2f}; {1000 * again:.1f}; {(_written() - before) / 1000:.0f} kB"


def ties(folder: Path, passages: int) -> Iterator[tuple[str, str]]:
    """Searches in which half of the passages score the same, and in which none do."""
    chance = np.random.default_rng(0)
    half = passages // 2
    vectors = _vectors(chance, passages)
    vectors[:half] = vectors[0]
    # Passages with "tie" are equal; each with "own" has a length of its own.
    terms = [
        ["tie", "x"] if i < half else ["own"] + ["y"] * min(i % 997, 39) for i in range(passages)
    ]
    order = chance.permutation(passages).tolist()
    with _writer(folder) as writer:
        documents = [_document(f"d{number:07}", f"Passage {number}.", {}) for number in order]
        writer.commit(documents, vectors[order], iter([terms[number] for number in order]))
    with Index.open(folder) as index, index._opened.view() as view:
        for mode in ("bm25", "dense"):
            durations: dict[str, list[float]] = {"tie": [], "own": []}
            for number in range(QUERIES):
                for word, near in (("tie", vectors[0]), ("own", vectors[half + number])):
                    arguments = SearchSettings(mode=mode, k=10), [Query([word], near)]  # type: ignore[arg-type]
                    durations[word].append(_timed(partial(ranked_hits, view, *arguments)))
            tied, free = (1000 * statistics.median(seconds) for seconds in durations.values())
            name = f"{mode}, half of {passages:,} passages tie / none do, ms"
            yield name, f"{tied:.2f} / {free:.2f} ({tied / free:.1f} times)"


def _writer(folder: Path) -> FolderWriter:
    """Open a writer of a new index with the default encoder, which is never called."""
    Index.create(folder).close()
    return FolderWriter(folder)


def _vectors(chance: np.random.Generator, count: int) -> Any:
    vectors = chance.standard_normal((count, DIMENSIONS), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _sentence(number: int) -> Document:
    return Document(f"d{number}", f"A sentence of some words that ends in number {number}.")


def _document(id_: str, text: str, metadata: dict[str, Any]) -> NewDocument:
    return NewDocument(id_, None, text, metadata, bytes(16), [(0, len(text))])


def _written() -> int:
    """Bytes that this process has handed to the system to be written."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar:")).split()[1])


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
