"""Highlighted words of a passage, and the term weights that choose them."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import Analyzer, AnalyzerSettings, Document, Index
from retriever.search.queries import highlights

ENGLISH = Analyzer()
PLAIN = Analyzer(AnalyzerSettings(language="none"))
WORDS = ["how", "do", "plane", "sharpen", "chisel"]


def words(text, weights, analyzer=ENGLISH):
    return [text[start:stop] for start, stop in highlights(text, analyzer, weights)]


def test_words_that_most_passages_hold_are_not_highlighted(tmp_path, fake_encoder):
    texts = [f"How do I find the right plane number {i}?" for i in range(60)]
    texts[7] = "How do I sharpen a chisel? Sharpening chisels: do it on a stone."
    with Index.create(tmp_path / "index") as index:
        index.add(Document(str(i), text) for i, text in enumerate(texts))
        weights = index.term_weights("how do I sharpen my chisels")
        assert set(weights) == {"sharpen", "chisel"}
        assert words(texts[7], weights) == ["sharpen", "chisel", "Sharpening", "chisels"]
        common = index.term_weights("the right plane, number 11")
        assert {"right", "plane", "number"} < set(common)
        assert words(texts[11], common) == ["11"]
        # Where all weigh the same, all count.
        assert words(texts[7], index.term_weights("how do I")) == ["How", "do", "I", "do"]


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ({}, []),
        ({"plane": 0.1}, ["plane"]),
        ({"plane": 4.0, "wood": 1.0}, ["plane", "wood"]),
        ({"plane": 4.0, "wood": 0.99}, ["plane"]),
        ({"absent": 9.0, "plane": 2.0}, []),
    ],
)
def test_words_from_quarter_of_largest_weight_are_highlighted(weights, found):
    assert words("how to plane wood", weights) == found


def test_a_word_of_several_terms_is_one_span_and_offsets_are_of_the_text_as_given():
    assert highlights("½ Cafe\u0301!", PLAIN, {"1": 1.0, "2": 1.0, "café": 1.0}) == [(0, 1), (2, 7)]


@given(
    text=st.text(st.sampled_from("how do plane sharpen chisel,.½ e\u0301")),
    weights=st.dictionaries(st.sampled_from(WORDS), st.floats(0.01, 10)),
)
def test_spans_are_words_in_order_without_overlap(text, weights):
    spans = highlights(text, PLAIN, weights)
    assert spans == sorted(spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    for start, stop in spans:
        assert PLAIN.tokens(text[start:stop])[0] in weights
    heaviest = max(weights, key=weights.__getitem__, default=None)
    if heaviest in PLAIN.tokens(text):
        assert heaviest in [PLAIN.tokens(text[start:stop])[0] for start, stop in spans]


def test_weights_are_lucene_s_idf_of_the_live_passages_of_all_segments(tmp_path, fake_encoder):
    chance = random.Random(3)
    texts = {f"d{i}": " ".join(chance.choices(WORDS, k=4)) for i in range(40)}
    with Index.create(tmp_path / "index", language="english") as index:
        assert index.term_weights("how do I") == {}
        for part in ([*texts.items()][:30], [*texts.items(), ("gone", "chisel zebra")][30:]):
            index.add(Document(id_, text) for id_, text in part)
        index.delete(["gone", *list(texts)[::7]])
        found = index.term_weights("How do I sharpen a chisel, sharpen it like a zebra?")
        assert index.term_weights("the ?!") == {}
    n, live = 34, [text.split() for i, text in enumerate(texts.values()) if i % 7]
    df = {term: sum(term in words for words in live) for term in ("sharpen", "chisel")}
    assert len(live) == n
    expected = {term: math.log(1 + (n - one + 0.5) / (one + 0.5)) for term, one in df.items()}
    assert found == pytest.approx(expected)
    assert list(found) == list(expected)
