"""Pairs of texts from a corpus alone: which ones, and which sample."""

from collections import Counter

import pytest

from eval.training.corpus_pairs import CorpusPairs, sentences_of
from retriever.documents import Document
from retriever.errors import BadInputError

TEXT = (
    "Sailing ships need wind today. Steam ships burn coal instead. Rowing boats need strong arms."
)


def documents(count=20):
    return [
        Document(str(number), f"{TEXT} This is number {number} here.", f"Ships {number}")
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It grew by 3.5 percent. Then it fell.", ["It grew by 3.5 percent.", "Then it fell."]),
        ("See J. Smith et al. 2019 for more. Yes.", ["See J. Smith et al. 2019 for more.", "Yes."]),
        ("He left, e.g. Paris. She stayed.", ["He left, e.g. Paris.", "She stayed."]),
        ('He said "go." Then he went.', ['He said "go."', "Then he went."]),
        ("第一句。第二句。", ["第一句。", "第二句。"]),
        ("A heading\n\nA text.", ["A heading", "A text."]),
        ("one\nline", ["one line"]),
        ("  ", []),
        ("", []),
    ],
)
def test_sentences_end_at_punctuation(text, expected):
    assert sentences_of(text) == expected


def test_a_title_belongs_to_its_text():
    good = {("A title", "A text."), ("Another title", "Another text.")}
    given = [*good, ("", "No title."), ("No text", ""), ("Same", "Same")]
    found = CorpusPairs([Document(text, text, title) for title, text in given], "title").draw()
    assert {pair[:2] for pair in found} == good


def test_neighbors_are_sentences_in_a_row_that_say_something():
    text = f"{TEXT} Short. Oars are made of wood."
    found = CorpusPairs([Document("1", text, "Title")], "neighbors").draw()
    sentences = sentences_of(TEXT)
    assert {pair[:2] for pair in found} == {
        (sentences[0], sentences[1]),
        (sentences[1], sentences[2]),
    }


def test_a_cloze_is_a_sentence_and_its_passage_without_it():
    found = CorpusPairs(documents(30), "cloze").draw()
    taken = Counter()
    for left, right, value, group in found:
        sentences = sentences_of(documents(30)[group].text)
        taken[sentences.index(left)] += 1
        rest = [one for one in sentences if one != left]
        assert right == " ".join([f"Ships {group}", *rest])
        assert value is None
    # Any sentence may be taken.
    assert set(taken) == {0, 1, 2, 3}


def test_a_long_document_has_several_passages():
    text = " ".join(f"Sentence number {number} has some words in it." for number in range(60))
    found = CorpusPairs([Document("1", text)], "cloze").draw()
    assert 4 <= len(found) <= 8
    assert max(len(pair.right.split()) for pair in found) <= 90


def test_the_sample_is_uniform_and_the_same_for_a_seed():
    drawn = Counter()
    for seed in range(200):
        pairs = CorpusPairs(documents(20), "title", sample=5, seed=seed).draw()
        assert len(pairs) == len(set(pairs)) == 5
        drawn.update(pair.group for pair in pairs)
    # 50 times each is expected; six standard deviations of the binomial are 37.
    assert min(drawn[group] for group in range(20)) > 13
    assert max(drawn.values()) < 87
    # The corpus is read once as a stream.
    done = []
    CorpusPairs(iter(documents(50)), "title", sample=2).draw(done.append)
    assert sum(done) == 50
    once = CorpusPairs(documents(20), "neighbors", sample=7, seed=3)
    assert once.draw() == once.draw()
    assert once.draw() != CorpusPairs(documents(20), "neighbors", sample=7, seed=4).draw()


@pytest.mark.parametrize("kind", ["title", "neighbors", "cloze"])
def test_a_corpus_without_pairs_is_refused(kind):
    with pytest.raises(BadInputError, match=r"^pairs: expected documents with .*another kind"):
        CorpusPairs([Document("1", "Text"), Document("2", "More")], kind).draw()
