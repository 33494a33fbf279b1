"""One search for several fusions, and how an index differs from a corpus."""

from __future__ import annotations

import numpy as np
import pytest

from retriever import Document, FusionSettings, Index, SearchSettings
from retriever.index.reading import CorpusDifference
from retriever.search.fusion import fuse


def documents(count, seed=0):
    random = np.random.default_rng(seed)
    return [
        Document(f"d{number}", " ".join(f"w{word}" for word in random.integers(0, 40, 6)))
        for number in range(count)
    ]


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        for part in (documents(30), [Document("long", "w1 w2 w3. " * 30)], documents(60)[30:]):
            index.add(part)
        yield index


@pytest.mark.parametrize(
    "fusion",
    [
        FusionSettings(),
        FusionSettings(alpha=0.0),
        FusionSettings(alpha=1.0),
        FusionSettings("rrf"),
        FusionSettings(normalization="z-score"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("k", "depth"), [(3, 4), (10, 5), (200, 1)])
def test_fusing_the_candidates_gives_the_hits_of_a_search(index, fusion, k, depth):
    settings = SearchSettings(k=k, depth=depth, fusion=fusion)
    texts = ["w1 w2", "w39 nothing", "w3 w3 w7 w8"]
    hits = index.search_many(texts, settings)
    for found, candidates in zip(hits, index.candidates(texts, settings), strict=True):
        scores = fuse(candidates.dense, candidates.bm25, candidates.matches, fusion)
        best = {}
        for document, score in zip(candidates.documents, scores.tolist(), strict=True):
            best[document] = max(score, best.get(document, -np.inf))
        ranked = sorted(best.items(), key=lambda one: (-one[1], one[0]))[:k]
        assert [(hit.id, hit.score) for hit in found] == ranked


def test_an_empty_index_has_no_candidates(tmp_path, fake_encoder):
    with Index.create(tmp_path / "empty") as index:
        (found,) = index.candidates(["w1"])
        assert (found.documents, len(found.dense)) == ((), 0)


def test_a_corpus_is_compared_by_id_title_and_text(index):
    corpus = [*documents(60), Document("long", "w1 w2 w3. " * 30)]
    assert index.difference(iter(corpus)) == CorpusDifference(61, 0, 0, 0)
    corpus[0] = Document("d0", corpus[0].text, title="A title")
    corpus[1] = Document("d1", corpus[1].text, metadata={"year": 2000})
    corpus[2] = Document("new", "w1")
    assert index.difference(iter(corpus)) == CorpusDifference(61, 1, 1, 1)
    assert index.difference(iter([])) == CorpusDifference(0, 0, 0, 61)
    assert index.info()["documents"] == 61
