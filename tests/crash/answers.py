"""The index that is damaged and killed, and its answers, checked against its expected content."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import workload
from forked import in_child
from workload import LIFE, Contents, states

from indexes.folder.verify import verify
from retriever.index import Index
from retriever.search import SearchSettings

EVERYTHING = SearchSettings(mode="dense", k=1000)


def make(folder):
    """Make the index of `LIFE`, in a process of its own."""

    def live():
        for operation in LIFE:
            operation.perform(folder)

    assert in_child(live) == (0, None)
    assert verify(folder) == []


def before():
    """What it holds."""
    return states(LIFE)[-1][-1]


def contents(index):
    """Every document that a dense search can return."""
    hits = index.search("any", EVERYTHING)
    assert index.info()["documents"] == len(hits)
    return {hit.id: (hit.passage, hit.metadata["version"]) for hit in hits}


def check_answers(index, held, dead):
    """Each document held is found by BM25, by its vector and by its metadata; no dead one is."""
    texts = [text for text, _ in held.values()]
    settings = SearchSettings(mode="bm25", k=2)
    tags = [text.split()[0] for text in texts]
    for id_, hits in zip(held, index.search_many(tags, settings), strict=True):
        assert [hit.id for hit in hits] == [id_]
    settings = SearchSettings(mode="dense", k=1)
    for id_, (hit,) in zip(held, index.search_many(texts, settings), strict=True):
        assert (hit.id, hit.dense) == (id_, 1.0)
    id_, (text, version) = next(iter(held.items()))
    where = f"number = {id_[1:]} and version = {version}"
    (found,) = index.search(text, where=where)
    assert found.id == id_
    settings = SearchSettings(mode="bm25", k=2)
    tags = [text.split()[0] for id_, (text, _) in dead.items() if held.get(id_, ("",))[0] != text]
    assert not any(index.search_many(tags, settings))


@dataclass(frozen=True)
class Final:
    """What an index answers, for comparing one with another."""

    contents: Contents
    bm25: list[list[tuple[str, float]]]
    dense: list[list[tuple[str, float]]]


def final(folder):
    def answers(mode):
        settings = SearchSettings(mode=mode, k=500)
        queries = [" ".join(workload.VOCABULARY[i : i + 3]) for i in range(0, 60, 5)]
        return [
            [(hit.id, hit.score) for hit in hits] for hits in index.search_many(queries, settings)
        ]

    with Index.open(folder) as index:
        return Final(contents(index), answers("bm25"), answers("dense"))


def assert_equal(one, other):
    assert one.contents == other.contents
    assert one.dense == other.dense
    for hits, expected in zip(one.bm25, other.bm25, strict=True):
        assert hits
        assert [id_ for id_, _ in hits] == [id_ for id_, _ in expected]
        scores = [score for _, score in hits]
        assert scores == pytest.approx([score for _, score in expected], rel=0, abs=1e-9)
