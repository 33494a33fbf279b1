from __future__ import annotations

import pytest

from eval.datasets.qa.forms import read_question_set
from retriever.errors import SourceError
from tests.eval.datasets.qa.samples import SAMPLES, SPLITS, WIKIQA, records, tabs, trec_pairs, write

POOL_2 = "InsuranceQA.question.anslabel.token.500.pool.solr.valid.encoded"
POOL_1 = "question.dev.label.token_idx.pool"
ANSWERS_1 = "answers.label.token_idx"
PASSAGES = "document_passages.json"
TREC_TEST = "test-less-than-40.manual-edit.xml"
TREC_OPEN = "<QApairs id='1'>\n<question>\n"
WIKI_LINE = "Q1\tx\tD\tT\tD-0\ts\t1\n"
TITLES = tabs(("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages"))
WIKI_HEADER = WIKIQA["WikiQA-dev.tsv"].splitlines()[0] + "\n"


@pytest.mark.parametrize(
    ("form", "name", "content", "place", "message"),
    [
        ("wikipassageqa", "dev.tsv", "Q\tQuestion\n", 1, "expected 5 cells"),
        ("wikipassageqa", "dev.tsv", tabs("abcde"), 1, "expected the header QID, Question"),
        ("wikipassageqa", "dev.tsv", TITLES + "1\tWhy?\t7\tSeven\n", 2, "found 4 in"),
        (
            "wikipassageqa",
            "dev.tsv",
            TITLES + "1\tWhy?\t8\tE\t0\n",
            2,
            "document_passages.json, found '8'",
        ),
        ("wikipassageqa", "dev.tsv", TITLES + "1\tWhy?\t7\tS\t0,11\n", 2, "found '11'; correct"),
        (
            "wikipassageqa",
            "dev.tsv",
            TITLES + 2 * "1\tWhy?\t7\tS\t0\n",
            3,
            "found 1 again, first at",
        ),
        ("wikipassageqa", PASSAGES, '{"7":\n {"0": "a"}', 2, "expected one JSON object"),
        ("wikipassageqa", PASSAGES, '["7"]', None, "found a list"),
        ("wikipassageqa", PASSAGES, '{"7": ["a"]}', None, "for document '7'"),
        ("wikipassageqa", PASSAGES, '{"7": {}, "7": {}}', None, "found '7' twice"),
        ("insuranceqa-v1", "vocabulary", "idx_1 is\n", 1, "expected 2 cells separated by tabs"),
        (
            "insuranceqa-v1",
            "vocabulary",
            "idx_1\tis\nidx_1\ta\n",
            2,
            "for each word, found idx_1 again",
        ),
        ("insuranceqa-v1", ANSWERS_1, "1\tidx_9\n", 1, "found 'idx_9'"),
        ("insuranceqa-v1", ANSWERS_1, 2 * "1\tidx_1\n", 2, "each answer, found 1 again"),
        ("insuranceqa-v1", POOL_1, "2\tidx_1\t1 77\n", 1, "found '77'"),
        ("insuranceqa-v1", POOL_1, "2\tidx_9\t1\n", 1, "found 'idx_9'"),
        ("insuranceqa-v1", POOL_1, "\tidx_1\t1\n", 1, "found none"),
        ("insuranceqa-v2", POOL_2, "idx_1\t2\t1 2\n", 1, "expected 4 cells"),
        ("insuranceqa-v2", POOL_2, "life\tidx_1\t5\t1 2\n", 1, "found '5'"),
        ("openqa", "test.txt", "Who?\n", 1, 'expected {"question": "...", "answers"'),
        ("openqa", "test.txt", records({"question": "Who?"}), 1, "expected {"),
        ("openqa", "test.json", records({"document": ["a"]}), 1, "expected [{"),
        ("openqa", "test.json", records([{"document": "a b"}]), 1, "expected [{"),
        (
            "openqa",
            "test.json",
            records([{"document": ["a"]}]),
            None,
            "expected a line for each of test.txt, found 1",
        ),
        ("wikiqa", "WikiQA-dev.tsv", "a\tb\n", 1, "expected 7 cells"),
        (
            "wikiqa",
            "WikiQA-dev.tsv",
            WIKI_HEADER + "Q1\tx\tD\tT\tD-0\ts\t2\n",
            2,
            "expected 0 or 1 as Label, found '2'",
        ),
        ("wikiqa", "WikiQA-dev.tsv", WIKI_HEADER + 2 * WIKI_LINE, 3, "found D-0 again for Q1"),
        (
            "wikiqa",
            "WikiQA-dev.tsv",
            WIKI_HEADER + WIKI_LINE + "Q2\ty\tD\tT\tD-0\tz\t1\n",
            3,
            "one text for sentence D-0",
        ),
        (
            "wikiqa",
            "WikiQA-dev.tsv",
            WIKI_HEADER + WIKI_LINE + "Q1\ty\tD\tT\tD-1\tz\t1\n",
            3,
            "one text for question Q1",
        ),
        ("trecqa", TREC_TEST, "<xml>\n", 1, "expected <QApairs id='...'>, found '<xml>'"),
        ("trecqa", TREC_TEST, 2 * trec_pairs("1", "Who", ("positive", "I")), 13, "found 1 again"),
        ("trecqa", TREC_TEST, "<QApairs id='1'>\n</QApairs>\n", 2, "expected a <question> for 1"),
        ("trecqa", TREC_TEST, TREC_OPEN + "</question>\n", 3, "expected words after <question>"),
        ("trecqa", TREC_TEST, "<QApairs id='1'>\n<neutral>\n", 2, "found '<neutral>'"),
        ("trecqa", TREC_TEST, TREC_OPEN + "Who\n</QApairs>\n", 4, "expected </question>"),
        ("trecqa", TREC_TEST, TREC_OPEN + "Who\n", 2, "found the end of the file"),
        ("trecqa", TREC_TEST, TREC_OPEN + "Who\n</question>\n", 1, "expected </QApairs>"),
    ],
)
def test_a_malformed_line_is_named_with_what_was_expected_and_found(
    tmp_path, form, name, content, place, message
):
    folder = write(tmp_path, {**SAMPLES[form], name: content})
    with pytest.raises(SourceError) as caught:
        read_question_set(folder, SPLITS[form])
    text = str(caught.value)
    assert text.startswith(f"{folder / name}:{'' if place is None else f'{place}: '}")
    assert message in text
    assert ";" in text
    assert "\n" not in text
