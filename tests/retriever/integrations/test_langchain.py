"""The retriever and the store of LangChain, by LangChain's own suites and interface."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("langchain_tests")

from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_tests.integration_tests import (
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

from retriever import ConfigError, Index, SearchSettings
from retriever.integrations.langchain import EmbeddingsEncoder, IndexRetriever, IndexVectorStore


@pytest.fixture
def retriever(index):
    return IndexRetriever(
        index=index, settings=SearchSettings(k=2, mode="dense"), where="year < 2022"
    )


def check(documents, expected):
    assert len(documents) == len(expected) == 2
    for document, (id_, passage, _, year, facts) in zip(documents, expected, strict=True):
        assert (document.id, document.page_content) == (id_, passage)
        assert document.metadata["year"] == year
        assert facts.items() <= document.metadata["hit"].items()


def test_documents_are_the_hits_with_their_scores(retriever, expected):
    check(retriever.invoke("pears"), expected)
    check(asyncio.run(retriever.ainvoke("pears")), expected)
    assert [len(found) for found in retriever.batch(["pears", "plums"])] == [2, 2]


@pytest.mark.parametrize(
    "keywords",
    [{"filter": {"year": 2022}}, {"where": "year = 2022"}, {"filter": "year > 2021", "k": 9}],
)
def test_langchain_retriever_accepts_filter_per_call(retriever, keywords):
    assert [document.id for document in retriever.invoke("pears", **keywords)] == ["c"]
    with pytest.raises(TypeError, match="did you mean 'where'"):
        retriever.invoke("pears", filters={"year": 2022})


def test_langchain_retriever_opens_index_by_path(index):
    found = IndexRetriever(index=str(index.folder), k=1).invoke("plums")
    assert found == IndexRetriever(index=index, k=1).invoke("plums")


def test_langchain_store_opens_index_by_path(index):
    store = IndexVectorStore(str(index.folder))
    assert store.similarity_search("plums") == IndexVectorStore(index).similarity_search("plums")


def test_langchain_store_with_embeddings_reopens_by_path(tmp_path):
    embeddings = DeterministicFakeEmbedding(size=8)
    folder = tmp_path / "store.index"
    texts = ["pears", "plums"]
    IndexVectorStore.from_texts(texts, embeddings, folder=folder).index.close()
    store = IndexVectorStore(folder, embeddings=embeddings)
    assert [document.page_content for document in store.similarity_search("plums", k=1)] == [
        "plums"
    ]


def test_a_store_without_embeddings_has_the_encoder_of_its_index(index):
    embeddings = IndexVectorStore(index).embeddings
    assert embeddings.embed_documents(["plums"]) == index.encoder.encode(["plums"]).tolist()
    query = index.query_encoder.encode("plums", query=True)
    assert embeddings.embed_query("plums") == query.tolist()


def test_an_unknown_field_is_refused(index):
    with pytest.raises(TypeError, match="'filter'; did you mean 'where'"):
        IndexRetriever(index=index, filter={"year": 2021})


class TestStandardRetriever(RetrieversIntegrationTests):
    """LangChain's own suite for retrievers."""

    retriever_constructor = IndexRetriever
    retriever_query_example = "pears"

    @pytest.fixture(autouse=True)
    def _index(self, index):
        self.index = index

    @property
    def retriever_constructor_params(self):
        return {"index": self.index}


class TestStandardStore(VectorStoreIntegrationTests):
    """LangChain's own suite for vector stores, synchronous and asynchronous."""

    @pytest.fixture
    def vectorstore(self, tmp_path):
        encoder = EmbeddingsEncoder(self.get_embeddings())
        with Index.create(tmp_path / "store", encoder=encoder) as index:
            yield IndexVectorStore(index)


@pytest.fixture
def store(tmp_path):
    """Vectors of two numbers, of which every second text has the same direction."""
    directions = {"north": [0, 1], "north too": [0.1, 1], "east": [1, 0], "query": [0.2, 1]}

    class Compass(Embeddings):
        def embed_documents(self, texts):
            return [directions.get(text, [1.0, 1.0]) for text in texts]

        def embed_query(self, text):
            return self.embed_documents([text])[0]

    texts = ["north", "north too", "east"]
    fields = [{"n": n, "id": "own", "a b": {"c": n}} for n in range(3)]
    store = IndexVectorStore.from_texts(
        texts, Compass(), fields, ids=["x", "y", "z"], folder=tmp_path / "store"
    )
    with store.index:
        yield store


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ({}, ["y", "x", "z"]),
        ({"search_kwargs": {"k": 1}}, ["y"]),
        ({"search_kwargs": {"filter": {"n": [0, 2], "id": "own"}}}, ["x", "z"]),
        ({"search_kwargs": {"filter": {"a b.c": 0}}}, ["x"]),
        ({"search_kwargs": {"where": "n > 0 and `id` = 'own'"}}, ["y", "z"]),
        ({"search_type": "mmr", "search_kwargs": {"k": 2, "lambda_mult": 0.1}}, ["y", "z"]),
        ({"search_type": "mmr", "search_kwargs": {"k": 2, "lambda_mult": 1}}, ["y", "x"]),
        (
            {
                "search_type": "similarity_score_threshold",
                "search_kwargs": {"score_threshold": 0.9},
            },
            ["y", "x"],
        ),
    ],
)
def test_the_store_is_a_retriever_of_each_kind(store, search, expected):
    retriever = store.as_retriever(**search)
    assert [one.id for one in retriever.invoke("query")] == expected
    assert [one.id for one in asyncio.run(retriever.ainvoke("query"))] == expected


def test_scores_are_cosines_and_vectors_are_searched_for(store):
    scored = store.similarity_search_with_score("query")
    query = np.array([0.2, 1]) / np.linalg.norm([0.2, 1])
    assert [score for _, score in scored] == pytest.approx(
        [query @ (np.array(v) / np.linalg.norm(v)) for v in ([0.1, 1], [0, 1], [1, 0])], abs=1e-6
    )
    found = [one for one, _ in scored]
    assert store.similarity_search_by_vector([0.2, 1]) == found
    assert store.max_marginal_relevance_search_by_vector([0.2, 1], 3, lambda_mult=1) == found
    with pytest.raises(ConfigError, match="expected 2 finite numbers"):
        store.similarity_search_by_vector([1, 2, 3])
    with pytest.raises(TypeError, match="filters"):
        store.similarity_search("query", filters={})
    for condition in ({"n": {"$gt": 1}}, {"$and": [{"n": 1}, {"n": 2}]}):
        with pytest.raises(ConfigError, match=r"expected a string.*write other .* where='year"):
            store.similarity_search("query", filter=condition)


def test_langchain_delete_obeys_filter_and_deletes_all_only_without_arguments(store):
    wrong = {"filters": {"n": 1}}, {"filter": {}}, {"where": None}, {"ids": [], "filter": "n"}
    for given in wrong:
        with pytest.raises(TypeError, match=r"did you mean 'where'|give either ids or where"):
            store.delete(**given)
    for given, left in (({"filter": {"n": 1}}, 2), ({"where": "n = 0"}, 1), ({}, 0)):
        assert store.delete(**given) is True
        assert len(store.index) == left
