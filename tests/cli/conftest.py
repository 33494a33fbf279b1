"""Fixtures shared by the tests of refusals: a working folder, and an existing index."""

from __future__ import annotations

import json

import pytest

from tests.cli.error_cases import GOOD


@pytest.fixture
def in_a_folder(tmp_path, monkeypatch, fake_encoder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)


@pytest.fixture
def standing(in_a_folder, retriever, write_jsonl):
    """An index that still answers, is sound and holds what it held when the test is over."""
    assert retriever("index", write_jsonl(*GOOD, name="good.jsonl"), "--quiet").code == 0
    yield
    hits = retriever("query", "apples", "--mode", "bm25", "--json").out
    assert json.loads(hits)["id"] == "a"
    assert retriever("verify")[:2] == (0, ".retriever: sound\n")
