"""The weights of words and word pieces against the reference of SBERT-WK."""

from __future__ import annotations

import numpy as np
import pytest

from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.encoders.fusion.words import word_weights
from retriever.encoders.transformer.model import TextStates
from retriever.errors import BadInputError
from tests.eval.inspect.fake_states import FakeStates
from tests.retriever.encoders.fusion.sbert_wk_reference import reference

TEXT = "Playing, it's"


@pytest.mark.parametrize(
    ("preset", "variance", "start"),
    [("paper", "all", 1), ("paper", "fused", 0), ("released", "fused", 1)],
)
def test_a_word_has_the_sum_of_its_pieces_and_the_mean_of_their_layers(preset, variance, start):
    (states,) = FakeStates(drop_last=preset == "released").hidden_states([TEXT])
    settings = SBERTWKSettings(preset, start, variance=variance).resolved(4)
    expected = reference(states.states, states.kept, preset=preset, start=start, variance=variance)
    pieces = word_weights(TEXT, states, settings, "piece")
    assert [one.text for one in pieces] == np.array(states.pieces)[states.kept].tolist()
    np.testing.assert_allclose([one.weight for one in pieces], expected.words, rtol=1e-6)
    np.testing.assert_allclose([one.layers for one in pieces], expected.layers, rtol=1e-6)
    found = word_weights(TEXT, states, settings, "word")
    count = 4 if preset == "released" else 5
    places = [(None, None), (0, 7), (7, 8), (9, 13), (None, None)][:count]
    assert [(one.start, one.stop) for one in found] == places
    assert [one.text for one in found] == ["[CLS]", "Playing", ",", "it's", "[SEP]"][:count]
    for one, group in zip(found, [[0], [1, 2, 3], [4], [5, 6, 7], [8]], strict=False):
        shares = expected.words[group]
        assert one.weight == pytest.approx(shares.sum())
        layers = np.average(expected.layers[group], axis=0, weights=shares)
        np.testing.assert_allclose(one.layers, layers, rtol=1e-6)
    assert sum(one.weight for one in found) == pytest.approx(1)


def test_pieces_of_the_prompt_have_weights_too_and_no_place():
    (states,) = FakeStates(prompt="say: ").hidden_states(["it"])
    found = word_weights("it", states, SBERTWKSettings().resolved(4), "word")
    expected = [("[CLS]", None), ("say", None), (":", None), ("it", 0), ("[SEP]", None)]
    assert [(word.text, word.start) for word in found] == expected
    assert sum(word.weight for word in found) == pytest.approx(1)


def weighed(text, pieces, spans, unit="word", equal=False):
    states = np.random.default_rng(0).standard_normal((4, len(pieces), 5)).astype(np.float32)
    if equal:
        states[:] = 1
    made = TextStates(pieces, spans, states, np.ones(len(pieces), np.bool_))
    return word_weights(text, made, SBERTWKSettings().resolved(3), unit)


def test_byte_pieces_of_one_character_are_one_unit_and_spaces_are_trimmed():
    made = " a 🙂 !", ["▁", "▁a", "b1", "b2", "▁!"], [(0, 1), (0, 2), (3, 4), (3, 4), (4, 6)]
    found = [(word.text, word.start, word.stop) for word in weighed(*made)]
    assert found == [("▁", 0, 1), ("a", 1, 2), ("🙂", 3, 4), ("!", 5, 6)]
    assert len(weighed(*made, "piece")) == 5
    # Repeated words are units of their own.
    assert len(weighed("a a", ["a", "a"], [(0, 1), (2, 3)])) == 2


def test_words_without_variance_have_equal_weights():
    found = weighed("ab c", ["a", "##b", "c"], [(0, 1), (1, 2), (3, 4)], equal=True)
    assert [word.weight for word in found] == pytest.approx([2 / 3, 1 / 3])
    assert found[0].layers == pytest.approx([1 / 3] * 3)


def test_a_text_of_which_nothing_is_kept_is_refused():
    states = TextStates(["a"], [(0, 1)], np.ones((4, 1, 5), np.float32), np.zeros(1, np.bool_))
    with pytest.raises(BadInputError, match="with word pieces that are pooled"):
        word_weights("a", states, SBERTWKSettings().resolved(3), "word")
