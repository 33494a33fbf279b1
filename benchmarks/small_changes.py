"""The cost of small changes, equal scores and many fields.

    python benchmarks/small_changes.py [--documents 1000] [--passages 100000]

- One document per call of `add`, with encoding, each durable when the call returns.
- 200 updates of one document in one call, and 200 documents with distinct ids.
- 16,384 documents of 100 metadata fields, and of 1 field; then one more document, and the bytes
  that it writes to the disk.
- Searches where half of the passages have equal scores, and searches where none have.

Vectors are random except in the first item. Times are of this process, on one thread.
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

from indexes.folder.writer import FolderWriter
from indexes.protocol import NewDocument
from retriever import Document, Index, SearchSettings

DIMENSIONS = 384
QUERIES = 20


def main() -> None:
    """Measure all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--passages", type=int, default=100_000)
    arguments = parser.parse_args()
    print("| | |\n|---|---|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for measured in (
            one_at_a_time(folder / "one", arguments.documents),
            updates_of_one(folder / "updates"),
            many_fields(folder),
            ties(folder / "ties", arguments.passages),
        ):
            for name, value in measured:
                print(f"| {name} | {value} |", flush=True)


def one_at_a_time(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    """Adding one document a call to an index of the default encoder."""
    with Index.create(folder) as index:
        index.add([Document("first", "The first document loads the encoder.")])
        seconds = [_timed(partial(index.add, [_sentence(number)])) for number in range(count)]
        found = index.search(f"number {count - 1}", SearchSettings(mode="bm25", k=1))
        assert found[0].id == f"d{count - 1}"
    p50, p95 = 1000 * np.percentile(seconds, [50, 95])
    mean = 1000 * statistics.fmean(seconds)
    yield (
        f"adding one document, mean of {count:,} / p50 / p95, ms",
        f"{mean:.1f} / {p50:.1f} / {p95:.1f}",
    )


def _sentence(number: int) -> Document:
    return Document(f"d{number}", f"A sentence of some words that ends in number {number}.")


def updates_of_one(folder: Path) -> Iterator[tuple[str, str]]:
    """Equal and distinct ids in one call."""
    with Index.create(folder) as index:
        index.add([_sentence(0)])
        equal = [Document("same", f"The version of number {number}.") for number in range(200)]
        took = _timed(lambda: index.add(equal))
        assert len(index.search("version", SearchSettings(mode="bm25", k=3))) == 1
        distinct = [Document(f"e{number}", equal[number].text) for number in range(200)]
        yield (
            "200 updates of one id / of distinct ids, s",
            (f"{took:.2f} / {_timed(lambda: index.add(distinct)):.2f}"),
        )


def many_fields(folder: Path) -> Iterator[tuple[str, str]]:
    """A commit of documents with few and with many fields."""
    for fields in (1, 100):
        chance = np.random.default_rng(fields)
        values = chance.integers(0, 50, (16_385, fields))
        rows = [{f"f{i}": int(value) for i, value in enumerate(row)} for row in values]
        with FolderWriter(folder / f"fields{fields}", create=_settings()) as writer:
            documents = [_document(number, rows[number]) for number in range(16_384)]
            vectors = chance.standard_normal((16_384, DIMENSIONS), np.float32)
            terms = [["word"]] * 16_384
            took = _timed(partial(writer.commit, documents, vectors, terms))
            before = _written()
            more = [_document(16_384, rows[-1])]
            again = _timed(partial(writer.commit, more, vectors[:1], terms[:1]))
            yield (
                f"16,384 documents of {fields} fields, s; one more, ms; which writes",
                f"{took:.2f}; {1000 * again:.1f}; {(_written() - before) / 1000:.0f} kB",
            )


def ties(folder: Path, passages: int) -> Iterator[tuple[str, str]]:
    """Searches in which half of the passages score the same, and in which none do."""
    from indexes import Query
    from retriever.search.engine import Engine

    chance = np.random.default_rng(0)
    half = passages // 2
    vectors = chance.standard_normal((passages, DIMENSIONS), np.float32)
    vectors[:half] = vectors[0]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # Passages with "tie" are equal; each with "own" has a length of its own.
    terms = [["tie", "x"] if i < half else ["own"] + ["y"] * (i % 997) for i in range(passages)]
    terms[half:] = [row[:40] for row in terms[half:]]
    order = chance.permutation(passages)
    with FolderWriter(folder, create=_settings()) as writer:
        documents = [_document(int(number), {}) for number in order]
        writer.commit(documents, vectors[order], iter([terms[int(number)] for number in order]))
    with Index.open(folder) as index:
        # Its name in an earlier release, so that both can be measured.
        reader: Any = getattr(index, "_opened", None) or index._reader
        for mode in ("bm25", "dense"):
            taken: dict[str, list[float]] = {"tie": [], "own": []}
            for number in range(QUERIES):
                for word, near in (("tie", vectors[0]), ("own", vectors[half + number])):
                    query = Query([word], near)

                    def ask(query: Query = query, mode: Any = mode) -> None:
                        view = getattr(reader, "view", None) or reader.snapshot
                        with view() as seen:
                            Engine(seen, SearchSettings(mode=mode, k=10)).search([query])

                    taken[word].append(_timed(ask))
            tied, free = (1000 * statistics.median(taken[word]) for word in ("tie", "own"))
            yield (
                f"{mode}, half of {passages:,} passages tie / none do, ms",
                f"{tied:.2f} / {free:.2f} ({tied / free:.1f} times)",
            )


def _document(number: int, metadata: dict[str, Any]) -> NewDocument:
    text = f"Passage {number}."
    return NewDocument(f"d{number:07}", None, text, metadata, bytes(16), [(0, len(text))])


def _settings() -> dict[str, Any]:
    """Settings of an index whose encoder is never asked."""
    from contextlib import closing

    from indexes.folder.connection import open_reader, read_setting

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "index"
        Index.create(folder).close()
        with closing(open_reader(folder)) as connection:
            keys = connection.execute("SELECT key FROM settings").fetchall()
            counters = ("generation", "next_passage", "next_segment", "seal")
            return {key: read_setting(connection, key) for (key,) in keys if key not in counters}


def _written() -> int:
    """Bytes that this process has handed to the system to be written."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return 0


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
