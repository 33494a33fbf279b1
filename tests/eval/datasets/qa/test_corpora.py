"""Forms whose whole corpus is ranked."""

from __future__ import annotations

import pytest

from eval.datasets.qa.forms import read_question_set
from retriever.errors import SourceError
from tests.eval.datasets.qa.samples import BEIR, MSMARCO, TREC, records, tabs, write

TOP = tabs(
    ("2", "5", "what?", 'The "five'),
    ("1048585", "0", "who?", "zero"),
    ("1048585", "10", "who?", "ten"),
)


def shown(questions):
    return [(one.id, one.text, one.candidates, dict(one.grades)) for one in questions.questions]


def test_beir_asks_the_questions_that_are_judged(tmp_path):
    folder = write(tmp_path / "nfcorpus", BEIR)
    found = read_question_set(folder, "test")
    assert shown(found) == [("q1", "one", (), {"d1": 2})]
    assert found.corpus == (folder / "corpus.jsonl",)
    assert found.name == "nfcorpus"
    assert shown(read_question_set(folder, "train")) == [("q2", "two", (), {"d1": 1})]


def test_ms_marco_ranks_the_collection_where_there_is_no_top1000(tmp_path):
    found = read_question_set(write(tmp_path, MSMARCO), "dev.small")
    assert shown(found) == [
        ("1048585", "who?", (), {"0": 1}),
        ("2", "what?", (), {"5": 1}),
        ("3", "where?", (), {}),
    ]
    assert found.corpus == (tmp_path / "collection.tsv",)
    assert found.passages == {}


@pytest.mark.parametrize("name", ["top1000.dev", "top1000.dev.small.tsv", "top1000.dev.gz"])
def test_ms_marco_ranks_the_pools_of_top1000(tmp_path, name):
    files = {key: text for key, text in MSMARCO.items() if key != "collection.tsv"}
    found = read_question_set(write(tmp_path, {**files, name: TOP}), "dev.small")
    assert shown(found) == [
        ("1048585", "who?", ("10", "0"), {"0": 1}),
        ("2", "what?", ("5",), {"5": 1}),
    ]
    assert found.passages == {"5": 'The "five', "0": "zero", "10": "ten"}
    assert found.corpus == ()


@pytest.mark.parametrize(
    ("top", "message"),
    [
        (TOP + "9\t5\tx\ty\n", "top1000.dev:4: expected a query of queries.dev.small.tsv, found 9"),
        (
            TOP + '2\t5\twhat?\tThe "five\n',
            "top1000.dev:4: expected each passage once for a query, found 5",
        ),
        (TOP + "2\t10\twhat?\televen\n", "top1000.dev:4: expected one text for passage 10"),
        (TOP + "2\t10\n", "top1000.dev:4: expected 4 cells"),
        (TOP.split("\n", 1)[1], "found none for 2; name the split that the pools are of"),
    ],
)
def test_malformed_pools_of_ms_marco_are_refused(tmp_path, top, message):
    with pytest.raises(SourceError) as caught:
        read_question_set(write(tmp_path, {**MSMARCO, "top1000.dev": top}), "dev.small")
    assert message in str(caught.value)


def test_classic_topics_are_read_by_title_or_description(tmp_path):
    found = read_question_set(write(tmp_path, TREC), "test")
    assert shown(found) == [
        ("301", "International Organized Crime", (), {"FT911-1": 1}),
        ("51", "R&D", (), {"FT911-2": 1}),
    ]
    assert found.corpus == (tmp_path / "corpus.jsonl",)


