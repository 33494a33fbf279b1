"""Questions made from a corpus: what is asked, what is left to find, and the folder of both."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from eval import MadeQuestionSettings, make_questions, read_question_set
from eval.questions import sentence_runs
from retriever import CorpusReader, Document, Mark
from retriever.errors import BadInputError, ConfigError
from retriever.search.collapse import earliest_copies

WORDS = [f"{a}{b}{c}" for a in ("ban", "kel", "mor", "tis") for b in "aeiou" for c in ("d", "lt")]


def corpus(count=60, seed=1):
    chance, documents = random.Random(seed), []
    for number in range(count):
        sentences = [
            " ".join(chance.sample(WORDS, 9)).capitalize() + "."
            for _ in range(chance.choice([2, 5]))
        ]
        title = " ".join(chance.sample(WORDS, 3))
        documents.append(Document(f"folder/d {number}.md", " ".join(sentences), title))
    return documents


def plain(text):
    return re.findall(r"\w+", (text or "").lower())


@pytest.fixture(scope="module")
def question_set():
    return make_questions(corpus(), MadeQuestionSettings(questions=60))


def test_question_text_is_removed_from_its_document(question_set):
    before, after = (
        {document.id: document for document in each} for each in (corpus(), question_set.documents)
    )
    assert before.keys() == after.keys()
    assert Counter(question_set.kinds.values()) == {"title": 30, "sentence": 30}
    for query, grades in question_set.qrels.items():
        ((id_, grade),) = grades.items()
        text = question_set.queries[query]
        assert grade == 1
        match question_set.kinds[query]:
            case "title":
                assert (text, after[id_].title) == (before[id_].title, None)
            case "sentence":
                assert text in before[id_].text
                assert text not in after[id_].text


def test_written_question_set_is_read_back_and_equal_for_a_seed(question_set, tmp_path):
    for name in ("one", "two"):
        make_questions(iter(corpus()), question_set.settings).write(tmp_path / name)
    for file in ("corpus.jsonl", "queries.test.jsonl", "qrels.test.tsv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    read = read_question_set(tmp_path / "one", "test")
    assert {question.id: dict(question.grades) for question in read.questions} == question_set.qrels
    assert {question.id: question.text for question in read.questions} == question_set.queries
    assert tuple(CorpusReader(list(read.corpus))) == question_set.documents
    assert (
        make_questions(corpus(), MadeQuestionSettings(seed=1, questions=60)).queries
        != question_set.queries
    )
    with pytest.raises(ConfigError, match="expected a new name, an empty folder"):
        question_set.write(tmp_path / "one")
    assert json.loads(json.dumps(question_set.to_json()))["questions"] == 60


def test_long_documents_of_a_small_corpus_get_several_questions():
    short = make_questions(corpus(20))
    assert len(short.queries) == 20
    long_texts = [" ".join(document.text for document in corpus(100, seed)) for seed in range(20)]
    documents = [
        replace(document, text=text) for document, text in zip(corpus(20), long_texts, strict=True)
    ]
    question_set = make_questions(documents)
    question_counts = Counter(id_ for grades in question_set.qrels.values() for id_ in grades)
    assert (
        len(question_set.queries)
        == sum(question_counts.values())
        == len(set(question_set.queries.values()))
        > 40
    )
    after = {document.id: document for document in question_set.documents}
    for query, grades in question_set.qrels.items():
        (id_,) = grades
        assert question_set.queries[query] not in f"{after[id_].title}\n{after[id_].text}"


def test_heading_used_as_question_is_removed_from_text_and_outline():
    documents = []
    for number, document in enumerate(corpus(24)):
        body = document.text
        text = f"# Heading {WORDS[number]} it\n\n{body}\n\n## Common\n\n{body.upper()}"
        second = text.index("## Common")
        outline = (
            Mark(0, "heading", f"Heading {WORDS[number]} it", 1),
            Mark(second, "heading", "Common", 2),
        )
        documents.append(replace(document, text=text, outline=outline))
    question_set = make_questions(documents, MadeQuestionSettings(kinds=("heading",)))
    assert sorted(question_set.queries.values()) == sorted(
        document.outline[0].label for document in documents
    )
    for document in question_set.documents:
        (mark,) = document.outline
        assert document.text[mark.offset :].startswith("## Common")
        assert "Heading" not in document.text


def test_sentence_of_an_article_is_relevant_to_its_other_sentences():
    titles = {f"{article}-{n}": f"T{article}" for article in range(10) for n in range(5)}
    documents = [
        Document(id_, " ".join(random.Random(id_).sample(WORDS, 9)), title)
        for id_, title in titles.items()
    ]
    question_set = make_questions(documents, MadeQuestionSettings(kinds=("sentence",)))
    for query, grades in question_set.qrels.items():
        (query_id,) = [
            document.id for document in documents if document.text == question_set.queries[query]
        ]
        article = query_id.split("-")[0]
        assert grades.keys() == {f"{article}-{n}" for n in range(5)} - {query_id}
        assert query_id not in {document.id for document in question_set.documents}


@pytest.mark.parametrize(
    "sentences",
    [
        "黑豹队的防守只丢了三百分。同时也以二十四次拦截领先联盟。",
        "ทีมรับของแพนเธอร์สถอดใจที่คะแนนได้อันดับที่หกของลีก ในขณะที่เป็นผู้นำในเอ็นเอฟแอลด้วยการอินเตอร์เซปยี่สิบสี่ ",
    ],
)
def test_texts_in_scripts_without_spaces_give_sentence_questions(sentences):
    documents = [
        Document(str(n), sentences.replace("。", f"{n}。") + sentences[:-9] + str(n))
        for n in range(30)
    ]
    documents = [
        replace(
            document,
            text=f"{document.text}\n\n{' '.join(random.Random(document.id).sample(WORDS, 8))}",
        )
        for document in documents
    ]
    question_set = make_questions(documents)
    assert set(question_set.kinds.values()) == {"sentence"}
    assert max(map(len, question_set.queries.values())) < 90


def test_earliest_copies_equal_a_comparison_of_all_pairs():
    chance, texts = random.Random(2), []
    for _ in range(150):
        words = chance.choices(WORDS, k=45)
        variants = words, [*words[:-1], "x"], [*words[:20], *words[25:]]
        texts += map(" ".join, variants)
    chance.shuffle(texts)

    def shingles(text):
        words = text.split()
        return {tuple(words[i : i + 3]) for i in range(len(words) - 2)}

    sets, expected = list(map(shingles, texts)), []
    for place, shingle_set in enumerate(sets):
        near = [
            n
            for n in range(place)
            if len(sets[n] & shingle_set) >= 0.9 * len(sets[n] | shingle_set)
        ]
        expected.append(next((n for n in near if expected[n] == n), place))
    assert earliest_copies(texts) == expected
    assert expected != list(range(len(texts)))


def test_documents_without_text_stay_in_the_corpus_with_their_title():
    titles = [f"Report on {word} and {word[::-1]}" for word in WORDS]
    bare = [Document(f"bare {n}", "", title) for n, title in enumerate(titles)]
    short = [Document(f"short {n}", "No abstract.", title) for n, title in enumerate(titles)]
    # One title is that of a text, too.
    shared = Document("shared", corpus(1, seed=9)[0].text, titles[0])
    question_set = make_questions(
        [*corpus(), *bare, *short, shared], MadeQuestionSettings(questions=600)
    )
    after = {document.id: document for document in question_set.documents}
    assert all(after[document.id] == document for document in bare)
    assert after.keys() >= {document.id for document in short}
    assert not any("near-copies" in remark for remark in question_set.remarks)
    assert after["shared"].title == titles[0]
    assert len(question_set.queries) >= 60


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (corpus(5), "expected a corpus of at least 20 documents, found 5"),
        ([Document(str(n), "One") for n in range(30)], "expected documents with titles, headings"),
        ([], "found 0"),
    ],
)
def test_corpus_that_gives_no_questions_is_refused(documents, message):
    with pytest.raises(BadInputError, match=message):
        make_questions(documents)
    with pytest.raises(ConfigError, match="kind: expected title"):
        MadeQuestionSettings(kinds=("word",))


def test_a_long_document_has_several_passages():
    text = " ".join(f"Sentence number {number} has some words in it." for number in range(60))
    passages = [text[run[0][0] : run[-1][1]] for run in sentence_runs(text)]
    assert len(passages) == 6
    assert max(len(passage.split()) for passage in passages) <= 90
