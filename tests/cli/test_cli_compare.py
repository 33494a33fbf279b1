"""`retriever eval compare` from the command line."""

from __future__ import annotations

import json

import pytest
from wcwidth import width


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    queries = range(1, 21)
    (tmp_path / "qrels").write_text("".join(f"{q} 0 a 1\n{q} 0 b 0\n" for q in queries))
    (tmp_path / "good.run").write_text(
        "".join(f"{q} Q0 a 1 2.0 x\n{q} Q0 b 2 1.0 x\n" for q in queries)
    )
    (tmp_path / "poor.run").write_text(
        "".join(f"{q} Q0 b 1 2.0 x\n{q} Q0 a 2 1.0 x\n" for q in queries if q != 3)
    )
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps({"id": str(q), "text": f"question\t{q}"}) + "\n" for q in queries)
    )
    return tmp_path


def test_runs_are_compared_with_the_first_and_queries_shown_with_their_texts(retriever, files):
    done = retriever(
        "eval", "compare", "good.run", "poor.run", "--qrels", "qrels", "-m", "RR", "--top", "2",
        "--queries", "queries.jsonl",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("20 queries; 0 without a relevant document, left out")
    assert lines[1] == "poor.run: 1 query is missing and counts as zero"
    assert lines[4].split() == ["good.run", "1.0000", "1.0000", "to", "1.0000", "baseline"]
    assert lines[5].split()[:2] == ["poor.run", "0.4750"]
    assert "-0.5250" in lines[5]
    assert lines[5].split()[-2:] == ["0", "20"]
    assert lines[7].split() == ["-1.0000", "3", "question", "3"]


def test_json_holds_all_of_it(retriever, files):
    done = retriever(
        "eval", "compare", "good.run", "poor.run", "--qrels", "qrels", "--baseline", "poor.run",
        "--json",
    )  # fmt: skip
    found = json.loads(done.out)
    assert found["baseline"] == "poor.run"
    assert found["missing"] == {"good.run": 0, "poor.run": 1}
    difference = found["scores"]["AP"]["good.run"]["difference"]
    assert difference["p"] == pytest.approx(1 / 10_001)
    assert difference["value"] == pytest.approx(0.525)
    assert found["most_different"]["AP"]["good.run"][0]["query"] == "3"


def test_a_name_of_wide_characters_keeps_columns_aligned(retriever, files):
    (files / "good.run").rename(files / "良い検索.run")
    done = retriever(
        "eval", "compare", "良い検索.run", "poor.run", "--qrels", "qrels", "-m", "RR", "--top", "0"
    )
    assert (done.code, done.err) == (0, "")
    header, first, second = done.out.splitlines()[-3:]
    assert first.split()[0] == "良い検索.run"
    column = width(header.partition("value")[0])
    assert [
        width(line.partition(value)[0]) for line, value in ((first, "1.0000"), (second, "0.4750"))
    ] == [column - 1] * 2
