"""Variances of words over the layers, and parts of texts as they are printed."""

from collections import defaultdict

import numpy as np
import pytest
import scipy.spatial
from hypothesis import given
from hypothesis import strategies as st

from eval.inspect.layers import Inspection, TextsRead
from eval.inspect.words import (
    WordInspection,
    WordVariance,
    adjacent_variance,
    inspect_weights,
    text_variances,
    variance_groups,
    word_variances,
)
from retriever.encoders import Encoder
from retriever.encoders.fusion import SBERTWKSettings, word_weights
from tests.eval.inspect.fake_states import FakeStates


def expected_variance(vectors):
    """Return the variance of one word from its states, (layers, width)."""
    cosines = [
        1 - scipy.spatial.distance.cosine(vectors[layer], vectors[layer + 1])
        for layer in range(len(vectors) - 1)
    ]
    return np.var(cosines)


def inspect(text, **settings):
    ((text, states),) = Inspection(FakeStates(**settings), [text])
    return text, states


def test_word_variance_equals_the_variance_of_adjacent_layer_cosines():
    vectors = np.random.default_rng(0).standard_normal((6, 4, 5)).astype(np.float32)
    expected = [expected_variance(vectors[:, word].astype(np.float64)) for word in range(4)]
    np.testing.assert_allclose(adjacent_variance(vectors), expected, atol=1e-14)
    # A cosine with a zero vector is 0.
    vectors = np.ones((3, 2, 4))
    vectors[0, 1] = 0
    assert adjacent_variance(vectors[:2]).tolist() == [0, 0]
    np.testing.assert_allclose(adjacent_variance(vectors), [0, 0.25])


def test_the_pieces_of_a_word_are_averaged():
    text, words = inspect("Playing, it's")
    assert words.pieces == ["[CLS]", "pla", "yin", "g", ",", "it", "'", "s", "[SEP]"]
    states = words.states.astype(np.float64)
    assert text_variances(text, words) == [
        (word, pytest.approx(expected_variance(states[:, pieces].mean(axis=1)), abs=1e-14))
        for word, pieces in (("playing", slice(1, 4)), ("it's", slice(5, 8)))
    ]
    words.is_pooled[:] = False
    assert text_variances(text, words) == []


@pytest.mark.parametrize(
    ("text", "settings"),
    [("one two", {"prompt": "Query: "}), ("one two abcdefghijklmno", {"max_length": 8})],
    ids=["without words of the prompt", "without a word that was cut"],
)
def test_split_words_finds_the_words_of_a_text(text, settings):
    assert [word for word, _ in text_variances(*inspect(text, **settings))] == ["one", "two"]


def test_words_are_counted_in_lower_case_and_averaged_over_their_occurrences():
    texts = ["The cat, the dog", "cat THE cat", "A bird"]
    variances = word_variances(Inspection(FakeStates(), texts), min_count=2)
    each = defaultdict(list)
    for text in texts:
        for word, variance in text_variances(*inspect(text)):
            each[word].append(variance)
    means = {word: pytest.approx(np.mean(values)) for word, values in each.items()}
    expected = [WordVariance(word, 3, means[word]) for word in ("the", "cat")]
    assert sorted(variances, key=lambda word: word.word, reverse=True) == expected
    assert variances == sorted(variances, key=lambda word: word.variance)


@given(st.integers(0, 40), st.integers(1, 20))
def test_groups_are_disjoint_parts_of_the_thirds(count, top):
    words = [WordVariance(f"w{place}", 1, float(place)) for place in range(count)]
    groups = variance_groups(words, top)
    assert list(groups) == ["low", "middle", "high"]
    grouped_words = [word for part in groups.values() for word in part]
    assert len(grouped_words) == len(set(grouped_words))
    assert all(len(part) <= min(top, count // 3 + 1) for part in groups.values())
    if top >= count:
        assert set(grouped_words) == set(words)
    if count >= 3:
        assert (groups["low"][0], groups["high"][0]) == (words[0], words[-1])
        assert all(groups.values())


def test_the_table_has_the_groups_beside_each_other():
    words = [WordVariance(f"w{place}", place, float(place)) for place in range(30)]
    inspection = WordInspection("m", TextsRead(1, 0, False), 7, 5, 30, variance_groups(words, 2))
    (table,) = inspection.report().sections[0].tables
    names = ("low", "middle", "high")
    assert table.columns == tuple(
        column for name in names for column in (name, "variance", "count")
    )
    assert [[row[place] for place in (0, 3, 6)] for row in table.rows] == [
        ["w0", "w14", "w29"],
        ["w1", "w15", "w28"],
    ]
    assert table.rows[0][6:] == ("w29", "2.90e+01", "29")
    assert inspection.text().startswith("m: 1 text, 30 words that occur at least 5 times\n")


@pytest.mark.parametrize("start", ["", "::start-layer=0"])
def test_inspected_weights_equal_those_of_the_encoder(tiny_models, start):
    form, messages = f"{tiny_models['bert']}::max-length=8{start}", []
    inspection = inspect_weights("w1 w2", form, notify=messages.append)
    encoder = Encoder.load(f"{form}::fusion=sbert-wk")
    assert (inspection.encoder, inspection.passage, inspection.cut) == (
        str(encoder.spec),
        "w1 w2",
        False,
    )
    (states,) = encoder.hidden_states(["w1 w2"])
    settings = SBERTWKSettings.of(encoder.spec.settings, encoder.depth)
    assert inspection.words == tuple(word_weights("w1 w2", states, settings, "word"))
    assert inspection.first_layer == (0 if start else 1)
    assert messages == []
    assert inspect_weights("w1 " * 9, form, notify=messages.append).cut
    assert len(messages) == 1
