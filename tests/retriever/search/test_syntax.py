"""Exact phrases, words to leave out and corrections, against a look at every document."""

from __future__ import annotations

import re
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import BadInputError, Document, Index
from retriever.search.syntax import _edited, _folded, holds, parse_query

WORDS = ["lock", "thread", "threads", "of", "a", "Python", "naïve", "C++", "don't", "x_y"]
MODES = ["dense", "bm25", "hybrid"]


@pytest.fixture(scope="module")
def corpus():
    chance = np.random.default_rng(4)
    signs = [" ", " ", " ", "\n", ", "]
    return {
        f"d{number:03}": "".join(
            word + chance.choice(signs)
            for word in chance.choice(WORDS, 90 if number % 9 == 0 else 6)
        )
        for number in range(120)
    }


@pytest.fixture
def index(tmp_path, fake_encoder, corpus):
    with Index.create(tmp_path / "index") as index:
        index.add({"id": id_, "text": text, "even": id_ < "d060"} for id_, text in corpus.items())
        yield index


@pytest.mark.parametrize(
    ("text", "kept", "phrases", "excluded"),
    [
        ("plain words", "plain words", (), ()),
        ('"a lock" of', '"a lock" of', ("a lock",), ()),
        ("“a lock” of", "“a lock” of", ("a lock",), ()),
        ('lock -thread -"of a"', "lock", (), ("thread", "of a")),
        ("lock, -thread, please", "lock,   please", (), ("thread",)),
        ("state-of-the-art - 5 -5 --flag", "state-of-the-art - 5 -5 --flag", (), ()),
        ('a 5" screen', 'a 5" screen', (), ()),
        ('an "" and "." and inch"es"', 'an "" and "." and inch"es"', (), ()),
        ("-lock", "", (), ("lock",)),
    ],
)  # fmt: skip
def test_what_a_query_means(text, kept, phrases, excluded):
    assert parse_query(text) == (kept, phrases, excluded)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('"a lock" of “5 inch” -of -"the door"', "a lock of 5 inch"),
        ('a 5" screen', 'a 5" screen'),
        ('"a -b" c', "a -b c"),
    ],
)
def test_an_encoder_reads_a_query_without_its_operators(text, plain):
    assert parse_query(text).plain.split() == plain.split()


def regex(phrase):
    """An independent way to find a phrase of whole words."""
    words = r"\s+".join(map(re.escape, phrase.split()))
    return re.compile(rf"(?<![\w'])(?<!\w'){words}(?!\w)(?!'\w)", re.IGNORECASE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "phrase", ["lock thread", "of a", "python lock", "C++", "don't don't don't", "x"]
)
def test_hits_are_the_documents_with_the_phrase(index, corpus, mode, phrase):
    found = index.search(f'"{phrase}" thread', mode=mode, k=200, raw=False)
    expected = {id_ for id_, text in corpus.items() if regex(phrase).search(text)}
    if mode == "bm25":
        terms = set(index.analyzer.tokens(f"{phrase} thread"))
        expected = {one for one in expected if terms & set(index.analyzer.tokens(corpus[one]))}
    assert {hit.id for hit in found} == expected
    plain = [hit.id for hit in index.search(f"{phrase} thread", mode=mode, k=200, depth=1000)]
    shown = [hit for hit in found if not regex(phrase).search(hit.passage)]
    # Only a phrase that no passage of a document holds whole.
    for hit in shown:
        spans = index.spans(hit.id)
        assert not any(regex(phrase).search(corpus[hit.id][slice(*one)]) for one in spans)
    if mode == "dense" and not [one for one in expected if len(index.spans(one)) > 1]:
        assert [hit.id for hit in found] == [id_ for id_ in plain if id_ in expected]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("lock -thread", r"(?i)\bthreads?\b"),
        ("lock -python", r"(?i)python"),
        ('lock -"thread lock"', r"(?i)\bthread\s+lock\b"),
        ("lock -C++", r"\bC\+\+"),
    ],
)
def test_no_hit_has_what_is_left_out_and_nothing_else_is_missing(
    index, corpus, mode, text, left_out
):
    for k in (3, 200):
        hits = index.search(text, mode=mode, k=k, raw=False, where="even = true")
        brief = index.rank([text], mode=mode, k=k, raw=False, where="even = true")
        assert next(brief) == [(hit.id, hit.score) for hit in hits]
        found = [hit.id for hit in hits]
        kept = {id_ for id_, one in corpus.items() if id_ < "d060" and not re.search(left_out, one)}
        if mode == "bm25":
            kept = {one for one in kept if re.search(r"\block\b", corpus[one])}
        assert len(found) == min(k, len(kept))
        assert set(found) <= kept


