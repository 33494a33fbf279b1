"""The same synthetic passages in any store: load, size, latency and recall@10 behind filters.

python benchmarks/scale/stores.py LOCATION [--passages N] [--queries N] [--index-type TYPE]

LOCATION is a folder, or the URL of a store; an index that an earlier run filled is only searched.
JSON goes to the standard output.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from synthetic import DIMENSIONS, blocks, percentiles, queries, timed

from indexes import NewDocument, Query, Store, View, open_store
from indexes.filters import compile_where
from retriever import SearchSettings
from retriever.search.engine import ranked_hits

COMMITTED = 20_000
TOP = 10
FILTERS = {"": 1000, "50%": 500, "5%": 50, "0.1%": 1}


def main() -> None:
    """Fill the store if it is empty, and search it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("location")
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--index-type", default="auto")
    arguments = parser.parse_args()
    store = open_store(arguments.location)
    measurements: dict[str, Any] = {"passages": arguments.passages, "store": str(store)}
    if not store.exists():
        measurements |= load(store, arguments.passages, arguments.index_type)
    texts, vectors = queries(arguments.queries)
    measurements |= search(store, texts, vectors, exact_best(arguments.passages, vectors))
    print(json.dumps(measurements, indent=1))


def load(store: Store, passages: int, index_type: str) -> dict[str, Any]:
    """Add all passages, and leave what `retriever index` leaves."""
    structures = {"index_type": index_type, "memory_bytes": None}
    store.create({"encoder": {"dimensions": DIMENSIONS}, "structures": structures})
    seconds = 0.0
    with store.writer() as writer:
        for start in range(0, passages, COMMITTED):
            parts = list(blocks(start, min(start + COMMITTED, passages)))
            texts = [text for _, part, _ in parts for text in part]
            documents = [
                NewDocument(f"{i}", None, text, {"n": i % 1000}, bytes(16), [(0, len(text))])
                for i, text in enumerate(texts, start=start)
            ]
            vectors = np.concatenate([part for _, _, part in parts])
            terms = [text.split() for text in texts]
            seconds += timed(partial(writer.commit, documents, vectors, terms))[0]
            seconds += timed(writer.merge)[0]
        settled = timed(partial(writer.optimize_after_run, passages))[0]
    with closing(store.reader()) as reader, reader.view() as view:
        facts = view.describe()
    main_facts = {name: facts[name] for name in ("bytes", "parts", "store") if name in facts}
    return {"load_s": seconds, "settle_s": settled, **main_facts}


def exact_best(passages: int, vectors: np.ndarray) -> dict[str, list[np.ndarray]]:
    """The numbers of the nearest passages of each query behind each filter."""
    best: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for start, _, part in blocks(0, passages):
        scores = vectors @ part.T
        numbers = np.arange(start, start + len(part))
        for share, width in FILTERS.items():
            allowed = numbers % 1000 < width
            best[share].append((numbers[allowed], scores[:, allowed]))
    nearest = {}
    for share, pairs in best.items():
        numbers = np.concatenate([ids for ids, _ in pairs])
        scores = np.concatenate([scores for _, scores in pairs], axis=1)
        nearest[share] = list(numbers[np.argsort(-scores, axis=1)[:, :TOP]])
    return nearest


def search(
    store: Store, texts: list[str], vectors: np.ndarray, truth: dict[str, list[np.ndarray]]
) -> dict[str, Any]:
    """Latencies in milliseconds of every mode behind every filter, in turns, and recall@10."""
    seconds: dict[str, list[float]] = defaultdict(list)
    shares: dict[str, list[float]] = defaultdict(list)
    with closing(store.reader()) as reader:
        for again in (False, True):
            for number, text in enumerate(texts):
                query = Query(text.split(), vectors[number])
                for share, width in FILTERS.items():
                    where = compile_where(f"n < {width}") if share else None
                    for mode in ("bm25", "dense", "hybrid"):
                        took, hits = timed(partial(_ask, reader.view, mode, query, where))
                        if again:
                            seconds[f"{mode} {share}".strip()].append(took)
                        elif mode == "dense":
                            best = truth[share][number]
                            ids = [int(hit.id) for hit in hits]
                            shares[share].append(len(np.intersect1d(ids, best)) / len(best))
    return {
        "ms": {name: percentiles(each) for name, each in seconds.items()},
        "recall@10": {share or "all": float(np.mean(each)) for share, each in shares.items()},
    }


def _ask(opened: Any, mode: Any, query: Query, where: Any) -> Any:
    view: View
    with opened() as view:
        return ranked_hits(view, SearchSettings(mode=mode, k=TOP), [query], where)[0]


if __name__ == "__main__":
    main()
