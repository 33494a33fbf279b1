"""The same passages in another library, in its own process; prints a line of JSON.

python benchmarks/scale/peers.py NAME WORK PASSAGES QUERIES

WORK holds `truth.npy`, the exact answers to the first queries, and gets what the library writes.
Parameters are each library's defaults, except for a search effort: that is the least of a few
powers of two that reaches a recall@10 of 0.95.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from synthetic import DIMENSIONS, blocks, percentiles, queries, size_of, timed

TOP = 10
DEPTH = 100
RECALL = 0.95
EFFORTS = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Task:
    """A folder that does not exist, the passages, the queries, and the best of the first ones."""

    folder: Path
    passages: int
    texts: list[str]
    vectors: NDArray[np.float32]
    truth: NDArray[np.int64]

    def blocks(self) -> Iterable[tuple[int, list[str], NDArray[np.float32]]]:
        """The passages."""
        return blocks(0, self.passages)

    def dense(self, ask: Callable[[NDArray[np.float32]], Iterable[Any]]) -> dict[str, Any]:
        """Latency and recall of a search for one vector, which gives passage numbers."""
        answers = []
        for vector in self.vectors[:5]:
            ask(vector)
        seconds = []
        for vector in self.vectors:
            duration, numbers = timed(lambda vector=vector: list(ask(vector)))
            seconds.append(duration)
            answers.append([int(number) for number in numbers])
        recall = np.mean(
            [len({*a} & {*b.tolist()}) / TOP for a, b in zip(answers, self.truth, strict=False)]
        )
        return {"dense": percentiles(seconds), "recall@10": float(recall)}

    def least_effort(
        self, ask: Callable[[NDArray[np.float32]], Iterable[Any]], use: Callable[[int], object]
    ) -> dict[str, Any]:
        """Measure `dense` with the least effort that reaches the recall."""
        measurements: dict[str, Any] = {}
        for effort in EFFORTS:
            use(effort)
            measurements = {**self.dense(ask), "effort": effort}
            if measurements["recall@10"] >= RECALL:
                break
        return measurements

    def bm25(self, ask: Callable[[str], object]) -> dict[str, Any]:
        """Latency of a search for a text, the 100 best passages, and of the first of them."""
        first = timed(lambda: ask(self.texts[0]))[0]
        seconds = [timed(lambda text=text: ask(text))[0] for text in self.texts]
        return {"bm25": percentiles(seconds), "first_bm25_ms": 1000 * first}


def tantivy(task: Task) -> dict[str, Any]:
    """Words at spaces, frequencies without positions."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
    builder.add_unsigned_field("number", stored=True)
    task.folder.mkdir()
    schema = builder.build()

    def build() -> None:
        index = tantivy.Index(schema, path=str(task.folder))
        writer = index.writer(heap_size=500_000_000, num_threads=1)
        for start, texts, _ in task.blocks():
            for number, text in enumerate(texts, start=start):
                writer.add_document(tantivy.Document(body=text, number=number))
        writer.commit()
        writer.wait_merging_threads()

    seconds, _ = timed(build)
    opened, searcher = timed(lambda: tantivy.Index.open(str(task.folder)).searcher())
    index = tantivy.Index.open(str(task.folder))
    measurements = task.bm25(
        lambda text: searcher.search(index.parse_query(text, ["body"]), DEPTH).hits
    )
    return {"build_s": seconds, "open_ms": 1000 * opened, **measurements}


def bm25s(task: Task) -> dict[str, Any]:
    """Scores of all postings, made when the index is; kept in memory or, opened, mapped."""
    import bm25s

    def build() -> None:
        side = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        tokens = [text.split() for _, texts, _ in task.blocks() for text in texts]
        side.index(tokens, show_progress=False)
        side.save(str(task.folder))

    seconds, _ = timed(build)
    opened, side = timed(lambda: bm25s.BM25.load(str(task.folder), mmap=True))
    measurements = task.bm25(
        lambda text: side.retrieve([text.split()], k=min(DEPTH, task.passages), show_progress=False)
    )
    return {"build_s": seconds, "open_ms": 1000 * opened, **measurements}


def hnswlib(task: Task) -> dict[str, Any]:
    """M 16, ef_construction 200: its documentation's."""
    import hnswlib

    task.folder.mkdir()

    def build() -> None:
        index = hnswlib.Index("ip", DIMENSIONS)
        index.init_index(task.passages, ef_construction=200, M=16)
        for start, _, vectors in task.blocks():
            index.add_items(vectors, np.arange(start, start + len(vectors)))
        index.save_index(str(task.folder / "index"))

    seconds, _ = timed(build)
    index = hnswlib.Index("ip", DIMENSIONS)
    opened, _ = timed(lambda: index.load_index(str(task.folder / "index")))
    index.set_num_threads(1)
    measurements = task.least_effort(
        lambda vector: index.knn_query(vector, TOP)[0][0], index.set_ef
    )
    return {"build_s": seconds, "open_ms": 1000 * opened, **measurements}


