"""Ranking against brute force over every stored passage, in all modes, with all that can differ."""

from __future__ import annotations

import math
import random
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from retriever import ConfigError, Document, FusionSettings, Hit, Index, SearchSettings
from retriever.documents import Analyzer
from retriever.search import fuse

MODES = ["dense", "bm25", "hybrid"]
VOCABULARY = [f"{a}{b}" for a in ("red", "cat", "sun", "oak", "ink") for b in "bdfgklmnp"]


def sentence(chance, low, high):
    weights = [1 / (i + 1) for i in range(len(VOCABULARY))]
    words = chance.choices(VOCABULARY, weights, k=chance.randint(low, high))
    return " ".join(words) + "."


def corpus(n, seed=0):
    """Documents with titles, metadata, repeated texts, and some of several passages."""
    chance = random.Random(seed)
    documents = []
    for number in range(n):
        text = sentence(chance, 3, 12)
        if number % 11 == 3:
            text = " ".join(sentence(chance, 4, 12) for _ in range(12))
        if number % 13 == 5:
            text = documents[number // 2].text
        title = sentence(chance, 1, 3) if number % 3 == 0 else None
        share = chance.random()
        documents.append(Document(f"d{chance.random():.6f}", text, title, {"share": share}))
    return documents


def add_in_parts(index, documents, size):
    """Each part becomes a segment of its own."""
    for start in range(0, len(documents), size):
        index.add(documents[start : start + size], compact=False)


def build(folder, documents):
    """An index of several segments, in which documents were also replaced and deleted."""
    index = Index.create(folder)
    doomed = [replace(document, id=f"gone{document.id}") for document in documents[::4]]
    stale = [replace(document, text="oakb oakb stale") for document in documents[::5]]
    add_in_parts(index, [*stale, *doomed, *documents], 60)
    index.delete([document.id for document in doomed])
    assert len(index.info()["segments"]) > 2
    return index


@pytest.fixture(scope="module")
def index(tmp_path_factory, install_fake_encoder):
    """Searched by many tests, changed by none."""
    with pytest.MonkeyPatch.context() as patch:
        install_fake_encoder(patch)
        # Segments, and passages that wait in the database.
        patch.setattr("indexes.folder.writer.PENDING_LIMIT", 100)
        made = build(tmp_path_factory.mktemp("engine") / "index", corpus(220))
    with made:
        yield made


class BruteForce:
    """Scores every passage that SQLite says is stored, one by one, with nothing of the engine."""

    def __init__(self, index, allowed=lambda metadata: True):
        with closing(sqlite3.connect(index.folder / "index.sqlite")) as database:
            rows = database.execute(
                "SELECT p.passage, d.id, d.title, d.text, p.start, p.stop, "
                "json_extract(d.metadata, '$.share') FROM passages p JOIN documents d USING (doc) "
                "ORDER BY p.passage"
            ).fetchall()
        self.encoder, self.analyzer = index.encoder, Analyzer(index.analyzer.settings)
        self.ids = [row[1] for row in rows]
        self.spans = [(row[4], row[5]) for row in rows]
        texts = [
            f"{row[2]} {row[3][row[4] : row[5]]}" if row[2] else row[3][row[4] : row[5]]
            for row in rows
        ]
        self.vectors = self.encoder.encode(texts).astype(np.float64)
        self.terms = [self.analyzer.tokens(text) for text in texts]
        self.kept = [i for i, row in enumerate(rows) if allowed(row[6])]

    def dense(self, query):
        vector = self.encoder.encode([query])[0].astype(np.float64)
        return np.round(self.vectors @ vector, 6)

    def bm25(self, query):
        """Lucene's BM25 with k1 = 1.2 and b = 0.75, over all live passages."""
        terms, n = self.analyzer.tokens(query), len(self.terms)
        mean = sum(map(len, self.terms)) / n
        scores, matches = np.zeros(n), np.zeros(n, bool)
        for term in terms:
            df = sum(term in passage for passage in self.terms)
            for i, passage in enumerate(self.terms):
                if f := passage.count(term):
                    norm = 1.2 * (1 - 0.75 + 0.75 * len(passage) / mean)
                    scores[i] += math.log(1 + (n - df + 0.5) / (df + 0.5)) * f / (f + norm)
                    matches[i] = True
        return scores, matches

    def rank(self, query, mode, k, fusion=None):
        """(id, score, span) of the best documents, by score and then id."""
        dense, (bm25, matches) = self.dense(query), self.bm25(query)
        kept = self.kept
        if mode == "bm25":
            kept = [i for i in kept if matches[i]]
        scores = {"dense": dense, "bm25": bm25}.get(mode)
        if scores is None:
            scores = np.zeros(len(dense))
            scores[kept] = fuse(dense[kept], bm25[kept], matches[kept], fusion or FusionSettings())
        best = {}
        for i in kept:
            if self.ids[i] not in best or scores[i] > scores[best[self.ids[i]]]:
                best[self.ids[i]] = i
        order = sorted(best, key=lambda id_: (-scores[best[id_]], id_))[:k]
        return [(id_, scores[best[id_]], self.spans[best[id_]]) for id_ in order]


def assert_same_hits(hits, expected):
    """Check that hits have the expected ids, spans and scores in the expected order."""
    found = [(hit.id, (hit.start, hit.stop)) for hit in hits]
    assert found == [(id_, span) for id_, _, span in expected]
    np.testing.assert_allclose([hit.score for hit in hits], [row[1] for row in expected], atol=1e-9)


QUERIES = ["redb", "catd sunf inkg", "redb redb oakp", "sunm unknownword", "inkp inkn inkm inkl"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("k", "below"),
    [(1, None), (10, None), (100, None), (10_000, None), (10, 0.5), (3, 0.05), (10, 0.02), (10, 0)],
)
def test_hits_are_those_of_brute_force(index, mode, k, below):
    where = None if below is None else f"share < {below}"
    brute = BruteForce(index, lambda share: below is None or share < below)
    # Hybrid ranks its candidates: with every passage a candidate, it is exact too.
    settings = SearchSettings(mode=mode, k=k, depth=1000 if mode == "hybrid" else 1)
    for query in QUERIES:
        assert_same_hits(index.search(query, settings, where=where), brute.rank(query, mode, k))


@pytest.mark.parametrize(
    "fusion",
    [
        FusionSettings(),
        FusionSettings(alpha=0.0),
        FusionSettings(alpha=1.0),
        FusionSettings("rrf", rrf_k=1),
        FusionSettings(normalization="z-score"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("k", "depth"), [(3, 4), (10, 5), (300, 1)])
def test_fusing_the_candidates_gives_the_hits_of_a_search(index, fusion, k, depth):
    settings = SearchSettings(k=k, depth=depth, fusion=fusion)
    hits = index.search_many(QUERIES, settings)
    for found, candidates in zip(hits, index.candidates(QUERIES, settings), strict=True):
        scores = fuse(candidates.dense, candidates.bm25, candidates.matches, fusion)
        best = {}
        for document, score in zip(candidates.documents, scores.tolist(), strict=True):
            best[document] = max(score, best.get(document, -np.inf))
        ranked = sorted(best.items(), key=lambda one: (-one[1], one[0]))[:k]
        assert [(hit.id, hit.score) for hit in found] == ranked


def test_hybrid_candidates_are_the_best_of_each_component_scored_by_both(index):
    brute, depth = BruteForce(index), 12
    for query in QUERIES:
        dense, (bm25, matches) = brute.dense(query), brute.bm25(query)
        nearest = set(np.argsort(-dense)[:depth].tolist())
        edge = sorted(dense, reverse=True)[depth - 1 : depth + 1]
        assert edge[0] > edge[1], "the test needs a clear edge"
        best = [i for i in np.argsort(-bm25, kind="stable") if matches[i]][:depth]
        brute.kept = sorted(nearest.union(best))
        hits = index.search(query, SearchSettings(k=5, depth=depth))
        assert_same_hits(hits, brute.rank(query, "hybrid", 5))
        places = {(brute.ids[i], *brute.spans[i]): i for i in brute.kept}
        for hit in hits:
            i = places[hit.id, hit.start, hit.stop]
            assert (hit.dense, hit.bm25) == pytest.approx((dense[i], bm25[i]), abs=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_candidates_among_equal_documents_are_first_added(tmp_path, fake_encoder, mode):
    documents = [Document(f"same{i:03}", "the same text here") for i in reversed(range(150))]
    settings = SearchSettings(mode=mode, k=3, depth=1)
    with Index.create(tmp_path / "index") as index:
        add_in_parts(index, documents, 60)
        # The six first are candidates, and three of them hits, by id.
        expected = ["same144", "same145", "same146"]
        assert [hit.id for hit in index.search("same text", settings)] == expected
        index.compact()
        assert [hit.id for hit in index.search("same text", settings)] == expected
        index.delete(["same145"])
        found = [hit.id for hit in index.search("same text", settings)]
        assert found == ["same143", "same144", "same146"]


@pytest.mark.parametrize("mode", MODES)
def test_a_document_of_many_passages_takes_one_place(tmp_path, fake_encoder, mode):
    long = Document("long", " ".join(f"Apples are number {i} here." for i in range(120)))
    others = [Document(f"x{i}", f"Pears and one apples {i}.") for i in range(4)]
    with Index.create(tmp_path / "index") as index:
        index.add([long, *others])
        assert index.info()["passages"] > 15
        hits = index.search("apples number here", SearchSettings(mode=mode, k=5, depth=1))
        assert len(hits) == 5
        assert sorted(hit.id for hit in hits) == ["long", "x0", "x1", "x2", "x3"]
        assert hits[0].id == "long"
        assert hits[0].passage == long.text[hits[0].start : hits[0].stop]


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_index_gives_no_hits(tmp_path, fake_encoder, mode):
    settings = SearchSettings(mode=mode)
    with Index.create(tmp_path / "index") as index:
        assert index.search("anything", settings) == []
        assert [found.documents for found in index.candidates(["anything"])] == [()]
        with pytest.warns(UserWarning, match="no document has the field 'year'"):
            assert index.search("anything", settings, where="year = 1") == []
        index.add([Document("1", "anything goes")])
        assert len(index.search("anything", settings)) == 1
        index.delete(["1"])
        assert index.search("anything", settings) == []
        assert list(index.search_many([], settings)) == []


@pytest.mark.parametrize("query", ["unheardof", "the of and", "?!"])
def test_query_without_known_words_has_only_dense_hits(index, query):
    assert index.search(query, SearchSettings(mode="bm25")) == []
    dense = index.search(query, SearchSettings(mode="dense"))
    hybrid = index.search(query, SearchSettings(mode="hybrid"))
    assert len(dense) == len(hybrid) == 10
    assert [hit.id for hit in hybrid] == [hit.id for hit in dense]
    assert all(hit.bm25 == 0 and hit.bm25_rank is None for hit in hybrid)


@pytest.mark.parametrize("mode", MODES)
def test_many_queries_at_once_are_answered_as_one_at_a_time(index, mode):
    chance = random.Random(2)
    queries = [sentence(chance, 1, 5) for _ in range(300)]
    settings = SearchSettings(mode=mode, k=3, depth=1)
    together = list(index.search_many(queries, settings, where="share < 0.7"))
    alone = [index.search(query, settings, where="share < 0.7") for query in queries]
    assert together == alone
    brief = index.rank(queries, settings, where="share < 0.7")
    assert list(brief) == [[(hit.id, hit.score) for hit in hits] for hits in alone]
    with pytest.raises(ConfigError, match="collapse: it compares texts; use search_many"):
        index.rank(queries, collapse=True)


def test_fields_of_hit_match_their_documentation(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(
            [
                Document("a", "apples and pears", "Fruit", {"year": 2020, "tags": ["x"]}),
                Document("b", "apples"),
                Document("c", "stones"),
            ]
        )
        first, second, third = index.search("apples", mode="hybrid")
        b25 = first.bm25
        assert first == Hit(1, 1.0, "b", None, "apples", 0, 6, {}, 1.0, 1, b25, 1, 2)
        scores = {name: getattr(second, name) for name in ("score", "dense", "bm25")}
        shared = {"title": "Fruit", "passage": "apples and pears", "start": 0, "stop": 16}
        ranks = {"rank": 2, "dense_rank": 2, "bm25_rank": 2, "passage_number": 1}
        metadata = {"year": 2020, "tags": ["x"]}
        assert second == Hit(id="a", metadata=metadata, **scores, **shared, **ranks)
        assert (third.id, third.rank, third.bm25, third.bm25_rank) == ("c", 3, 0, None)
        [dense, *_] = index.search("apples", SearchSettings(mode="dense"))
        assert (dense.score, dense.bm25, dense.bm25_rank) == (dense.dense, None, None)
        [bm25, _] = index.search("apples", SearchSettings(mode="bm25"))
        assert (bm25.score, bm25.dense, bm25.dense_rank) == (bm25.bm25, None, None)


def test_component_ranks_are_those_among_the_candidates_with_ties_sharing(index):
    hits = index.search("redb catd", SearchSettings(k=500, depth=1000))
    brute = BruteForce(index)
    dense, (bm25, matches) = brute.dense("redb catd"), brute.bm25("redb catd")
    place = {
        (id_, span): i for i, (id_, span) in enumerate(zip(brute.ids, brute.spans, strict=True))
    }
    for hit in hits:
        i = place[hit.id, (hit.start, hit.stop)]
        assert hit.dense_rank == 1 + sum(dense > dense[i])
        assert hit.bm25_rank == (1 + sum(bm25[matches] > bm25[i] + 1e-12) if matches[i] else None)


def test_hits_with_equal_scores_are_read_by_one_statement(tmp_path):
    statements = []
    with Index.create(tmp_path / "index") as index:
        index.add(Document(f"d{number:02}", f"oakb {number}") for number in range(30))
        with index._opened.view() as view:
            view._connection.set_trace_callback(statements.append)
        hits = index.search("oakb", mode="bm25", k=5)
    assert [hit.id for hit in hits] == ["d00", "d01", "d02", "d03", "d04"]
    assert sum("documents" in statement for statement in statements) == 1
