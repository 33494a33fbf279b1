"""Forms of question sets: how they are told apart, what each refuses, and collections."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from eval.datasets.question_forms import FORMS, detect_form, read_question_set
from retriever.errors import ConfigError, SourceError
from tests.eval.datasets.question_samples import (
    BEIR,
    MSMARCO,
    OWN,
    SAMPLES,
    SPLITS,
    TREC,
    WIKIQA,
    records,
    shown,
    tabs,
    trec_pairs,
    write,
)

# Files of other splits.
UNREAD = {
    ("insuranceqa-v1", "question.train.token_idx.label"),
    ("insuranceqa-v1", "question.test1.label.token_idx.pool"),
    ("insuranceqa-v1", "question.test2.label.token_idx.pool"),
    ("beir", "qrels/train.tsv"),
    *(
        ("insuranceqa-v2", name)
        for name in SAMPLES["insuranceqa-v2"]
        if "solr" in name and not name.endswith("500.pool.solr.valid.encoded")
    ),
}
# The whole corpus is indexed, not read here.
CORPORA = {("beir", "corpus.jsonl"), ("msmarco", "collection.tsv"), ("trec", "corpus.jsonl")}
READ = [
    (form, name)
    for form, files in SAMPLES.items()
    for name in files
    if (form, name) not in UNREAD | CORPORA
]


def same(first, second):
    """Whether two sets are equal but for the folder they come from."""
    return replace(first, name="", corpus=()) == replace(second, name="", corpus=())


def read(folder, kind, **options):
    return read_question_set(folder, SPLITS[kind], **options)


def refused(folder, kind, start, message, **options):
    """A set that is refused in one line, which begins with the place and names a remedy."""
    with pytest.raises(SourceError) as caught:
        read(folder, kind, **options)
    text = str(caught.value)
    assert text.startswith(f"{folder / start}" if start else str(folder))
    assert message in text
    assert ";" in text
    assert "\n" not in text


@pytest.mark.parametrize("form", SAMPLES)
def test_each_form_is_recognised_by_its_files(tmp_path, form):
    write(tmp_path, SAMPLES[form])
    assert detect_form(tmp_path) == form
    found = read(tmp_path, form)
    assert found == read(tmp_path, form, form=form)
    for question in found.questions:
        assert list(question.candidates) == sorted(set(question.candidates), reverse=True)
        assert bool(question.candidates) != bool(found.corpus)
        assert set(question.candidates) <= set(found.passages)
    assert len({question.id for question in found.questions}) == len(found) > 0


def test_every_form_has_a_sample():
    assert set(SAMPLES) == set(FORMS)


@pytest.mark.parametrize("form", SAMPLES)
def test_gzip_line_ends_and_byte_order_marks_change_nothing(tmp_path, form):
    plain = read(write(tmp_path / "plain", SAMPLES[form]), form)
    windows = {
        name: "\ufeff" + content.replace("\n", "\r\n") for name, content in SAMPLES[form].items()
    }
    assert same(read(write(tmp_path / "windows", windows), form), plain)
    packed = {f"{name}.gz": content for name, content in SAMPLES[form].items()}
    assert same(read(write(tmp_path / "packed", packed), form), plain)


@pytest.mark.parametrize(("form", "name"), READ)
def test_an_empty_file_and_bytes_that_are_not_utf8_are_named(tmp_path, form, name):
    refused(write(tmp_path, {**SAMPLES[form], name: ""}), form, "", name)
    write(tmp_path, {**SAMPLES[form], name: SAMPLES[form][name].encode() + b"caf\xe9\n"})
    with pytest.raises(SourceError, match=f"{re.escape(name)}.*UTF-8"):
        read(tmp_path, form)


@pytest.mark.parametrize("form", SAMPLES)
def test_a_split_or_a_variant_that_is_not_there_is_told_from_those_that_are(tmp_path, form):
    write(tmp_path, SAMPLES[form])
    with pytest.raises(SourceError, match=f"one of the splits .*{SPLITS[form]}.*, found 'fold9'"):
        read_question_set(tmp_path, "fold9")
    has = {"insuranceqa-v2": "expected 500 or 100", "trecqa": "expected raw or clean"}
    with pytest.raises(ConfigError, match=f"variant: {has.get(form, 'this set has only one')}"):
        read(tmp_path, form, variant="strict")


@pytest.mark.parametrize("form", SAMPLES)
def test_a_form_that_is_named_says_which_of_its_files_are_missing(tmp_path, form):
    with pytest.raises(SourceError) as caught:
        read_question_set(tmp_path, "test", form=form)
    for group in FORMS[form].needs:
        assert f"no {' or '.join(group)}" in str(caught.value)


def test_a_folder_of_no_form_is_told_what_the_nearest_ones_lack(tmp_path):
    with pytest.raises(SourceError, match="found none of them; the forms are own, wikipassageqa"):
        detect_form(tmp_path)
    write(tmp_path, {name: OWN[name] for name in ("corpus.jsonl", "queries.dev.jsonl")})
    with pytest.raises(SourceError) as caught:
        detect_form(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: expected the files of a question set, found only some: for own it has no "
        "qrels.*.tsv; add what is missing"
    )


def test_what_is_no_folder_and_what_is_no_form_is_refused(tmp_path):
    for form in (None, "own"):
        with pytest.raises(SourceError, match="expected a folder of questions, found none"):
            read_question_set(tmp_path / "nothing", "dev", form=form)
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="expected a folder of questions, found a file"):
        detect_form(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"form: expected one of own, .*, found squad"):
        read_question_set(tmp_path, "dev", form="squad")


def test_layers_are_searched_on_any_form_that_has_pools(retriever, tiny_models, tmp_path):
    model = ("--model", tiny_models["bert"])
    sets = {form: write(tmp_path / form, SAMPLES[form]) for form in ("wikiqa", "beir")}
    outcome = retriever("eval", "layers", sets["wikiqa"], *model, "--json")
    assert outcome.code == 0, outcome.err
    source = json.loads(outcome.out)["search_data"]
    assert (source["units"], source["left_out"]) == (1, 1)
    outcome = retriever("eval", "layers", sets["beir"], *model, "--split", "test")
    assert (outcome.code, outcome.out) == (2, "")
    assert "found a whole corpus to rank; add a file candidates.test.jsonl" in outcome.err
    assert len(outcome.err.splitlines()) == 1


WIKI = "document_passages.json"
TITLES = tabs(("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages"))
WIKI_PASSAGE = "1\tWhy?\t7\tS\t"
VOCABULARY, ANSWERS = "vocabulary", "answers.label.token_idx"
POOL_1 = "question.dev.label.token_idx.pool"
POOL_2 = "InsuranceQA.question.anslabel.token.500.pool.solr.valid.encoded"
WIKIQA_DEV = "WikiQA-dev.tsv"
HEAD = WIKIQA[WIKIQA_DEV].splitlines()[0] + "\n"
LINE = "Q1\tx\tD\tT\tD-0\ts\t1\n"
TREC_TEST = "test-less-than-40.manual-edit.xml"
PAIRS, OPEN = "<QApairs id='1'>\n", "<QApairs id='1'>\n<question>\n"
CANDIDATES = "candidates.dev.jsonl"
POOL = OWN[CANDIDATES].splitlines()[0] + "\n"
TOPICS = "topics.301-302.txt"
TOP = tabs(
    ("2", "5", "what?", 'The "five'),
    ("1048585", "0", "who?", "zero"),
    ("1048585", "10", "who?", "ten"),
)


@pytest.mark.parametrize(
    ("form", "name", "content", "place", "message"),
    [
        ("wikipassageqa", "dev.tsv", "Q\tQuestion\n", 1, "expected 5 cells"),
        ("wikipassageqa", "dev.tsv", tabs("abcde"), 1, "expected the header QID, Question"),
        ("wikipassageqa", "dev.tsv", TITLES + "1\tWhy?\t7\tSeven\n", 2, "found 4 in"),
        ("wikipassageqa", "dev.tsv", TITLES + "1\tWhy?\t8\tE\t0\n", 2, f"{WIKI}, found '8'"),
        ("wikipassageqa", "dev.tsv", TITLES + WIKI_PASSAGE + "0,11\n", 2, "found '11'; correct"),
        ("wikipassageqa", "dev.tsv", TITLES + 2 * f"{WIKI_PASSAGE}0\n", 3, "found 1 again, first"),
        ("wikipassageqa", WIKI, '{"7":\n {"0": "a"}', 2, "expected one JSON object"),
        ("wikipassageqa", WIKI, '["7"]', None, "found a list"),
        ("wikipassageqa", WIKI, '{"7": ["a"]}', None, "for document '7'"),
        ("wikipassageqa", WIKI, '{"7": {}, "7": {}}', None, "found '7' twice"),
        ("wikipassageqa", WIKI, "[" * 200_000, None, "nested too deeply"),
        ("insuranceqa-v1", VOCABULARY, "idx_1 is\n", 1, "expected 2 cells separated by tabs"),
        ("insuranceqa-v1", VOCABULARY, 2 * "idx_1\tis\n", 2, "each word, found idx_1 again"),
        ("insuranceqa-v1", ANSWERS, "1\tidx_9\n", 1, "found 'idx_9'"),
        ("insuranceqa-v1", ANSWERS, 2 * "1\tidx_1\n", 2, "each answer, found 1 again"),
        ("insuranceqa-v1", POOL_1, "2\tidx_1\t1 77\n", 1, "found '77'"),
        ("insuranceqa-v1", POOL_1, "2\tidx_9\t1\n", 1, "found 'idx_9'"),
        ("insuranceqa-v1", POOL_1, "\tidx_1\t1\n", 1, "found none"),
        ("insuranceqa-v2", POOL_2, "idx_1\t2\t1 2\n", 1, "expected 4 cells"),
        ("insuranceqa-v2", POOL_2, "life\tidx_1\t5\t1 2\n", 1, "found '5'"),
        ("openqa", "test.txt", "Who?\n", 1, 'expected {"question": "...", "answers"'),
        ("openqa", "test.txt", records({"question": "Who?"}), 1, "expected {"),
        ("openqa", "test.json", records({"document": ["a"]}), 1, "expected [{"),
        ("openqa", "test.json", records([{"document": "a b"}]), 1, "expected [{"),
        ("openqa", "test.json", "[" * 200_000, 1, "expected [{"),
        ("openqa", "test.json", records([{"document": ["a"]}]), None, "of test.txt, found 1"),
        ("wikiqa", WIKIQA_DEV, "a\tb\n", 1, "expected 7 cells"),
        ("wikiqa", WIKIQA_DEV, HEAD + LINE.replace("1\n", "2\n"), 2, "0 or 1 as Label, found '2'"),
        ("wikiqa", WIKIQA_DEV, HEAD + 2 * LINE, 3, "found D-0 again for Q1"),
        ("wikiqa", WIKIQA_DEV, HEAD + LINE + LINE.replace("s", "z"), 3, "text for sentence D-0"),
        ("wikiqa", WIKIQA_DEV, HEAD + LINE + LINE.replace("x", "y"), 3, "text for question Q1"),
        ("trecqa", TREC_TEST, "<xml>\n", 1, "expected <QApairs id='...'>, found '<xml>'"),
        ("trecqa", TREC_TEST, 2 * trec_pairs("1", "Who", ("positive", "I")), 13, "found 1 again"),
        ("trecqa", TREC_TEST, PAIRS + "</QApairs>\n", 2, "expected a <question> for 1"),
        ("trecqa", TREC_TEST, OPEN + "</question>\n", 3, "expected words after <question>"),
        ("trecqa", TREC_TEST, PAIRS + "<neutral>\n", 2, "found '<neutral>'"),
        ("trecqa", TREC_TEST, OPEN + "Who\n</question>\n<question>\n", 5, "found '<question>'"),
        ("trecqa", TREC_TEST, OPEN + "Who\n</QApairs>\n", 4, "expected </question>"),
        ("trecqa", TREC_TEST, OPEN + "Who\n", 2, "found the end of the file"),
        ("trecqa", TREC_TEST, OPEN + "Who\n</question>\n", 1, "expected </QApairs>"),
        ("own", CANDIDATES, POOL + "not json", 2, "found 'not json'; correct the line"),
        ("own", CANDIDATES, POOL + '{"qid": "q1"}', 2, 'expected {"qid": "...", "candidates": ['),
        ("own", CANDIDATES, POOL + '{"qid": "q1", "candidates": [1]}', 2, "correct the line"),
        ("own", CANDIDATES, POOL + '["q1"]', 2, "correct the line"),
        ("own", CANDIDATES, POOL + POOL, 2, "found q2 again; remove the line"),
        ("own", CANDIDATES, POOL + POOL.replace("q2", "q9"), 2, "found unknown question q9"),
        ("own", CANDIDATES, POOL.replace("d10", "d1"), 1, "found d1 twice"),
        ("own", CANDIDATES, POOL + POOL.replace("d10", "d7").replace("q2", "q1"), 2, "found d7"),
        ("own", CANDIDATES, POOL, None, "found none for q1; add a line for it"),
        ("own", "qrels.dev.tsv", "q1 0 d2 1\nq7 0 d1 1\n", None, "found question q7"),
        ("own", "qrels.dev.tsv", "q1 0 d1 0\n", None, "a grade of at least 1, found none"),
        ("beir", "qrels/test.tsv", "q1 0 d1 1\nq7 0 d1 1\n", None, "found question q7"),
        ("beir", "qrels/test.tsv", "q1 0 d1 0\n", None, "a grade of at least 1, found none"),
        ("beir", "queries.jsonl", 2 * records({"_id": "q1", "text": "x"}), 2, "'q1' was given"),
        ("msmarco", "qrels.dev.small.tsv", "2 0 5 1\n7 0 5 1\n", None, "found question 7"),
        ("msmarco", "queries.dev.small.tsv", 2 * "2\twhat?\n", 2, "found 2 again"),
        ("msmarco", "top1000.dev", TOP + "9\t5\tx\ty\n", 4, "of queries.dev.small.tsv, found 9"),
        ("msmarco", "top1000.dev", TOP + TOP[:20] + "\n", 4, "each passage once for a query, fou"),
        ("msmarco", "top1000.dev", TOP + "2\t10\twhat?\televen\n", 4, "one text for passage 10"),
        ("msmarco", "top1000.dev", TOP + "2\t10\n", 4, "expected 4 cells"),
        ("msmarco", "top1000.dev", TOP[20:].lstrip(), None, "for 2; name the split that the pools"),
        ("trec", TOPICS, "\n<top>\n<num> Number: 1\n", 2, "expected </top> for this topic, found"),
        ("trec", TOPICS, "<top>\n<num> 1\n<top>\n</top>\n", 1, "expected </top> for this topic"),
        ("trec", TOPICS, "<top>\n<title> x\n</top>\n", 1, "a number in this topic, found '<title>"),
        ("trec", TOPICS, "<top>\n<num> 1\n</top>\n", 1, "expected a title or query in this topic"),
        ("trec", TOPICS, 2 * "<top>\n<num> 301\n<title> x\n</top>\n", 5, "topic, found 301 again"),
        ("trec", TOPICS, "1: x\n", None, "expected topics (<top> or <topic number=...>), found"),
        ("trec", "qrels.txt", "302 0 FT911-1 1\n", None, "found question 302; add it there"),
        ("trec", "topics.xml", "", "", "one file topics.*, found topics.301-302.txt, topics.xml"),
    ],
)
def test_a_malformed_file_is_named_with_what_was_expected_and_found(
    tmp_path, form, name, content, place, message
):
    folder = write(tmp_path, {**SAMPLES[form], name: content})
    start = "" if place == "" else f"{name}:" if place is None else f"{name}:{place}: "
    refused(folder, form, start, message)


class TestOwn:
    @pytest.fixture
    def folder(self, tmp_path):
        return write(tmp_path, OWN)

    def test_questions_come_with_their_pools_and_those_with_an_answer_can_be_taken(self, folder):
        found = read(folder, "own")
        assert shown(found)[0] == ("q1", "question 1", ("d2",), {"d2": 1, "elsewhere": 2})
        assert [question.id for question in found.questions] == ["q1", "q2", "q3"]
        assert found.without_answer == 1
        assert found.passages == {"d1": "text 1", "d2": "text 2", "d10": "text 10"}
        assert (found.corpus, found.name) == ((), folder.name)
        answered = found.answered()
        assert [question.id for question in answered.questions] == ["q1", "q2"]
        left, right = answered.pairs()
        assert left == ["question 1", "question 2", "question 2", "question 2"]
        # In the order in which equal scores rank.
        assert right == ["text 2", "text 2", "text 10", "text 1"]

    @pytest.mark.parametrize("name", OWN)
    def test_a_missing_file_of_a_split_is_named(self, folder, name):
        write(folder, {path.replace("dev", "test"): content for path, content in OWN.items()})
        (folder / name).unlink()
        expected = {
            "corpus.jsonl": "found no corpus.jsonl",
            "queries.dev.jsonl": "expected one of the splits test (form own), found 'dev'",
        }
        default = f"{name}: expected this file of the split 'dev', found none; the folder has the "
        refused(folder, "own", "", expected.get(name, default), form="own")

    def test_a_question_without_an_answer_is_left_out_without_a_pool(self, folder):
        empty = records({"qid": "q1", "candidates": ["d2"]}, {"qid": "q3", "candidates": []})
        (folder / CANDIDATES).write_text(POOL + empty)
        assert [question.id for question in read(folder, "own").questions] == ["q1", "q2"]
        (folder / CANDIDATES).write_text(POOL + empty.replace('"d2"', ""))
        refused(folder, "own", CANDIDATES, "found none for q1; add a line for it")

    def test_without_any_file_of_candidates_the_whole_corpus_is_ranked(self, folder):
        (folder / CANDIDATES).unlink()
        found = read(folder, "own")
        assert (found.corpus, found.passages) == ((folder / "corpus.jsonl",), {})
        assert [question.candidates for question in found.questions] == [(), (), ()]

    def test_the_clean_variant_has_the_listed_questions(self, folder):
        plain = read(folder, "own")
        (folder / "clean.dev.txt").write_text("q2\nq3\n")
        clean = read(folder, "own", variant="clean")
        assert [question.id for question in clean.questions] == ["q2", "q3"]
        assert clean.name == f"{folder.name} clean"
        assert read(folder, "own") == read(folder, "own", variant="raw")
        assert read(folder, "own").questions == plain.questions
        with pytest.raises(ConfigError, match="variant: expected raw or clean, found strict"):
            read(folder, "own", variant="strict")
        (folder / "clean.dev.txt").write_text("q2\nq8\n")
        refused(folder, "own", "clean.dev.txt:2: ", "found q8; remove the line", variant="clean")


def test_beir_asks_the_questions_that_are_judged(tmp_path):
    folder = write(tmp_path / "nfcorpus", BEIR)
    found = read_question_set(folder, "test")
    assert shown(found) == [("q1", "one", (), {"d1": 2})]
    assert (found.corpus, found.name) == ((folder / "corpus.jsonl",), "nfcorpus")
    assert shown(read_question_set(folder, "train")) == [("q2", "two", (), {"d1": 1})]


def test_ms_marco_ranks_the_collection_where_there_is_no_top1000(tmp_path):
    found = read_question_set(write(tmp_path, MSMARCO), "dev.small")
    assert shown(found) == [
        ("1048585", "who?", (), {"0": 1}),
        ("2", "what?", (), {"5": 1}),
        ("3", "where?", (), {}),
    ]
    assert (found.corpus, found.passages) == ((tmp_path / "collection.tsv",), {})


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


def test_classic_topics_are_read_by_title_or_description(tmp_path):
    found = read_question_set(write(tmp_path, TREC), "test")
    assert shown(found) == [
        ("301", "International Organized Crime", (), {"FT911-1": 1}),
        ("51", "R&D", (), {"FT911-2": 1}),
    ]
    assert found.corpus == (tmp_path / "corpus.jsonl",)


def test_xml_topics_are_read_by_query_title_or_text_and_a_folder_can_be_the_corpus(tmp_path):
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
    files = {"topics.xml": topics, "qrels.txt": "1 0 d1 1\n", "corpus/one.txt": "one"}
    found = read_question_set(write(tmp_path, files), "test")
    assert [(question.id, question.text) for question in found.questions] == [
        ("1", "corona & virus"),
        ("2", "fox jumps"),
        ("3", "A woman of 47 with &a; cough."),
    ]
    assert found.corpus == (tmp_path / "corpus",)


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
        ("scifact", "test", None, 300, 300),
    ],
)
def test_real_sets_have_the_published_numbers_of_questions(
    published, name, split, variant, answered, asked
):
    found = read_question_set(published / name, split, variant=variant)
    assert len(found.answered()) == answered
    assert len(found) == asked
    assert found.corpus == ((published / name / "corpus.jsonl",) if name == "scifact" else ())
