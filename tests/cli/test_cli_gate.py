"""`retriever gate` and `eval compare`: exit codes, runs, indexes, files, refusals."""

from __future__ import annotations

import json

import pytest
from wcwidth import width

from tests.cli.conftest import assert_refused, printed_json

WORDS = ("apple", "birch", "cedar", "daisy")


@pytest.fixture
def ranked(tmp_path):
    """Judgments of 400 questions, and a function that writes runs with some questions worse."""

    def write(name, lost, questions=400):
        rows = []
        for number in range(questions):
            first, second = ("b", "a") if number < lost else ("a", "b")
            rows += [f"{number} Q0 {first} 1 2.0 x\n", f"{number} Q0 {second} 2 1.0 x\n"]
        (tmp_path / name).write_text("".join(rows))
        return name

    (tmp_path / "qrels").write_text("".join(f"{number} 0 a 1\n" for number in range(400)))
    return write


@pytest.mark.parametrize(
    ("lost", "code", "verdict"), [(0, 0, "pass"), (2, 4, "too few questions"), (40, 1, "fail")]
)
def test_gate_exit_code_is_verdict(retriever, ranked, tmp_path, lost, code, verdict):
    main, new = ranked("main.run", 0), ranked("new.run", lost)
    arguments = ("gate", "--baseline", main, "--candidate", new, "--qrels", "qrels", "-m", "RR")
    done = retriever(*arguments, "--output", "report")
    assert done.code == code
    assert done.out.startswith(f"Gate: {verdict}\n")
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert names == {"gate.md", "junit.xml", "report.json", "report.md", "report.tex"}
    done = retriever(*arguments, "--json", "--margin", "50")
    assert (done.code, json.loads(done.out)["verdict"]) == (0, "pass")


def test_gate_candidate_index_is_searched_with_judged_questions(
    retriever, fake_encoder, write_jsonl, tmp_path
):
    texts = [{"id": word, "text": f"{word} tree {n}"} for n, word in enumerate(WORDS)]
    queries = write_jsonl(*({"id": w, "text": f"{w} tree"} for w in WORDS), name="queries.jsonl")
    (tmp_path / "qrels").write_text("".join(f"{word} 0 {word} 1\n" for word in WORDS))
    assert retriever("index", write_jsonl(*texts, name="c.jsonl"), "-i", "index", "-q").code == 0
    search = ("query", "--queries", queries, "-i", "index", "-k", "100", "--mode", "bm25")
    assert retriever(*search, "--run", "main.run").code == 0
    arguments = ("gate", "--baseline", "main.run", "--candidate", "index", "--qrels", "qrels")
    done = retriever(*arguments, "--queries", queries, "--mode", "bm25", "--json", "--margin", "60")
    report = json.loads(done.out)
    assert (done.code, report["candidate"]) == (0, "index")
    assert report["measures"]["nDCG@10"]["candidate"] == 1.0
    assert report["measures"]["nDCG@10"]["lost"] == []
    # A run that was cut is compared with lists that are as short.
    assert retriever(*search, "-k", "1", "--run", "main.run").code == 0
    (tmp_path / "qrels").write_text("".join(f"{a} 0 {b} 1\n" for a in WORDS for b in WORDS))
    done = retriever(*arguments, "--queries", queries, "--mode", "bm25", "--margin", "60")
    assert done.out.count(" +0.00 ") == 2
    assert "baseline: its lists end at hit 1, before the cutoff of nDCG@10, R@100" in done.out
    assert_refused(retriever(*arguments), "expected the texts of 4 judged questions", "--queries")
    (tmp_path / "few.tsv").write_text("id\ttext\napple\tapple\n")
    assert_refused(retriever(*arguments, "--queries", "few.tsv"), "none of 3, such as 'birch'")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--candidate", "none.run"), "none.run"),
        (("--candidate", "."), "index"),
        (("--margin", "0"), "margin"),
        (("--mode", "bm25"), "--mode: both sides are runs, so no index is searched"),
        (("-m", "magic"), "unknown measure"),
    ],
)
def test_gate_refuses_bad_input(retriever, ranked, changed, message):
    main = ranked("main.run", 0)
    arguments = ("gate", "--baseline", main, "--candidate", main, "--qrels", "qrels", *changed)
    assert_refused(retriever(*arguments), message)


def test_compare_measures_runs_against_first_and_shows_query_texts(retriever, tmp_path):
    queries = range(1, 21)
    good, poor = "{0} Q0 a 1 2.0 x\n{0} Q0 b 2 1.0 x\n", "{0} Q0 b 1 2.0 x\n{0} Q0 a 2 1.0 x\n"
    for name, row in (
        ("qrels", "{0} 0 a 1\n{0} 0 b 0\n"),
        ("良い検索.run", good),
        ("poor.run", poor),
        ("queries.tsv", "{0}\tquestion {0}\n"),
    ):
        arguments = [query for query in queries if (name, query) != ("poor.run", 3)]
        (tmp_path / name).write_text("".join(map(row.format, arguments)))
    arguments = (
        *("eval", "compare", "良い検索.run", "poor.run", "--qrels", "qrels", "-m", "RR"),
        *("--set", "top=2", "--queries", "queries.tsv"),
    )
    done = retriever(*arguments)
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
    report = printed_json(retriever(*arguments, "--baseline", "./poor.run", "--json"))
    assert (report["baseline"], report["missing"]) == (
        "poor.run",
        {"良い検索.run": 0, "poor.run": 1},
    )
    difference = report["scores"]["RR"]["良い検索.run"]["difference"]
    assert difference["p"] == pytest.approx(1 / 10_001)
    assert difference["value"] == pytest.approx(0.525)
    assert report["most_different"]["RR"]["良い検索.run"][0]["query"] == "3"
