"""Static sentence vectors against loops, hand-made numbers and NumPy's SVD."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from retriever.encoders.static.words import (
    FittedWeights,
    flatten,
    principal_components,
    sentence_vectors,
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
    fitted = FittedWeights(WEIGHTS, components.T.astype(np.float32), shares.astype(np.float32))
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


def test_usif_weights_are_two_without_frequent_words():
    a = usif_a(np.full(5, 0.2), 3)
    assert a == math.inf
    np.testing.assert_array_equal(usif_weights(np.full(5, 0.2), a), np.full(5, 2, np.float32))


def test_a_matrix_of_low_rank_has_no_more_components_than_that():
    matrix = np.outer(np.arange(1.0, 9), [1, -2, 0.5])
    ((row,), _) = principal_components(matrix.T @ matrix, 3)
    # The greatest number is positive.
    np.testing.assert_allclose(row, np.array([-1, 2, -0.5]) / np.sqrt(5.25), rtol=1e-6)
    assert len(principal_components(np.zeros((3, 3)), 3)[0]) == 0
