"""Forms of question sets: how they are told apart, what each reads and refuses."""

import re
from dataclasses import replace

import pytest

from eval.datasets.answer_sets import contains_answer
from eval.datasets.question_forms import FORMS, detect_form, read_question_set
from eval.datasets.question_set import Question, QuestionSet, statistics
from retriever.errors import ConfigError, SourceError
from tests.eval.datasets.question_samples import (
    BEIR,
    INSURANCE_2,
    OWN,
    QUASAR,
    SAMPLES,
    SPLITS,
    TRECQA,
    WIKIQA,
    question_rows,
    records,
    tabs,
    trec_pairs,
    write,
)
from tests.eval.datasets.question_samples import refused as named

# Files of other splits, and corpora, which are indexed and not read here.
UNREAD = {
    ("insuranceqa-v1", "question.train.token_idx.label"),
    ("insuranceqa-v1", "question.test1.label.token_idx.pool"),
    ("insuranceqa-v1", "question.test2.label.token_idx.pool"),
    ("beir", "qrels/train.tsv"),
    *(
        ("insuranceqa-v2", name)
        for name in INSURANCE_2
        if "solr" in name and "500.pool" not in name
    ),
    *(("insuranceqa-v2", name) for name in INSURANCE_2 if "solr.t" in name),
    *(("beir", "corpus.jsonl"), ("msmarco", "collection.tsv"), ("trec", "corpus.jsonl")),
}
READ = [(form, name) for form, files in SAMPLES.items() for name in files]


def read(folder, kind, **options):
    return read_question_set(folder, SPLITS[kind], **options)


def refused(folder, kind, start, message, **options):
    """Assert that a set is refused in one line with the place and a remedy."""
    place = folder / start if start else folder
    named(lambda path: read(path, kind, **options), folder, place, message, ";")


ARTICLE = "7_9 7_8 7_7 7_6 7_5 7_4 7_3 7_2 7_10 7_1 7_0"
TREC_TEST = "test-less-than-40.manual-edit.xml"
TREC_POOL = "test-32.1-1 test-32.1-0"
TREC_ONE = ("32.1", "Who are they ?", TREC_POOL, {"test-32.1-0": 1, "test-32.1-1": 0})
TREC_TEXTS = {
    "train-all-1.1-0": "<num> people & one",
    "test-32.1-0": "<num> people",
    "test-32.1-1": "<question> is &amp;",
    "test-32.2-0": "Here",
}
ANSWER_TEXTS = {"1": "car is", "2": "a", "10": "&quot; car"}
PARAGRAPHS = {
    "1-1": "A u.s ARMY song .",
    "1-2": "Bacharach wrote it",
    "1-3": "By Bach , he said",
    "2-1": "the end",
}
# Form, split, variant; and name, questions and passages of the set.
SETS = [
    (
        ("own", "dev", None),
        "set",
        [
            ("q1", "question 1", "d2", {"d2": 1, "elsewhere": 2}),
            ("q2", "question 2", "d2 d10 d1", {"d10": 1, "d1": 0}),
            ("q3", "question 3", "d10", {"d10": 0}),
        ],
        {"d1": "text 1", "d2": "text 2", "d10": "text 10"},
    ),
    (
        ("wikipassageqa", "dev", None),
        "WikiPassageQA",
        [
            ("3", 'What is "it"?', ARTICLE, {"7_2": 1, "7_10": 1}),
            ("1", "Why?", "12_0", {"12_0": 1}),
        ],
        {id_: f"passage {id_[2:]} of 7" for id_ in ARTICLE.split()}
        | {"12_0": 'the "only" \u2028é'},
    ),
    (
        ("insuranceqa-v1", "dev", None),
        "InsuranceQA v1",
        [("1", "is a", "2 10 1", {"2": 1}), ("2", "car", "10 1", {"1": 1, "10": 1})],
        ANSWER_TEXTS,
    ),
    # Training questions have no pools, and so their answers alone.
    (
        ("insuranceqa-v1", "train", None),
        "InsuranceQA v1",
        [("1", "is car", "2 10", {"2": 1, "10": 1})],
        ANSWER_TEXTS,
    ),
    # The answer is not in the pool, and counts all the same.
    (
        ("insuranceqa-v2", "dev", None),
        "InsuranceQA v2, pools of 500",
        [("1", "is car", "10 1", {"2": 1})],
        ANSWER_TEXTS,
    ),
    (
        ("insuranceqa-v2", "dev", "1000"),
        "InsuranceQA v2, pools of 1000",
        [("1", "is car", "2 10 1", {"2": 1})],
        ANSWER_TEXTS,
    ),
    (
        ("openqa", "test", None),
        "set",
        [
            ("1", "Who wrote it ?", "1-3 1-2 1-1", {"1-1": 1, "1-2": 0, "1-3": 1}),
            ("2", "And this ?", "2-1", {"2-1": 0}),
        ],
        PARAGRAPHS,
    ),
    (
        ("wikiqa", "dev", None),
        "WikiQA",
        [("Q1", "how?", "D1-1 D1-0", {"D1-0": 0, "D1-1": 1}), ("Q2", "why?", "D1-0", {"D1-0": 0})],
        {"D1-0": 'It is "so', "D1-1": "So it is", "D2-0": "Me"},
    ),
    (
        ("trecqa", "test", None),
        "TrecQA raw",
        [TREC_ONE, ("32.2", "Where ?", "test-32.2-0", {"test-32.2-0": 1})],
        TREC_TEXTS,
    ),
    (("trecqa", "test", "clean"), "TrecQA clean", [TREC_ONE], TREC_TEXTS),
    (("beir", "test", None), "set", [("q1", "one", "", {"d1": 2})], {}),
    (("beir", "train", None), "set", [("q2", "two", "", {"d1": 1})], {}),
    (
        ("msmarco", "dev.small", None),
        "MS MARCO",
        [("1048585", "who?", "", {"0": 1}), ("2", "what?", "", {"5": 1}), ("3", "where?", "", {})],
        {},
    ),
    (
        ("trec", "test", None),
        "set",
        [
            ("301", "International Organized Crime", "", {"FT911-1": 1}),
            ("51", "R&D", "", {"FT911-2": 1}),
        ],
        {},
    ),
]


