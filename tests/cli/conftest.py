"""Fixtures and checks shared by the tests of the command line."""

from __future__ import annotations

import json

import pytest

GOOD = [{"id": "a", "text": "Apples are red.", "n": 1}, {"id": "b", "text": "Pears are green."}]


def printed_json(outcome):
    """Return the JSON value that a successful command printed."""
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def printed_lines(outcome):
    """Return the JSON lines that a successful command printed."""
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def assert_refused(outcome, *parts, code=2):
    """Check that a command ended with `code` and one line on stderr that contains `parts`."""
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
def good_index(fake_encoder, retriever, write_jsonl):
    """An index that must still answer and be sound after the test."""
    assert retriever("index", write_jsonl(*GOOD, name="good.jsonl"), "--quiet").code == 0
    yield
    assert printed_json(retriever("query", "apples", "--mode", "bm25", "--json"))["id"] == "a"
    assert retriever("verify")[:2] == (0, ".retriever: sound\n")
