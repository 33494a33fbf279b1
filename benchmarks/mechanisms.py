"""Gain of each mechanism that exists for speed: the same searches with it and without it.

    python benchmarks/mechanisms.py [--sizes 10000 100000] [--queries 100]

Every index holds sentences and made vectors of 384 dimensions; the encoder looks vectors up, so
that encoding takes no time. Each query is asked twice in a row, with the mechanism and without it,
in alternating order. The first queries are not counted. The sentences are those of
`$RETRIEVER_DATA/oewn_sentences/corpus.jsonl`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from indexes.folder.value_ranks import Ranks, RanksCache
from indexes.folder.view import FolderView
from indexes.folder.writer import FolderWriter
from indexes.protocol import Mode, NewDocument
from indexes.vectors.flat import QuantizedVectors
from indexes.vectors.search import ListSearcher
from retriever import Index
from retriever.documents.analyzer import Analyzer, AnalyzerSettings
from retriever.search.opened import OpenedIndex

sys.path.append(str(Path(__file__).parent / "scale"))
import synthetic

NARROW = "n < 50"  # one passage in twenty
WIDE = "n < 500"  # every second passage
_WARM_UP = 20  # queries; flat segments are quantized meanwhile
_ANALYZED = 3000  # sentences
_PASSAGES_OF_LONG = 200


class MadeEncoder:
    """Vectors of queries by their texts."""

    name = "made"
    dimensions = synthetic.DIMENSIONS

    def __init__(self, queries: Sequence[str]) -> None:
        vectors = synthetic.queries(len(queries))[1]
        self._vectors = dict(zip(queries, vectors, strict=True))
        self._other = vectors[0]

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """(texts, dimensions) vectors; texts that are no queries have equal ones."""
        return np.stack([self._vectors.get(text, self._other) for text in texts])


class Mechanism(NamedTuple):
    """Something that can be turned off, and the search that it is for."""

    name: str
    turned_off: Callable[[], Any]
    mode: Mode
    where: str | None = None
    index: str = "ivf-sq8"


def quantized_vectors() -> Any:
    """Scan all vectors in single precision, not their codes."""
    return patch.object(QuantizedVectors, "candidate_positions", lambda *_: None)


def lists_behind_filters() -> Any:
    """Score all allowed vectors, not those of the nearest inverted lists."""
    return patch.object(ListSearcher, "_find_candidates", lambda *_: None)


@contextmanager
def remembered_filters() -> Iterator[None]:
    """Evaluate a filter for each query."""
    allowed = FolderView.allowed

    def evaluate(view: FolderView, where: Any) -> Any:
        view.commit.allowed.clear()
        return allowed(view, where)

    with patch.object(FolderView, "allowed", evaluate):
        yield


@contextmanager
def remembered_ranks() -> Iterator[None]:
    """Read the values of a field for each new filter."""

    def read(_: RanksCache, *key: Any) -> Ranks:
        return Ranks(*key)

    with remembered_filters(), patch.object(RanksCache, "of", read):
        yield


@contextmanager
def remembered_checksums() -> Iterator[None]:
    """Compare the document of each hit with its checksum."""
    passages = FolderView.passages

    def check(view: FolderView, numbers: Sequence[int]) -> Any:
        view.commit.verified.clear()
        return passages(view, numbers)

    with patch.object(FolderView, "passages", check):
        yield


@contextmanager
def remembered_doubts() -> Iterator[None]:
    """Look up for each query whether its filter names fields that no document has."""
    describe_doubt = OpenedIndex.describe_doubt

    def look_up(opened: OpenedIndex, *arguments: Any) -> Any:
        opened._doubts.clear()
        return describe_doubt(opened, *arguments)

    with patch.object(OpenedIndex, "describe_doubt", look_up):
        yield


MECHANISMS = (
    Mechanism("quantized vectors", quantized_vectors, "dense", None, "flat"),
    Mechanism("quantized vectors", quantized_vectors, "dense", WIDE, "flat"),
    Mechanism("inverted lists behind a filter", lists_behind_filters, "dense", WIDE),
    Mechanism("remembered filters", remembered_filters, "bm25", NARROW),
    Mechanism("remembered filters", remembered_filters, "hybrid", WIDE),
    Mechanism("remembered values of a field", remembered_ranks, "hybrid", WIDE),
    Mechanism("remembered doubts about a filter", remembered_doubts, "bm25", NARROW),
    Mechanism("remembered checksums of documents", remembered_checksums, "bm25", None, "long"),
)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "oewn_sentences/corpus.jsonl" if data else None
    parser.add_argument("--corpus", type=Path, default=default, required=default is None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=100)
    arguments = parser.parse_args()
    with arguments.corpus.open(encoding="utf-8") as lines:
        sentences = [json.loads(line)["text"] for line in lines]
    count = _WARM_UP + arguments.queries
    queries = sentences[-count:]
    print("| mechanism | search | passages | with, ms | without, ms | ratio |")
    print("|---|---|---|---|---|---|")
    print_row("remembered words", "analysis of 3,000 sentences", 0, *analysis(sentences))
    for size in arguments.sizes:
        passages = list(itertools.islice(itertools.cycle(sentences[:-count]), size))
        with tempfile.TemporaryDirectory() as folder:
            encoder = MadeEncoder(queries)
            for index_type in ("flat", "ivf-sq8"):
                build(Path(folder) / index_type, encoder, passages, index_type)
            build_long(Path(folder) / "long", encoder, passages)
            for mechanism in MECHANISMS:
                times = compare(Path(folder) / mechanism.index, encoder, mechanism, queries)
                search = " ".join(filter(None, (mechanism.mode, mechanism.where)))
                print_row(mechanism.name, search, size, *times)


def build(folder: Path, encoder: MadeEncoder, passages: Sequence[str], index_type: str) -> None:
    """Make an index of passages with a number each."""
    documents = ({"id": str(i), "text": text, "n": i % 1000} for i, text in enumerate(passages))
    vectors = (row for _, _, rows in synthetic.blocks(0, len(passages)) for row in rows)
    with Index.create(folder, encoder=encoder, index_type=index_type) as index:
        index.add(documents, vectors=vectors)


def build_long(folder: Path, encoder: MadeEncoder, passages: Sequence[str]) -> None:
    """Make an index of documents of 200 passages each."""
    Index.create(folder, encoder=encoder).close()
    with FolderWriter(folder) as writer:
        documents = []
        for start in range(0, len(passages), _PASSAGES_OF_LONG):
            chunk = passages[start : start + _PASSAGES_OF_LONG]
            stops = list(itertools.accumulate(len(passage) for passage in chunk))
            spans = list(zip([0, *stops[:-1]], stops, strict=True))
            documents.append(NewDocument(str(start), None, "".join(chunk), {}, bytes(16), spans))
        vectors = np.concatenate([rows for _, _, rows in synthetic.blocks(0, len(passages))])
        analyzer = Analyzer()
        writer.commit(documents, vectors, map(analyzer.tokens, passages))


def compare(
    folder: Path, encoder: MadeEncoder, mechanism: Mechanism, queries: Sequence[str]
) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each query with the mechanism and without it."""
    times: tuple[list[float], list[float]] = ([], [])
    with Index.open(folder, encoder=encoder) as index:
        for number, query in enumerate(queries):
            for is_off in (False, True) if number % 2 else (True, False):
                with mechanism.turned_off() if is_off else nullcontext():
                    started = time.perf_counter()
                    index.search(query, mode=mechanism.mode, where=mechanism.where, k=10)
                    elapsed = 1000 * (time.perf_counter() - started)
                if number >= _WARM_UP:
                    times[is_off].append(elapsed)
    return times


def analysis(sentences: Sequence[str]) -> tuple[list[float], list[float]]:
    """Return the milliseconds that sentences take with remembered words and without them."""
    times: tuple[list[float], list[float]] = ([], [])
    for forgets in 5 * (False, True):
        analyzer = Analyzer(AnalyzerSettings(language="english"))
        started = time.perf_counter()
        for sentence in sentences[:_ANALYZED]:
            analyzer.tokens(sentence)
            if forgets:
                analyzer._term_tables(("english",)).clear()
        times[forgets].append(1000 * (time.perf_counter() - started))
    return times


def print_row(
    name: str, search: str, size: int, with_it: Sequence[float], without: Sequence[float]
) -> None:
    """Print the medians of two lists of milliseconds and their ratio."""
    fast = statistics.median(with_it)
    slow = statistics.median(without)
    number = f"{size:,}" if size else ""
    print(f"| {name} | {search} | {number} | {fast:.2f} | {slow:.2f} | {slow / fast:.2f} |")


if __name__ == "__main__":
    main()
