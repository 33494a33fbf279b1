from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import scipy.spatial
from hypothesis import given
from hypothesis import strategies as st

from eval.inspect.layers import Inspection
from eval.inspect.words import (
    WordVariance,
    adjacent_variance,
    text_variances,
    variance_groups,
    word_variances,
)
from tests.eval.inspect.fake_states import FakeStates


def expected_variance(vectors):
    """Of one word: (layers, width)."""
    cosines = [
        1 - scipy.spatial.distance.cosine(vectors[layer], vectors[layer + 1])
        for layer in range(len(vectors) - 1)
    ]
    return np.var(cosines)


def inspect(text, **settings):
    (one,) = Inspection(FakeStates(**settings), [text])
    return one


def test_variance_is_that_of_the_adjacent_layer_cosines():
    vectors = np.random.default_rng(0).standard_normal((6, 4, 5)).astype(np.float32)
    found = adjacent_variance(vectors)
    expected = [expected_variance(vectors[:, word].astype(np.float64)) for word in range(4)]
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_two_layers_have_no_variance_and_a_zero_vector_has_cosine_zero():
    vectors = np.ones((3, 2, 4))
    vectors[0, 1] = 0
    assert adjacent_variance(vectors[:2]).tolist() == [0, 0]
    np.testing.assert_allclose(adjacent_variance(vectors), [0, 0.25])


def test_the_pieces_of_a_word_are_averaged():
    one = inspect("Playing, it's")
    assert one.states.pieces == ["[CLS]", "pla", "yin", "g", ",", "it", "'", "s", "[SEP]"]
    states = one.states.states.astype(np.float64)
    (playing, first), (it, second) = text_variances(one)
    assert (playing, it) == ("playing", "it's")
    assert first == pytest.approx(expected_variance(states[:, 1:4].mean(axis=1)), abs=1e-14)
    assert second == pytest.approx(expected_variance(states[:, 5:8].mean(axis=1)), abs=1e-14)


def test_words_of_the_prompt_are_left_out():
    assert [word for word, _ in text_variances(inspect("one two", prompt="Query: "))] == [
        "one",
        "two",
    ]


def test_a_word_that_was_cut_is_left_out():
    one = inspect("one two six abcdefghijk", max_length=8)
    assert one.states.pieces[1:-1] == ["one", "two", "six", "abc", "def", "ghi"]
    assert [word for word, _ in text_variances(one)] == ["one", "two", "six"]


def test_pieces_that_the_encoder_drops_do_not_count():
    one = inspect("one")
    one.states.kept[:] = False
    assert text_variances(one) == []


def test_words_are_counted_in_lower_case_and_averaged_over_their_occurrences():
    texts = ["The cat, the dog", "cat THE cat", "A bird"]
    found = word_variances(Inspection(FakeStates(), texts), min_count=2)
    each = defaultdict(list)
    for text in texts:
        for word, variance in text_variances(inspect(text)):
            each[word].append(variance)
    assert {one.word: one.count for one in found} == {"the": 3, "cat": 3}
    for one in found:
        assert one.variance == pytest.approx(np.mean(each[one.word]))
    assert found == sorted(found, key=lambda one: one.variance)


@given(st.integers(0, 40), st.integers(1, 20))
def test_groups_are_disjoint_parts_of_the_thirds(count, top):
    words = [WordVariance(f"w{place}", 1, float(place)) for place in range(count)]
    groups = variance_groups(words, top)
    parts = [groups.low, groups.middle, groups.high]
    shown = [word for part in parts for word in part]
    assert len(shown) == len(set(shown))
    assert all(len(part) <= min(top, count // 3 + 1) for part in parts)
    if top >= count:
        assert set(shown) == set(words)
    if count >= 3:
        assert groups.low[0] == words[0]
        assert groups.high[0] == words[-1]
        assert all(parts)


def test_the_middle_group_is_taken_from_the_middle():
    words = [WordVariance(f"w{place}", 1, float(place)) for place in range(30)]
    groups = variance_groups(words, 2)
    assert [one.variance for one in groups.low] == [0, 1]
    assert [one.variance for one in groups.middle] == [14, 15]
    assert [one.variance for one in groups.high] == [29, 28]