@pytest.mark.parametrize(("selection", "name", "questions", "passages"), SETS)
def test_read_question_set_recognizes_and_reads_each_form(
    tmp_path, selection, name, questions, passages
):
    form, split, variant = selection
    folder = write(tmp_path / "set", SAMPLES[form])
    assert detect_form(folder) == form
    question_set = read_question_set(folder, split, variant=variant)
    assert question_set == read_question_set(folder, split, form=form, variant=variant)
    assert (question_set.name, question_set.split, question_rows(question_set)) == (
        name,
        split,
        questions,
    )
    assert question_set.passages == passages
    corpus = {"beir": "corpus.jsonl", "msmarco": "collection.tsv", "trec": "corpus.jsonl"}
    assert question_set.corpus == ((folder / corpus[form],) if form in corpus else ())
    assert question_set.answers_in_text == (form == "openqa")


def test_every_form_has_a_sample():
    assert set(SAMPLES) == set(FORMS)


@pytest.mark.parametrize("form", SAMPLES)
def test_gzip_line_ends_and_byte_order_marks_do_not_change_a_question_set(tmp_path, form):
    plain = read(write(tmp_path / "plain", SAMPLES[form]), form)
    windows = {
        name: "\ufeff" + content.replace("\n", "\r\n") for name, content in SAMPLES[form].items()
    }
    packed = {f"{name}.gz": content for name, content in SAMPLES[form].items()}
    for name, files in (("windows", windows), ("packed", packed)):
        question_set = read(write(tmp_path / name, files), form)
        assert replace(question_set, name="", corpus=()) == replace(plain, name="", corpus=())


@pytest.mark.parametrize(("form", "name"), [sample for sample in READ if sample not in UNREAD])
def test_empty_file_and_invalid_utf8_are_refused_by_file_name(tmp_path, form, name):
    refused(write(tmp_path, {**SAMPLES[form], name: ""}), form, "", name)
    write(tmp_path, {**SAMPLES[form], name: SAMPLES[form][name].encode() + b"caf\xe9\n"})
    with pytest.raises(SourceError, match=f"{re.escape(name)}.*UTF-8"):
        read(tmp_path, form)


@pytest.mark.parametrize("form", SAMPLES)
def test_unknown_split_variant_or_missing_file_is_refused_with_the_available_ones(tmp_path, form):
    with pytest.raises(SourceError) as caught:
        read_question_set(tmp_path, "test", form=form)
    for names in FORMS[form].needs:
        assert f"no {names}" in str(caught.value)
    write(tmp_path, SAMPLES[form])
    with pytest.raises(SourceError, match=f"one of the splits .*{SPLITS[form]}.*, found 'fold9'"):
        read_question_set(tmp_path, "fold9")
    has = {"insuranceqa-v2": "expected 500 or 100", "trecqa": "expected raw or clean"}
    with pytest.raises(ConfigError, match=f"variant: {has.get(form, 'this set has only one')}"):
        read(tmp_path, form, variant="strict")


