"""Static sentence vectors against loops, hand-made numbers, NumPy's SVD and scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from retriever.encoders.static.words import (
    Fitted,
    average,
    component_shares,
    flatten,
    power_means,
    principal_components,
    remove_components,
    scaled_average,
    sentence_vectors,
    sif_weights,
    usif_a,
    usif_weights,
    weighted_average,
)

WORDS, WIDTH = 7, 4
vectors_of_words = arrays(np.float32, (WORDS, WIDTH), elements=st.floats(-8, 8, width=16))
# The id WORDS is a word that is not known.
texts_of_ids = st.lists(st.lists(st.integers(0, WORDS), max_size=9), max_size=6)


def _brute(vectors, texts, of_text, width=WIDTH):
    rows = []
    for text in texts:
        known = [number for number in text if number < WORDS]
        rows.append(of_text(vectors.astype(np.float64)[known], known) if known else np.zeros(width))
    return np.array(rows).reshape(len(texts), width)


@given(vectors_of_words, texts_of_ids)
def test_the_average_is_that_of_a_loop(vectors, texts):
    expected = _brute(vectors, texts, lambda rows, _: rows.mean(axis=0))
    found = average(vectors, *flatten(texts, WORDS))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


@given(vectors_of_words, texts_of_ids)
def test_power_means_are_minimum_mean_and_maximum(vectors, texts):
    def of_text(rows, _):
        return np.concatenate([rows.min(axis=0), rows.mean(axis=0), rows.max(axis=0)])

    expected = _brute(vectors, texts, of_text, 3 * WIDTH)
    found = power_means(vectors, *flatten(texts, WORDS))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@given(vectors_of_words, texts_of_ids)
def test_the_weighted_average_divides_by_the_number_of_words(vectors, texts):
    weights = np.linspace(0.1, 2, WORDS).astype(np.float32)

    def of_text(rows, known):
        return sum(weights[n] * row for n, row in zip(known, rows, strict=True)) / len(known)

    found = weighted_average(vectors, *flatten(texts, WORDS), weights)
    np.testing.assert_allclose(found, _brute(vectors, texts, of_text), atol=1e-5)


@given(vectors_of_words, texts_of_ids)
def test_the_scaled_average_first_gives_each_dimension_length_1(vectors, texts):
    weights = np.linspace(0.1, 2, WORDS).astype(np.float32)

    def of_text(rows, known):
        for column in rows.T:
            length = math.sqrt(sum(number * number for number in column))
            column /= length or 1
        return (rows * weights[known][:, None]).mean(axis=0)

    found = scaled_average(vectors, *flatten(texts, WORDS), weights)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, _brute(vectors, texts, of_text), atol=1e-5)


@settings(max_examples=30)
@given(vectors_of_words, texts_of_ids, st.sampled_from(["average", "sif", "usif", "p-mean"]))
def test_a_text_has_the_same_vector_in_any_batch(vectors, texts, method):
    chance = np.random.default_rng(1)
    rows, _ = np.linalg.qr(chance.standard_normal((WIDTH, 2)))
    fitted = Fitted(
        np.linspace(0.5, 1.5, WORDS).astype(np.float32),
        rows.T.astype(np.float32),
        np.array([0.75, 0.25], np.float32),
    )
    together = sentence_vectors(method, vectors, *flatten(texts, WORDS), fitted)
    for text, row in zip(texts, together, strict=True):
        alone = sentence_vectors(method, vectors, *flatten([text], WORDS), fitted)
        np.testing.assert_allclose(alone[0], row, atol=1e-5)


def test_sif_weights_by_hand():
    found = sif_weights(np.array([0.0, 0.001, 0.009]), 1e-3)
    np.testing.assert_allclose(found, [1, 0.5, 0.1], rtol=1e-6)


def test_usif_derives_a_as_the_paper_does():
    probabilities = np.array([0.7, 0.1, 0.1, 0.1])
    # 1 - (3/4)^2 = 0.4375 is exceeded by one word in four; Z = 2.
    assert usif_a(probabilities, 2) == pytest.approx((1 - 0.25) / (0.25 * 2))
    found = usif_weights(probabilities, 1.5)
    np.testing.assert_allclose(found, 1.5 / (0.75 + probabilities), rtol=1e-6)


def test_where_no_word_is_frequent_all_words_weigh_2():
    probabilities = np.full(5, 0.2)
    a = usif_a(probabilities, 3)
    assert a == math.inf
    np.testing.assert_array_equal(usif_weights(probabilities, a), np.full(5, 2, np.float32))


@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_components_are_the_right_singular_vectors_of_the_uncentered_matrix(count):
    chance = np.random.default_rng(3)
    matrix = chance.standard_normal((200, 6)) * [5, 4, 3, 2, 1, 0.5] + 1
    _, sigma, rows = np.linalg.svd(matrix, full_matrices=False)
    components, squares = principal_components(matrix.T @ matrix, count)
    assert components.shape == (count, 6)
    np.testing.assert_allclose(squares, sigma[:count] ** 2, rtol=1e-9)
    signs = np.sign((components * rows[:count]).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(components, rows[:count] * signs, atol=1e-6)


def test_a_matrix_of_low_rank_has_no_more_components_than_that():
    matrix = np.outer(np.arange(1.0, 9), [1, 2, 3])
    assert len(principal_components(matrix.T @ matrix, 3)[0]) == 1
    assert len(principal_components(np.zeros((3, 3)), 3)[0]) == 0


def test_removal_is_that_of_the_published_codes_on_scikit_learns_components():
    decomposition = pytest.importorskip("sklearn.decomposition")
    chance = np.random.default_rng(4)
    matrix = chance.standard_normal((300, 12)) * np.linspace(4, 0.2, 12) + 0.7
    components, squares = principal_components(matrix.T @ matrix, 5)
    svd = decomposition.TruncatedSVD(5, algorithm="arpack", random_state=0).fit(matrix)

    expected = matrix - matrix @ svd.components_.T @ svd.components_
    found = remove_components(
        matrix.astype(np.float32), components, component_shares("sif", squares)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)

    # uSIF's code takes the components one after the other.
    expected = matrix
    for sigma, row in zip(svd.singular_values_, svd.components_, strict=True):
        share = sigma**2 / (svd.singular_values_**2).sum()
        expected = expected - share * np.outer(expected @ row, row)
    found = remove_components(
        matrix.astype(np.float32), components, component_shares("usif", squares)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_without_components_nothing_is_removed():
    rows = np.ones((2, 3), np.float32)
    nothing = np.empty((0, 3), np.float32)
    np.testing.assert_array_equal(remove_components(rows, nothing, nothing[:, 0]), rows)
