"""Whole words of word pieces, and the weights of words and pieces against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders import EncoderSettings, TextStates
from retriever.encoders.fusion import (
    SBERTWKSettings,
    word_of_pieces,
    word_spans,
    word_vectors,
    word_weights,
)
from retriever.errors import BadInputError
from tests.eval.inspect.fake_states import FakeStates
from tests.retriever.encoders.fusion.sbert_wk_reference import reference

TEXT = "Playing, it's"


def settings_of(depth, **chosen):
    return SBERTWKSettings.of(EncoderSettings(fusion="sbert-wk", **chosen), depth)


@pytest.mark.parametrize(
    ("preset", "variance", "start"),
    [("paper", "all", 1), ("paper", "fused", 0), ("released", "fused", 1)],
)
def test_a_word_has_the_sum_of_its_pieces_and_the_mean_of_their_layers(preset, variance, start):
    (states,) = FakeStates(drop_last=preset == "released").hidden_states([TEXT])
    settings = settings_of(4, wk_preset=preset, start_layer=start, wk_variance=variance)
    expected = reference(
        states.states, states.is_pooled, preset=preset, start=start, variance=variance
    )
    pieces = word_weights(TEXT, states, settings, "piece")
    assert [piece.text for piece in pieces] == np.array(states.pieces)[states.is_pooled].tolist()
    np.testing.assert_allclose([piece.weight for piece in pieces], expected.words, rtol=1e-6)
    np.testing.assert_allclose([piece.layers for piece in pieces], expected.layers, rtol=1e-6)
    found = word_weights(TEXT, states, settings, "word")
    words = [("[CLS]", None, None), ("Playing", 0, 7), (",", 7, 8), ("it's", 9, 13)]
    words += [("[SEP]", None, None)] * (preset == "paper")
    assert [(one.text, one.start, one.stop) for one in found] == words
    for one, group in zip(found, [[0], [1, 2, 3], [4], [5, 6, 7], [8]], strict=False):
        shares = expected.words[group]
        assert one.weight == pytest.approx(shares.sum())
        layers = np.average(expected.layers[group], axis=0, weights=shares)
        np.testing.assert_allclose(one.layers, layers, rtol=1e-6)


def test_pieces_of_the_prompt_have_weights_too_and_no_place():
    (states,) = FakeStates(prompt="say: ").hidden_states(["it"])
    found = word_weights("it", states, settings_of(4), "word")
    expected = [("[CLS]", None), ("say", None), (":", None), ("it", 0), ("[SEP]", None)]
    assert [(word.text, word.start) for word in found] == expected
    assert sum(word.weight for word in found) == pytest.approx(1)


def weighed(text, pieces, spans, unit="word", equal=False, kept=True):
    states = np.random.default_rng(0).standard_normal((4, len(pieces), 5)).astype(np.float32)
    if equal:
        states[:] = 1
    made = TextStates(pieces, spans, states, np.full(len(pieces), kept))
    return word_weights(text, made, settings_of(3), unit)


def test_byte_pieces_of_one_character_are_one_unit_and_spaces_are_trimmed():
    made = " a 🙂 !", ["▁", "▁a", "b1", "b2", "▁!"], [(0, 1), (0, 2), (3, 4), (3, 4), (4, 6)]
    found = [(word.text, word.start, word.stop) for word in weighed(*made)]
    assert found == [("▁", 0, 1), ("a", 1, 2), ("🙂", 3, 4), ("!", 5, 6)]
    assert len(weighed(*made, "piece")) == 5
    # Repeated words are units of their own.
    assert len(weighed("a a", ["a", "a"], [(0, 1), (2, 3)])) == 2


def test_word_weights_are_equal_without_variance_and_refused_without_tokens():
    found = weighed("ab c", ["a", "##b", "c"], [(0, 1), (1, 2), (3, 4)], equal=True)
    assert [word.weight for word in found] == pytest.approx([2 / 3, 1 / 3])
    assert found[0].layers == pytest.approx([1 / 3] * 3)
    with pytest.raises(BadInputError, match="with word pieces that are pooled"):
        weighed("a", ["a"], [(0, 1)], kept=False)


def test_words_are_runs_of_letters_with_inner_apostrophes_and_single_ideographs():
    text = "Don't stop, 北京 café-bar! ½ cup"
    found = [text[start:stop] for start, stop in word_spans(text)]
    assert found == ["Don't", "stop", "北", "京", "café", "bar", "½", "cup"]


# Special tokens are of no word; a piece may begin with the space before its word.
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


def test_word_vectors_are_means_of_token_states():
    states = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    words, vectors = word_vectors(states, np.array([-1, 4, 4, -1, 7]))
    assert words.tolist() == [4, 7]
    means = np.stack([states[:, 1:3].astype(float).mean(axis=1), states[:, 4]], axis=1)
    np.testing.assert_allclose(vectors, means)
    words, vectors = word_vectors(states, np.full(5, -1))
    assert (len(words), vectors.shape) == (0, (3, 0, 4))