def test_folder_of_no_known_form_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for form in (None, "own"):
        refused(tmp_path / "nothing", "own", "", "a folder of questions, found none", form=form)
    refused(tmp_path / "file", "own", "", "a folder of questions, found a file")
    refused(tmp_path, "own", "", "found none of them; the forms are own, wikipassageqa")
    write(tmp_path, {name: OWN[name] for name in ("corpus.jsonl", "queries.dev.jsonl")})
    refused(tmp_path, "own", "", "only some: for own it has no qrels.*.tsv; add what is missing")
    with pytest.raises(ConfigError, match=r"form: expected one of own, .*, found squad"):
        read_question_set(tmp_path, "dev", form="squad")


WIKI = "document_passages.json"
TITLES = tabs(("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages"))
WIKI_PASSAGE = "1\tWhy?\t7\tS\t"
VOCABULARY, ANSWERS = "vocabulary", "answers.label.token_idx"
POOL_1 = "question.dev.label.token_idx.pool"
POOL_2 = "InsuranceQA.question.anslabel.token.500.pool.solr.valid.encoded"
WIKIQA_DEV = "WikiQA-dev.tsv"
HEAD = WIKIQA[WIKIQA_DEV].splitlines()[0] + "\n"
LINE = "Q1\tx\tD\tT\tD-0\ts\t1\n"
PAIRS, OPEN = "<QApairs id='1'>\n", "<QApairs id='1'>\n<question>\n"
TREC_DONE = trec_pairs("1", "Who", ("positive", "I"))
CANDIDATES = "candidates.dev.jsonl"
POOL = OWN[CANDIDATES].splitlines()[0] + "\n"
TOPICS = "topics.301-302.txt"


