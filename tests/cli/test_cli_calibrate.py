"""`retriever calibrate`, and what `query` does with it."""

import json

import pytest

from tests.cli.conftest import assert_refused, printed_json, printed_lines

pytest.importorskip("sklearn")


@pytest.fixture
def question_options(fake_encoder, retriever, write_jsonl, tmp_path):
    """Options that name 110 judged questions; the index has as many documents."""
    documents = [{"id": str(n), "text": f"a{n} b{n} c{n} d{n} e{n} common"} for n in range(110)]
    assert retriever("index", write_jsonl(*documents), "--quiet").code == 0
    questions = [{"id": f"q{n}", "text": f"a{n} b{n} c{n + n % 2} common"} for n in range(110)]
    (tmp_path / "qrels").write_text("".join(f"q{n} 0 {n} 1\n" for n in range(110)))
    return "--queries", write_jsonl(*questions, name="questions.jsonl"), "--qrels", "qrels"


@pytest.mark.parametrize("mode", ["bm25", "hybrid"])
def test_query_without_answer_has_no_hits_above_min_probability(question_options, retriever, mode):
    query = ("query", "--mode", mode)
    assert_refused(
        retriever(*query, "common", "--min-probability", "0.5"),
        f".retriever: no probabilities were learned for the mode {mode}",
        f"`retriever calibrate -i .retriever --mode {mode}`",
    )
    before = printed_lines(retriever(*query, "a7 b7 c8 common", "--json"))
    facts = printed_json(retriever("calibrate", *question_options, "--mode", mode, "--json"))
    assert facts["calibration"]["questions"] == 110
    assert facts["promises"]["0.05"]["false_answers"] <= 0.1
    done = retriever(*query, "a7 b7 c8 common", "--json")
    after, answer = printed_lines(done), json.loads(done.err)
    assert [(hit["id"], hit["score"]) for hit in after] == [(h["id"], h["score"]) for h in before]
    assert answer == {"has_answer": True, "probability": pytest.approx(1, abs=0.2)}
    assert after[0]["probability"] > 0.5 > after[1]["probability"]
    done = retriever(*query, "common a99999", "--min-probability", "0.5")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("nothing relevant was found (probability of an answer ")
    assert "lower --min-probability" in done.err
    done = retriever(*query, "common a99999")
    assert done.out.count("\n") >= 10
    assert done.err.startswith("note: perhaps nothing relevant was found (probability of an ans")
    done = retriever(*query, "common a99999", "--min-probability", "0.5", "--json")
    assert done.out == ""
    assert not json.loads(done.err)["has_answer"]
    assert retriever(*query, "a7 b7 c8 common", "--min-probability", "0").out


def test_a_run_lists_no_query_without_an_answer(question_options, retriever, write_jsonl, tmp_path):
    assert retriever("calibrate", *question_options).code == 0
    both = write_jsonl(
        {"id": "1", "text": "a7 b7 c8 common"},
        {"id": "2", "text": "common a99999"},
        name="two.jsonl",
    )
    done = retriever("query", "--queries", both, "--run", "run", "--min-probability", "0.5")
    assert done.code == 0, done.err
    assert {line.split()[0] for line in (tmp_path / "run").read_text().splitlines()} == {"1"}
    done = retriever("query", "--queries", both, "--json")
    assert all("id" in hit for hit in printed_lines(done))
    answers = list(map(json.loads, done.err.splitlines()))
    assert [(one["query"], one["has_answer"]) for one in answers] == [("1", True), ("2", False)]


def test_info_shows_calibration_and_query_warns_after_index_change(
    question_options, retriever, write_jsonl
):
    assert retriever("calibrate", *question_options).code == 0
    (learned,) = printed_json(retriever("info", "--json"))["calibration"].values()
    assert json.loads(json.dumps(learned))["false_answers"] == 0.05
    assert "warning" not in retriever("query", "a1").err
    more = [{"id": f"more {n}", "text": f"x{n} y{n}"} for n in range(40)]
    assert retriever("index", write_jsonl(*more, name="more.jsonl"), "--quiet").code == 0
    with pytest.warns(
        UserWarning, match="of 110 passages, and the index has 150; learn them again"
    ):
        retriever("query", "a1")
    assert retriever("index", write_jsonl(*more, name="m.jsonl"), "--recreate", "--quiet").code == 0
    assert printed_json(retriever("info", "--json"))["calibration"] == {}


def test_calibrate_refuses_too_few_questions_and_impossible_probabilities(
    question_options, retriever, write_jsonl
):
    few = write_jsonl({"id": "q1", "text": "a1"}, name="few.jsonl")
    assert_refused(
        retriever("calibrate", "--queries", few, "--qrels", "qrels"),
        "questions: expected at least 100 with a relevant document in the index, for at most 5.0% "
        "false answers, found 1 among 1; give more questions, or more documents to make",
    )
    assert_refused(
        retriever("calibrate", "--queries", few, "--qrels", "qrels", "--false-answers", "0.01"),
        "to make them from, or allow more false answers",
    )
    assert_refused(
        retriever("calibrate", *question_options, "--false-answers", "1"), "--false-answers"
    )
    assert_refused(
        retriever("query", "a1", "--min-probability", "0.5", "--rerank", "folder"),
        "leave it out, or --rerank",
    )
    for number in ("2", "nan", "inf", "-inf"):
        assert_refused(retriever("query", "a1", "--min-probability", number), "--min-probability")
