"""Beginnings of words, other spellings and synonyms on the command line."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import assert_refused, printed_lines

DOCUMENTS = [
    {"id": "word", "text": "A ferry leaves at noon.", "kind": "x"},
    {"id": "longer", "text": "The ferryman sleeps all day.", "kind": "y"},
    {"id": "name", "text": "Frau Jäger paints walls.", "kind": "y"},
    {"id": "boat", "text": "A small boat sank.", "kind": "z"},
]


@pytest.fixture(autouse=True)
def _indexed(fake_encoder, retriever, write_jsonl, tmp_path):
    assert retriever("index", write_jsonl(*DOCUMENTS), "--quiet").code == 0
    (tmp_path / "synonyms.txt").write_text("ferry, boat, water taxi\n")


def ids(retriever, *arguments):
    outcome = retriever("query", *arguments, "--mode", "bm25", "--json")
    return [hit["id"] for hit in printed_lines(outcome) if "id" in hit]


def test_query_expands_prefix_unless_raw(retriever, tmp_path):
    assert ids(retriever, "ferry*") == ["word", "longer"]
    assert ids(retriever, "ferry*", "--raw") == ["word"]
    (tmp_path / "queries.txt").write_text("ferry*\n")
    assert ids(retriever, "--queries", "queries.txt") == ["word"]


def test_query_finds_spelling_with_umlaut(retriever):
    assert ids(retriever, "Jaeger") == ["name"]
    assert "did you mean" not in retriever("query", "Jaeger", "--mode", "bm25").err


def test_facets_count_hits_of_prefix_expansion(retriever):
    records = printed_lines(
        retriever("query", "ferry*", "--facets", "kind", "--mode", "bm25", "--json")
    )
    assert records[-1]["facets"]["matches"] == 2
    records = printed_lines(
        retriever("query", "ferry*", "--facets", "kind", "--mode", "bm25", "--json", "--raw")
    )
    assert records[-1]["facets"]["matches"] == 1


def test_explain_lists_expansions_with_weights(retriever):
    arguments = "ferry* Jaeger", "--synonyms", "synonyms.txt", "--explain"
    output = retriever("query", *arguments, "--mode", "bm25").out
    assert "Jaeger: bm25 also finds, with weight 0.5, jäger" in output
    assert "ferry*: bm25 also finds, with weight 0.25, ferryman" in output
    assert "ferry: bm25 also finds, with weight 0.5, boat" in output
    assert "also finds" not in retriever("query", "ferry", "--mode", "bm25", "--explain").out
    assert "also finds" not in retriever("query", *arguments, "--mode", "dense").out


def test_synonyms_are_an_option_or_a_setting_relative_to_its_file(retriever, tmp_path):
    assert ids(retriever, "ferry", "--synonyms", "synonyms.txt") == ["word", "boat"]
    folder = tmp_path / "settings"
    folder.mkdir()
    (tmp_path / "synonyms.txt").rename(folder / "mine.txt")
    (folder / "s.toml").write_text('[search]\nsynonyms = "mine.txt"\n')
    assert ids(retriever, "ferry", "--config", "settings/s.toml") == ["word", "boat"]
    (folder / "s.toml").write_text("[search]\nsynonyms = 3\n")
    assert_refused(
        retriever("query", "ferry", "--config", "settings/s.toml"), "synonyms: expected text"
    )


@pytest.mark.parametrize("command", [("query", "ferry"), ("serve",), ("mcp",)])
def test_a_bad_file_of_synonyms_is_one_line_with_file_and_line(retriever, tmp_path, command):
    (tmp_path / "synonyms.txt").write_text("ferry, boat\n\nalone\n")
    assert_refused(
        retriever(*command, "--synonyms", "synonyms.txt"), "synonyms.txt:3: expected 2 to 50"
    )


def test_words_that_an_expansion_found_are_highlighted(retriever, monkeypatch):
    monkeypatch.setattr("cli.commands.query.is_styled", lambda: True)
    output = retriever("query", "ferry*", "--mode", "bm25").out
    assert re.search("\x1b\\[[0-9;]+mferryman", output.replace("\x1b[33m\x1b[1m", "\x1b[1m"))


def test_a_query_of_stop_words_alone_says_how_many_texts_were_read(retriever):
    assert "no hits" in retriever("query", "of it", "--mode", "bm25").err
    expected = "in the texts of 4 documents; the mode hybrid ranks all"
    outcome = retriever("query", "at", "--mode", "bm25")
    assert outcome.out.startswith("  1  0.4545  word")
    assert outcome.err.startswith("note: the query has only stop words")
    assert outcome.err.endswith(f"{expected}\n")
    outcome = retriever("query", "at", "--mode", "bm25", "--json")
    assert json.loads(outcome.out)["id"] == "word"
    assert json.loads(outcome.err)["note"].endswith(expected)
    assert retriever("query", "at", "--mode", "bm25", "-q").err == ""
