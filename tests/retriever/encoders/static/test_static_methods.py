"""Static sentence vectors against loops, hand-made numbers and NumPy's SVD."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from retriever.encoders.static.words import (
    Fitted,
    component_shares,
    flatten,
    principal_components,
    remove_components,
    sentence_vectors,
    sif_weights,
    usif_a,
    usif_weights,
)

WORDS, WIDTH = 7, 4
vectors_of_words = arrays(np.float32, (WORDS, WIDTH), elements=st.floats(-8, 8, width=16))
# The id WORDS is a word that is not known.
texts_of_ids = st.lists(st.lists(st.integers(0, WORDS), max_size=9), max_size=6)
WEIGHTS = np.linspace(0.5, 2, WORDS).astype(np.float32)


def plain_loop(method, rows, weights):
    """The vector of a text before components are removed, from those of its known words."""
    if method == "average":
        return rows.mean(axis=0)
    if method == "p-mean":
        return np.concatenate([rows.min(axis=0), rows.mean(axis=0), rows.max(axis=0)])
    if method == "usif":
        # Each dimension first gets length 1.
        for column in rows.T:
            column /= math.sqrt(sum(number * number for number in column)) or 1
    return sum(weight * row for weight, row in zip(weights, rows, strict=True)) / len(rows)


@settings(max_examples=200)
@given(vectors_of_words, texts_of_ids, st.sampled_from(["average", "sif", "usif", "p-mean"]))
def test_a_text_has_the_vector_of_a_plain_loop_over_its_known_words(vectors, texts, method):
    components, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((WIDTH, 2)))
    shares = np.array([0.75, 0.25])
    fitted = Fitted(WEIGHTS, components.T.astype(np.float32), shares.astype(np.float32))
    parts = fitted if method in ("sif", "usif") else None
    found = sentence_vectors(method, vectors, *flatten(texts, WORDS), parts)
    assert found.dtype == np.float32
    assert found.shape == (len(texts), WIDTH * (3 if method == "p-mean" else 1))
    for text, row in zip(texts, found, strict=True):
        known = [number for number in text if number < WORDS]
        expected = np.zeros(len(row))
        if known:
            expected = plain_loop(method, vectors[known].astype(np.float64), WEIGHTS[known])
        if method in ("sif", "usif"):
            expected = expected - components * shares @ (components.T @ expected)
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_weights_are_those_of_the_papers():
    found = sif_weights(np.array([0.0, 0.001, 0.009]), 1e-3)
    np.testing.assert_allclose(found, [1, 0.5, 0.1], rtol=1e-6)
    probabilities = np.array([0.7, 0.1, 0.1, 0.1])
    # 1 - (3/4)^2 = 0.4375 is exceeded by one word in four; Z = 2.
    assert usif_a(probabilities, 2) == pytest.approx((1 - 0.25) / (0.25 * 2))
    found = usif_weights(probabilities, 1.5)
    np.testing.assert_allclose(found, 1.5 / (0.75 + probabilities), rtol=1e-6)
    # Where no word is frequent, all of them weigh 2.
    a = usif_a(np.full(5, 0.2), 3)
    assert a == math.inf
    np.testing.assert_array_equal(usif_weights(np.full(5, 0.2), a), np.full(5, 2, np.float32))


@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_components_are_right_singular_vectors_and_removed_as_the_published_codes_do(count):
    chance = np.random.default_rng(3)
    matrix = chance.standard_normal((200, 6)) * [5, 4, 3, 2, 1, 0.5] + 1
    _, sigma, rows = np.linalg.svd(matrix, full_matrices=False)
    components, squares = principal_components(matrix.T @ matrix, count)
    assert components.shape == (count, 6)
    np.testing.assert_allclose(squares, sigma[:count] ** 2, rtol=1e-9)
    signs = np.sign(rows[np.arange(6), np.abs(rows).argmax(axis=1)])[:count, None]
    np.testing.assert_allclose(components, rows[:count] * signs, atol=1e-6)
    for method in ("sif", "usif"):
        # uSIF's code takes the components one after the other.
        expected = matrix
        for square, row in zip(squares, rows[:count], strict=True):
            share = square / squares.sum() if method == "usif" else 1
            expected = expected - share * np.outer(expected @ row, row)
        shares = component_shares(method, squares)
        found = remove_components(matrix.astype(np.float32), components, shares)
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_matrix_of_low_rank_has_no_more_components_than_that():
    matrix = np.outer(np.arange(1.0, 9), [1, 2, 3])
    assert len(principal_components(matrix.T @ matrix, 3)[0]) == 1
    assert len(principal_components(np.zeros((3, 3)), 3)[0]) == 0
