"""`retriever eval compare` from the command line."""

from __future__ import annotations

import pytest
from wcwidth import width

from tests.cli.conftest import found


def test_runs_are_compared_with_the_first_and_queries_shown_with_their_texts(retriever, tmp_path):
    queries = range(1, 21)
    good, poor = "{0} Q0 a 1 2.0 x\n{0} Q0 b 2 1.0 x\n", "{0} Q0 b 1 2.0 x\n{0} Q0 a 2 1.0 x\n"
    for name, row in (
        ("qrels", "{0} 0 a 1\n{0} 0 b 0\n"),
        ("良い検索.run", good),
        ("poor.run", poor),
        ("queries.tsv", "{0}\tquestion {0}\n"),
    ):
        asked = [query for query in queries if (name, query) != ("poor.run", 3)]
        (tmp_path / name).write_text("".join(map(row.format, asked)))
    asked = (
        *("eval", "compare", "良い検索.run", "poor.run", "--qrels", "qrels", "-m", "RR"),
        *("--set", "top=2", "--queries", "queries.tsv"),
    )
    done = retriever(*asked)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("20 queries; 0 without a relevant document, left out")
    assert lines[1] == "poor.run: missing queries that count as zero: 1"
    assert lines[4].split() == ["良い検索.run", "1.0000", "1.0000", "to", "1.0000", "baseline"]
    assert lines[5].split()[:2] == ["poor.run", "0.4750"]
    assert lines[5].split()[-2:] == ["0", "20"]
    # Wide characters keep columns aligned.
    assert width(lines[4].partition("1.0000")[0]) == width(lines[5].partition("0.4750")[0])
    assert lines[7].split() == ["-1.0000", "3", "question", "3"]
    told = found(retriever(*asked, "--baseline", "./poor.run", "--json"))
    assert (told["baseline"], told["missing"]) == ("poor.run", {"良い検索.run": 0, "poor.run": 1})
    difference = told["scores"]["RR"]["良い検索.run"]["difference"]
    assert difference["p"] == pytest.approx(1 / 10_001)
    assert difference["value"] == pytest.approx(0.525)
    assert told["most_different"]["RR"]["良い検索.run"][0]["query"] == "3"
