from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders.fusion.words import word_of_pieces, word_spans, word_vectors


def words_of(text):
    return [text[start:stop] for start, stop in word_spans(text)]


def test_words_are_runs_of_letters_with_inner_apostrophes_and_single_ideographs():
    assert words_of("Don't stop, 北京 café-bar!") == ["Don't", "stop", "北", "京", "café", "bar"]


def test_a_word_whose_normal_form_is_several_words_is_one_word():
    assert words_of("½ cup") == ["½", "cup"]


def test_pieces_belong_to_the_word_they_lie_in():
    text = "[CLS] playing don't, it"
    words = [(6, 13), (14, 19), (21, 23)]
    pieces = [(0, 0), (6, 10), (10, 13), (14, 17), (17, 18), (18, 19), (19, 20), (21, 23), (0, 0)]
    assert text[6:13] == "playing"
    found = word_of_pieces(pieces, words)
    assert found.tolist() == [-1, 0, 0, 1, 1, 1, -1, 2, -1]


def test_a_piece_may_begin_with_the_space_before_its_word():
    assert word_of_pieces([(0, 1), (1, 5), (1, 2)], [(0, 1), (2, 5)]).tolist() == [0, 1, -1]


def test_a_special_token_is_of_no_word_even_where_a_word_begins_the_text():
    assert word_of_pieces([(0, 0), (0, 2)], [(0, 2)]).tolist() == [-1, 0]


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
