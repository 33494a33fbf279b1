from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from eval.datasets.qa.forms import read_question_set
from retriever.errors import ConfigError, SourceError
from tests.eval.datasets.qa.samples import OWN, write

FIRST = OWN["candidates.dev.jsonl"].splitlines()[0]


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path, OWN)


def read(folder, split="dev", **options):
    return read_question_set(folder, split, form="own", **options)


def test_all_questions_come_with_their_pools_and_those_with_an_answer_can_be_taken(folder):
    found = read(folder)
    assert [question.id for question in found.questions] == ["q1", "q2", "q3"]
    assert found.without_answer == 1
    assert [question.id for question in found.answered().questions] == ["q1", "q2"]
    assert found.questions[0].grades == {"d2": 1, "elsewhere": 2}
    assert found.passages == {"d1": "text 1", "d2": "text 2", "d10": "text 10"}
    assert found.corpus == ()
    assert found.name == folder.name


def test_pairs_follow_the_order_in_which_equal_scores_rank(folder):
    found = read(folder).answered()
    assert found.questions[1].candidates == ("d2", "d10", "d1")
    left, right = found.pairs()
    assert left == ["question 1", "question 2", "question 2", "question 2"]
    assert right == ["text 2", "text 2", "text 10", "text 1"]


@pytest.mark.parametrize("name", OWN)
def test_a_missing_file_of_a_split_is_named(folder, name):
    write(folder, {path.replace("dev", "test"): content for path, content in OWN.items()})
    (folder / name).unlink()
    with pytest.raises(SourceError) as caught:
        read(folder)
    assert str(folder) in str(caught.value)
    expected = {
        "corpus.jsonl": "found no corpus.jsonl",
        "queries.dev.jsonl": "expected one of the splits test (form own), found 'dev'",
    }
    default = f"{name}: expected this file of the split 'dev', found none; the folder has the "
    assert expected.get(name, default) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "found 'not json'; correct the line"),
        ('{"qid": "q1"}', 'expected {"qid": "...", "candidates": ["...", ...]}'),
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
    path.write_text(f"{FIRST}\n{line}\n")
    with pytest.raises(SourceError) as caught:
        read(folder)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_question_with_an_answer_needs_a_pool_and_others_are_left_out_without_one(folder):
    path = folder / "candidates.dev.jsonl"
    path.write_text(f"{FIRST}\n")
    with pytest.raises(SourceError, match="found none for q1; add a line for it"):
        read(folder)
    empty = [json.dumps({"qid": f"q{number}", "candidates": []}) for number in (1, 3)]
    path.write_text("\n".join([FIRST, *empty]))
    with pytest.raises(SourceError, match="found none for q1; add a line for it"):
        read(folder)
    path.write_text(FIRST + "\n" + json.dumps({"qid": "q1", "candidates": ["d2"]}) + "\n")
    assert [question.id for question in read(folder).questions] == ["q1", "q2"]


def test_judgments_of_unknown_questions_and_none_that_is_positive_are_refused(folder):
    (folder / "qrels.dev.tsv").write_text(OWN["qrels.dev.tsv"] + "q7 0 d1 1\n")
    with pytest.raises(SourceError, match=r"qrels\.dev\.tsv: .* found question q7"):
        read(folder)
    (folder / "qrels.dev.tsv").write_text("q1 0 d1 0\n")
    with pytest.raises(SourceError, match="a grade of at least 1, found none"):
        read(folder)


def test_without_any_file_of_candidates_the_whole_corpus_is_ranked(folder):
    (folder / "candidates.dev.jsonl").unlink()
    found = read(folder)
    assert found.corpus == (folder / "corpus.jsonl",)
    assert found.passages == {}
    assert [question.candidates for question in found.questions] == [(), (), ()]


def test_the_clean_variant_has_the_listed_questions(folder):
    with pytest.raises(ConfigError, match="variant: this set has only one, found clean"):
        read(folder, variant="clean")
    (folder / "clean.dev.txt").write_text("q2\nq3\n")
    clean = read(folder, variant="clean")
    assert [question.id for question in clean.questions] == ["q2", "q3"]
    assert clean.name == f"{folder.name} clean"
    assert read(folder) == read(folder, variant="raw")
    assert len(read(folder)) == 3
    with pytest.raises(ConfigError, match="variant: expected raw or clean, found strict"):
        read(folder, variant="strict")
    (folder / "clean.dev.txt").write_text("q2\nq8\n")
    with pytest.raises(SourceError, match=r"clean\.dev\.txt:2: .* found q8; remove the line"):
        read(folder, variant="clean")


@pytest.mark.parametrize(
    ("name", "split", "variant", "answered", "asked"),
    [
        ("wikiqa", "train", None, 873, 2118),
        ("wikiqa", "dev", None, 126, 296),
        ("wikiqa", "test", None, 243, 633),
        ("trecqa", "test", "clean", 68, 68),
        ("trecqa", "dev", "clean", 65, 65),
        ("trecqa", "train-all", None, 1229, 1229),
        ("selqa", "dev", None, 785, 785),
        ("selqa", "test", None, 1590, 1590),
    ],
)
def test_real_sets_have_the_published_numbers_of_questions(name, split, variant, answered, asked):
    if "RETRIEVER_DATA" not in os.environ:
        pytest.skip("RETRIEVER_DATA is not set: no real questions to read")
    found = read_question_set(Path(os.environ["RETRIEVER_DATA"]) / name, split, variant=variant)
    assert len(found.answered()) == answered
    assert len(found) == asked


def test_a_real_set_without_candidates_is_ranked_as_a_whole():
    if "RETRIEVER_DATA" not in os.environ:
        pytest.skip("RETRIEVER_DATA is not set: no real questions to read")
    folder = Path(os.environ["RETRIEVER_DATA"]) / "scifact"
    found = read_question_set(folder, "test")
    assert len(found.answered()) == 300
    assert found.corpus == (folder / "corpus.jsonl",)
