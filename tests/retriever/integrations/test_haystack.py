"""The components and the store of Haystack, in pipelines and by Haystack's own suites."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

pytest.importorskip("haystack")

from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing import document_store as suite
from haystack.testing import document_store_async as async_suite
from haystack.utils.filters import document_matches_filter

from retriever import (
    BM25Settings,
    ConfigError,
    FusionSettings,
    SearchSettings,
    SourceError,
)
from retriever.integrations.haystack import (
    IndexBM25Retriever,
    IndexDocumentStore,
    IndexEmbeddingRetriever,
    IndexHybridRetriever,
    IndexRetriever,
    where_of,
)


@pytest.fixture
def retriever(index):
    return IndexRetriever(index, SearchSettings(k=2, mode="dense"), "year < 2022")


def check(documents, expected):
    assert len(documents) == len(expected) == 2
    for document, (id_, passage, score, year, facts) in zip(documents, expected, strict=True):
        assert (document.id, document.content, document.score) == (id_, passage, score)
        assert document.meta["year"] == year
        assert facts.items() <= document.meta["hit"].items()


def test_documents_are_the_hits_with_their_scores(retriever, expected):
    check(retriever.run("pears")["documents"], expected)
    check(asyncio.run(retriever.run_async("pears"))["documents"], expected)
    assert [
        document.id for document in retriever.run("pears", top_k=1, where="id = 'c'")["documents"]
    ] == ["c"]


def test_a_saved_pipeline_opens_the_index_again(index, expected):
    settings = SearchSettings(
        k=2, mode="hybrid", fusion=FusionSettings("rrf", rrf_k=7), bm25=BM25Settings(k1=0.9)
    )
    pipeline = Pipeline()
    pipeline.add_component("search", IndexRetriever(index.folder, settings, "year < 2022"))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=[IndexRetriever.__module__])
    assert again.get_component("search").settings == settings
    one, other = (made.run({"search": {"query": "pears"}}) for made in (pipeline, again))
    assert one == other
    assert [found.id for found in one["search"]["documents"]] == ["b", "a"]
    for made in (pipeline, again):
        made.get_component("search").index.close()


class _Stored:
    """Parts that the suites leave to a store: order, embeddings, and writing without a policy."""

    @pytest.fixture
    def document_store(self, tmp_path):
        store = IndexDocumentStore(tmp_path / "store", embedding_dimensions=768)
        with store.index:
            yield store

    @staticmethod
    def assert_documents_are_equal(received, expected):
        kept = [replace(one, embedding=None) for one in expected]
        assert received == sorted(kept, key=lambda one: one.id)


class TestStandardStore(
    _Stored, suite.DocumentStoreBaseExtendedTests, suite.CountDocumentsByFilterTest
):
    """Haystack's extended suite."""

    def test_write_documents(self, document_store):
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        self.assert_documents_are_equal(document_store.filter_documents(), [document])


class TestAsynchronousStore(
    _Stored,
    async_suite.CountDocumentsAsyncTest,
    async_suite.CountDocumentsByFilterAsyncTest,
    async_suite.DeleteAllAsyncTest,
    async_suite.DeleteByFilterAsyncTest,
    async_suite.DeleteDocumentsAsyncTest,
    async_suite.FilterDocumentsAsyncTest,
    async_suite.UpdateByFilterAsyncTest,
    async_suite.WriteDocumentsAsyncTest,
):
    """Haystack's asynchronous suites."""

    async def test_write_documents_async(self, document_store):
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])


@pytest.fixture
def filled_store(tmp_path):
    store = IndexDocumentStore(tmp_path / "filled", embedding_dimensions=2)
    fields = {"date": "2020-05-01", "id": "own", "who": {"name": "Ann"}}
    store.write_documents(
        [
            Document(id="n", content="north wind", embedding=[0.0, 2.0], meta={"n": 1, **fields}),
            Document(id="e", content="east wind", embedding=[1.0, 0.0], meta={"n": 2}),
            Document(id="w", content="words alone", meta={"n": None, "flag": True}),
        ]
    )
    with store.index:
        yield store


def _is(field, operator, value):
    return {"field": field, "operator": operator, "value": value}


