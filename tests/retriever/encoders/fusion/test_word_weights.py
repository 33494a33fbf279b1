"""The weights of words by an encoder as a whole; those of its parts are tested beside SBERT-WK."""

from __future__ import annotations

import numpy as np
import pytest

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
