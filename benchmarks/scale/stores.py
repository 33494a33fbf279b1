"""The same synthetic passages in any store: load, size, latency and recall@10 behind filters.

python benchmarks/scale/stores.py LOCATION [--passages N] [--queries N] [--index-type TYPE]
python benchmarks/scale/stores.py URL --peer

LOCATION is a folder, or the URL of a store; an index that an earlier run filled is only searched.
`--peer` measures the engine itself, without this project: in a database `ts_rank` over a GIN index
and pgvector's graph, in Milvus its BM25 function, vector index, and weighted ranker of both.
JSON goes to the standard output.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from measures import percentiles, timed
from synthetic import DIMENSIONS, blocks, queries

from indexes import NewDocument, Query, Store, compile_where, open_store
from retriever import SearchSettings
from retriever.search.engine import Engine

COMMITTED = 20_000
TOP, DEPTH = 10, 100
FILTERS = {"": 1000, "50%": 500, "5%": 50, "0.1%": 1}
PEER = "retriever_benchmark"


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("location")
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--index-type", default="auto")
    parser.add_argument("--peer", action="store_true")
    given = parser.parse_args()
    texts, vectors = queries(given.queries)
    truth = exact_best(given.passages, vectors)
    found: dict[str, Any] = {"passages": given.passages}
    if given.peer:
        peer = postgres_peer if given.location.startswith("postgres") else milvus_peer
        found |= peer(given.location, given.passages, texts, vectors, truth)
    else:
        store = open_store(given.location)
        found["store"] = str(store)
        if not store.exists():
            found |= load(store, given.passages, given.index_type)
        found |= search(store, texts, vectors, truth)
    print(json.dumps(found, indent=1))


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
        settled = timed(partial(writer.settle, passages))[0]
    with closing(store.reader()) as reader, reader.view() as view:
        facts = view.describe()
    kept = {name: facts[name] for name in ("bytes", "parts", "store") if name in facts}
    return {"load_s": seconds, "settle_s": settled, **kept}


def exact_best(passages: int, vectors: np.ndarray) -> dict[str, list[np.ndarray]]:
    """The numbers of the nearest passages of each query behind each filter."""
    best: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for start, _, part in blocks(0, passages):
        scores = vectors @ part.T
        numbers = np.arange(start, start + len(part))
        for share, width in FILTERS.items():
            chosen = numbers % 1000 < width
            best[share].append((numbers[chosen], scores[:, chosen]))
    found = {}
    for share, pairs in best.items():
        numbers = np.concatenate([one for one, _ in pairs])
        scores = np.concatenate([one for _, one in pairs], axis=1)
        order = np.argsort(-scores, axis=1)[:, :TOP]
        found[share] = list(numbers[order])
    return found


def search(
    store: Store, texts: list[str], vectors: np.ndarray, truth: dict[str, list[np.ndarray]]
) -> dict[str, Any]:
    """Latencies in milliseconds of every mode behind every filter, in turns, and recall@10."""
    seconds: dict[str, list[float]] = defaultdict(list)
    hits: dict[str, list[float]] = defaultdict(list)
    with closing(store.reader()) as reader:
        for again in (False, True):
            for number, text in enumerate(texts):
                query = Query(text.split(), vectors[number])
                for share, width in FILTERS.items():
                    where = compile_where(f"n < {width}") if share else None
                    for mode in ("bm25", "dense", "hybrid"):

                        def ask(query: Query = query, mode: Any = mode, where: Any = where) -> Any:
                            with reader.view() as view:
                                settings = SearchSettings(mode=mode, k=TOP)
                                return Engine(view, settings, where).search([query])[0]

                        took, found = timed(ask)
                        if again:
                            seconds[f"{mode} {share}".strip()].append(took)
                        elif mode == "dense":
                            ids = [int(hit.id) for hit in found]
                            best = truth[share][number]
                            hits[share].append(len(np.intersect1d(ids, best)) / len(best))
    return {
        "ms": {name: percentiles(each) for name, each in seconds.items()},
        "recall@10": {share or "all": float(np.mean(each)) for share, each in hits.items()},
    }


def postgres_peer(
    location: str,
    passages: int,
    texts: list[str],
    vectors: np.ndarray,
    truth: dict[str, list[np.ndarray]],
) -> dict[str, Any]:
    """PostgreSQL's own ranking of texts, and pgvector's graph with a filter in its query."""
    from indexes.postgres.connection import connect, parse_location
    from indexes.postgres.ranking import vector_text

    with connect(parse_location(location)) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"DROP TABLE IF EXISTS {PEER}")
        connection.execute(
            f"CREATE TABLE {PEER} (number int PRIMARY KEY, n int, body text, "
            f"words tsvector, embedding vector({DIMENSIONS}))"
        )
        started = time.perf_counter()
        with connection.cursor() as cursor:
            for start, part, rows in blocks(0, passages):
                copied = f"COPY {PEER} (number, n, body, embedding) FROM STDIN"
                with cursor.copy(copied) as copy:
                    for i, (text, row) in enumerate(zip(part, rows, strict=True), start=start):
                        copy.write_row((i, i % 1000, text, vector_text(row)))
        connection.execute(f"UPDATE {PEER} SET words = to_tsvector('simple', body)")
        connection.execute(f"CREATE INDEX ON {PEER} USING gin (words)")
        connection.execute(f"CREATE INDEX ON {PEER} USING hnsw (embedding vector_ip_ops)")
        connection.execute(f"VACUUM ANALYZE {PEER}")
        loaded = time.perf_counter() - started
        ranked = (
            f"SELECT number FROM {PEER}, to_tsquery('simple', %s) AS q WHERE words @@ q "
            f"ORDER BY ts_rank(words, q) DESC LIMIT {DEPTH}"
        )
        nearest = (
            f"SELECT number FROM {PEER} WHERE n < %s ORDER BY embedding <#> %s::vector LIMIT {TOP}"
        )
        seconds: dict[str, list[float]] = defaultdict(list)
        hits: dict[str, list[float]] = defaultdict(list)
        for number, text in enumerate(texts):
            words = " | ".join(text.split())
            seconds["ts_rank"].append(
                timed(lambda w=words: connection.execute(ranked, (w,)).fetchall())[0]
            )  # type: ignore[misc]
            for share, width in FILTERS.items():
                values = (width, vector_text(vectors[number]))
                took, rows = timed(lambda v=values: connection.execute(nearest, v).fetchall())  # type: ignore[misc]
                seconds[f"dense {share}".strip()].append(took)
                best = truth[share][number]
                ids = [row[0] for row in rows]
                hits[share].append(len(np.intersect1d(ids, best)) / len(best))
        (size,) = connection.execute("SELECT pg_total_relation_size(%s)", (PEER,)).fetchone() or (
            0,
        )
        connection.execute(f"DROP TABLE {PEER}")
    return {
        "load_s": loaded,
        "bytes": size,
        "ms": {name: percentiles(each) for name, each in seconds.items()},
        "recall@10": {share or "all": float(np.mean(each)) for share, each in hits.items()},
    }


def milvus_peer(
    location: str,
    passages: int,
    texts: list[str],
    vectors: np.ndarray,
    truth: dict[str, list[np.ndarray]],
) -> dict[str, Any]:
    """Milvus's BM25 function, vector index and weighted ranker, with filters in their requests."""
    from pymilvus import AnnSearchRequest, DataType, Function, FunctionType, WeightedRanker

    from indexes.milvus.connection import Connection, parse_location

    connection = Connection(parse_location(location))
    client, is_lite = connection.client, connection.location.file is not None
    if client.has_collection(PEER):
        client.drop_collection(PEER)
    schema = client.create_schema()
    schema.add_field("number", DataType.INT64, is_primary=True)
    schema.add_field("n", DataType.INT64)
    analyzer = {"tokenizer": "standard"}
    schema.add_field(
        "body", DataType.VARCHAR, max_length=4096, enable_analyzer=True, analyzer_params=analyzer
    )
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=DIMENSIONS)
    schema.add_function(Function("bm25", FunctionType.BM25, ["body"], ["words"]))
    structures = client.prepare_index_params()
    structures.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    kind = "FLAT" if is_lite else "HNSW"
    structures.add_index("embedding", index_type=kind, metric_type="IP", params={})
    started = time.perf_counter()
    client.create_collection(
        PEER, schema=schema, index_params=structures, consistency_level="Strong"
    )
    for start, part, rows in blocks(0, passages):
        for at in range(0, len(part), 1000):
            numbers = range(start + at, start + min(at + 1000, len(part)))
            client.insert(
                PEER,
                [
                    {"number": i, "n": i % 1000, "body": part[i - start], "embedding": row.tolist()}
                    for i, row in zip(numbers, rows[at : at + 1000], strict=True)
                ],
            )
    client.flush(PEER)
    client.load_collection(PEER)
    loaded = time.perf_counter() - started
    seconds: dict[str, list[float]] = defaultdict(list)
    hits: dict[str, list[float]] = defaultdict(list)
    for again in (False, True):
        for number, text in enumerate(texts):
            vector = vectors[number].tolist()
            for share, width in FILTERS.items():
                where = f"n < {width}" if share else ""
                requests = [
                    AnnSearchRequest([vector], "embedding", {"metric_type": "IP"}, DEPTH, where),
                    AnnSearchRequest([text], "words", {"metric_type": "BM25"}, DEPTH, where),
                ]
                asked = {
                    "dense": partial(
                        client.search, PEER, [vector], where, TOP, anns_field="embedding"
                    ),
                    "bm25": partial(client.search, PEER, [text], where, TOP, anns_field="words"),
                    "hybrid": partial(
                        client.hybrid_search, PEER, requests, WeightedRanker(0.6, 0.4), TOP
                    ),
                }
                for mode, ask in asked.items():
                    took, (found,) = timed(ask)
                    if again:
                        seconds[f"{mode} {share}".strip()].append(took)
                    elif mode == "dense":
                        best = truth[share][number]
                        ids = [hit["number"] for hit in found]
                        hits[share].append(len(np.intersect1d(ids, best)) / len(best))
    client.drop_collection(PEER)
    connection.close()
    return {
        "load_s": loaded,
        "ms": {name: percentiles(each) for name, each in seconds.items()},
        "recall@10": {share or "all": float(np.mean(each)) for share, each in hits.items()},
    }


if __name__ == "__main__":
    main()
