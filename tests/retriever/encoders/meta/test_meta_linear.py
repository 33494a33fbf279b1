"""CONC, AVG, SVD and GCCA against short references, and what they do with degenerate input."""

import numpy as np
import pytest
import scipy.linalg
from sklearn.cross_decomposition import CCA

from retriever.encoders.meta.linear import (
    Moments,
    Projection,
    average,
    concatenation,
    gcca,
    pool_words,
    project,
    svd,
)
from retriever.errors import ConfigError

WIDTHS = (5, 3, 4)


def words(count=400, widths=WIDTHS, seed=0, missing=0.0):
    """Words that share three directions; some sources lack some of them."""
    chance = np.random.default_rng(seed)
    common = chance.standard_normal((count, 3)) * [2.0, 1.0, 0.5]
    found = []
    for width in widths:
        x = common @ chance.standard_normal((3, width)) + 0.3
        x += chance.standard_normal((count, width))
        x[chance.random(count) < missing] = 0
        found.append(x.astype(np.float32))
    return found


def moments(vectors, step=64):
    found = Moments.empty([x.shape[1] for x in vectors])
    for start in range(0, len(vectors[0]), step):
        found.add([x[start : start + step] for x in vectors])
    return found


def centered(vectors):
    """Each source about the mean of the words that it has; zeros for those that it lacks."""
    found = []
    for x in vectors:
        x = x.astype(np.float64)
        has = x.any(axis=1)
        found.append(np.where(has[:, None], x - x[has].mean(axis=0), 0))
    return found


def gcca_of(one, dimensions=None, regularization=10.0):
    return gcca(one, dimensions, regularization, "abc"[: len(one.widths)])


def same_up_to_sign(found, expected):
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-6, rtol=1e-5)


def test_conc_and_avg_are_concatenation_and_padded_sum():
    vectors = words()
    np.testing.assert_array_equal(project(vectors, concatenation(WIDTHS)), np.hstack(vectors))
    padded = sum(np.pad(x, ((0, 0), (0, 5 - x.shape[1]))) for x in vectors)
    np.testing.assert_allclose(project(vectors, average(WIDTHS)), padded, rtol=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_svd_is_that_of_the_centered_concatenation(missing):
    vectors = words(missing=missing)
    x = np.hstack(centered(vectors))
    _, _, rows = np.linalg.svd(x, full_matrices=False)
    found = svd(moments(vectors), 4)
    same_up_to_sign(np.hstack(found.matrices).T.astype(np.float64), rows[:4].T)
    same_up_to_sign(project(vectors, found).astype(np.float64), x @ rows[:4].T)
    greatest = np.hstack(found.matrices)
    assert (greatest[np.arange(4), np.abs(greatest).argmax(axis=1)] > 0).all()


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("tau", [0.0, 0.1, 10.0])
def test_gcca_solves_the_regularized_eigenproblem(tau, missing):
    vectors = words(missing=missing)
    x = centered(vectors)
    known = np.count_nonzero(np.hstack(vectors).any(axis=1))
    whole = np.hstack(x).T @ np.hstack(x) / known
    blocks = [one.T @ one / known for one in x]
    within = scipy.linalg.block_diag(
        *[one + tau * np.mean(np.diag(one)) * np.eye(len(one)) for one in blocks]
    )
    values, columns = scipy.linalg.eigh(whole - scipy.linalg.block_diag(*blocks), within)
    found = gcca_of(moments(vectors), 4, tau)
    same_up_to_sign(np.hstack(found.matrices).T.astype(np.float64), columns[:, ::-1][:, :4])
    assert (values[::-1][:4] > 0).all()


def test_gcca_of_two_sources_is_canonical_correlation_analysis():
    vectors = words(600, (5, 4))
    x, y = (vector.astype(np.float64) for vector in vectors)
    cca = CCA(3, scale=False, tol=1e-14, max_iter=10_000).fit(x, y)
    found = gcca_of(moments(vectors), 3, 0.0)
    for matrix, rotations in zip(found.matrices, (cca.x_rotations_, cca.y_rotations_), strict=True):
        ours = matrix.T / np.linalg.norm(matrix.T, axis=0)
        same_up_to_sign(ours.astype(np.float64), rotations / np.linalg.norm(rotations, axis=0))


def test_pooling_is_that_of_the_mapped_words():
    vectors = words(60, missing=0.3)
    vectors = [np.where(np.arange(60)[:, None] == 7, 0, x).astype(np.float32) for x in vectors]
    sentences = np.repeat([0, 1, 3, 4], [7, 1, 32, 20])
    found = svd(moments(vectors), 4)
    found = Projection(found.matrices, found.means, np.array([0.5, 2, 1], np.float32))
    has = [x.any(axis=1, keepdims=True) for x in vectors]
    parts = zip(found.weights, vectors, found.means, found.matrices, has, strict=True)
    by_source = [w * np.where(some, x - m, 0) @ matrix.T for w, x, m, matrix, some in parts]
    metas, known = sum(by_source), np.any(has, axis=0)[:, 0]
    for pooling, reduce in (("mean", np.mean), ("max", np.max)):
        result = pool_words(vectors, sentences, 5, found, pooling)
        for sentence in range(5):
            rows = metas[(sentences == sentence) & known]
            # The word that no source has, and the sentence without words.
            assert len(rows) or sentence in (1, 2)
            expected = reduce(rows, axis=0) if len(rows) else np.zeros(4)
            np.testing.assert_allclose(result[sentence], expected, atol=1e-5)


class TestDegenerateInput:
    def test_svd_of_duplicated_source_has_rank_of_one(self):
        x = words(widths=(5,))[0]
        both = moments([x, x])
        assert svd(both, None).dimensions == 5
        with pytest.raises(ConfigError, match="at most 5, the rank"):
            svd(both, 6)
        assert gcca_of(both, regularization=0.0).dimensions == 5

    def test_svd_of_few_words_limits_dimensions(self):
        few = moments(words(4))
        assert svd(few, None).dimensions == 3
        assert gcca_of(few).dimensions <= 5
        with pytest.raises(ConfigError, match=r"of a is singular.*regularization"):
            gcca_of(few, regularization=0.0)

    def test_constant_component_lowers_rank_and_gcca_needs_regularization(self):
        vectors = words()
        vectors[1][:, 0] = 0.5
        assert svd(moments(vectors), 11).dimensions == 11
        with pytest.raises(ConfigError, match="at most 11"):
            svd(moments(vectors), 12)
        assert np.isfinite(np.hstack(gcca_of(moments(vectors), 3).matrices)).all()
        with pytest.raises(ConfigError, match="covariance of b is singular"):
            gcca_of(moments(vectors), 3, 0.0)

    def test_gcca_refuses_constant_source(self):
        vectors = words()
        vectors[2][:] = 0.25
        with pytest.raises(ConfigError, match="the same one for every word of the corpus in c"):
            gcca_of(moments(vectors))

    def test_projection_of_single_word_is_refused(self):
        one = moments(words(1))
        with pytest.raises(ConfigError, match="nothing to project on"):
            svd(one, None)
        with pytest.raises(ConfigError, match="the same one"):
            gcca_of(one)
