"""Candidates of Milvus are those of an exhaustive computation."""

from __future__ import annotations

import numpy as np
import pytest
from milvus_samples import DIMENSIONS, single

from indexes import BM25Settings, compile_where
from indexes.bm25.formulas import weights
from indexes.milvus.collections import INDEXED
from indexes.milvus.ranking import MilvusRanking, bound_of
from indexes.protocol import Query

VARIANTS = ["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]


class TestBound:
    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize(
        ("k1", "b", "delta"),
        [(1.2, 0.75, None), (0.0, 0.5, 0.0), (2.0, 0.0, 3.0), (0.4, 1.0, None), (9.0, 0.3, 0.1)],
    )
    def test_no_passage_exceeds_it(self, variant, k1, b, delta):
        settings, means, longest = BM25Settings(variant, k1, b, delta), (70.0, 120.0), 800
        bound = bound_of(settings, 100.0, means, longest)
        chance = np.random.default_rng(0)
        frequencies = chance.integers(1, 1 + chance.integers(1, longest, 20_000)).astype(np.uint32)
        lengths = chance.integers(frequencies, longest + 1).astype(np.uint32)
        ends = np.array([1, 1, longest], np.uint32), np.array([1, longest, longest], np.uint32)
        found = 0.0
        for f, length in ((frequencies, lengths), ends):
            weight = weights(settings, f, length, 100.0)
            for mean in (*means, 95.0):
                found = max(found, float((weight / weights(INDEXED, f, length, mean)).max()))
        assert found <= bound * (1 + 1e-12)
        # Of little use if it is far above.
        assert bound < 1.6 * found

    def test_of_the_indexed_settings_it_is_how_far_the_mean_has_moved(self):
        assert bound_of(INDEXED, 100.0, (100.0, 100.0), 500) == pytest.approx(1.0)
        assert 1.0 < bound_of(INDEXED, 102.0, (100.0, 100.0), 500) <= 1.02
        assert bound_of(INDEXED, 98.0, (100.0, 100.0), 500) <= 1.0


@pytest.fixture
def corpus(store):
    """1,000 passages with vectors and metadata, in Milvus and as arrays."""
    chance = np.random.default_rng(1)
    vectors = chance.standard_normal((1000, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    made = [
        single(n, {"half": n % 2, "twentieth": n % 20, "thousandth": n % 1000}) for n in range(1000)
    ]
    with store.writer() as writer:
        writer.commit(made, vectors, [["apple"]] * 1000)
    reader = store.reader()
    with reader.view() as view:
        yield view, vectors
    reader.close()


@pytest.mark.milvus
def test_filtered_searches_miss_nothing(corpus, monkeypatch):
    view, vectors = corpus
    monkeypatch.setattr(MilvusRanking, "_scan", None)
    query = np.random.default_rng(2).standard_normal(DIMENSIONS).astype(np.float32)
    for text, step in (("half = 0", 2), ("twentieth = 0", 20), ("thousandth = 0", 1000)):
        ranking = view.ranking(where=compile_where(text))
        (found,) = ranking.candidates([Query((), query)], "dense", 10)
        allowed = np.arange(0, 1000, step)
        best = allowed[np.argsort(-(vectors[allowed] @ query))[:10]]
        assert {view.documents_of([p])[p] for p in found.passages.tolist()} == {
            f"{n:05}" for n in best
        }
        assert found.complete == (len(allowed) < 10)


@pytest.mark.milvus
def test_of_many_equal_passages_those_that_were_added_first_are_taken(store):
    vectors = np.ones((300, DIMENSIONS), np.float32)
    with store.writer() as writer:
        # The greater ids come first.
        for numbers in (range(200, 300), range(200)):
            some = [single(n) for n in numbers]
            writer.commit(some, vectors[: len(some)], [["apple"]] * len(some))
    reader = store.reader()
    with reader.view() as view:
        for mode in ("dense", "bm25", "hybrid"):
            (found,) = view.ranking().candidates([Query(("apple",), vectors[0])], mode, 5)
            ids = view.documents_of(found.passages.tolist())
            assert sorted(ids.values()) == [f"{n:05}" for n in range(200, 205)]
    reader.close()


def scores_of(view, terms, settings, depth=7):
    (found,) = view.ranking(settings).candidates([Query(terms)], "bm25", depth)
    ids = view.documents_of(found.passages.tolist())
    return {
        ids[passage]: score
        for passage, score in zip(found.passages.tolist(), found.bm25.tolist(), strict=True)
    }


@pytest.mark.milvus
def test_bm25_stays_exact_while_the_mean_length_moves(store, monkeypatch):
    # Lengths grow from commit to commit, so that sparse vectors are saturated with different means.
    chance = np.random.default_rng(3)
    texts = []
    with store.writer() as writer:
        for size in (3, 30, 200):
            tokens = [
                [f"w{int(chance.exponential(6))}" for _ in range(chance.integers(1, size))]
                for _ in range(60)
            ]
            some = [single(len(texts) + i, text="x" * (1 + len(t))) for i, t in enumerate(tokens)]
            writer.commit(some, np.ones((60, DIMENSIONS), np.float32), tokens)
            texts += tokens
        lengths = np.array([len(tokens) for tokens in texts], np.uint32)
        mean = float(lengths.mean())
        low, high = writer._state.means
        assert low < 0.5 * mean < mean <= high
        before = _checked(store, texts, lengths, mean)
        assert writer.settle(180) == writer._states.sparse
        if not writer._states.sparse:
            return
        low, high = writer._state.means
        assert 0.98 * mean < low <= high < 1.02 * mean
        # Now no search for the indexed settings reads more than its first candidates.
        monkeypatch.setattr(MilvusRanking, "_scan", None)
        after = _checked(store, texts, lengths, mean, only=[BM25Settings()])
        assert before["lucene"] == after["lucene"]
        assert writer.settle(0) == 0
    assert store.verify() == []


def _checked(store, texts, lengths, mean, only=None):
    from indexes.bm25.formulas import idf

    reader = store.reader()
    found = {}
    with reader.view() as view:
        for settings in only or [BM25Settings(variant, b=0.4) for variant in VARIANTS[1:]] + [
            BM25Settings()
        ]:
            terms = ["w14", "w20", "w30"]
            df = [sum(term in tokens for tokens in texts) for term in terms]
            expected = np.zeros(len(texts))
            for term, held in zip(terms, df, strict=True):
                counts = np.array([tokens.count(term) for tokens in texts], np.uint32)
                weight = weights(settings, np.maximum(counts, 1), lengths, mean)
                factor = idf(settings.variant, held, len(texts))
                assert factor > 0
                expected += np.where(counts > 0, factor * weight, 0)
            best = sorted(range(len(texts)), key=lambda i: (-expected[i], i))[:7]
            found[settings.variant] = scores_of(view, terms, settings)
            assert found[settings.variant] == pytest.approx(
                {f"{i:05}": expected[i] for i in best}, abs=1e-9
            )
    reader.close()
    return found
