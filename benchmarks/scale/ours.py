"""One step of the life of a large index, in a process of its own; prints a line of JSON.

python benchmarks/scale/ours.py build FOLDER PASSAGES TYPE
python benchmarks/scale/ours.py search FOLDER THREADS QUERIES
python benchmarks/scale/ours.py change FOLDER PASSAGES
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count as count_from
from pathlib import Path
from typing import Any

import numpy as np
from measures import PeakMemory, memory, percentiles, size_of, timed
from synthetic import BLOCK, blocks, queries

from indexes.document_rows import NewDocument
from indexes.maintenance import compact, merge, rebuild
from indexes.segment_structure import StructureSettings, search_vectors
from indexes.writer import Writer

COMMITTED = 6 * BLOCK
DEPTH = 100
FILTERS = {"50%": 500, "5%": 50, "0.1%": 1}
NEW_FILTERS = 50


def build(folder: Path, passages: int, index_type: str) -> dict[str, Any]:
    """Add all passages as `retriever index` does, then make one segment of them."""
    from retriever import Index

    Index.create(folder, structures=StructureSettings("flat")).close()
    started = time.perf_counter()
    generating = 0.0
    with PeakMemory() as peak, Writer(folder) as writer:
        for start in range(0, passages, COMMITTED):
            before = time.perf_counter()
            parts = list(blocks(start, min(start + COMMITTED, passages)))
            generating += time.perf_counter() - before
            texts = [text for _, part, _ in parts for text in part]
            _commit(writer, start, texts, np.concatenate([vectors for _, _, vectors in parts]))
            merge(writer)
        added = time.perf_counter()
        rebuild(writer, StructureSettings(index_type))
        built = time.perf_counter()
        compact(writer)
    return {
        "add_s": added - started - generating,
        "structure_s": built - added,
        "bytes": size_of(folder),
        "peak": peak.bytes,
    }


def _commit(writer: Writer, first: int, texts: list[str], vectors: Any) -> None:
    documents = [
        NewDocument(f"{i}", None, text, {"n": i % 1000}, bytes(16), [(0, len(text))])
        for i, text in enumerate(texts, start=first)
    ]
    writer.commit(documents, vectors, (text.split() for text in texts))


def search(folder: Path, threads: int, count: int) -> dict[str, Any]:
    """Open and search; encoding and the imports of Python are left out."""
    import faiss

    from indexes.bm25 import BM25
    from indexes.where import compile_where
    from retriever import Index
    from retriever.engine import Query

    faiss.omp_set_num_threads(threads)
    texts, vectors = queries(count)
    asked = [Query(text.split(), vector) for text, vector in zip(texts, vectors, strict=True)]
    before = memory()
    opened, index = timed(lambda: Index.open(folder))
    # What `Index` reads through; `Index` itself would encode the queries.
    reader = index._reader
    found: dict[str, Any] = {"open_ms": 1000 * opened, "memory_before": before}
    with reader.snapshot() as snapshot:
        found["first_bm25_ms"] = (
            1000
            * timed(
                lambda: BM25(snapshot.segments, None, snapshot.statistics).search(
                    asked[0].terms, DEPTH
                )
            )[0]
        )
        found["memory_open"] = memory()
        found["passages"] = snapshot.statistics.passages
        found["structure"] = [live.segment.structure.name for live in snapshot.segments]
        bm25 = BM25(snapshot.segments, None, snapshot.statistics)
        found["bm25 ranking"] = _latencies(asked, lambda query: bm25.search(query.terms, DEPTH))
        if len(snapshot.segments) == 1:
            live = snapshot.segments[0]
            found["dense ranking"], answers = _dense(live, snapshot.living[0], asked)
            truth = _exact(live, vectors[:100], snapshot.living[0])
            found["recall@10"] = _recall(answers, truth)
            np.save(folder.parent / "truth.npy", truth)
            for share, width in FILTERS.items():
                (allowed,) = snapshot.allowed(compile_where(_filter(0, width)))
                _, answers = _dense(live, allowed, asked[:100])
                truth = _exact(live, vectors[:100], allowed)
                found[f"recall@10, {share}"] = _recall(answers, truth)
    found |= _with_filters(reader, asked)
    found["memory_end"] = memory()
    index.close()
    return found


def _with_filters(reader: Any, asked: list[Any]) -> dict[str, Any]:
    """Latencies of every mode without a filter, behind known ones and behind new ones.

    In turns, query by query, so that what the machine does meanwhile meets all alike.
    """
    from indexes.where import compile_where
    from retriever import SearchSettings
    from retriever.engine import Engine

    found: dict[str, Any] = {}
    numbers = count_from(1)
    for mode in ("bm25", "dense", "hybrid"):
        settings = SearchSettings(mode=mode, k=10)

        def ask(query: Any, where: str = "", settings: Any = settings) -> None:
            with reader.snapshot() as snapshot:
                Engine(snapshot, settings, compile_where(where) if where else None).search([query])

        seconds: dict[str, list[float]] = defaultdict(list)
        for number, query in enumerate([*asked[:5], *asked]):
            asks = {mode: ask}
            for share, width in FILTERS.items():
                asks[f"{mode}, {share}"] = partial(ask, where=_filter(0, width))
                if number < 5 + NEW_FILTERS:
                    new = _filter(next(numbers), width)
                    asks[f"{mode}, new, {share}"] = partial(ask, where=new)
            for name, one in asks.items():
                took = timed(partial(one, query))[0]
                if number >= 5:
                    seconds[name].append(took)
        found |= {name: percentiles(each) for name, each in seconds.items()}
    return found


def _filter(first: int, width: int) -> str:
    """Allows so many thousandths of all passages; another one for each `first`."""
    return f"n >= {first} and n < {first + width}" if width > 1 else f"n = {first}"


def _latencies(asked: list[Any], ask: Callable[[Any], object]) -> dict[str, float]:
    for query in asked[:5]:
        ask(query)
    return percentiles([timed(partial(ask, query))[0] for query in asked])


def _dense(live: Any, allowed: Any, asked: list[Any]) -> tuple[dict[str, float], list[Any]]:
    segment, answers = live.segment, []

    def ask(query: Any) -> None:
        rows = search_vectors(segment.structure, segment.vectors, query.vector[None], 10, allowed)
        answers.append(rows[0][0])

    found = _latencies(asked, ask)
    return found, answers[5:]


def _exact(live: Any, vectors: Any, allowed: Any) -> Any:
    """(q, 10) the positions that an exact search finds."""
    from indexes.dense import search_flat

    found = search_flat(live.segment.vectors, vectors, 10, allowed)
    return np.stack([positions for positions, _ in found])


def _recall(found: list[Any], exact: Any) -> float:
    shares = [len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, exact, strict=False)]
    return float(np.mean(shares))


def change(folder: Path, passages: int) -> dict[str, Any]:
    """Add a thousand passages, then delete a thousand, each as one command would."""
    _, texts, vectors = next(_more(passages))
    found: dict[str, Any] = {}
    with Writer(folder) as writer:
        found["add_1000_ms"] = 1000 * timed(lambda: _commit(writer, passages, texts, vectors))[0]
        found["delete_1000_ms"] = (
            1000 * timed(lambda: writer.delete([str(i) for i in range(1000)]))[0]
        )
        found["merge_ms"] = 1000 * timed(lambda: merge(writer))[0]
        found["segments"] = len(writer.segments())
    return found


def _more(passages: int) -> Iterator[tuple[int, list[str], Any]]:
    first = -(-passages // BLOCK) * BLOCK
    return blocks(first, first + 1000)


def main() -> None:
    """Do the one step that is asked for."""
    action, folder = sys.argv[1], Path(sys.argv[2])
    found = {
        "build": lambda: build(folder, int(sys.argv[3]), sys.argv[4]),
        "search": lambda: search(folder, int(sys.argv[3]), int(sys.argv[4])),
        "change": lambda: change(folder, int(sys.argv[3])),
    }[action]()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
