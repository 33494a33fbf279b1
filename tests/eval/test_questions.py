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
def made():
    return make_questions(corpus(), MadeQuestionSettings(questions=60))


def test_what_became_a_question_is_not_in_its_document(made):
    before, after = ({one.id: one for one in each} for each in (corpus(), made.documents))
    assert before.keys() == after.keys()
    assert Counter(made.kinds.values()) == {"title": 30, "sentence": 30}
    for query, grades in made.qrels.items():
        ((id_, grade),) = grades.items()
        text = made.queries[query]
        assert grade == 1
        match made.kinds[query]:
            case "title":
                assert (text, after[id_].title) == (before[id_].title, None)
            case "sentence":
                assert text in before[id_].text
                assert text not in after[id_].text


def test_the_folder_is_a_question_set_and_the_same_for_a_seed(made, tmp_path):
    for name in ("one", "two"):
        make_questions(iter(corpus()), made.settings).write(tmp_path / name)
    for file in ("corpus.jsonl", "queries.test.jsonl", "qrels.test.tsv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    read = read_question_set(tmp_path / "one", "test")
    assert {one.id: dict(one.grades) for one in read.questions} == made.qrels
    assert {one.id: one.text for one in read.questions} == made.queries
    assert tuple(CorpusReader(list(read.corpus))) == made.documents
    assert (
        make_questions(corpus(), MadeQuestionSettings(seed=1, questions=60)).queries != made.queries
    )
    with pytest.raises(ConfigError, match="expected a new name, an empty folder"):
        made.write(tmp_path / "one")
    assert json.loads(json.dumps(made.to_json()))["questions"] == 60


def test_long_documents_of_a_small_corpus_are_asked_more_than_once():
    short = make_questions(corpus(20))
    assert len(short.queries) == 20
    others = [" ".join(one.text for one in corpus(100, seed)) for seed in range(20)]
    documents = [replace(one, text=text) for one, text in zip(corpus(20), others, strict=True)]
    made = make_questions(documents)
    asked = Counter(id_ for grades in made.qrels.values() for id_ in grades)
    assert len(made.queries) == sum(asked.values()) == len(set(made.queries.values())) > 40
    after = {one.id: one for one in made.documents}
    for query, grades in made.qrels.items():
        (id_,) = grades
        assert made.queries[query] not in f"{after[id_].title}\n{after[id_].text}"


def test_a_heading_that_is_asked_for_leaves_text_and_outline():
    documents = []
    for number, one in enumerate(corpus(24)):
        text = f"# Heading {WORDS[number]} it\n\n{one.text}\n\n## Common\n\n{one.text.upper()}"
        second = text.index("## Common")
        outline = (
            Mark(0, "heading", f"Heading {WORDS[number]} it", 1),
            Mark(second, "heading", "Common", 2),
        )
        documents.append(replace(one, text=text, outline=outline))
    made = make_questions(documents, MadeQuestionSettings(kinds=("heading",)))
    assert sorted(made.queries.values()) == sorted(one.outline[0].label for one in documents)
    for one in made.documents:
        (mark,) = one.outline
        assert one.text[mark.offset :].startswith("## Common")
        assert "Heading" not in one.text


def test_sentences_of_an_article_ask_for_the_others():
    titles = {f"{article}-{n}": f"T{article}" for article in range(10) for n in range(5)}
    documents = [
        Document(id_, " ".join(random.Random(id_).sample(WORDS, 9)), title)
        for id_, title in titles.items()
    ]
    made = make_questions(documents, MadeQuestionSettings(kinds=("sentence",)))
    for query, grades in made.qrels.items():
        (gone,) = [one.id for one in documents if one.text == made.queries[query]]
        article = gone.split("-")[0]
        assert grades.keys() == {f"{article}-{n}" for n in range(5)} - {gone}
        assert gone not in {one.id for one in made.documents}


@pytest.mark.parametrize(
    "sentences",
    [
        "黑豹队的防守只丢了三百分。同时也以二十四次拦截领先联盟。",
        "ทีมรับของแพนเธอร์สถอดใจที่คะแนนได้อันดับที่หกของลีก ในขณะที่เป็นผู้นำในเอ็นเอฟแอลด้วยการอินเตอร์เซปยี่สิบสี่ ",
    ],
)
def test_scripts_without_spaces_are_divided(sentences):
    documents = [
        Document(str(n), sentences.replace("。", f"{n}。") + sentences[:-9] + str(n))
        for n in range(30)
    ]
    documents = [
        replace(one, text=f"{one.text}\n\n{' '.join(random.Random(one.id).sample(WORDS, 8))}")
        for one in documents
    ]
    made = make_questions(documents)
    assert set(made.kinds.values()) == {"sentence"}
    assert max(map(len, made.queries.values())) < 90


def test_earliest_copies_are_those_of_a_comparison_of_all_pairs():
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
    for place, one in enumerate(sets):
        near = [n for n in range(place) if len(sets[n] & one) >= 0.9 * len(sets[n] | one)]
        expected.append(next((n for n in near if expected[n] == n), place))
    assert earliest_copies(texts) == expected
    assert expected != list(range(len(texts)))


def test_documents_of_a_title_alone_stay_in_the_corpus_and_keep_it():
    titles = [f"Report on {word} and {word[::-1]}" for word in WORDS]
    bare = [Document(f"bare {n}", "", title) for n, title in enumerate(titles)]
    short = [Document(f"short {n}", "No abstract.", title) for n, title in enumerate(titles)]
    # One title is that of a text, too.
    shared = Document("shared", corpus(1, seed=9)[0].text, titles[0])
    made = make_questions([*corpus(), *bare, *short, shared], MadeQuestionSettings(questions=600))
    after = {document.id: document for document in made.documents}
    assert all(after[document.id] == document for document in bare)
    assert after.keys() >= {document.id for document in short}
    assert not any("near-copies" in remark for remark in made.remarks)
    assert after["shared"].title == titles[0]
    assert len(made.queries) >= 60


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        (corpus(5), "expected a corpus of at least 20 documents, found 5"),
        ([Document(str(n), "One") for n in range(30)], "expected documents with titles, headings"),
        ([], "found 0"),
    ],
)
def test_a_corpus_of_which_nothing_can_be_asked_is_refused(documents, said):
    with pytest.raises(BadInputError, match=said):
        make_questions(documents)
    with pytest.raises(ConfigError, match="kind: expected title"):
        MadeQuestionSettings(kinds=("word",))


def test_a_long_document_has_several_passages():
    text = " ".join(f"Sentence number {number} has some words in it." for number in range(60))
    passages = [text[run[0][0] : run[-1][1]] for run in sentence_runs(text)]
    assert len(passages) == 6
    assert max(len(passage.split()) for passage in passages) <= 90
