"""Whole words of word pieces, and their weights by an encoder as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders.fusion.words import word_of_pieces, word_spans, word_vectors
from retriever.errors import ConfigError
from tests.retriever.encoders.fusion.sbert_wk_reference import reference

TEXT = "the cat sat"


def test_the_words_of_a_text_have_the_weights_of_the_reference(load):
    encoder = load("bert", "sbert-wk::start-layer=1")
    (states,) = encoder.hidden_states([TEXT])
    expected = reference(states.states, states.kept, preset="paper", start=1, variance="all")
    found = encoder.word_weights(TEXT)
    assert [word.text for word in found[1:-1]] == TEXT.split()
    assert [TEXT[word.start : word.stop] for word in found[1:-1]] == TEXT.split()
    firsts = np.cumsum([0, *(_pieces(states, word) for word in found)])[:-1]
    sums = np.add.reduceat(expected.words, firsts)
    np.testing.assert_allclose([word.weight for word in found], sums, rtol=1e-4)


def _pieces(states, word):
    if word.start is None:
        return 1
    return sum(word.start <= start < stop <= word.stop for start, stop in states.spans)


def test_other_encoders_have_no_weights_of_words(load):
    with pytest.raises(ConfigError, match="SBERT-WK"):
        load("bert").word_weights(TEXT)


def test_words_are_runs_of_letters_with_inner_apostrophes_and_single_ideographs():
    text = "Don't stop, 北京 café-bar! ½ cup"
    found = [text[start:stop] for start, stop in word_spans(text)]
    assert found == ["Don't", "stop", "北", "京", "café", "bar", "½", "cup"]


def test_pieces_belong_to_the_word_they_lie_in():
    # Special tokens are of no word; a piece may begin with the space before its word.
    words = [(0, 2), (6, 13), (14, 19), (21, 23)]
    pieces = [(0, 0), (0, 2), (5, 10), (10, 13), (17, 18), (18, 19), (19, 20), (20, 23), (0, 0)]
    assert word_of_pieces(pieces, words).tolist() == [-1, 0, 1, 1, 2, 2, -1, 3, -1]


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=8))
def test_a_piece_is_of_the_first_word_that_shares_a_character_with_it(text, lengths):
    words = word_spans(text)
    pieces = [(start, start + length) for start, length in lengths]
    for (start, stop), found in zip(pieces, word_of_pieces(pieces, words), strict=True):
        shared = [
            place
            for place, (first, last) in enumerate(words)
            if set(range(start, stop)) & set(range(first, last))
        ]
        assert found == (shared[0] if shared else -1)


def test_a_words_vectors_are_the_means_of_its_pieces():
    states = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    words, vectors = word_vectors(states, np.array([-1, 4, 4, -1, 7]))
    assert words.tolist() == [4, 7]
    np.testing.assert_allclose(vectors[:, 0], states[:, 1:3].astype(float).mean(axis=1))
    np.testing.assert_allclose(vectors[:, 1], states[:, 4])
    words, vectors = word_vectors(states, np.full(5, -1))
    assert len(words) == 0
    assert vectors.shape == (3, 0, 4)
