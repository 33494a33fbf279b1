"""Exact phrases, words to leave out and corrections, against a look at every document."""

from __future__ import annotations

import json
import re
import string
import tracemalloc
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import BadInputError, Document, Index, RetrieverError
from retriever.encoders.vocabulary import read_vocabulary, vocabulary_has
from retriever.search import parse_query
from retriever.search.engine import cancellable
from retriever.search.syntax import _distance, _edited_words, correct_text

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
        ("lock -thread, -door.", "lock", (), ("thread", "door")),
        ('-"of a" lock -thread', "lock", (), ("of a", "thread")),
        ('lock -thread -"of a" -door', "lock", (), ("thread", "of a", "door")),
        # A word to leave out is at the end.
        ("lock, -thread, please", "lock, -thread, please", (), ()),
        ('lock -thread "a door"', 'lock -thread "a door"', ("a door",), ()),
        ("what does -invert do in grep", "what does -invert do in grep", (), ()),
        # It has three letters, and no sign of an option with a value.
        ("python -m", "python -m", (), ()),
        ("ls -la", "ls -la", (), ()),
        ("code -C++", "code -C++", (), ()),
        ("gcc -std=c17", "gcc -std=c17", (), ()),
        ("gcc -I/usr/include", "gcc -I/usr/include", (), ()),
        ("git log --oneline", "git log --oneline", (), ()),
        ("鎖 -門", "鎖", (), ("門",)),
        ("замок -дверь", "замок", (), ("дверь",)),
        # What is text ends the words to leave out.
        ("lock -door -la", "lock -door -la", (), ()),
        ("tar -xzf -door", "tar -xzf", (), ("door",)),
        ("NOT NULL constraint failed", "NOT NULL constraint failed", (), ()),
        ('say "he cried “stop” twice" -"so"', 'say "he cried “stop” twice"',
         ("he cried “stop” twice",), ("so",)),
        ('"a lock” of "b"', '"a lock” of "b"', ("a lock", "b"), ()),
        ("state-of-the-art - 5 -5 --flag", "state-of-the-art - 5 -5 --flag", (), ()),
        ('a 5" screen', 'a 5" screen', (), ()),
        ('an "" and "." and inch"es"', 'an "" and "." and inch"es"', (), ()),
        ("-lock", "-lock", (), ()),
        ("- -lock", "- -lock", (), ()),
        ('-"lock"', "", (), ("lock",)),
        ("-lock -door", "", (), ("lock", "door")),
    ],
)  # fmt: skip
def test_query_is_parsed_into_text_phrases_and_exclusions(text, kept, phrases, excluded):
    assert parse_query(text, {"xzf"}.__contains__) == (kept, phrases, excluded)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('"a lock" of “5 inch” -"the door" -key', "a lock of 5 inch"),
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
    hits = index.search(f'"{phrase}" thread', mode=mode, k=200, raw=False)
    expected = {id_ for id_, text in corpus.items() if regex(phrase).search(text)}
    if mode == "bm25":
        terms = set(index.analyzer.tokens(f"{phrase} thread"))
        expected = {one for one in expected if terms & set(index.analyzer.tokens(corpus[one]))}
    assert {hit.id for hit in hits} == expected
    plain = [hit.id for hit in index.search(f"{phrase} thread", mode=mode, k=200, depth=1000)]
    shown = [hit for hit in hits if not regex(phrase).search(hit.passage)]
    # Only a phrase that no passage of a document holds whole.
    for hit in shown:
        spans = index.spans(hit.id)
        assert not any(regex(phrase).search(corpus[hit.id][slice(*span)]) for span in spans)
    if mode == "dense" and not [one for one in expected if len(index.spans(one)) > 1]:
        assert [hit.id for hit in hits] == [id_ for id_ in plain if id_ in expected]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("lock -thread", r"(?i)\bthreads?\b"),
        ("lock -python", r"(?i)python"),
        ('lock -"thread lock"', r"(?i)\bthread\s+lock\b"),
        ('lock -"C++"', r"\bC\+\+"),
    ],
)
def test_exclusion_removes_exactly_documents_with_excluded_words(
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
        list(index.search_many(["lock", '-"thread"'], raw=False))


@pytest.mark.parametrize("mode", MODES)
def test_exclude_argument_removes_hits_and_query_stays_text(index, corpus, mode):
    hits = index.search("lock -python", mode=mode, k=200, exclude=["thread", "of a"])
    left = {
        id_
        for id_, text in corpus.items()
        if not re.search(r"(?i)\bthreads?\b", text) and not regex("of a").search(text)
    }
    if mode == "bm25":
        left = {id_ for id_ in left if re.search(r"(?i)\b(lock|python)\b", corpus[id_])}
    assert {hit.id for hit in hits} == left
    brief = index.rank(["lock -python"], mode=mode, k=200, exclude=["thread", "of a"])
    assert next(brief) == [(hit.id, hit.score) for hit in hits]
    (also,) = index.search_many(["lock -thread"], mode=mode, k=200, raw=False, exclude=["of a"])
    assert {hit.id for hit in also} <= left
    reason = index.no_hits_reason("lock", mode=mode, exclude=["lock"])
    assert reason.endswith('has what the query leaves out ("lock"): take one out of exclude')


def test_a_text_to_exclude_is_a_string_with_a_word(index):
    with pytest.raises(TypeError, match="exclude: expected several strings"):
        index.search("lock", exclude="thread")
    for text, fault in (("  ", "text 2 has no word"), ("\ud800a", "text 2 holds the lone")):
        with pytest.raises(BadInputError, match=fault):
            index.search("lock", exclude=["a", text])


def test_a_word_that_a_document_has_with_its_hyphen_is_text(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(
            [
                {"id": "find", "text": "find . -iname TREE lists files by name"},
                {"id": "door", "text": "files of the door"},
            ]
        )
        assert index.has_flag("iname")
        assert not index.has_flag("door")
        for text, ids in {
            "files -iname": ["door", "find"],
            "files -Iname.": ["door", "find"],
            "files -door": ["find"],
            "files -name": ["door"],
        }.items():
            hits = index.search(text, mode="dense", raw=False)
            assert sorted(hit.id for hit in hits) == ids, text


def test_the_nearest_words_are_suggested(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(
            ["A thread waits for the lock.", "The lock holds.", "The sock holds.", "Снег идёт."]
        )
        for typed, better in {
            "thraed lokc": "thread lock",
            "threadlock": "thread lock",
            # No document has "threads".
            "Thredas waiting": "thread waiting",
            "the ock": None,
            "zock": "lock",
            "снгег": "снег",
            "lock": None,
            "qqqqq": None,
        }.items():
            assert index.suggestion(typed) == better, typed


def test_a_suggestion_is_a_word_as_documents_write_it(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(f"To rebase is to move commit {i}." for i in range(3))
        index.add(f"Read the refs of {i}." for i in range(9))
        index.add([Document("life", "It forms and formed the animal.", title="Burry it")])
        for typed, better in {
            # "refse" has the stem of "refs", and no document has it.
            "rebse": "rebase",
            "forme rebse": "forme rebase",
            "furry animal": "burry animal",
            "how do I rebse": "how do I rebase",
            '"rebse to" comit -the': '"rebase to" commit -the',
        }.items():
            assert index.suggestion(typed) == better, typed


def test_a_word_that_the_vocabulary_of_the_encoder_has_is_not_corrected(tmp_path):
    with Index.create(tmp_path / "index") as index:
        index.add(["The burry fruit of an animal is a bur."])
        assert index.suggestion("small furry animal") is None
        assert index.suggestion("small animla") == "small animal"


@pytest.mark.parametrize(
    ("file", "pieces"),
    [
        ('{"model":{"vocab":{"furry":7,"##furr":8}}}', ["furry"]),
        ('{"vocab": [\n["▁furry", -9.1], ["furr", -8.0]]}', ["furry", "furr"]),
        ('{"vocab":{"Ġfurry":1,"urry":2},"merges":["Ġfurr y"]}', ["furry", "urry"]),
    ],
)
def test_whole_words_of_a_vocabulary_are_told_from_parts(tmp_path, file, pieces):
    (tmp_path / "tokenizer.json").write_text(file, encoding="utf-8")
    is_piece = read_vocabulary(str(tmp_path))
    words = ("furry", "furr", "urry", "fur", '"', "\ud800")
    assert [word for word in words if is_piece(word)] == pieces
    assert not any(map(read_vocabulary(str(tmp_path / "none")), words))


def test_words_of_byte_level_pairs_are_found_in_any_script():
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    words = ["furry", "naïve", "слово", "मछली", "漢字", "\U0001f600"]
    pieces = {split.pre_tokenize_str(word)[0][0]: 0 for word in words}
    vocabulary = json.dumps({"vocab": pieces}, ensure_ascii=False).encode()
    assert all(vocabulary_has(vocabulary, word) for word in words)
    assert not any(vocabulary_has(vocabulary, word) for word in ("naive", "слов", "漢"))


@pytest.mark.parametrize(
    "text",
    [
        "z" * 9_000,
        "z" * 400,
        "б" * 30,
        "".join(chr(0x100 + 128 * i) for i in range(30)),
        " ".join(f"word{i}x" for i in range(1_000)),
    ],
)
def test_a_suggestion_costs_little_for_any_text(index, text):
    tracemalloc.start()
    with index._opened.view() as view:
        looked_up = []
        frequencies = view.document_frequencies

        def count(terms):
            looked_up.extend(terms := list(terms))
            return frequencies(terms)

        counted = SimpleNamespace(
            document_frequencies=count,
            setting=view.setting,
            ranking=view.ranking,
            passages=view.passages,
        )
        assert correct_text(text, counted, index.analyzer) is None
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(looked_up) < 100_000
    assert peak < 50_000_000


@given(st.text("abcé", max_size=6), st.text("abcé", max_size=6))
def test_edit_distance_equals_recursive_definition(word, other):
    @cache
    def distance(i, j):
        if not (i and j):
            return i + j
        steps = [distance(i - 1, j) + 1, distance(i, j - 1) + 1]
        steps.append(distance(i - 1, j - 1) + (word[i - 1] != other[j - 1]))
        if i > 1 and j > 1 and word[i - 2 : i] == other[j - 2 : j][::-1]:
            steps.append(distance(i - 2, j - 2) + 1)
        return min(steps)

    assert _distance(word, other) == distance(len(word), len(other))


@pytest.mark.parametrize("mode", MODES)
def test_reason_of_no_hits_names_condition_that_removed_all(index, mode):
    word = " with a word of the query" if mode == "bm25" else ""
    beside = " and" if mode == "bm25" else " with"
    for text, where, reason in (
        ('"lock python of of"', None, 'no document has "lock python of of" as written: remove q'),
        ('"don\'t" "zzz"', None, 'no document has "don\'t" and "zzz" as written: remove quotation'),
        ('lock "lock" -lock', None, f'every document{word}{beside} "lock" has what the query lea'),
        ('lock "lock" -"of of of" -lock', "even = true", "every document that passes the filter"),
        ("lock", 'id like "x%"', "no document passes the filter: change it or leave it out"),
        ('"lock"', 'id = "none"', "no document passes the filter: change it or leave it out"),
        ("lock", 'id like "x"', 'no document passes the filter: like "x" matches whole values'),
        ("lock", 'id = "2014"', 'no document passes the filter: "2014" is compared as text'),
    ):
        assert not index.search(text, mode=mode, where=where, raw=False)
        found = index.no_hits_reason(text, mode=mode, where=where, raw=False)
        assert found.startswith(reason), (text, found)


def test_the_reason_says_whether_a_document_outside_the_filter_has_the_words(
    tmp_path, fake_encoder
):
    with Index.create(tmp_path / "index") as index:
        assert index.no_hits_reason("lock") == "the index is empty: add documents"
        index.add([{"id": "a", "text": "A red lock.", "n": 1}, {"id": "b", "text": "x", "n": 2}])
        reason = index.no_hits_reason('"red lock"', where="n = 2", raw=False)
        assert reason == (
            'no document that passes the filter has "red lock" as written: change the filter, or '
            "remove quotation marks"
        )
        reason = index.no_hits_reason("lock", mode="bm25", where="n = 2")
        assert reason == (
            "no document that passes the filter has a word of the query: change the filter, or use "
            "the mode hybrid"
        )
        reason = index.no_hits_reason("zebra", mode="bm25", where="n = 2")
        assert reason.endswith(
            "has a word of the query: check the spelling, or use the mode hybrid"
        )


def test_cancelled_search_ends(index):
    calls = []

    def is_cancelled():
        calls.append(1)
        return len(calls) > 3

    with cancellable(is_cancelled), pytest.raises(RetrieverError, match="search was canceled"):
        index.search('"of of of of of of" lock', k=1, raw=False)
    assert len(calls) == 4
    assert index.search("lock")


def test_a_word_of_a_language_of_few_passages_is_found_and_not_corrected(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(f"The number {i} is what they have done for the customer." for i in range(50))
        index.add(
            [Document("german", "Die Rechnungen sind in den Wochen nicht von uns zu bezahlen.")]
        )
        assert index.info()["languages"] == {"english": 50, "german": 1}
        assert [hit.id for hit in index.search("Rechnungen", mode="bm25")] == ["german"]
        assert index.suggestion("Rechnungen") is None


def test_excluded_phrase_respects_punctuation_of_word(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add({"id": one, "text": f"code in {one}"} for one in ("C", "C++", "Cs", "rm -rf"))
        for text, left in {
            'code -"C++"': "C Cs rm",
            'code -"C"': "Cs rm",
            "code -C++": "C C++ Cs rm",
            'code -"rm -rf"': "C C++ Cs",
        }.items():
            hits = index.search(text, raw=False)
            assert " ".join(sorted(hit.id.split()[0] for hit in hits)) == left


@given(st.text("abc", min_size=4, max_size=7), st.text("abc", min_size=4, max_size=8))
def test_single_edit_check_equals_definition(word, other):
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

    assert (other in set(_edited_words(word)) | {word}) == near(word, other)
    assert all(set(one) <= set(string.ascii_lowercase + " ") for one in _edited_words(word))
