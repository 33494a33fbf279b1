"""Small folders in the official layout of each form: name of a file to what is in it."""

import gzip
import json

import pytest

from retriever.errors import SourceError


def lines(*rows):
    return "".join(row + "\n" for row in rows)


def tabs(*rows):
    return lines(*("\t".join(row) for row in rows))


def records(*values):
    return lines(*map(json.dumps, values))


def refused(read, path, start, *messages):
    """Assert that reading fails with one line that begins with the place of the fault."""
    with pytest.raises(SourceError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(str(start))
    assert "\n" not in text
    for message in messages:
        assert message in text


OWN = {
    "corpus.jsonl": records(
        *({"id": f"d{n}", "text": f"text {n}", "title": "A title"} for n in (1, 2, 10))
    ),
    "queries.dev.jsonl": records(*({"id": f"q{n}", "text": f"question {n}"} for n in (1, 2, 3))),
    "candidates.dev.jsonl": records(
        {"qid": "q2", "candidates": ["d1", "d10", "d2"]},
        {"qid": "q1", "candidates": ["d2"]},
        {"qid": "q3", "candidates": ["d10"]},
    ),
    "qrels.dev.tsv": "q1 0 d2 1\nq1 0 elsewhere 2\nq2 0 d10 1\nq2 0 d1 0\nq3 0 d10 0\n",
}

WIKI_PASSAGES = {
    "7": {str(n): f"passage {n} of 7" for n in range(11)},
    "12": {"0": 'the "only" \u2028\u00e9'},
}
WIKIPASSAGEQA = {
    "document_passages.json": json.dumps(WIKI_PASSAGES, ensure_ascii=False),
    "dev.tsv": tabs(
        ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages"),
        ("3", 'What is "it"?', "7", "Seven.html", "2,10"),
        ("1", "Why?", "12", "Twelve.html", "0"),
    ),
}

VOCABULARY = tabs(*((f"idx_{n}", word) for n, word in enumerate(["is", "a", "car", "&quot;"], 1)))
INSURANCE_1 = {
    "vocabulary": VOCABULARY,
    "answers.label.token_idx": tabs(("1", "idx_3 idx_1"), ("2", "idx_2"), ("10", "idx_4 idx_3")),
    "question.train.token_idx.label": tabs(("idx_1 idx_3", "2 10")),
    "question.dev.label.token_idx.pool": tabs(
        ("2", "idx_1 idx_2", "1 2 10"), ("1 10", "idx_3", "10 1 10")
    ),
    "question.test1.label.token_idx.pool": tabs(("2", "idx_1", "1 2")),
    "question.test2.label.token_idx.pool": tabs(("2", "idx_1", "1 2")),
}
INSURANCE_2 = {
    "vocabulary": VOCABULARY,
    "InsuranceQA.label2answer.token.encoded": INSURANCE_1["answers.label.token_idx"],
    **{
        f"InsuranceQA.question.anslabel.token.{size}.pool.solr.{split}.encoded": tabs(
            ("auto-insurance", "idx_1 idx_3", "2", pool)
        )
        for size, pool in (("100", "1"), ("500", "1 10"), ("1000", "1 2 10"))
        for split in ("train", "valid", "test")
    },
}

QUASAR = {
    "test.txt": records(
        {"question": "Who wrote it ?", "answers": ["The U.S. Army", "Bach"]},
        {"question": "And this ?", "answers": ["the"]},
        {"question": "Nothing ?", "answers": ["one"]},
    ),
    "test.json": records(
        [
            {"question": ["Who"], "document": ["A", "u.s", "ARMY", "song", "."], "id": [0, 0]},
            {"question": ["Who"], "document": ["Bacharach", "wrote", "it"], "id": [0, 1]},
            {"question": ["Who"], "document": ["By", "Bach", ",", "he", "said"], "id": [0, 2]},
        ],
        [{"question": ["And"], "document": ["the", "end"], "id": [1, 0]}],
        [],
    ),
}

WIKIQA_HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
WIKIQA = {
    "WikiQA-dev.tsv": WIKIQA_HEADER
    + tabs(
        ("Q1", "how?", "D1", "One", "D1-0", 'It is "so', "0"),
        ("Q1", "how?", "D1", "One", "D1-1", "So it is", "1"),
        ("Q2", "why?", "D1", "One", "D1-0", 'It is "so', "0"),
    ),
    "WikiQA-test.tsv": WIKIQA_HEADER + tabs(("Q3", "who?", "D2", "Two", "D2-0", "Me", "1")),
}


def trec_pairs(id_, question, *sentences):
    def block(tag, words):
        return lines(f"<{tag}>", "\t".join(words.split()), "NN\tVB", "ROOT\tSUB", f"</{tag}>")

    return (
        lines(f"<QApairs id='{id_}'>")
        + block("question", question)
        + "".join(block(tag, words) for tag, words in sentences)
        + lines("</QApairs>")
    )


TRECQA = {
    "train2393.cleanup.xml": trec_pairs("1.1", "Who ?", ("positive", "<num> people & one")),
    "test-less-than-40.manual-edit.xml": trec_pairs(
        "32.1", "Who are they ?", ("positive", "<num> people"), ("negative", "<question> is &amp;")
    )
    + trec_pairs("32.2", "Where ?", ("positive", "Here")).replace("\n", " \n\n")
    + trec_pairs("32.3", "When ?"),
}

BEIR = {
    "corpus.jsonl": records({"_id": "d1", "title": "T", "text": "one", "metadata": {}}),
    "queries.jsonl": records(
        {"_id": "q2", "text": "two", "metadata": {}}, {"_id": "q1", "text": "one", "metadata": {}}
    ),
    "qrels/test.tsv": tabs(("query-id", "corpus-id", "score"), ("q1", "d1", "2")),
    "qrels/train.tsv": tabs(("query-id", "corpus-id", "score"), ("q2", "d1", "1")),
}

MSMARCO = {
    "collection.tsv": tabs(("0", 'The "Manhattan'), ("1", "Project")),
    "queries.dev.small.tsv": tabs(("1048585", "who?"), ("2", "what?"), ("3", "where?")),
    "qrels.dev.small.tsv": tabs(("1048585", "0", "0", "1"), ("2", "0", "5", "1")),
}

TREC = {
    "topics.301-302.txt": lines("", "<top>", "", "<num> Number: 301", "")
    + lines(
        "<title> International Organized", " Crime", "", "<desc> Description:", "Who?", "</top>"
    )
    + lines("<top>", "<num> Number:  051", "<desc> Description:", "R&amp;D", "</top>"),
    "qrels.txt": "301 0 FT911-1 1\n51 0 FT911-2 1\n",
    "corpus.jsonl": records({"id": "FT911-1", "text": "one"}),
}

SAMPLES = {
    "own": OWN,
    "wikipassageqa": WIKIPASSAGEQA,
    "insuranceqa-v1": INSURANCE_1,
    "insuranceqa-v2": INSURANCE_2,
    "openqa": QUASAR,
    "wikiqa": WIKIQA,
    "trecqa": TRECQA,
    "beir": BEIR,
    "msmarco": MSMARCO,
    "trec": TREC,
}
SPLITS = dict.fromkeys(SAMPLES, "dev") | {"msmarco": "dev.small"}
SPLITS |= dict.fromkeys(("openqa", "trecqa", "beir", "trec"), "test")


def write(folder, files):
    """Write files into a folder; one whose name ends in .gz is gzipped."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def question_rows(questions):
    """List id, text, pool and grades of the questions of a set."""
    return [
        (question.id, question.text, " ".join(question.candidates), dict(question.grades))
        for question in questions.questions
    ]
