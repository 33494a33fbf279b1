"""The retriever of LangChain, used through LangChain's own interface."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("langchain_core")

from langchain_core.runnables import RunnableLambda

from retriever import SearchSettings
from retriever.integrations.langchain import IndexRetriever


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


def test_it_is_a_link_of_a_chain(retriever):
    chain = retriever | RunnableLambda(lambda documents: [one.id for one in documents])
    assert chain.invoke("pears") == ["b", "a"]
