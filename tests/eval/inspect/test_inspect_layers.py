from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial
from hypothesis import given
from hypothesis import strategies as st

from eval.inspect.layers import LayerSimilarity, cosine_maps, layer_similarity
from retriever.errors import BadInputError


def some_states(seed, layers=5, pieces=7, width=6):
    return np.random.default_rng(seed).standard_normal((layers, pieces, width)).astype(np.float32)


def expected_map(states, piece):
    return 1 - scipy.spatial.distance.cdist(states[:, piece], states[:, piece], "cosine")


def test_each_piece_has_the_cosines_between_its_layers_and_zero_with_a_zero_vector():
    states = some_states(0).astype(np.float64)
    before = states.copy()
    maps = cosine_maps(states)
    np.testing.assert_array_equal(states, before)
    assert (maps.shape, maps.dtype) == ((7, 5, 5), np.float64)
    for piece in range(7):
        expected = expected_map(states, piece)
        np.testing.assert_allclose(maps[piece], expected, atol=1e-12)
    states[2, 3] = 0
    maps = cosine_maps(states)
    assert not maps[3, 2].any()
    assert not maps[3, :, 2].any()
    assert np.isfinite(maps).all()
    maps = cosine_maps(np.repeat(some_states(1, layers=1), 4, axis=0) * np.float32(1e18))
    assert maps.max() <= 1
    np.testing.assert_allclose(maps, 1, atol=1e-15)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 1000))
def test_mean_and_deviation_are_those_of_all_pieces_that_count_together(sizes, seed):
    random = np.random.default_rng(seed)
    texts = [(random.standard_normal((4, 7, 5)), np.arange(7) < size) for size in (*sizes, 1)]
    maps = np.concatenate(
        [
            np.stack([expected_map(states, piece) for piece in np.flatnonzero(kept)])
            for states, kept in texts
            if kept.any()
        ]
    )
    found = layer_similarity(texts)
    assert found.pieces == len(maps)
    np.testing.assert_allclose(found.mean, maps.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.deviation, maps.std(axis=0), atol=1e-7)


def test_the_deviation_of_a_steady_layer_is_not_rounding_noise():
    states = np.ones((2, 100, 3))
    states[1, :, 0] += 1e-6 * np.arange(100)
    halves = [(states[:, rows], np.ones(50, np.bool_)) for rows in (slice(50), slice(50, None))]
    maps = cosine_maps(states)
    np.testing.assert_allclose(
        layer_similarity(halves).deviation[0, 1], maps[:, 0, 1].std(), rtol=1e-3
    )


def test_offset_diagonals_are_those_of_the_mean():
    mean = np.arange(16, dtype=np.float64).reshape(4, 4)
    diagonals = LayerSimilarity(1, mean, np.zeros((4, 4))).diagonals()
    assert [one.offset for one in diagonals] == [1, 2, 3]
    assert diagonals[0].values == (1.0, 6.0, 11.0)
    assert diagonals[1].values == (2.0, 7.0)
    first = diagonals[0]
    assert (first.mean, first.lowest, first.highest) == (6.0, 1.0, 11.0)
    assert first.deviation == pytest.approx(np.sqrt(50 / 3))
    assert diagonals[2].deviation == 0


def test_texts_without_word_pieces_are_refused():
    with pytest.raises(BadInputError, match="expected texts with word pieces, found none"):
        layer_similarity([(some_states(0), np.zeros(7, np.bool_))])
