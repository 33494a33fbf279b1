"""The retriever of LlamaIndex, used through LlamaIndex's own interface."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.schema import Document, MetadataMode, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from retriever import ConfigError, SearchSettings, SourceError
from retriever.integrations.llama_index import IndexRetriever, IndexVectorStore


@pytest.fixture
def retriever(index):
    return IndexRetriever(index, SearchSettings(k=2, mode="dense"), where="year < 2022")


def check(nodes, expected):
    assert len(nodes) == len(expected) == 2
    for node, (id_, passage, score, year, facts) in zip(nodes, expected, strict=True):
        assert (node.node_id, node.text, node.score) == (id_, passage, score)
        assert (node.node.start_char_idx, node.node.end_char_idx) == (facts["start"], facts["stop"])
        assert node.metadata["year"] == year
        assert facts.items() <= node.metadata["hit"].items()


def test_nodes_are_the_hits_with_their_scores(retriever, expected):
    check(retriever.retrieve("pears"), expected)
    check(asyncio.run(retriever.aretrieve("pears")), expected)


def test_a_language_model_reads_the_fields_of_the_document_but_not_its_scores(retriever):
    text = retriever.retrieve("pears")[0].get_content(MetadataMode.LLM)
    assert "year: 2021" in text
    assert "dense" not in text


NODES = [
    TextNode(id_="a", text="north", embedding=[0, 1], metadata={"n": 1, "tags": ["x", "y"]}),
    TextNode(id_="b", text="east wind", embedding=[1, 0], metadata={"n": 2, "tags": ["y"]}),
    TextNode(id_="c", text="both", embedding=[1, 1], metadata={"s": "some text"}),
]


@pytest.fixture
def store(tmp_path):
    store = IndexVectorStore(tmp_path / "store", embedding_dimensions=2)
    store.add(NODES)
    with store.client:
        yield store


@pytest.mark.parametrize(
    ("condition", "filters"),
    [
        *(("and", [("n", one, 1)]) for one in ("==", "!=", "<", "<=", ">", ">=")),
        ("and", [("n", "in", [1, 3])]),
        ("and", [("n", "nin", [1, 3])]),
        ("and", [("tags", "any", ["x", "z"])]),
        ("and", [("tags", "all", ["x", "y"])]),
        ("and", [("tags", "contains", "y")]),
        ("and", [("s", "text_match", "me te")]),
        ("and", [("n", "is_empty", None)]),
        ("or", [("n", "==", 1), ("s", "==", "some text")]),
    ],
)
def test_filters_find_what_the_simple_store_of_llama_index_finds(store, condition, filters):
    filters = MetadataFilters(
        filters=[MetadataFilter(key=key, operator=one, value=value) for key, one, value in filters],
        condition=FilterCondition(condition),
    )
    simple = SimpleVectorStore()
    simple.add(NODES)
    query = VectorStoreQuery(query_embedding=[0.1, 1], similarity_top_k=9, filters=filters)
    found, expected = store.query(query), simple.query(query)
    assert found.ids == expected.ids
    assert found.similarities == pytest.approx(expected.similarities, abs=1e-6)


def test_llama_index_store_returns_whole_nodes_in_every_mode(store):
    assert [one.model_dump() | {"embedding": None} for one in store.get_nodes()] == [
        one.model_dump() | {"embedding": None} for one in NODES
    ]
    for mode, expected in (("sparse", ["b"]), ("default", ["a", "c", "b"])):
        query = VectorStoreQuery([0, 1], 3, query_str="wind", mode=mode)
        assert store.query(query).ids == expected
    assert store.query(VectorStoreQuery([0, 1], 3, query_str="wind", node_ids=["c"])).ids == ["c"]
    with pytest.raises(ConfigError, match="expected one of default"):
        store.query(VectorStoreQuery([0, 1], mode="svm"))
    store.delete_nodes(["a", "absent"])
    assert [one.node_id for one in store.get_nodes()] == ["b", "c"]
    store.clear()
    assert store.get_nodes() == []


def test_store_serves_vector_store_index_of_llama_index(tmp_path):
    store = IndexVectorStore(tmp_path / "store", embedding_dimensions=4)
    context = StorageContext.from_defaults(vector_store=store)
    documents = [Document(text=text, doc_id=text) for text in ("tea", "coffee")]
    model = MockEmbedding(embed_dim=4)
    index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=model)
    again = VectorStoreIndex.from_vector_store(store, embed_model=model)
    found = again.as_retriever(vector_store_query_mode="hybrid", alpha=0.1).retrieve("coffee")
    assert [one.text for one in found] == ["coffee", "tea"]
    index.delete_ref_doc("coffee")
    assert [one.text for one in again.as_retriever().retrieve("coffee")] == ["tea"]
    store.client.close()


@pytest.mark.parametrize("dimensions", [0, 3, "two"])
def test_wrong_embedding_dimensions_are_refused_at_once(index, dimensions):
    with pytest.raises(ConfigError, match="embedding_dimensions: "):
        IndexVectorStore(index, embedding_dimensions=dimensions)


def test_a_vector_that_is_refused_leaves_the_earlier_documents(store):
    bad = TextNode(id_="b", text="east wind", embedding=[float("nan"), 0])
    with pytest.raises(SourceError, match="document 'b'"):
        store.add([NODES[0], bad])
    assert sorted(document.id for document in store.client) == ["a", "b", "c"]
