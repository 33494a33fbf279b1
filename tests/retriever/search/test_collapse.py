"""Near-copies are folded as a comparison of all pairs says, and the next hits move up."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import Index
from retriever.search.collapse import _is_similar, _shingles, identifying_text

WORDS = [f"w{number}" for number in range(30)]


@pytest.fixture
def index(tmp_path, fake_encoder):
    chance, texts = np.random.default_rng(5), []
    for _ in range(8):
        words = list(chance.choice(WORDS, 24))
        texts += [" ".join(words), ", ".join(words).upper() + "!", " ".join([*words, "w99"])]
        words[12] = "w98"
        texts.append(" ".join(words))
    with Index.create(tmp_path / "index") as index:
        index.add({"id": f"d{n:02}", "text": text} for n, text in enumerate(texts))
        yield index


def similarity(one, other):
    def shingles(text):
        words = re.findall(r"\w+", text.lower())
        return {(a, b, c) for (a, b), (_, c) in pairwise(pairwise(words))}

    first, second = shingles(one), shingles(other)
    return len(first & second) / len(first | second)


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
def test_collapse_folds_hits_similar_to_better_hit(index, mode):
    everyone = index.search("w1 w2 w3", mode=mode, k=100, depth=1000)
    kept = []
    for hit in everyone:
        if all(similarity(hit.passage, one.passage) < 0.9 for one in kept):
            kept.append(hit)
    assert 8 <= len(kept) < len(everyone)
    for k in (1, 5, 100):
        hits = index.search("w1 w2 w3", mode=mode, k=k, depth=1000, collapse=True)
        assert [hit.id for hit in hits] == [hit.id for hit in kept[:k]]
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        assert [hit.score for hit in hits] == [hit.score for hit in kept[:k]]
    folded = [id_ for hit in hits for id_ in hit.copies]
    assert sorted(folded + [hit.id for hit in hits]) == sorted(hit.id for hit in everyone)
    assert hits[0].to_json()["copies"] == list(hits[0].copies)
    assert all("copies" not in hit.to_json() for hit in everyone)


@given(
    st.lists(st.sampled_from("abcd"), max_size=14), st.lists(st.sampled_from("abcd"), max_size=14)
)
def test_texts_are_similar_from_jaccard_of_nine_tenths(one, other):
    first, second = _shingles(" ".join(one)), _shingles("; ".join(other).upper())
    assert _is_similar(first, second) == (10 * len(first & second) >= 9 * len(first | second))


# Pairs of title and text, no two of which say the same.
DIFFERENT = [
    ("Sorting of arrays by exchange", ""),
    ("Sorting of arrays by merging", ""),
    ("Sorting of arrays by merging", "No abstract available."),
    ("Sorting of lists by merging", "No abstract available."),
    ("Sorting of lists by merging", "See also"),
    ("Sorting of trees", "See also"),
    ("Sorting of graphs", "--"),
    ("Sorting of heaps", "***"),
    ("\N{WATCH} sorting", "Yes"),
    ("กิน sorting", ""),
    ("กีน sorting", ""),
    (None, "\N{GREEK SMALL LETTER ALPHA} sorting"),
]


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
def test_short_texts_with_different_titles_are_not_collapsed(tmp_path, fake_encoder, mode):
    documents = [
        {"id": f"{name}{number}", "title": title, "text": text}
        for name in ("a", "b")
        for number, (title, text) in enumerate(DIFFERENT)
    ]
    with Index.create(tmp_path / "index") as index:
        index.add(documents)
        hits = index.search("sorting also yes available", mode=mode, k=100, collapse=True)
        plain = index.search("sorting also yes available", mode=mode, k=100)
    groups = [sorted([hit.id, *hit.copies]) for hit in hits]
    found = {hit.id[1:] for hit in plain}
    assert len(found) >= 10
    assert sorted(groups) == sorted([f"a{number}", f"b{number}"] for number in found)


def test_texts_of_punctuation_collapse_only_if_equal():
    assert _shingles("\N{WATCH} !") == _shingles(" \N{WATCH}  !\n") != _shingles("\N{HOURGLASS} !")


def test_a_long_text_counts_without_its_title():
    text = " ".join(WORDS)
    assert identifying_text("A mirror", text) == identifying_text("The original", text) == text
