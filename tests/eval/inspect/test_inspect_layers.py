"""Cosines between the layers of word pieces, and the states that they are computed from."""

import warnings

import numpy as np
import pytest
import scipy.spatial
from hypothesis import given
from hypothesis import strategies as st

from eval.inspect.layers import (
    Inspection,
    LayerInspection,
    TextsRead,
    all_states,
    cosine_maps,
    layer_similarity,
)
from retriever.errors import BadInputError, ConfigError
from tests.eval.inspect.fake_states import FakeStates


def some_states(seed, layers=5, pieces=7, width=6):
    return np.random.default_rng(seed).standard_normal((layers, pieces, width)).astype(np.float32)


def expected_map(states, piece):
    return 1 - scipy.spatial.distance.cdist(states[:, piece], states[:, piece], "cosine")


def test_layer_map_of_a_piece_has_cosines_and_zero_for_a_zero_vector():
    states = some_states(0).astype(np.float64)
    maps = cosine_maps(states)
    assert (maps.shape, maps.dtype) == ((7, 5, 5), np.float64)
    for piece in range(7):
        np.testing.assert_allclose(maps[piece], expected_map(states, piece), atol=1e-12)
    states[2, 3] = 0
    maps = cosine_maps(states)
    assert not maps[3, 2].any()
    assert not maps[3, :, 2].any()
    assert np.isfinite(maps).all()
    maps = cosine_maps(np.repeat(some_states(1, layers=1), 4, axis=0) * np.float32(1e18))
    assert maps.max() <= 1
    np.testing.assert_allclose(maps, 1, atol=1e-15)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 1000))
def test_mean_map_averages_all_counted_pieces(sizes, seed):
    random = np.random.default_rng(seed)
    texts = [(random.standard_normal((4, 7, 5)), np.arange(7) < size) for size in (*sizes, 1)]
    maps = np.array(
        [expected_map(states, piece) for states, mask in texts for piece in np.flatnonzero(mask)]
    )
    pieces, mean = layer_similarity(texts)
    assert pieces == len(maps)
    np.testing.assert_allclose(mean, maps.mean(axis=0), atol=1e-12)


def test_offset_diagonals_equal_the_diagonals_of_the_mean_map():
    mean = np.arange(16, dtype=np.float64).reshape(4, 4)
    names = ("offset", "values", "mean", "deviation", "lowest", "highest")
    expected = [
        (1, [1.0, 6.0, 11.0], 6.0, pytest.approx(np.sqrt(50 / 3)), 1.0, 11.0),
        (2, [2.0, 7.0], 4.5, 2.5, 2.0, 7.0),
        (3, [3.0], 3.0, 0, 3.0, 3.0),
    ]
    assert LayerInspection("m", TextsRead(1, 0, False), 1, mean).diagonals() == [
        dict(zip(names, values, strict=True)) for values in expected
    ]


def test_texts_without_word_pieces_are_refused():
    with pytest.raises(BadInputError, match="expected texts with word pieces, found none"):
        layer_similarity([(some_states(0), np.zeros(7, np.bool_))])


def test_inspection_yields_each_distinct_text_once_shortest_first():
    texts = ["one two three four", "one", "", "five, six"]
    encoder, done = FakeStates(), []
    inspection = Inspection(encoder, texts, done=done.append)
    states_by_text = dict(inspection)
    assert encoder.requests == [["", "one", "five, six", "one two three four"]]
    assert (set(states_by_text), inspection.read.texts, done) == (set(texts), 4, [1, 1, 1, 1])
    for text, states in states_by_text.items():
        (expected,) = FakeStates().hidden_states([text])
        np.testing.assert_array_equal(states.states, expected.states)
        assert states.pieces == expected.pieces


def test_inspection_reads_texts_lazily_up_to_the_limit():
    texts = iter([f"text {number}" for number in range(800)])
    inspection = Inspection(FakeStates(), texts, limit=700)
    states = iter(inspection)
    next(states)
    assert sum(1 for _ in states) == 699
    assert len(list(texts)) == 100
    assert inspection.read == TextsRead(700, 0, True)
    assert str(inspection.read) == "the first 700 texts"
    texts = iter(["text"] * 600)
    next(iter(Inspection(FakeStates(), texts)))
    assert len(list(texts)) == 600 - 512


def test_truncated_texts_are_counted_and_reported():
    messages = []
    texts = ["a b c d e f", "a b c d e f g", "a " * 99]
    inspection = Inspection(FakeStates(max_length=8), texts, notify=messages.append)
    assert [len(states.pieces) for _, states in inspection] == [8, 8, 8]
    assert inspection.read.cut == 2
    assert messages == [
        "warning: 2 texts exceeded the window of 8 word pieces; the excess was not read"
    ]


def test_piece_offsets_ignore_the_prompt():
    ((text, states),) = Inspection(FakeStates(prompt="say: "), ["some text"])
    assert (text, states.pieces[1:3]) == ("some text", ["say", ":"])
    words = [text[a:b].lower() for a, b in states.spans]
    assert words == ["", "", "", *states.pieces[3:-1], ""]


def test_a_model_without_readable_layers_is_refused():
    encoder = FakeStates(depth=4)
    states = list(encoder.hidden_states(["a"]))
    encoder.hidden_states = lambda texts: iter(states)
    encoder.depth = 5
    with pytest.raises(ConfigError, match="a model that returns all 6 hidden states"):
        list(all_states(encoder, ["a"]))


def test_truncation_warning_of_the_encoder_is_suppressed_and_others_pass():
    encoder, messages = FakeStates(), ["1 of 2 texts are longer than the window", "something else"]

    def hidden_states(texts):
        for message in messages:
            warnings.warn(message, stacklevel=2)
        return iter(())

    encoder.hidden_states = hidden_states
    with pytest.warns(UserWarning, match="something else") as caught:
        assert list(all_states(encoder, ["a"])) == []
    assert len(caught) == 1
