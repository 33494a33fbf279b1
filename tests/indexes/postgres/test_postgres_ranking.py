"""Ranking with and without a graph: recall under filters, numbers of hits, ties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict

import numpy as np
import pytest

from indexes import NewDocument, Query, StructureSettings, open_store
from indexes.bm25.formulas import BM25Settings
from indexes.errors import ConfigError
from indexes.filters import compile_where
from indexes.postgres import ranking as ranking_module
from indexes.postgres.ranking import check_structures, wants_graph
from indexes.postgres.view import PostgresView
from tests.indexes.store_samples import open_view

COUNT, WIDTH, TOP = 2000, 32, 10


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    chance = np.random.default_rng(3)
    centers = chance.standard_normal((20, WIDTH))
    points = centers[chance.integers(20, size=COUNT)] + 0.7 * chance.standard_normal((COUNT, WIDTH))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def view(postgres_server, vectors) -> Iterator[PostgresView]:
    store = open_store(postgres_server.url("graph"))
    store.create({"encoder": {"dimensions": WIDTH}, "structures": {"index_type": "hnsw"}})
    numbers = range(COUNT)
    with store.writer() as writer:
        writer.commit(
            [NewDocument(f"{n:04}", None, "t", {"n": n % 1000}, b"h", [(0, 1)]) for n in numbers],
            vectors,
            [["all", f"w{n % 7}"] for n in numbers],
        )
        assert writer.optimize_after_run(COUNT) == 1
        assert writer.optimize_after_run(0) == 0
    with open_view(store) as opened:
        yield opened


def queries(vectors: np.ndarray, count: int) -> list[Query]:
    chance = np.random.default_rng(5)
    noise = 0.1 * chance.standard_normal((count, WIDTH))
    return [Query(["w3"], (vectors[7 * i] + noise[i]).astype(np.float32)) for i in range(count)]


@pytest.mark.parametrize("share", [None, 500, 50, 2])
def test_dense_recall_under_a_filter_is_high(view, vectors, share):
    where = None if share is None else compile_where(f"n < {share}")
    allowed = np.arange(COUNT) % 1000 < (share or 1000)
    hits = total = 0
    for query in queries(vectors, 20):
        (candidates,) = view.ranking(where=where).candidates([query], "dense", TOP)
        scores = vectors.astype(np.float64) @ query.vector
        scores[~allowed] = -2
        best = np.argsort(-scores)[: min(TOP, allowed.sum())]
        ids = view.documents_of(candidates.passages.tolist())
        assert len(ids) == len(best)
        hits += len({int(ids[p]) for p in candidates.passages.tolist()} & set(best.tolist()))
        total += len(best)
        expected = {f"{i:04}": scores[i] for i in range(COUNT)}
        for passage, score in zip(
            candidates.passages.tolist(), candidates.dense.tolist(), strict=True
        ):
            assert score == pytest.approx(expected[ids[passage]], abs=1e-5)
    assert hits / total >= 0.95


def test_graph_answers_unfiltered_queries_and_a_scan_exhaustive_ones(view, vectors, monkeypatch):
    statements = []
    for name in ("_search_graph", "_scan"):
        original = getattr(ranking_module.PostgresRanking, name)

        def spy(self, *arguments, name=name, original=original):
            statements.append(name)
            return original(self, *arguments)

        monkeypatch.setattr(ranking_module.PostgresRanking, name, spy)
    (query,) = queries(vectors, 1)
    view.ranking().candidates([query], "dense", TOP)
    assert statements == ["_search_graph"]
    view.ranking(recall=0.5).candidates([query], "dense", TOP)
    assert statements == ["_search_graph", "_scan"]
    # The filter lets so few pass that they are looked up.
    view.ranking(where=compile_where("n = 3")).candidates([query], "dense", TOP)
    assert statements == ["_search_graph", "_scan", "_scan"]


def test_repeated_filter_sees_a_commit_in_between(postgres_url):
    store = open_store(postgres_url)
    store.create({"encoder": {"dimensions": WIDTH}, "structures": {"index_type": "hnsw"}})
    where, passages = compile_where("n = 1"), []
    vectors = np.eye(2, WIDTH, dtype=np.float32)
    with closing(store.reader()) as reader:
        for numbers in ({"a": 1, "b": 2}, {"b": 1}):
            new_documents = [
                NewDocument(id_, None, "t", {"n": n}, b"h", [(0, 1)]) for id_, n in numbers.items()
            ]
            with store.writer() as writer:
                writer.commit(
                    new_documents, vectors[: len(new_documents)], [["t"]] * len(new_documents)
                )
                writer.optimize_after_run(2)
            with reader.view() as view:
                query = Query(["t"], vectors[0])
                (hits,) = view.ranking(where=where).candidates([query], "dense", TOP)
                passages.append(len(hits.passages))
    assert passages == [1, 2]


@pytest.mark.parametrize("where", [None, "n < 900", "n < 5"])
def test_the_graph_gives_k_hits_while_k_exist(view, vectors, where):
    condition = None if where is None else compile_where(where)
    exist = sum(where is None or n % 1000 < int(where.split()[-1]) for n in range(COUNT))
    for depth in (1, 100, 1500, 3000):
        (candidates,) = view.ranking(where=condition).candidates(
            queries(vectors, 1), "dense", depth
        )
        assert len(set(candidates.passages.tolist())) == min(depth, exist)
        assert candidates.complete == (exist < depth)


@pytest.mark.parametrize("where", [None, "n < 900", "n < 5"])
@pytest.mark.parametrize("variant", ["lucene", "okapi", "robertson"])
def test_ties_are_broken_by_order_of_addition(view, where, variant):
    condition = None if where is None else compile_where(where)
    ranks = view.ranking(BM25Settings(variant), condition)
    (candidates,) = ranks.candidates([Query(["all"])], "bm25", 7)
    ids = view.documents_of(candidates.passages.tolist())
    limit = 1000 if where is None else int(where.split()[-1])
    expected = [f"{n:04}" for n in range(COUNT) if n % 1000 < limit][:7]
    assert sorted(ids.values()) == expected


def test_graph_search_skips_deleted_passages(postgres_url):
    store = open_store(postgres_url)
    store.create({"encoder": {"dimensions": 8}, "structures": {"index_type": "hnsw"}})
    vectors = np.random.default_rng(1).standard_normal((400, 8)).astype(np.float32)
    documents = [NewDocument(f"{n:03}", None, "t", {}, b"h", [(0, 1)]) for n in range(400)]
    with store.writer() as writer:
        writer.commit(documents[:300], vectors[:300], [["a"]] * 300)
        writer.optimize_after_run(300)
        writer.delete([f"{n:03}" for n in range(0, 300, 3)])
        # Later passages enter the graph.
        writer.commit(documents[300:], vectors[300:], [["a"]] * 100)
        writer.optimize_after_run(100)
    live = [n for n in range(400) if n >= 300 or n % 3]
    with open_view(store) as opened:
        for number in (0, 1, 350):
            (candidates,) = opened.ranking().candidates([Query((), vectors[number])], "dense", 10)
            ids = opened.documents_of(candidates.passages.tolist()).values()
            scores = vectors.astype(np.float64) @ vectors[number]
            best = {f"{n:03}" for n in sorted(live, key=lambda n: -scores[n])[:10]}
            assert len(best & set(ids)) >= 9


@pytest.mark.parametrize(
    ("structures", "dimensions"),
    [
        (StructureSettings("ivf"), 8),
        (StructureSettings("HNSW32,Flat"), 8),
        (StructureSettings("auto", 10**9), 8),
        (StructureSettings("hnsw"), 2001),
    ],
)
def test_search_structures_of_folders_only_are_refused(postgres_url, structures, dimensions):
    store = open_store(postgres_url)
    settings = {"encoder": {"dimensions": dimensions}, "structures": asdict(structures)}
    with pytest.raises(ConfigError, match=r"index type|memory|dimensions"):
        store.create(settings)
    assert not store.exists()


def test_graph_is_built_above_the_flat_limit():
    auto = StructureSettings()
    assert [wants_graph(auto, n, 384) for n in (50_000, 50_001)] == [False, True]
    assert not wants_graph(auto, 10**6, 2001)
    assert not wants_graph(StructureSettings("flat"), 10**6, 384)
    assert check_structures(auto, 384, None) is None