@pytest.mark.parametrize(
    ("form", "name", "content", "place", "message"),
    [
        ("wikipassageqa", "dev.tsv", TITLES + "1\tWhy?\t7\tSeven\n", 2, "5 cells"),
        ("wikipassageqa", "dev.tsv", tabs("abcde"), 1, "the header QID, Question"),
        ("wikipassageqa", "dev.tsv", TITLES + "1\tWhy?\t8\tE\t0\n", 2, f"{WIKI}, found '8'"),
        ("wikipassageqa", "dev.tsv", TITLES + WIKI_PASSAGE + "0,11\n", 2, "found '11'; correct"),
        ("wikipassageqa", "dev.tsv", TITLES + 2 * f"{WIKI_PASSAGE}0\n", 3, "found 1 again"),
        ("wikipassageqa", WIKI, '{"7":\n {"0": "a"}', None, '{"7":'),
        ("wikipassageqa", WIKI, '["7"]', None, '["7"]'),
        ("wikipassageqa", WIKI, '{"7": ["a"]}', None, '["a"]'),
        ("wikipassageqa", WIKI, '{"7": {}}', None, "{}"),
        ("wikipassageqa", WIKI, '{"7": {"0": 1}}', None, '{"0": 1}'),
        ("wikipassageqa", WIKI, "[" * 200_000, None, "[[["),
        ("insuranceqa-v1", VOCABULARY, "idx_1\tis\tx\n", 1, "2 cells separated by tabs"),
        ("insuranceqa-v1", VOCABULARY, 2 * "idx_1\tis\n", 2, "each word, found idx_1 again"),
        ("insuranceqa-v1", VOCABULARY, "\tis\n", 1, "each word, found none"),
        ("insuranceqa-v1", ANSWERS, "1\tidx_9\n", 1, "found 'idx_9'"),
        ("insuranceqa-v1", POOL_1, "2\tidx_1\t1 77\n", 1, "found '77'"),
        ("insuranceqa-v1", POOL_1, "\tidx_1\t1\n", 1, "found none"),
        ("insuranceqa-v1", POOL_1, "2\tidx_1\t\n", 1, "found none"),
        ("insuranceqa-v2", POOL_2, "life\tidx_1\t5\t1 2\n", 1, "found '5'"),
        ("openqa", "test.txt", "Who?\n", 1, 'expected {"question": "...", "answers"'),
        ("openqa", "test.txt", records({"question": "Who?", "answers": [1]}), 1, "expected {"),
        ("openqa", "test.json", records({"document": ["a"]}), 1, "expected [{"),
        ("openqa", "test.json", records([{"document": "a b"}]), 1, "expected [{"),
        ("openqa", "test.json", "[" * 200_000, 1, "expected [{"),
        ("openqa", "test.json", records([{"document": ["a"]}]), None, "of test.txt, found 1"),
        ("wikiqa", WIKIQA_DEV, HEAD + LINE.replace("1\n", "2\n"), 2, "0 or 1 as Label, found '2'"),
        ("wikiqa", WIKIQA_DEV, HEAD + 2 * LINE, 3, "found D-0 again"),
        ("wikiqa", WIKIQA_DEV, HEAD + LINE + LINE.replace("s", "z"), 3, "text for sentence D-0"),
        ("wikiqa", WIKIQA_DEV, HEAD + LINE + LINE.replace("x", "y"), 3, "text for question Q1"),
        ("trecqa", TREC_TEST, TREC_DONE + "<xml>\n", 13, "<QApairs id='...'>, found '<xml>'"),
        ("trecqa", TREC_TEST, 2 * TREC_DONE, 13, "found 1 again"),
        ("trecqa", TREC_TEST, PAIRS + "</QApairs>\n", 2, "expected one <question>"),
        ("trecqa", TREC_TEST, OPEN + "</question>\n", 2, "found '<question>"),
        ("trecqa", TREC_TEST, PAIRS + "<neutral>\n", 2, "found '<neutral>'"),
        ("trecqa", TREC_TEST, PAIRS + 2 * (OPEN[17:] + "Who\n</question>\n"), 8, "found ''"),
        ("trecqa", TREC_TEST, OPEN + "Who\n</QApairs>\n</question>\n", 2, "and </QApairs>"),
        ("own", CANDIDATES, POOL + "not json", 2, "found 'not json'; correct the line"),
        ("own", CANDIDATES, POOL + '{"qid": "q1"}', 2, 'expected {"qid": "...", "candidates": ['),
        ("own", CANDIDATES, POOL + '{"qid": "q1", "candidates": [1]}', 2, "correct the line"),
        ("own", CANDIDATES, POOL + POOL, 2, "found q2 again"),
        ("own", CANDIDATES, POOL + POOL.replace("q2", "q9"), 2, "found q9; remove the line"),
        ("own", CANDIDATES, POOL + POOL.replace("d10", "d7").replace("q2", "q1"), 2, "found d7"),
        ("own", CANDIDATES, POOL, None, "found none for q1; add a line for it"),
        ("own", "qrels.dev.tsv", "q1 0 d2 1\nq7 0 d1 1\n", None, "found q7; add it there"),
        ("own", "qrels.dev.tsv", "q1 0 d1 0\n", None, "a grade of at least 1, found none"),
        ("beir", "queries.jsonl", 2 * records({"_id": "q1", "text": "x"}), 2, "'q1' was given"),
        ("msmarco", "queries.dev.small.tsv", 2 * "2\twhat?\n", 2, "found 2 again"),
        ("trec", TOPICS, "\n<top>\n<num> 1 <title> x\n<top>\n</top>\n", 2, "and </top>, found"),
        ("trec", TOPICS, "<top>\n<title> x\n</top>\n", 1, "a topic with a number"),
        ("trec", TOPICS, "<top>\n<num> 1\n</top>\n", 1, "a title or description"),
        ("trec", TOPICS, 2 * "<top>\n<num> 301\n<title> x\n</top>\n", 5, "topic, found 301 again"),
        ("trec", TOPICS, "1: x\n", None, "expected topics (<top>), found"),
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

    def test_pairs_of_a_question_are_ordered_by_descending_id(self, folder):
        question_set = read(folder, "own")
        assert len(question_set.answered()) == len(question_set) - 1
        left, right = question_set.answered().pairs()
        assert left == ["question 1", "question 2", "question 2", "question 2"]
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

    def test_question_without_pool_is_left_out_if_unanswered_and_refused_otherwise(self, folder):
        empty = records({"qid": "q1", "candidates": ["d2"]}, {"qid": "q3", "candidates": []})
        (folder / CANDIDATES).write_text(POOL + empty)
        assert [question.id for question in read(folder, "own").questions] == ["q1", "q2"]
        (folder / CANDIDATES).write_text(POOL + empty.replace('"d2"', ""))
        refused(folder, "own", CANDIDATES, "found none for q1; add a line for it")

    def test_without_any_file_of_candidates_the_whole_corpus_is_ranked(self, folder):
        (folder / CANDIDATES).unlink()
        question_set = read(folder, "own")
        assert (question_set.corpus, question_set.passages) == ((folder / "corpus.jsonl",), {})
        assert [question.candidates for question in question_set.questions] == [(), (), ()]

    def test_the_clean_variant_has_the_listed_questions(self, folder):
        plain = read(folder, "own")
        (folder / "clean.dev.txt").write_text("q2\nq3\n")
        clean = read(folder, "own", variant="clean")
        assert clean == replace(plain, name=f"{plain.name} clean", questions=plain.questions[1:])
        raw = replace(plain, name=f"{plain.name} raw")
        assert read(folder, "own") == read(folder, "own", variant="raw") == raw
        (folder / "clean.dev.txt").write_text("q2\nq8\n")
        refused(folder, "own", "clean.dev.txt:2: ", "found q8; remove the line", variant="clean")


def test_insuranceqa_v2_takes_the_smallest_pools_where_there_are_none_of_500(tmp_path):
    folder = write(tmp_path, INSURANCE_2)
    for path in folder.glob("*.500.*"):
        path.unlink()
    assert read_question_set(folder, "test").name == "InsuranceQA v2, pools of 100"
    (folder / POOL_2.replace("500", "1000")).unlink()
    with pytest.raises(SourceError, match=r"1000\.pool\.solr\.valid\.encoded: expected this file"):
        read_question_set(folder, "dev", variant="1000")


def test_openqa_sets_have_the_names_of_their_folders(tmp_path):
    assert read_question_set(write(tmp_path / "others", QUASAR), "test").name == "others"
    files = {"test.txt": records(*3 * [{"question": "Who?", "answers": ["nobody"]}])}
    refused(write(tmp_path / "others", files), "openqa", "", "relevant passage, found none among 2")


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
def test_contains_answer_matches_whole_normalized_words(passage, answers, expected):
    assert contains_answer(passage, answers) is expected


def test_trecqa_is_read_under_the_file_names_of_later_distributions(tmp_path):
    question_set = read_question_set(write(tmp_path, {"TEST.xml": TRECQA[TREC_TEST]}), "test")
    assert question_rows(question_set)[0] == TREC_ONE


def test_a_folder_can_be_the_corpus_and_tags_have_any_case(tmp_path):
    topics = "<TOP lang='en'>\n<NUM> 1\n<TITLE> a fox\n</TOP>\n"
    files = {"topics.txt": topics, "qrels.txt": "1 0 d1 1\n", "corpus/one.txt": "one"}
    question_set = read_question_set(write(tmp_path, files), "test")
    assert [(question.id, question.text) for question in question_set.questions] == [("1", "a fox")]
    assert question_set.corpus == (tmp_path / "corpus",)


@pytest.mark.parametrize(
    ("name", "split", "variant", "answered", "total"),
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
    published, name, split, variant, answered, total
):
    question_set = read_question_set(published / name, split, variant=variant)
    assert (len(question_set.answered()), len(question_set)) == (answered, total)
    assert question_set.corpus == (
        (published / name / "corpus.jsonl",) if name == "scifact" else ()
    )


def test_statistics_of_a_question_set_match_hand_counts(tmp_path):
    two = {"least": 2, "mean": 2.0, "greatest": 2}
    assert statistics(read(write(tmp_path / "own", OWN), "own")) == {
        "questions": 3,
        "answered": 2,
        "passages": 3,
        "pool": {"least": 1, "mean": pytest.approx(5 / 3), "greatest": 3},
        "question_words": two,
        "passage_words": two,
        # q1 is answered by d2 and by a passage that is nowhere, q2 by d10.
        "answers": 1.5,
    }
    # Words are what white space separates, and every passage counts once.
    question = Question("q", "What's  that\t, then?", ("b",), {"b": 2, "a": 0, "c": -1})
    passages = {"a": "", "b": "one-two three", "unused": "1 2 3 4"}
    counts = statistics(QuestionSet("made", "test", (question,), passages))
    assert counts["question_words"] == {"least": 4, "mean": 4.0, "greatest": 4}
    assert counts["passage_words"] == {"least": 0, "mean": 2.0, "greatest": 4}
    assert (counts["passages"], counts["answers"]) == (3, 1.0)
    empty = statistics(QuestionSet("made", "test", (), {}))
    assert (empty["question_words"], empty["answers"]) == (None, 0.0)
    # A corpus that is ranked as a whole is not counted.
    whole = statistics(read(write(tmp_path / "beir", BEIR), "beir"))
    assert (whole["passages"], whole["pool"], whole["passage_words"]) == (None, None, None)
