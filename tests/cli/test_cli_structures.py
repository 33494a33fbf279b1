"""Search structures from the command line: rebuild and its plan, info, recall, long builds."""

from __future__ import annotations

import json
import logging
import random

import pytest
from indexes.vectors.estimate import Estimate

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
    assert takes.startswith(
        "HNSW32,Flat: building it takes less than 1 s, at most 0.1 MB of memory"
    )
    assert retriever("info", "--json").out == before


def test_a_plan_as_json_has_numbers(retriever, indexed):
    plan = json.loads(retriever("rebuild", "--dry-run", "--json", "--index-type", "ivf-pq").out)
    assert plan["index_type"] == "ivf-pq"
    assert plan["structure"] == "ivf-sq8"
    assert "too few to train a product quantiser" in plan["reasons"][1]
    assert plan["build"].keys() == {"seconds", "at_least", "build_bytes", "file_bytes"}
    assert plan["build"]["seconds"] > 0
    flat = json.loads(retriever("rebuild", "--dry-run", "--json").out)
    assert (flat["structure"], flat["build"]) == ("flat", None)


def test_rebuilding_says_before_what_it_takes(retriever, indexed):
    done = retriever("rebuild", "--index-type", "ivf")
    assert done.err.splitlines()[0] == "ivf was asked for"
    assert "IVF7,Flat: building it takes less than 1 s" in done.err
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
    assert "305 in 2 segments" in head
    names, first, recall, second = table.splitlines()
    assert names.split() == ["segment", "passages", "size", "structure"]
    assert first.split()[1] == "300"
    assert "IVF8,SQ8: IVF8,SQ8 was asked for; FAISS advises 39 vectors" in first
    assert recall.strip().startswith("recall@10 (effort): 0.")
    assert recall.endswith("1.0000 (8)")
    assert second.split()[1] == "5"
    assert second.endswith("  flat")
    found = segments(retriever)
    assert [one["structure"] for one in found] == ["IVF8,SQ8", "flat"]
    assert found[0]["recall"][-1] == {"effort": 8, "recall": 1.0}


def test_info_has_a_line_for_each_of_many_segments(retriever, write_jsonl, monkeypatch):
    monkeypatch.setattr("indexes.segments.maintenance.next_merge", lambda *_: None)
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


@pytest.fixture
def long_builds(monkeypatch):
    """Every build is expected to take a minute."""
    monkeypatch.setattr(
        "indexes.segments.maintenance.estimate_build",
        lambda *_, **__: Estimate(60.0, False, 2 * 10**9, 10**9),
    )


SAID = "takes about 60 s, at most 2.0 GB of memory, a file of 1.0 GB\n"


def test_a_long_build_is_told_of_by_every_command_that_merges(
    retriever, indexed, write_jsonl, long_builds
):
    more = write_jsonl(*records(2000, seed=2), name="more.jsonl")
    for command in (
        ("index", more, "--json"),
        ("delete", "--where", 'id like "d2-%"', "--json"),
        ("add", more, "--json"),
    ):
        done = retriever(*command)
        assert done.code == 0
        assert done.err.startswith(".retriever: merging ")
        assert done.err.endswith(SAID)
        json.loads(done.out)
    retriever("delete", "d0-0")
    assert retriever("compact").err.endswith(SAID)
    # What rebuild says itself is not said twice.
    assert retriever("rebuild", "--index-type", "ivf").err.count("takes") == 1


def test_a_quiet_command_tells_nothing_of_a_long_build(
    retriever, indexed, write_jsonl, long_builds
):
    more = write_jsonl(*records(2000, seed=2), name="more.jsonl")
    assert retriever("add", more, "--quiet") == (0, "", "")


def test_the_command_line_leaves_logging_as_it_was(retriever, indexed):
    logger = logging.getLogger("indexes.segments.maintenance")
    before = logger.level, list(logger.handlers)
    retriever("info")
    retriever("info", "-i", "nowhere")
    assert (logger.level, logger.handlers) == before
