from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from eval.qa_pools import read_pools
from indexes.errors import SourceError

CORPUS = [{"id": f"d{n}", "text": f"text {n}", "title": "A title"} for n in (1, 2, 10)]
QUERIES = [{"id": f"q{n}", "text": f"question {n}"} for n in (1, 2, 3)]
CANDIDATES = [
    {"qid": "q2", "candidates": ["d1", "d10", "d2"]},
    {"qid": "q1", "candidates": ["d2"]},
    {"qid": "q3", "candidates": ["d10"]},
]
QRELS = "q1 0 d2 1\nq1 0 elsewhere 2\nq2 0 d10 1\nq2 0 d1 0\nq3 0 d10 0\n"


@pytest.fixture
def folder(tmp_path):
    for name, records in (
        ("corpus.jsonl", CORPUS),
        ("queries.dev.jsonl", QUERIES),
        ("candidates.dev.jsonl", CANDIDATES),
    ):
        (tmp_path / name).write_text("".join(json.dumps(one) + "\n" for one in records))
    (tmp_path / "qrels.dev.tsv").write_text(QRELS)
    return tmp_path


def test_questions_with_an_answer_come_with_their_pools_and_the_rest_is_counted(folder):
    pools = read_pools(folder, "dev")
    assert [question.id for question in pools.questions] == ["q1", "q2"]
    assert len(pools) == 2
    assert pools.without_answer == 1
    assert pools.questions[0].grades == {"d2": 1, "elsewhere": 2}


def test_pairs_follow_the_order_in_which_equal_scores_rank(folder):
    pools = read_pools(folder, "dev")
    assert pools.questions[1].candidates == ("d2", "d10", "d1")
    left, right = pools.pairs()
    assert left == ["question 1", "question 2", "question 2", "question 2"]
    assert right == ["text 2", "text 2", "text 10", "text 1"]


@pytest.mark.parametrize(
    "name", ["corpus.jsonl", "queries.dev.jsonl", "candidates.dev.jsonl", "qrels.dev.tsv"]
)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(SourceError, match=f"{name}: expected this file of the split 'dev'"):
        read_pools(folder, "dev")


def test_a_missing_split_names_those_that_are_there(folder):
    with pytest.raises(
        SourceError, match=r"queries\.test\.jsonl: .* the folder has the splits dev"
    ):
        read_pools(folder, "test")
    with pytest.raises(SourceError, match="expected a folder of questions"):
        read_pools(folder / "nothing", "dev")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "found 'not json'; correct the line"),
        ('{"qid": "q1"}', 'expected {"qid": "...", "candidates": ["...", ...]}'),
        ('{"qid": "q1", "candidates": []}', "correct the line"),
        ('{"qid": "q1", "candidates": [1]}', "correct the line"),
        ('["q1"]', "correct the line"),
        ('{"qid": "q2", "candidates": ["d1"]}', "found q2 again; remove the line"),
        ('{"qid": "q9", "candidates": ["d1"]}', "found unknown question q9"),
        ('{"qid": "q1", "candidates": ["d1", "d1"]}', "found d1 twice"),
        ('{"qid": "q1", "candidates": ["d7"]}', "are in corpus.jsonl, found d7"),
    ],
)
def test_a_malformed_pool_is_named_with_what_was_expected_and_found(folder, line, message):
    path = folder / "candidates.dev.jsonl"
    path.write_text(json.dumps(CANDIDATES[0]) + "\n" + line + "\n")
    with pytest.raises(SourceError) as caught:
        read_pools(folder, "dev")
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_question_with_an_answer_needs_a_pool(folder):
    (folder / "candidates.dev.jsonl").write_text(json.dumps(CANDIDATES[0]) + "\n")
    with pytest.raises(SourceError, match="found none for q1; add a line for it"):
        read_pools(folder, "dev")


def test_judgements_of_unknown_questions_and_none_that_is_positive_are_refused(folder):
    (folder / "qrels.dev.tsv").write_text(QRELS + "q7 0 d1 1\n")
    with pytest.raises(SourceError, match=r"qrels\.dev\.tsv: .* found question q7"):
        read_pools(folder, "dev")
    (folder / "qrels.dev.tsv").write_text("q1 0 d1 0\n")
    with pytest.raises(SourceError, match="a grade of at least 1, found none"):
        read_pools(folder, "dev")


@pytest.mark.parametrize(("split", "answered", "asked"), [("dev", 126, 296), ("test", 243, 633)])
def test_wikiqa_has_the_published_numbers_of_questions(split, answered, asked):
    if "RETRIEVER_DATA" not in os.environ:
        pytest.skip("RETRIEVER_DATA is not set: no real questions to read")
    pools = read_pools(Path(os.environ["RETRIEVER_DATA"]) / "wikiqa", split)
    assert len(pools) == answered
    assert len(pools) + pools.without_answer == asked