@pytest.mark.parametrize(
    "filters",
    [
        *(_is("meta.n", one, 1) for one in ("==", "!=", "<", "<=", ">", ">=")),
        *(_is("meta.n", one, None) for one in ("==", "!=", "<")),
        *(_is("meta.n", one, values) for one in ("in", "not in") for values in ([], [1, None])),
        _is("meta.date", ">=", "2020-05-01"),
        _is("meta.flag", "==", True),
        _is("meta.who.name", "==", "Ann"),
        _is("meta.id", "==", "own"),
        _is("id", "in", ["n", "w"]),
        {"operator": "NOT", "conditions": [_is("meta.n", ">", 1), _is("id", "==", "e")]},
        {"operator": "OR", "conditions": [_is("n", "==", 2), _is("id", "==", "w")]},
        {"operator": "AND", "conditions": []},
    ],
)
def test_filters_of_retriever_equal_in_memory_store_of_haystack(filled_store, filters):
    expected = {
        one.id for one in filled_store.filter_documents() if document_matches_filter(filters, one)
    }
    found = IndexEmbeddingRetriever(filled_store, filters).run([0.0, 1.0])["documents"]
    assert {one.id for one in found} == expected


@pytest.mark.parametrize(
    "filters",
    [
        _is("meta.n", ">", "1"),
        _is("meta.n", "==", [1]),
        _is("meta.n", "in", 1),
        _is("meta.n", "~", 1),
        _is("content", "==", "x"),
        {"operator": "AND"},
        {"field": "meta.n"},
    ],
)
def test_haystack_filters_without_equivalent_are_refused(filters):
    with pytest.raises(FilterError):
        where_of(filters)


def test_a_saved_pipeline_of_the_three_retrievers_finds_the_same(filled_store):
    pipeline = Pipeline()
    for name, kind in (
        ("embedding", IndexEmbeddingRetriever),
        ("bm25", IndexBM25Retriever),
        ("hybrid", IndexHybridRetriever),
    ):
        pipeline.add_component(name, kind(filled_store, top_k=2, filters=_is("meta.n", "!=", None)))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=[IndexRetriever.__module__])
    asked = {"query_embedding": [0.1, 1.0]}, {"query": "east"}, {"query": "east"}
    asked[2].update(asked[0])
    question = dict(zip(("embedding", "bm25", "hybrid"), asked, strict=True))
    one, other = pipeline.run(question), again.run(question)
    assert one == other
    found = {name: [document.id for document in one[name]["documents"]] for name in one}
    assert found["embedding"] == ["n", "e"]
    assert found["bm25"] == ["e"]
    assert set(found["hybrid"]) == {"n", "e"}
    for name, one in question.items():
        with pytest.raises(ConfigError, match="k: expected at least 1, found 0"):
            again.get_component(name).run(**one, top_k=0)
    again.get_component("bm25").document_store.index.close()


def test_overwriting_takes_another_embedding_of_the_same_text(filled_store):
    north = Document(id="n", content="north wind", embedding=[0.0, -1.0])
    assert filled_store.write_documents([north], policy=DuplicatePolicy.OVERWRITE) == 1
    (found,) = IndexEmbeddingRetriever(filled_store, _is("id", "==", "n")).run([0.0, 3.0])[
        "documents"
    ]
    assert found.score == pytest.approx(-1)


def test_haystack_store_refuses_missing_embedding_or_empty_text(filled_store):
    with pytest.raises(ConfigError, match="give query_embedding"):
        IndexHybridRetriever(filled_store).run("east")
    with pytest.raises(ValueError, match="expected text"):
        filled_store.write_documents([Document(content=" ")])


@pytest.mark.parametrize("dimensions", [0, 3, "two"])
def test_wrong_embedding_dimensions_are_refused_at_once(index, dimensions):
    with pytest.raises(ConfigError, match="embedding_dimensions: "):
        IndexDocumentStore(index, embedding_dimensions=dimensions)


def test_a_vector_that_is_refused_leaves_the_earlier_documents(filled_store):
    bad = Document(id="e", content="east wind", embedding=[float("nan"), 0.0])
    with pytest.raises(SourceError, match="document 'e'"):
        filled_store.write_documents([bad], DuplicatePolicy.OVERWRITE)
    assert {document.id for document in filled_store.filter_documents()} == {"e", "n", "w"}
