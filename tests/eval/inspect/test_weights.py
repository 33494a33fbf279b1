from __future__ import annotations

import numpy as np
import pytest

from eval.inspect.layers import InspectedText, Inspection
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.encoders.fusion.words import word_weights
from retriever.encoders.transformer.model import TextStates
from retriever.errors import BadInputError
from tests.eval.inspect.fake_states import FakeStates
from tests.retriever.encoders.fusion.sbert_wk_reference import reference

TEXT = "Playing, it's"
CASES = [("paper", "all", 1), ("paper", "fused", 0), ("released", "fused", 1)]


def weigh(unit, preset="paper", variance="all", start=1, text=TEXT):
    (one,) = Inspection(FakeStates(drop_last=preset == "released"), [text])
    settings = SBERTWKSettings(preset, start, variance=variance).resolved(4)
    expected = reference(
        one.states.states, one.states.kept, preset=preset, start=start, variance=variance
    )
    return one, word_weights(one.text, one.states, settings, unit), expected


@pytest.mark.parametrize(("preset", "variance", "start"), CASES)
def test_pieces_have_the_weights_of_the_reference(preset, variance, start):
    one, found, expected = weigh("piece", preset, variance, start)
    kept = np.flatnonzero(one.states.kept)
    assert [word.text for word in found] == [one.states.pieces[place] for place in kept]
    np.testing.assert_allclose([word.weight for word in found], expected.words, rtol=1e-6)
    np.testing.assert_allclose([word.layers for word in found], expected.layers, rtol=1e-6)


@pytest.mark.parametrize(("preset", "variance", "start"), CASES)
def test_a_word_has_the_sum_of_its_pieces_and_the_mean_of_their_layers(preset, variance, start):
    _, found, expected = weigh("word", preset, variance, start)
    groups = [[0], [1, 2, 3], [4], [5, 6, 7], [8]][: len(found)]
    assert [word.text for word in found] == ["[CLS]", "Playing", ",", "it's", "[SEP]"][: len(found)]
    assert len(found) == (4 if preset == "released" else 5)
    for word, group in zip(found, groups, strict=True):
        shares = expected.words[group]
        assert word.weight == pytest.approx(shares.sum())
        layers = np.average(expected.layers[group], axis=0, weights=shares)
        np.testing.assert_allclose(word.layers, layers, rtol=1e-6)
    assert sum(word.weight for word in found) == pytest.approx(1)


def test_places_are_those_of_the_text():
    _, found, _ = weigh("word")
    assert [(word.start, word.stop) for word in found] == [
        (None, None),
        (0, 7),
        (7, 8),
        (9, 13),
        (None, None),
    ]
    assert all(word.text == TEXT[word.start : word.stop] for word in found[1:-1])


def test_pieces_of_the_prompt_have_weights_too_and_no_place():
    (one,) = Inspection(FakeStates(prompt="say: "), ["it"])
    found = word_weights(one.text, one.states, SBERTWKSettings().resolved(4), "word")
    assert [(word.text, word.start) for word in found] == [
        ("[CLS]", None),
        ("say", None),
        (":", None),
        ("it", 0),
        ("[SEP]", None),
    ]
    assert sum(word.weight for word in found) == pytest.approx(1)


def made(text, pieces, spans, states=None):
    count = len(pieces)
    if states is None:
        states = np.random.default_rng(0).standard_normal((4, count, 5)).astype(np.float32)
    return InspectedText(text, TextStates(pieces, spans, states, np.ones(count, np.bool_)))


def test_byte_pieces_of_one_character_are_one_unit_and_spaces_are_trimmed():
    one = made(" a 🙂 !", ["▁", "▁a", "b1", "b2", "▁!"], [(0, 1), (0, 2), (3, 4), (3, 4), (4, 6)])
    settings = SBERTWKSettings().resolved(3)
    found = word_weights(one.text, one.states, settings, "word")
    assert [(word.text, word.start, word.stop) for word in found] == [
        ("▁", 0, 1),
        ("a", 1, 2),
        ("🙂", 3, 4),
        ("!", 5, 6),
    ]
    assert len(word_weights(one.text, one.states, settings, "piece")) == 5


def test_repeated_words_are_units_of_their_own():
    one = made("a a", ["a", "a"], [(0, 1), (2, 3)])
    assert len(word_weights(one.text, one.states, SBERTWKSettings().resolved(3), "word")) == 2


def test_words_without_variance_have_equal_weights():
    one = made("ab c", ["a", "##b", "c"], [(0, 1), (1, 2), (3, 4)], np.ones((4, 3, 5), np.float32))
    found = word_weights(one.text, one.states, SBERTWKSettings().resolved(3), "word")
    assert [word.weight for word in found] == pytest.approx([2 / 3, 1 / 3])
    assert found[0].layers == pytest.approx([1 / 3] * 3)


def test_a_text_of_which_nothing_is_kept_is_refused():
    one = made("a", ["a"], [(0, 1)])
    one.states.kept[:] = False
    with pytest.raises(BadInputError, match="with word pieces that are pooled"):
        word_weights(one.text, one.states, SBERTWKSettings().resolved(3), "word")
