"""A folder for each test, an index in it, and what an answer and a refusal look like."""

from __future__ import annotations

import json

import pytest

GOOD = [{"id": "a", "text": "Apples are red.", "n": 1}, {"id": "b", "text": "Pears are green."}]


def found(outcome):
    """The JSON that a command printed."""
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def lines(outcome):
    """The JSON objects that a command printed, one a line."""
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def refused(outcome, *parts, code=2):
    """The command ended with `code` and one line on stderr that holds `parts`."""
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("retriever: ")
    assert outcome.err.endswith("\n")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def standing(fake_encoder, retriever, write_jsonl):
    """An index that still answers, is sound and holds what it held when the test is over."""
    assert retriever("index", write_jsonl(*GOOD, name="good.jsonl"), "--quiet").code == 0
    yield
    assert found(retriever("query", "apples", "--mode", "bm25", "--json"))["id"] == "a"
    assert retriever("verify")[:2] == (0, ".retriever: sound\n")
