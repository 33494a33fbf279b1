"""Splitting long texts: nothing lost, nothing too long, cut where sentences end."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents.passages import split_passages

QUOTED = "“Is it running?” asked one. (Nobody knew, Mrs. Holt!) She went on… ‘Yes.’ " * 8

WORDS = st.text(st.sampled_from("abé狐3"), min_size=1, max_size=9)
SEPARATORS = st.sampled_from([" ", " ", " ", ". ", "! ", "?” ", "\n", "\n\n", "\n- ", "。", ", "])


@st.composite
def cut_texts(draw):
    """A text and offsets of pieces as a tokenizer gives them: runs of letters, and other signs."""
    text = draw(st.sampled_from(["", " ", "\n"]))
    offsets = []
    for word in draw(st.lists(WORDS, max_size=60)):
        start = len(text)
        text += word
        while start < len(text):
            stop = min(len(text), start + draw(st.integers(1, 4)))
            offsets.append((start, stop))
            start = stop
        for character in draw(SEPARATORS):
            if not character.isspace():
                offsets.append((len(text), len(text) + 1))
            text += character
    budget = draw(st.integers(1, 30))
    return text, offsets, budget, draw(st.integers(0, budget - 1))


def inside(offsets, span):
    """Which pieces lie in a span."""
    return {i for i, (start, stop) in enumerate(offsets) if span[0] <= start and stop <= span[1]}


@given(cut_texts())
def test_passages_cover_all_pieces_in_order_within_budget_and_overlap(case):
    text, offsets, budget, overlap = case
    spans = split_passages(text, offsets, budget, overlap)
    held = [inside(offsets, span) for span in spans]
    assert set().union(*held) == set(range(len(offsets)))
    assert (spans[0][0], spans[-1][1]) == (0, len(text))
    for start, stop in spans:
        touched = [piece for piece in offsets if piece[0] < stop and piece[1] > start]
        assert len(touched) <= budget
    for before, after in itertools.pairwise(spans):
        assert before[0] < after[0]
        assert before[1] < after[1]
    for before, after in itertools.pairwise(held):
        assert len(before & after) <= overlap
        # Each adds a piece that the one before lacks.
        assert after - before


@given(cut_texts())
def test_a_text_within_the_budget_is_one_passage(case):
    text, offsets, _, _ = case
    assert split_passages(text, offsets, max(1, len(offsets)), 0) == [(0, len(text))]


def words_of(text):
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


@pytest.mark.parametrize("budget", [30, 50, 70])
def test_sentences_end_at_stops_and_what_closes_them(budget):
    spans = split_passages(QUOTED, words_of(QUOTED), budget, overlap=12)
    assert len(spans) > 2
    for (start, _), (_, stop) in zip(spans[1:], spans[:-1], strict=True):
        assert re.search(r"([?]”|[.…]|!\)|[.]’) $", QUOTED[:start])
        assert re.search(r"([?]”|[.…]|!\)|[.]’)$", QUOTED[:stop])


def test_neighbors_share_whole_sentences_where_these_fit_the_overlap():
    text = " ".join(f"Sentence number {number} ends here." for number in range(30))
    spans = split_passages(text, words_of(text), budget=30, overlap=12)
    shared = [text[b[0] : a[1]] for a, b in itertools.pairwise(spans)]
    assert all(re.fullmatch(r"(Sentence number \d+ ends here\. ?){2}", part) for part in shared)


def test_a_sentence_longer_than_the_budget_is_cut_between_words():
    text = "word " * 100
    spans = split_passages(text, words_of(text), budget=30, overlap=10)
    assert all(re.fullmatch(r"(word ?)+", text[start:stop]) for start, stop in spans)
    shared = [text[b[0] : a[1]] for a, b in itertools.pairwise(spans)]
    assert all(part.count("word") == 10 for part in shared)


def test_a_word_longer_than_the_budget_is_cut_between_pieces():
    text = "x" * 100
    pieces = [(i, i + 4) for i in range(0, 100, 4)]
    spans = split_passages(text, pieces, budget=10, overlap=3)
    assert [stop - start for start, stop in spans[:-1]] == [40] * (len(spans) - 1)


def test_full_width_stops_end_sentences():
    text = "敏捷的棕色狐狸跳过了懒狗。" * 10
    pieces = [(i, i + 1) for i in range(len(text))]
    for start, stop in split_passages(text, pieces, budget=30, overlap=0):
        assert text[start:stop] == "敏捷的棕色狐狸跳过了懒狗。" * 2
