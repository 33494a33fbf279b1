"""Sets of questions with a pool of answers for each."""

from __future__ import annotations

import json

import pytest

from eval.datasets.answer_sets import contains_answer
from eval.datasets.question_forms import read_question_set
from retriever.errors import ConfigError, SourceError
from tests.eval.datasets.question_samples import (
    INSURANCE_1,
    INSURANCE_2,
    QUASAR,
    TRECQA,
    WIKIPASSAGEQA,
    WIKIQA,
    records,
    shown,
    write,
)

POOL_500 = "InsuranceQA.question.anslabel.token.500.pool.solr.valid.encoded"
TREC_TEST = "test-less-than-40.manual-edit.xml"


def test_wikipassageqa_ranks_the_passages_of_a_document(tmp_path):
    found = read_question_set(write(tmp_path, WIKIPASSAGEQA), "dev")
    assert found.name == "WikiPassageQA"
    pool = ("7_9", "7_8", "7_7", "7_6", "7_5", "7_4", "7_3", "7_2", "7_10", "7_1", "7_0")
    assert shown(found) == [
        ("3", 'What is "it"?', pool, {"7_2": 1, "7_10": 1}),
        ("1", "Why?", ("12_0",), {"12_0": 1}),
    ]
    assert found.passages["7_10"] == "passage 10 of seven"
    assert len(found.passages) == 12


def test_insuranceqa_v1_resolves_words_and_labels(tmp_path):
    write(tmp_path, INSURANCE_1)
    found = read_question_set(tmp_path, "dev")
    assert found.name == "InsuranceQA v1"
    assert found.passages == {"1": "car is", "2": "a", "10": "&quot; car"}
    assert shown(found) == [
        ("1", "is a", ("2", "10", "1"), {"2": 1}),
        ("2", "car", ("10", "1"), {"1": 1, "10": 1}),
    ]
    # Training questions have no pools, and so their answers alone.
    train = read_question_set(tmp_path, "train")
    assert shown(train) == [("1", "is car", ("2", "10"), {"2": 1, "10": 1})]
    assert set(train.passages) == {"1", "2", "10"}


def test_insuranceqa_v2_has_pools_of_several_sizes(tmp_path):
    folder = write(tmp_path, INSURANCE_2)
    usual = read_question_set(folder, "dev")
    assert usual.name == "InsuranceQA v2, pools of 500"
    # The answer is not in the pool, and counts all the same.
    assert shown(usual) == [("1", "is car", ("10", "1"), {"2": 1})]
    large = read_question_set(folder, "dev", variant="1000")
    assert large.name == "InsuranceQA v2, pools of 1000"
    assert large.questions[0].candidates == ("2", "10", "1")
    with pytest.raises(ConfigError, match="expected 500 or 100 or 1000, found 1500"):
        read_question_set(folder, "dev", variant="1500")
    for path in folder.glob("*.500.*"):
        path.unlink()
    assert read_question_set(folder, "test").name == "InsuranceQA v2, pools of 100"
    (folder / POOL_500.replace("500", "1000")).unlink()
    with pytest.raises(SourceError, match=r"1000\.pool\.solr\.valid\.encoded: expected this file"):
        read_question_set(folder, "dev", variant="1000")


def test_openqa_paragraphs_answer_if_they_contain_an_answer(tmp_path):
    folder = write(tmp_path / "quasart", QUASAR)
    found = read_question_set(folder, "test")
    assert found.name == "Quasar-T"
    assert shown(found) == [
        ("1", "Who wrote it ?", ("1-3", "1-2", "1-1"), {"1-1": 1, "1-2": 0, "1-3": 1}),
        ("2", "And this ?", ("2-1",), {"2-1": 0}),
    ]
    assert found.passages["1-1"] == "A u.s ARMY song ."
    assert read_question_set(write(tmp_path / "searchqa", QUASAR), "test").name == "SearchQA"
    assert read_question_set(write(tmp_path / "others", QUASAR), "test").name == "others"


@pytest.mark.parametrize(
    ("passage", "answers", "expected"),
    [
        ("the cat sat", ["Cat"], True),
        ("the cats sat", ["cat"], False),
        ("it is a New , York !", ["new york"], True),
        ("new and york", ["new york"], False),
        ("new the york", ["new york"], True),
        ("an apple", ["the"], False),
        ("an apple", [], False),
        ("", ["x"], False),
        ("no match , no", ["yes", "no"], True),
    ],
)
def test_what_an_answer_matches(passage, answers, expected):
    assert contains_answer(passage, answers) is expected


def test_wikiqa_groups_sentences_by_question(tmp_path):
    found = read_question_set(write(tmp_path, WIKIQA), "dev")
    assert shown(found) == [
        ("Q1", "how?", ("D1-1", "D1-0"), {"D1-0": 0, "D1-1": 1}),
        ("Q2", "why?", ("D1-0",), {"D1-0": 0}),
    ]
    assert found.without_answer == 1
    assert found.passages == {"D1-0": 'It is "so', "D1-1": "So it is", "D2-0": "Me"}


def test_trecqa_takes_the_first_line_of_each_block_as_it_stands(tmp_path):
    found = read_question_set(write(tmp_path, TRECQA), "test")
    assert found.name == "TrecQA raw"
    assert shown(found) == [
        (
            "32.1",
            "Who are they ?",
            ("test-32.1-1", "test-32.1-0"),
            {"test-32.1-0": 1, "test-32.1-1": 0},
        ),
        ("32.2", "Where ?", ("test-32.2-0",), {"test-32.2-0": 1}),
    ]
    assert found.passages == {
        "train-all-1.1-0": "<num> people & one",
        "test-32.1-0": "<num> people",
        "test-32.1-1": "<question> is &amp;",
        "test-32.2-0": "Here",
    }
    clean = read_question_set(tmp_path, "test", variant="clean")
    assert clean.name == "TrecQA clean"
    assert [question.id for question in clean.questions] == ["32.1"]
    # Their names in later distributions.
    later = write(tmp_path / "later", {"TEST.xml": TRECQA[TREC_TEST]})
    assert read_question_set(later, "test").questions == found.questions


def test_a_set_without_any_answer_is_refused(tmp_path):
    files = {**QUASAR, "test.txt": records(*3 * [{"question": "Who?", "answers": ["nobody"]}])}
    with pytest.raises(SourceError, match="relevant passage, found none among 2; check the"):
        read_question_set(write(tmp_path, files), "test")


def test_wikipassageqa_passages_survive_a_round_trip_of_unicode(tmp_path):
    passages = json.dumps({"7": {"0": "naïve \u2028 café"}}, ensure_ascii=False)
    header = WIKIPASSAGEQA["dev.tsv"].splitlines()[0]
    files = {"document_passages.json": passages, "test.tsv": f"{header}\n1\tWhy?\t7\tS\t0\n"}
    assert read_question_set(write(tmp_path, files), "test").passages == {
        "7_0": "naïve \u2028 café"
    }
