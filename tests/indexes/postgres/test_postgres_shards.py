"""Shards that several processes import side by side."""

from __future__ import annotations

import subprocess
import sys

import pytest

from retriever import Index, encode_shards
from tests.retriever.index.moving_samples import (
    choice_of,
    make_index,
    random_documents,
    word_vectors,
)

QUERIES = ("w1 w2 w3", "w5 w9", "w44")


@pytest.mark.soak
def test_three_imports_of_disjoint_shards_at_once_give_what_the_folder_gives(
    postgres_url, tmp_path
):
    model, documents = choice_of(word_vectors(tmp_path / "w.txt")), random_documents(600)
    encode_shards(documents, tmp_path / "shards", model, shard_size=100)
    command = [sys.executable, "-c", "from cli.main import main; main()", "import"]
    running = [
        subprocess.Popen([*command, tmp_path / "shards", "-i", postgres_url, "--shards", which])
        for which in ("0-1", "2-3", "4-5")
    ]
    assert [one.wait(timeout=120) for one in running] == [0, 0, 0]
    make_index(tmp_path / "direct", model, documents)
    with Index.open(postgres_url) as index, Index.open(tmp_path / "direct") as folder:
        assert len(index) == len(folder) == len(documents)
        assert index.verify() == []
        for text in QUERIES:
            for mode in ("bm25", "dense", "hybrid"):
                found, expected = (
                    [(hit.id, hit.score) for hit in one.search(text, mode=mode, k=20)]
                    for one in (index, folder)
                )
                assert [id_ for id_, _ in found] == [id_ for id_, _ in expected]
                scores = [score for _, score in found]
                assert scores == pytest.approx([score for _, score in expected], abs=1e-5)
