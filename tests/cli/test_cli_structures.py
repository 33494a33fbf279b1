"""Search structures from the command line: rebuild and its plan, info, recall, long builds."""

from __future__ import annotations

import json
import logging
import random
import re

import pytest

from tests.cli.error_cases import refused

WORDS = [f"w{number}" for number in range(60)]


def records(count, seed=0):
    chance = random.Random(seed)
    return [
        {"id": f"d{seed}-{i}", "text": " ".join(chance.choices(WORDS, k=8))} for i in range(count)
    ]


@pytest.fixture(autouse=True)
def _somewhere(tmp_path, monkeypatch, fake_encoder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)


@pytest.fixture
def indexed(retriever, write_jsonl):
    assert retriever("index", write_jsonl(*records(300)), "--quiet") == (0, "", "")


def segments(retriever):
    return json.loads(retriever("info", "--json").out)["segments"]


def test_a_plan_is_printed_and_changes_nothing(retriever, indexed):
    before = retriever("info", "--json").out
    plan = retriever("rebuild", "--dry-run", "--index-type", "hnsw")
    assert (plan.code, plan.err) == (0, "")
    why, takes = plan.out.splitlines()
    assert why == "hnsw was asked for"
    found = re.fullmatch(
        r"HNSW32,Flat: about (.+) kB; building it takes up to (.+) kB of memory", takes
    )
    assert found is not None
    # 300 vectors of 16 float32, each with at least 32 links.
    assert 300 * (64 + 128) / 1000 <= float(found[1]) <= float(found[2])
    assert retriever("info", "--json").out == before


def test_a_plan_as_json_has_numbers(retriever, indexed):
    plan = json.loads(retriever("rebuild", "--dry-run", "--json", "--index-type", "ivf-pq").out)
    assert plan["index_type"] == "ivf-pq"
    assert plan["structure"] == "ivf-sq8"
    assert "too few to train a product quanti" in plan["reasons"][1]
    assert 0 < plan["memory_bytes"] < plan["build_bytes"]
    flat = json.loads(retriever("rebuild", "--dry-run", "--json").out)
    assert (flat["structure"], flat["build_bytes"]) == ("flat", 0)


def test_rebuilding_says_first_what_it_takes(retriever, indexed):
    done = retriever("rebuild", "--index-type", "ivf")
    assert done.err.splitlines()[0] == "ivf was asked for"
    assert re.search(r"IVF7,Flat: about .+ kB; building it takes up to .+ kB of memory", done.err)
    assert done.out.startswith(".retriever: 300 passages, ivf\n  effort 1 ")
    assert retriever("rebuild").err.endswith("Flat: nothing to build\n")


@pytest.mark.parametrize("option", [(), ("--dry-run",), ("--dry-run", "--json")])
def test_nonsense_is_refused_before_anything_is_said(retriever, indexed, option):
    before = segments(retriever)
    refused(retriever("rebuild", "--index-type", "nonsense", *option), "'nonsense'", "ivf-pq")
    refused(retriever("rebuild", "-i", "nowhere", *option), "no index here")
    blank = retriever("rebuild", "--index-type", " ", *option)
    assert (blank.code, blank.out) == (2, "")
    assert "expected a name or a FAISS factory string" in blank.err
    assert segments(retriever) == before


def test_info_shows_each_segment_with_what_was_measured(retriever, indexed, write_jsonl):
    retriever("rebuild", "--index-type", "IVF8,SQ8")
    retriever("add", write_jsonl(*records(5, seed=1), name="more.jsonl"))
    text = retriever("info").out
    head, table = text.split("\n\n")
    assert "index type   IVF8,SQ8\n" in head
    assert "305 in 1 segment, 5 waiting in the database" in head
    names, first, recall = table.splitlines()
    assert names.split() == ["segment", "passages", "size", "structure"]
    assert first.split()[1] == "300"
    assert "IVF8,SQ8: IVF8,SQ8 was asked for; FAISS advises 39 vectors" in first
    assert recall.strip().startswith("recall@10 (effort): 0.")
    assert recall.endswith("1.0000 (8)")
    (found,) = segments(retriever)
    assert found["structure"] == "IVF8,SQ8"
    assert found["recall"][-1] == {"effort": 8, "recall": 1.0}


