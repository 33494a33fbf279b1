"""Commands on an index in a database server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import assert_refused, printed_json

CORPUS = (
    {"id": "1", "text": "apples grow on trees", "year": 2001},
    {"id": "2", "text": "the river flows to the sea", "year": 1999},
    {"id": "3", "text": "a bank of the river", "title": "bank", "year": 2010},
)


@pytest.fixture
def run(retriever, postgres_url, fake_encoder):
    """Function that runs a command on an index in PostgreSQL."""
    return lambda *arguments: retriever(*arguments, "-i", postgres_url)


def test_commands_work_on_postgres_index(run, write_jsonl, postgres_url):
    source = write_jsonl(*CORPUS)
    for command in ("info", "verify"):
        assert_refused(run(command), "holds no index of that name")
    made = run("index", source)
    assert made.out.startswith(postgres_url.split("?")[0])
    assert "3 added" in made.out
    assert "3 unchanged" in run("index", source).out
    more = write_jsonl({"id": "4", "text": "money in the bank"}, name="more.jsonl")
    assert "1 added" in run("index", "--existing", more).out
    hit = printed_json(run("query", "river", "--mode", "bm25", "--where", "year > 2000", "--json"))
    assert (hit["id"], hit["metadata"]) == ("3", {"year": 2010})
    info = printed_json(run("info", "--json"))
    assert (info["documents"], info["format_version"]) == (4, 1)
    assert f"vectors      {info['store']['vectors']}\n" in run("info").out
    assert "HNSW" not in info["store"]["vectors"]
    assert run("delete", "4").code == 0
    assert "1 document" in run("delete", "--where", "year = 1999").out
    assert " parts merged, " in run("compact").out
    assert "HNSW" in run("compact", "--index-type", "hnsw").out
    rebuilt = printed_json(run("compact", "--index-type", "flat", "--json"))
    assert rebuilt == {"index_type": "flat", "store": printed_json(run("info", "--json"))["store"]}
    assert run("export", "out.jsonl").code == 0
    ids = [json.loads(line)["id"] for line in Path("out.jsonl").read_text().splitlines()]
    assert ids == ["1", "3"]
    assert "3 added" in run("index", source, "--recreate", "--language", "german").out
    assert printed_json(run("info", "--json"))["analyzer"]["language"] == "german"
    assert run("verify").out.endswith("sound\n")
    for arguments, expected in (
        (["compact", "--index-type", "ivf"], "expected the index type auto, flat or hnsw"),
        (["snapshot", "copy"], "expected an index folder"),
    ):
        assert_refused(run(*arguments), expected)


def test_unreachable_server_is_refused_in_one_line(retriever):
    done = retriever("query", "a", "-i", "postgresql://me:sekret@127.0.0.1:1/db?index=a")
    assert_refused(done, "no connection")
    assert "sekret" not in done.err
