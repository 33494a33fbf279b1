"""Filtered dense search of a whole index, with deleted documents, against brute force."""

from __future__ import annotations

import random

import numpy as np
import pytest

from indexes.protocol import StructureSettings
from retriever import Document, Index, SearchSettings

TOPICS = [[f"t{topic}w{number}" for number in range(6)] for topic in range(20)]
WORDS = [word for words in TOPICS for word in words]


def documents():
    """Of 20 topics with words of their own; a topic is a cluster, a shard is drawn evenly."""
    chance = random.Random(3)
    for number in range(3000):
        topic = number % 20
        text = " ".join([*chance.choices(TOPICS[topic], k=5), *chance.choices(WORDS, k=3)])
        shard = chance.randrange(1000)
        yield Document(
            f"d{number:04}", f"{text} n{number}", metadata={"topic": topic, "shard": shard}
        )


DOCUMENTS = list(documents())
QUERIES = [" ".join(words[:4]) for words in TOPICS[:5]]
# A filter, and what it says of a document's metadata.
FILTERS = {
    "shard < 500": lambda m: m["shard"] < 500,
    "shard < 50": lambda m: m["shard"] < 50,
    "shard < 1": lambda m: m["shard"] < 1,
    "topic >= 10": lambda m: m["topic"] >= 10,
    "topic = 19": lambda m: m["topic"] == 19,
    "topic = 19 and shard < 20": lambda m: m["topic"] == 19 and m["shard"] < 20,
}


@pytest.mark.parametrize("index_type", ["flat", "hnsw", "ivf", "ivf-sq8", "IVF16,PQ8x4"])
def test_a_filter_and_deletions_leave_the_nearest_of_the_rest(tmp_path, fake_encoder, index_type):
    dead = {one.id for one in DOCUMENTS[::5]}
    with Index.create(tmp_path / "index") as index:
        index.add(DOCUMENTS)
        index.rebuild(StructureSettings(index_type))
        index.delete(sorted(dead))
        assert index.info()["deleted_passages"] == len(dead)
        vectors = fake_encoder.encode([one.text for one in DOCUMENTS])
        scores = fake_encoder.encode(QUERIES) @ vectors.T
        for where, allows in FILTERS.items():
            hits = wanted = 0
            live = [one.id not in dead and allows(one.metadata) for one in DOCUMENTS]
            settings = SearchSettings(mode="dense", k=10)
            found = index.search_many(QUERIES, settings, where=where)
            for row, answer in zip(scores, found, strict=True):
                best = np.argsort(-np.where(live, row, -np.inf), kind="stable")[: sum(live)][:10]
                ids = {hit.id for hit in answer}
                assert len(ids) == len(answer) == len(best)
                assert all(live[int(id_[1:])] for id_ in ids)
                hits += len(ids & {DOCUMENTS[i].id for i in best})
                wanted += len(best)
            assert hits >= 0.95 * wanted, where
