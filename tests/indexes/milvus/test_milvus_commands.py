"""The command line on an index in Milvus."""

from __future__ import annotations

import json

import pytest

from indexes import open_store

pytestmark = pytest.mark.milvus
CORPUS = (
    {"id": "1", "text": "apples grow on trees", "year": 2001},
    {"id": "2", "text": "the river flows to the sea", "year": 1999},
    {"id": "3", "text": "a bank of the river", "year": 2010},
)


@pytest.mark.usefixtures("fake_encoder")
def test_a_life_of_an_index(retriever, write_jsonl, milvus_file, tmp_path):
    url = f"{milvus_file}life"
    made = retriever("index", write_jsonl(*CORPUS), "-i", url)
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith(f"{open_store(url)}: 3 added")
    assert "3 unchanged" in retriever("index", write_jsonl(*CORPUS), "-i", url).out
    query = ["query", "river", "-i", url, "--mode", "bm25", "--where", "year > 2000", "--json"]
    hit = json.loads(retriever(*query).out)
    assert (hit["id"], hit["metadata"]) == ("3", {"year": 2010})
    assert "1 document" in retriever("delete", "--where", "year = 1999", "-i", url).out
    assert retriever("compact", "-i", url).code == 0
    again = ["index", write_jsonl(*CORPUS[::2]), "-i", url, "--recreate", "--language", "german"]
    assert "2 added" in retriever(*again).out
    info = json.loads(retriever("info", "-i", url, "--json").out)
    assert (info["documents"], info["analyzer"]["language"]) == (2, "german")
    assert retriever("export", tmp_path / "out.jsonl", "-i", url).code == 0
    ids = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert ids == ["1", "3"]
    assert retriever("verify", "-i", url).out.endswith("sound\n")
    for command in (["compact", "--index-type", "ivf"], ["snapshot", tmp_path / "copy"]):
        outcome = retriever(*command, "-i", url)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
