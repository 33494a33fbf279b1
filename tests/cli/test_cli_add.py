"""`retriever add`: like `index`, for an existing index."""

from __future__ import annotations

import json

import click
import pytest

from cli.main import cli
from tests.cli.error_cases import GOOD, NEW, refused


@pytest.fixture(autouse=True)
def _somewhere(tmp_path, monkeypatch, fake_encoder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)
    (tmp_path / "new.jsonl").write_bytes(NEW)


@pytest.fixture
def indexed(retriever, write_jsonl):
    assert retriever("index", write_jsonl(*GOOD), "--quiet") == (0, "", "")


def test_it_adds_and_replaces_and_leaves_the_rest(retriever, indexed, write_jsonl):
    done = retriever("add", write_jsonl({**GOOD[0], "text": "Apples are sour."}), "new.jsonl")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(".retriever: 1 added, 1 updated, 0 unchanged, 0 skipped; 2 passages")
    ids = {json.loads(line)["id"] for line in retriever("query", "are", "--json").out.splitlines()}
    assert ids == {"a", "b", "new"}


def test_it_prints_what_index_prints(retriever, indexed, tmp_path):
    printed = [json.loads(retriever(name, "new.jsonl", "--json").out) for name in ("add", "index")]
    assert printed[0].keys() == printed[1].keys()
    assert (printed[0]["added"], printed[1]["unchanged"]) == (1, 1)
    assert retriever("add", "new.jsonl", "--quiet") == (0, "", "")


def test_where_there_is_no_index_none_is_made(retriever, tmp_path):
    refused(retriever("add", "new.jsonl"), ".retriever: no index here", "retriever index")
    (tmp_path / "stuff").mkdir()
    (tmp_path / "stuff" / "mine").touch()
    refused(retriever("add", "new.jsonl", "-i", "stuff"), "stuff: this folder is not an index")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "new.jsonl", "stuff"]


def test_a_bad_source_is_one_line_and_loses_nothing(retriever, indexed, tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(NEW + b"{\n")
    refused(retriever("add", "none.jsonl"), "none.jsonl: no such file")
    refused(retriever("add", "bad.jsonl"), "bad.jsonl:2: ")
    skipped = retriever("add", "bad.jsonl", "--on-error", "skip")
    assert skipped.code == 0
    assert "1 skipped" in skipped.out
    refused(retriever("add", "new.jsonl", "--on-long", "truncate"), "made with split")
    assert json.loads(retriever("info", "--json").out)["documents"] == 3


def test_it_has_the_options_of_index_that_an_existing_index_can_follow():
    context = click.Context(cli)
    options = {
        name: {flag for one in cli.get_command(context, name).params for flag in one.opts}
        for name in ("add", "index")
    }
    assert options["add"] < options["index"]
    assert options["index"] - options["add"] >= {"--recreate", "--model", "--language", "--memory"}
    assert {"--device", "--download", "--on-long", "--on-error", "--id-field"} <= options["add"]
