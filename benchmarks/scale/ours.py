"""One step of the life of a large index, in its own process; prints a line of JSON.

python benchmarks/scale/ours.py build FOLDER PASSAGES TYPE
python benchmarks/scale/ours.py search FOLDER QUERIES
python benchmarks/scale/ours.py change FOLDER PASSAGES
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import BLOCK, blocks, memory, percentiles, queries, size_of, timed

from indexes.folder.writer import FolderWriter
from indexes.protocol import NewDocument, StructureSettings

COMMITTED = 6 * BLOCK
DEPTH = 100
TOP = 10
RECALLED = 100
FILTERS = {"50%": 500, "5%": 50, "0.1%": 1}
NEW_FILTERS = 50


class PeakMemory:
    """Peak of the private memory of this process during the block, in `bytes`.

    Sampled ten times a second. The system's own peak would include mapped files, whose memory it
    can reclaim.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            self.bytes = max(self.bytes, memory()["anonymous"])


def build(folder: Path, passages: int, index_type: str) -> dict[str, Any]:
    """Add all passages and leave what `retriever index` leaves."""
    from retriever import Index

    Index.create(folder, structures=StructureSettings(index_type)).close()
    started = time.perf_counter()
    generating = 0.0
    with PeakMemory() as peak, FolderWriter(folder) as writer:
        for start in range(0, passages, COMMITTED):
            before = time.perf_counter()
            parts = list(blocks(start, min(start + COMMITTED, passages)))
            generating += time.perf_counter() - before
            texts = [text for _, part, _ in parts for text in part]
            _commit(writer, start, texts, np.concatenate([vectors for _, _, vectors in parts]))
            writer.merge()
        added = time.perf_counter()
        writer.optimize_after_run(passages)
        built = time.perf_counter()
    return {
        "add_s": added - started - generating,
        "structure_s": built - added,
        "bytes": size_of(folder),
        "peak": peak.bytes,
    }


def _commit(writer: FolderWriter, first: int, texts: list[str], vectors: Any) -> None:
    documents = [
        NewDocument(f"{i}", None, text, {"n": i % 1000}, bytes(16), [(0, len(text))])
        for i, text in enumerate(texts, start=first)
    ]
    writer.commit(documents, vectors, (text.split() for text in texts))


def search(folder: Path, count: int) -> dict[str, Any]:
    """Open and search on one thread; encoding and the imports of Python are left out."""
    import faiss

    from indexes import Query
    from indexes.bm25.scoring import BM25
    from retriever import Index

    faiss.omp_set_num_threads(1)
    texts, vectors = queries(count)
    prepared = [Query(text.split(), vector) for text, vector in zip(texts, vectors, strict=True)]
    opened, index = timed(lambda: Index.open(folder))
    # What `Index` reads through; `Index` itself would encode the queries.
    reader = index._opened
    measurements: dict[str, Any] = {"open_ms": 1000 * opened}
    with reader.view() as view:
        first = partial(BM25, view.segments, None, view.commit.bm25.statistics)
        measurements["first_bm25_ms"] = (
            1000 * timed(lambda: first().query(prepared[0].terms).search(DEPTH))[0]
        )
        measurements["memory_open"] = memory()
        measurements["structure"] = [live.segment.structure.name for live in view.segments]
        bm25 = BM25(view.segments, None, view.commit.bm25.statistics)
        measurements |= _rankings(
            "bm25", prepared, lambda query: bm25.query(query.terms).search(DEPTH)
        )
        whole = len(view.segments) == 1
        if whole:
            live, allowed = view.segments[0], view.commit.live[0]
            measurements |= _rankings(
                "dense", prepared, lambda query: _nearest(live, query, allowed)
            )
    measurements |= _modes(reader, prepared, FILTERS if whole else {})
    measurements["memory_end"] = memory()
    # Last, since exact searches read all vectors.
    if whole:
        with reader.view() as view:
            measurements |= _recall(view, prepared[:RECALLED], folder.parent / "truth.npy")
    index.close()
    return measurements


def _rankings(name: str, queries: list[Any], ask: Callable[[Any], object]) -> dict[str, Any]:
    """Latencies of queries that were not asked before, and of the same again."""
    return {
        f"{name} ranking{again}": percentiles([timed(partial(ask, query))[0] for query in queries])
        for again in ("", " again")
    }


