"""Correlations of many rows against scipy, with ties and constants."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from eval.metrics.correlation import Correlation, pair_correlation
from retriever.errors import BadInputError, ConfigError


# Cosines on a coarse grid tie in any arrangement; minus one and zero are among them.
@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 3)), min_size=2, max_size=30).filter(
        lambda rows: len({gold for _, gold in rows}) > 1
    )
)
def test_ties_get_average_ranks(rows):
    cosines, gold = np.array(rows, dtype=np.float64).T
    cosines /= 4
    (value,) = Correlation(gold)(cosines[None].copy())
    if len(set(cosines)) == 1:
        assert value == 0
    else:
        assert value == pytest.approx(scipy.stats.spearmanr(cosines, gold)[0], abs=1e-12)


def test_cosines_within_rounding_are_ties():
    gold = np.array([1.0, 2.0, 3.0, 4.0])
    exact = np.array([[0.25, 0.5, 1.0, 1.0]])
    noise = np.array([[0.0, 0.0, 3e-16, -3e-16]])
    assert Correlation(gold)(exact + noise) == Correlation(gold)(exact.copy())


@pytest.mark.parametrize("name", ["spearman", "pearson"])
def test_correlation_of_equal_cosines_is_zero(name):
    assert Correlation(np.array([1.0, 2.0, 2.5]), name)(np.full((2, 3), 0.3)).tolist() == [0, 0]


def test_too_few_pairs_and_constant_gold_scores_are_refused():
    with pytest.raises(BadInputError, match="at least 2 scored pairs, found 1"):
        Correlation(np.array([1.0]))
    with pytest.raises(BadInputError, match="found 3 for all 4 pairs"):
        Correlation(np.full(4, 3.0))


@pytest.mark.parametrize("name", ["spearman", "pearson"])
def test_resampled_correlation_equals_scipy_on_the_drawn_pairs(name):
    random = np.random.default_rng(0)
    gold = np.round(random.random(25) * 4)
    cosines = np.round(random.random((2, 25)), 1)
    drawn = random.integers(0, 25, (20, 25))
    weights = np.stack([np.bincount(row, minlength=25) for row in drawn]).astype(np.float64)
    correlations = Correlation(gold, name).resampled(cosines, weights)
    reference = {"spearman": scipy.stats.spearmanr, "pearson": scipy.stats.pearsonr}[name]
    for row, values in zip(drawn, correlations, strict=True):
        expected = [reference(sample[row], gold[row]).statistic for sample in cosines]
        assert values == pytest.approx(expected, abs=1e-12)


def test_objective_that_is_no_correlation_is_refused():
    gold = np.array([1.0, 2.0])
    assert pair_correlation(gold, None, "pairs.tsv").name == "spearman"
    assert pair_correlation(gold, "pearson", "pairs.tsv").name == "pearson"
    with pytest.raises(ConfigError, match="spearman or pearson for scored pairs, found AP"):
        pair_correlation(gold, "AP", "pairs.tsv")
    with pytest.raises(BadInputError, match="expected at least 2 scored pairs"):
        pair_correlation(gold[:1], None, "pairs.tsv")
