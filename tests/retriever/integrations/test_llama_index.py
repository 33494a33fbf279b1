"""The retriever of LlamaIndex, used through LlamaIndex's own interface."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.schema import MetadataMode

from retriever import SearchSettings
from retriever.integrations.llama_index import IndexRetriever


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
