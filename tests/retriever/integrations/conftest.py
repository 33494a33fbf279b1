"""An index that the frameworks search."""

from __future__ import annotations

import pytest

from retriever import Index


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(
            [
                {"id": "a", "text": "apples and pears", "title": "Fruit", "year": 2020},
                {"id": "b", "text": "pears only", "year": 2021},
                {"id": "c", "text": "plums", "year": 2022},
            ]
        )
        yield index


@pytest.fixture
def expected(index):
    """Id, passage, score and metadata of each hit for "pears" among the documents before 2022."""
    hits = index.search("pears", k=2, mode="dense", where="year < 2022")
    facts = ("rank", "score", "title", "start", "stop", "dense", "dense_rank", "bm25")
    return [
        (
            hit.id,
            hit.passage,
            hit.score,
            hit.metadata["year"],
            {name: getattr(hit, name) for name in facts},
        )
        for hit in hits
    ]