def usearch(task: Task) -> dict[str, Any]:
    """Its defaults, float32, mapped."""
    from usearch.index import Index

    task.folder.mkdir()

    def build() -> None:
        index = Index(ndim=DIMENSIONS, metric="ip", dtype="f32")
        for start, _, vectors in task.blocks():
            index.add(np.arange(start, start + len(vectors)), vectors)
        index.save(str(task.folder / "index"))

    seconds, _ = timed(build)
    opened, index = timed(lambda: Index.restore(str(task.folder / "index"), view=True))

    def use(effort: int) -> None:
        index.expansion_search = effort

    measurements = task.least_effort(lambda vector: index.search(vector, TOP, threads=1).keys, use)
    return {"build_s": seconds, "open_ms": 1000 * opened, **measurements}


def lancedb(task: Task) -> dict[str, Any]:
    """IVF_PQ with ten candidates re-scored for each answer, and its own full-text index."""
    import lancedb
    import pyarrow as pa

    def build() -> Any:
        database = lancedb.connect(task.folder)
        kind = pa.schema(
            [
                ("number", pa.int64()),
                ("text", pa.string()),
                ("vector", pa.list_(pa.float32(), DIMENSIONS)),
            ]
        )

        def batches() -> Iterable[pa.RecordBatch]:
            for start, texts, vectors in task.blocks():
                numbers = np.arange(start, start + len(texts))
                column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), DIMENSIONS)
                yield pa.record_batch([pa.array(numbers), pa.array(texts), column], kind)

        table = database.create_table("passages", batches(), schema=kind)
        table.create_index(metric="dot", index_type="IVF_PQ", num_sub_vectors=96)
        table.create_fts_index(
            "text", base_tokenizer="whitespace", stem=False, remove_stop_words=False,
            with_position=False,
        )  # fmt: skip

    seconds, _ = timed(build)
    opened, table = timed(lambda: lancedb.connect(task.folder).open_table("passages"))
    probes = 16

    def use(effort: int) -> None:
        nonlocal probes
        probes = effort

    def search(vector: NDArray[np.float32]) -> list[int]:
        request = table.search(vector).distance_type("dot").nprobes(probes).refine_factor(10)
        return request.limit(TOP).select(["number"]).to_arrow()["number"].to_pylist()

    measurements = task.least_effort(search, use)
    words = task.bm25(
        lambda text: table.search(text, query_type="fts").limit(DEPTH).select(["number"]).to_arrow()
    )
    return {"build_s": seconds, "open_ms": 1000 * opened, **measurements, **words}


def as_they_are(rows: Any) -> Any:
    """Return `rows` unchanged: txtai calls this function to embed texts."""
    return rows


def txtai(task: Task) -> dict[str, Any]:
    """Ready vectors in its default FAISS index, no content database."""
    # Vectors are given as they are by a function of this file.
    os.environ["ALLOW_RESOLVE_TRANSFORM"] = "True"
    from txtai import Embeddings

    # By name, so that a saved index can be loaded.
    transform = "peers.as_they_are"

    def build() -> Any:
        embeddings = Embeddings(method="external", transform=transform, backend="faiss")
        embeddings.index(
            (start + row, vector, None)
            for start, _, vectors in task.blocks()
            for row, vector in enumerate(vectors)
        )
        embeddings.save(str(task.folder))

    seconds, _ = timed(build)

    def load() -> Any:
        loaded = Embeddings(method="external", transform=transform)
        loaded.load(str(task.folder))
        return loaded

    opened, loaded = timed(load)
    measurements = task.dense(lambda vector: [number for number, _ in loaded.search(vector, TOP)])
    return {"build_s": seconds, "open_ms": 1000 * opened, **measurements}


LIBRARIES: dict[str, Callable[[Task], dict[str, Any]]] = {
    "tantivy": tantivy,
    "bm25s": bm25s,
    "hnswlib": hnswlib,
    "usearch": usearch,
    "LanceDB": lancedb,
    "txtai": txtai,
}


def main() -> None:
    """Measure one library."""
    name, work, passages, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    folder = work / f"peer-{name.replace(', ', '-')}"
    shutil.rmtree(folder, ignore_errors=True)
    texts, vectors = queries(int(count))
    task = Task(folder, passages, texts, vectors, np.load(work / "truth.npy"))
    measurements = LIBRARIES[name](task)
    if folder.exists():
        measurements["bytes"] = size_of(folder)
        shutil.rmtree(folder)
    print(json.dumps(measurements), flush=True)
    # Threads of some libraries outlive their work.
    os._exit(0)


if __name__ == "__main__":
    main()