def _nearest(live: Any, query: Any, allowed: Any) -> Any:
    segment = live.segment
    vector = query.vector[None]
    return segment.structure.search(segment.vectors, vector, TOP, allowed)[0][0]


def _modes(reader: Any, queries: list[Any], filters: dict[str, int]) -> dict[str, Any]:
    """Latencies of every mode without a filter, behind known ones and behind new ones.

    In turns, query by query, so that what the machine does meanwhile meets all alike. Everything is
    asked once before, so that what is measured is not the disk; a new filter has been forgotten by
    then (see `indexes.folder.view`).
    """
    measurements: dict[str, Any] = {}
    for mode in ("bm25", "dense", "hybrid"):
        for _ in range(2):
            seconds: dict[str, list[float]] = defaultdict(list)
            for number, query in enumerate(queries):
                wheres = {mode: ""}
                for share, width in filters.items():
                    wheres[f"{mode}, {share}"] = _filter(0, width)
                    if number < NEW_FILTERS:
                        wheres[f"{mode}, new, {share}"] = _filter(number + 1, width)
                for name, where in wheres.items():
                    took = timed(partial(_ask, reader, mode, query, where))[0]
                    seconds[name].append(took)
        measurements |= {name: percentiles(each) for name, each in seconds.items()}
    return measurements


def _ask(reader: Any, mode: Any, query: Any, where: str) -> None:
    from indexes.filters.grammar import compile_where
    from retriever import SearchSettings
    from retriever.search.engine import ranked_hits

    with reader.view() as view:
        settings = SearchSettings(mode=mode, k=TOP)
        ranked_hits(view, settings, [query], compile_where(where) if where else None)


def _filter(first: int, width: int) -> str:
    """A filter that allows `width` thousandths of all passages, different ones for each `first`."""
    return f"n >= {first} and n < {first + width}" if width > 1 else f"n = {first}"


def _recall(view: Any, queries: list[Any], path: Path) -> dict[str, float]:
    """recall@10 against an exact search, with and without filters; writes the exact positions."""
    from indexes.filters.grammar import compile_where
    from indexes.vectors.flat import search_flat

    recalls = {}
    (live,) = view.segments
    vectors = np.stack([query.vector for query in queries])
    for share, width in {"": 1000, **FILTERS}.items():
        (allowed,) = view.commit.live
        if share:
            (allowed,) = view.allowed(compile_where(_filter(0, width)))
        exact = [row[0] for row in search_flat(live.segment.vectors, vectors, TOP, allowed)]
        if not share:
            np.save(path, np.stack(exact))
        shares = [
            len(np.intersect1d(best, _nearest(live, query, allowed))) / len(best)
            for best, query in zip(exact, queries, strict=True)
        ]
        recalls[f"recall@10, {share}" if share else "recall@10"] = float(np.mean(shares))
    return recalls


def change(folder: Path, passages: int) -> dict[str, Any]:
    """Add a thousand passages, then delete a thousand, each as one command would."""
    _, texts, vectors = next(_more(passages))
    measurements: dict[str, Any] = {}
    with FolderWriter(folder) as writer:
        measurements["add_1000_ms"] = (
            1000 * timed(lambda: _commit(writer, passages, texts, vectors))[0]
        )
        measurements["delete_1000_ms"] = (
            1000 * timed(lambda: writer.delete([str(i) for i in range(1000)]))[0]
        )
        writer.merge()
    return measurements


def _more(passages: int) -> Iterator[tuple[int, list[str], Any]]:
    first = -(-passages // BLOCK) * BLOCK
    return blocks(first, first + 1000)


def main() -> None:
    """Run the step that the arguments name."""
    action, folder = sys.argv[1], Path(sys.argv[2])
    measurements = {
        "build": lambda: build(folder, int(sys.argv[3]), sys.argv[4]),
        "search": lambda: search(folder, int(sys.argv[3])),
        "change": lambda: change(folder, int(sys.argv[3])),
    }[action]()
    print(json.dumps(measurements))


if __name__ == "__main__":
    main()
