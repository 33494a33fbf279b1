from __future__ import annotations

import warnings

import numpy as np
import pytest

from eval.inspect.layers import Inspection, TextsRead, all_states
from retriever.errors import ConfigError
from tests.eval.inspect.fake_states import FakeStates


def test_every_text_comes_once_with_its_own_states_shortest_first():
    texts = ["one two three four", "one", "", "five, six"]
    encoder, done = FakeStates(), []
    inspection = Inspection(encoder, texts, done=done.append)
    found = {one.text: one.states for one in inspection}
    assert encoder.asked == [["", "one", "five, six", "one two three four"]]
    assert (set(found), inspection.read.texts, done) == (set(texts), 4, [1, 1, 1, 1])
    for text, states in found.items():
        (expected,) = FakeStates().hidden_states([text])
        np.testing.assert_array_equal(states.states, expected.states)
        assert states.pieces == expected.pieces


def test_no_more_texts_are_taken_than_the_limit_and_none_before_they_are_needed():
    taken = []

    def texts():
        for number in range(10_000):
            taken.append(number)
            yield f"text {number}"

    inspection = Inspection(FakeStates(), texts(), limit=700)
    states = iter(inspection)
    assert taken == []
    next(states)
    assert len(taken) == 512
    assert sum(1 for _ in states) == 699
    assert len(taken) == 700
    assert inspection.read == TextsRead(700, 0, True)


def test_texts_that_are_cut_are_counted():
    inspection = Inspection(FakeStates(max_length=8), ["a b c d e f", "a b c d e f g", "a " * 99])
    assert [len(one.states.pieces) for one in inspection] == [8, 8, 8]
    assert inspection.read.cut == 2


def test_offsets_are_those_of_the_text_without_its_prompt():
    (one,) = Inspection(FakeStates(prompt="say: "), ["some text"])
    assert one.text == "some text"
    assert one.states.pieces[1:3] == ["say", ":"]
    assert [one.text[a:b].lower() for a, b in one.states.spans] == [
        *("", "", ""),
        *one.states.pieces[3:-1],
        "",
    ]


def test_a_model_without_readable_layers_is_refused():
    encoder = FakeStates(depth=4)
    states = list(encoder.hidden_states(["a"]))
    encoder.hidden_states = lambda texts: iter(states)
    encoder.depth = 5
    with pytest.raises(ConfigError, match="whose 6 hidden states can be read one by one"):
        list(all_states(encoder, ["a"]))


def test_the_warning_of_the_encoder_about_cut_texts_is_not_repeated_and_others_are():
    encoder = FakeStates()

    def warning(message):
        def hidden_states(texts):
            warnings.warn(message, stacklevel=2)
            return iter(())

        return hidden_states

    encoder.hidden_states = warning("1 of 2 texts are longer than the window of 8 word pieces")
    assert list(all_states(encoder, ["a"])) == []
    encoder.hidden_states = warning("something else")
    with pytest.warns(UserWarning, match="something else"):
        list(all_states(encoder, ["a"]))