def test_info_has_a_line_for_each_of_many_segments(retriever, write_jsonl, monkeypatch):
    monkeypatch.setattr("indexes.segments.maintenance.next_merge", lambda *_: None)
    monkeypatch.setattr("indexes.writer.PENDING_LIMIT", 1)
    for number in range(20):
        retriever("index", write_jsonl(*records(2, seed=number)), "--memory", "1GB")
    text = retriever("info").out
    assert "index type   auto, within 1.0 GB\n" in text
    lines = text.split("\n\n")[1].splitlines()
    assert len(lines) == 21
    assert {len(line) for line in lines[1:]} == {len(lines[1])}
    assert max(map(len, text.splitlines())) < 200


def test_a_recall_is_reached_in_every_mode_or_refused_in_one_line(
    retriever, write_jsonl, monkeypatch
):
    # A code of half a byte cannot tell 16 dimensions apart; more effort would scan all vectors.
    monkeypatch.setattr("indexes.vectors.search._OTHER_EFFORTS", (1,))
    retriever("index", write_jsonl(*records(2000)))
    retriever("rebuild", "--index-type", "PQ1x4")
    (segment,) = segments(retriever)
    best = max(segment["recall"], key=lambda one: one["recall"])
    assert 0 < best["recall"] < 0.99
    query = ("query", "w1 w2 w3", "--json", "-k", "3")
    for mode in ("dense", "hybrid", "bm25"):
        enough = retriever(*query, "--mode", mode, "--recall", str(best["recall"] * 0.99))
        assert (enough.code, enough.err, len(enough.out.splitlines())) == (0, "", 3)
    for mode in ("dense", "hybrid"):
        refused(
            retriever(*query, "--mode", mode, "--recall", "0.99"),
            "--recall 0.99: ",
            f"{best['recall']:.4f}, at effort {best['effort']}",
            "rebuild",
        )
    assert retriever(*query, "--mode", "bm25", "--recall", "0.99").code == 0


ANNOUNCED = re.compile(
    r"\.retriever: merging [0-9,]+ passages and building their search structure \(ivf\), which "
    r"takes up to .* of memory\n"
)


@pytest.fixture
def structured(retriever, write_jsonl):
    """An index whose merges build a structure."""
    source = write_jsonl(*records(300))
    assert retriever("index", source, "--index-type", "ivf", "--quiet") == (0, "", "")


def test_a_merge_that_builds_a_structure_is_announced(retriever, structured, write_jsonl):
    more = write_jsonl(*records(2000, seed=2), name="more.jsonl")
    assert retriever("add", more, "--json").code == 0
    done = retriever("delete", "--where", 'id like "d2-%"', "--json")
    assert ANNOUNCED.fullmatch(done.err)
    assert json.loads(done.out)["deleted"] == 2000
    assert ANNOUNCED.fullmatch(retriever("add", more, "--json").err)


def test_a_quiet_command_announces_nothing(retriever, structured, write_jsonl, caplog):
    more = write_jsonl(*records(2000, seed=2), name="more.jsonl")
    retriever("add", more)
    retriever("delete", "--where", 'id like "d2-%"')
    caplog.clear()
    assert retriever("add", more, "--quiet") == (0, "", "")
    assert "merging 2,300 passages" in caplog.text


def test_the_command_line_leaves_logging_as_it_was(retriever, indexed):
    logger = logging.getLogger("indexes.segments.maintenance")
    before = logger.level, list(logger.handlers)
    retriever("info")
    retriever("info", "-i", "nowhere")
    assert (logger.level, logger.handlers) == before