def test_xml_topics_are_read_by_query_title_or_text(tmp_path):
    topics = """<?xml version="1.0"?>
<!DOCTYPE topics [<!ENTITY a "b">]>
<topics task="2020">
 <topic number="1"><query>corona &amp; virus</query><question>what?</question></topic>
 <topic number='2' type="x">
  <title> fox
  jumps </title> <description>What?</description>
 </topic>
 <topic number="3">A woman of 47 with &a; cough.</topic>
</topics>
"""
    files = {**TREC, "topics.xml": topics, "qrels.txt": "1 0 d1 1\n"}
    del files["topics.301-302.txt"]
    found = read_question_set(write(tmp_path, files), "test")
    assert [(one.id, one.text) for one in found.questions] == [
        ("1", "corona & virus"),
        ("2", "fox jumps"),
        ("3", "A woman of 47 with &a; cough."),
    ]


def test_a_folder_can_be_the_corpus(tmp_path):
    files = {name: text for name, text in TREC.items() if name != "corpus.jsonl"}
    write(tmp_path, {**files, "corpus/one.txt": "one"})
    assert read_question_set(tmp_path, "test").corpus == (tmp_path / "corpus",)


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        ("\n<top>\n<num> Number: 1\n", 2, "expected </top> for this topic, found none"),
        ("<top>\n<num> 1\n<top>\n</top>\n", 1, "expected </top> for this topic, found none"),
        ("<top>\n<title> x\n</top>\n", 1, "expected a number in this topic, found '<title> x'"),
        ("<top>\n<num> 1\n</top>\n", 1, "expected a title or query in this topic"),
        (2 * "<top>\n<num> 301\n<title> x\n</top>\n", 5, "for each topic, found 301 again"),
        ("1: x\n", None, "expected topics (<top> or <topic number=...>), found none"),
        ("<top>\n<num> 1\n<title> x\n</top>\n", "qrels", "found question 301; add it there"),
    ],
)
def test_malformed_topics_are_refused(tmp_path, content, place, message):
    folder = write(tmp_path, {**TREC, "topics.301-302.txt": content})
    with pytest.raises(SourceError) as caught:
        read_question_set(folder, "test")
    where = {None: "", "qrels": ""}.get(place, f"{place}: ")
    name = "qrels.txt" if place == "qrels" else "topics.301-302.txt"
    assert str(caught.value).startswith(f"{folder / name}:{where}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_files_of_topics_are_refused(tmp_path):
    with pytest.raises(SourceError, match=r"one file topics\.\*, found topics\.301-302\.txt, topi"):
        read_question_set(write(tmp_path, {**TREC, "topics.xml": ""}), "test")


@pytest.mark.parametrize(
    ("files", "qrels", "query"),
    [(BEIR, "qrels/test.tsv", "q1"), (MSMARCO, "qrels.dev.small.tsv", "2")],
    ids=["beir", "msmarco"],
)
def test_judgments_of_unknown_questions_and_none_that_is_positive_are_refused(
    tmp_path, files, qrels, query
):
    split = "test" if files is BEIR else "dev.small"
    last = files[qrels].splitlines()[-1].replace(query, "unknown", 1)
    with pytest.raises(SourceError, match=f"{qrels}: expected judgments .* found question unk"):
        read_question_set(write(tmp_path, {**files, qrels: files[qrels] + last + "\n"}), split)
    header = "query-id\tcorpus-id\tscore\n"
    with pytest.raises(SourceError, match=f"{qrels}: .* a grade of at least 1, found none"):
        read_question_set(write(tmp_path, {**files, qrels: f"{header}{query}\td1\t0\n"}), split)


def test_duplicate_queries_are_refused(tmp_path):
    twice = MSMARCO["queries.dev.small.tsv"] + "2\twhat?\n"
    with pytest.raises(SourceError, match=r"queries\.dev\.small\.tsv:4: .* found 2 again"):
        read_question_set(write(tmp_path, {**MSMARCO, "queries.dev.small.tsv": twice}), "dev.small")
    twice = BEIR["queries.jsonl"] + records({"_id": "q1", "text": "one"})
    with pytest.raises(SourceError, match=r"queries\.jsonl:3: the id 'q1' was given before"):
        read_question_set(write(tmp_path, {**BEIR, "queries.jsonl": twice}), "test")
