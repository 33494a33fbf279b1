"""The component of Haystack, used in pipelines."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("haystack")

from haystack import Pipeline

from retriever import BM25Settings, FusionSettings, SearchSettings
from retriever.integrations.haystack import IndexRetriever


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
    assert [one.id for one in retriever.run("pears", top_k=1, where="id = 'c'")["documents"]] == [
        "c"
    ]


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
