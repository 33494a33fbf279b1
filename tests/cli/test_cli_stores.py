"""The commands on an index that is no folder."""

from __future__ import annotations

import json

import pytest

CORPUS = (
    {"id": "1", "text": "apples grow on trees", "year": 2001},
    {"id": "2", "text": "the river flows to the sea", "year": 1999},
    {"id": "3", "text": "a bank of the river", "title": "bank", "year": 2010},
)


@pytest.fixture
def made(retriever, write_jsonl, postgres_url, fake_encoder):
    outcome = retriever("index", write_jsonl(*CORPUS), "-i", postgres_url)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(postgres_url.split("?")[0])
    assert "3 added" in outcome.out
    return postgres_url


def test_a_life_of_an_index(made, retriever, write_jsonl, tmp_path):
    again = retriever("index", write_jsonl(*CORPUS), "-i", made)
    assert "3 unchanged" in again.out
    added = retriever(
        "index", "--existing", write_jsonl({"id": "4", "text": "money in the bank"}), "-i", made
    )
    assert "1 added" in added.out
    hit = json.loads(
        retriever(
            "query", "river", "-i", made, "--mode", "bm25", "--where", "year > 2000", "--json"
        ).out
    )
    assert (hit["id"], hit["metadata"]) == ("3", {"year": 2010})
    info = json.loads(retriever("info", "-i", made, "--json").out)
    assert (info["documents"], info["format_version"]) == (4, 1)
    assert "HNSW" not in info["store"]["vectors"]
    assert retriever("delete", "4", "-i", made).code == 0
    assert "1 document" in retriever("delete", "--where", "year = 1999", "-i", made).out
    assert retriever("compact", "-i", made).code == 0
    assert "HNSW" in retriever("compact", "--index-type", "hnsw", "-i", made).out
    assert retriever("export", tmp_path / "out.jsonl", "-i", made).code == 0
    ids = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert ids == ["1", "3"]
    outcome = retriever(
        "index", write_jsonl(*CORPUS), "-i", made, "--recreate", "--language", "german"
    )
    assert "3 added" in outcome.out
    assert (
        json.loads(retriever("info", "-i", made, "--json").out)["analyzer"]["language"] == "german"
    )
    verified = retriever("verify", "-i", made)
    assert (verified.code, verified.out.endswith("sound\n")) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["compact", "--index-type", "ivf"], "expected the index type auto, flat or hnsw"),
        (["compact", "--dry-run", "--memory", "1GB"], "plans index folders alone"),
        (["snapshot", "copy"], "expected an index folder"),
        (["query", "a", "--where", "nothing = 1", "--where-typo"], "No such option"),
    ],
)
def test_what_the_store_cannot_do_is_one_line(made, retriever, arguments, expected):
    outcome = retriever(*arguments, "-i", made)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert expected in outcome.err


def test_an_index_that_does_not_exist_is_one_line(retriever, postgres_url):
    for command in (["info"], ["query", "a"], ["verify"], ["delete", "1"]):
        outcome = retriever(*command, "-i", postgres_url)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1), command
        assert "holds no index of that name" in outcome.err


def test_a_server_that_is_not_there_is_one_line(retriever):
    url = "postgresql://me:sekret@127.0.0.1:1/db?index=a"
    outcome = retriever("query", "a", "-i", url)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "no connection" in outcome.err
    assert "sekret" not in outcome.err