def test_a_raw_query_and_one_without_operators_are_as_before(index):
    for text in ('lock "of a" -thread', "lock of a thread"):
        assert index.search(text) == index.search(text, raw=True)
    assert index.search("lock of", raw=False) == index.search("lock of")
    (several, plain) = index.search_many(["lock -thread", "lock"], raw=False, mode="bm25")
    assert several == index.search("lock -thread", raw=False, mode="bm25")
    assert plain == index.search("lock", mode="bm25")
    with pytest.raises(BadInputError, match="query 2 has only words to leave out"):
        list(index.search_many(["lock", "-thread"], raw=False))


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("Ab, ab.", "AB", True),
        ("cab abc ab_c a\u0301b", "ab", False),
        ("ab's 'ab'", "ab", True),
        ("ab's", "ab", False),
        ("don't", "don", False),
        ("ab\u0301", "ab", False),
        ("a\n\t b", "a b", True),
        ("a-b", "a b", False),
        ("我住在北京大学里", "北京", True),
        ("北京ab.", "ab", True),
        ("ＡＢ c", "ab C", True),
    ],
)
def test_whole_words_are_held_whatever_their_case_width_and_space(text, phrase, expected):
    assert holds(_folded(text), _folded(phrase)) == expected


def test_the_nearest_words_are_suggested(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(
            ["A thread waits for the lock.", "The lock holds.", "The sock holds.", "Снег идёт."]
        )
        for typed, better in {
            "thraed lokc": "thread lock",
            "threadlock": "thread lock",
            "Thredas waiting": "threads waiting",
            "the ock": None,
            "zock": "lock",
            "снгег": "снег",
            "lock": None,
            "qqqqq": None,
        }.items():
            assert index.suggestion(typed) == better, typed


def test_a_word_of_a_language_of_few_passages_is_found_and_not_corrected(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(f"The number {i} is what they have done for the customer." for i in range(50))
        index.add(
            [Document("german", "Die Rechnungen sind in den Wochen nicht von uns zu bezahlen.")]
        )
        assert index.info()["languages"] == {"english": 50, "german": 1}
        assert [hit.id for hit in index.search("Rechnungen", mode="bm25")] == ["german"]
        assert index.suggestion("Rechnungen") is None


def test_a_sign_at_a_word_counts_in_what_is_left_out(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add({"id": one, "text": f"code in {one}"} for one in ("C", "C++", "Cs", "rm -rf"))
        for text, left in {
            "code -C++": "C Cs rm",
            "code -C": "Cs rm",
            'code -"rm -rf"': "C C++ Cs",
        }.items():
            found = index.search(text, raw=False)
            assert " ".join(sorted(hit.id.split()[0] for hit in found)) == left


@given(st.text("abc", min_size=4, max_size=7), st.text("abc", min_size=4, max_size=8))
def test_edits_are_those_of_the_definition(word, other):
    def near(one, two):
        if len(one) == len(two):
            differ = [i for i in range(len(one)) if one[i] != two[i]]
            swapped = len(differ) == 2 and differ[1] == differ[0] + 1
            return len(differ) < 2 or (
                swapped and one[differ[0]] == two[differ[1]] and one[differ[1]] == two[differ[0]]
            )
        short, long = sorted((one, two), key=len)
        return len(long) == len(short) + 1 and any(
            long[:i] + long[i + 1 :] == short for i in range(len(long))
        )

    assert (other in set(_edited(word)) | {word}) == near(word, other)
    assert all(set(one) <= set(string.ascii_lowercase + " ") for one in _edited(word))
