"""Tests and intervals against scipy, by enumeration, and on cases that are known."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eval.metrics.significance import (
    detectable_drop,
    holm,
    mean_interval,
    noninferiority_test,
    percentile_interval,
    randomization_test,
)


def by_enumeration(differences):
    sums = np.array(list(product((1, -1), repeat=len(differences)))) @ differences
    return np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_few_queries_get_the_exact_p_value(seed):
    random = np.random.default_rng(seed)
    differences = np.round(random.normal(0.1, 0.3, 3 + seed), 1)
    assert randomization_test(differences, 100, 0) == pytest.approx(by_enumeration(differences))


def test_a_sampled_p_value_is_near_the_exact_one_and_never_zero():
    random = np.random.default_rng(1)
    differences = random.normal(0.15, 0.4, 18)
    sampled = randomization_test(differences, 40_000, 0)
    assert sampled == pytest.approx(by_enumeration(differences), abs=0.01)
    assert sampled == randomization_test(differences, 40_000, 0)
    assert randomization_test(np.ones(50), 999, 0) == 1 / 1000


def test_randomization_test_does_not_depend_on_the_block_size(monkeypatch):
    differences = np.random.default_rng(3).normal(0.2, 1, 30)
    whole = randomization_test(differences, 4_000, 0)
    monkeypatch.setattr("eval.metrics.significance._CELLS_AT_ONCE", 30 * 64)
    assert randomization_test(differences, 4_000, 0) == pytest.approx(whole, abs=0.02)


@given(st.lists(st.sampled_from([0.0, 0.5, -0.5, 1.0]), min_size=1, max_size=10))
def test_p_value_ignores_the_common_sign_and_zero_differences(values):
    differences = np.array(values)
    p = randomization_test(differences, 100, 0)
    assert 0 < p <= 1
    assert randomization_test(-differences, 100, 0) == p
    assert randomization_test(np.append(differences, [0.0, 0.0]), 100, 0) == p
    assert randomization_test(np.zeros(len(values)), 100, 0) == 1


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_the_step_down_procedure(p_values):
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.3, 1.0):
        rejected = set()
        for place, index in enumerate(np.argsort(p_values, kind="stable")):
            if (len(p_values) - place) * p_values[index] > alpha and alpha < 1:
                break
            rejected.add(int(index))
        assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected


@pytest.mark.parametrize("queries", [2, 3, 4, 5, 6, 12, 300])
def test_mean_interval_equals_scipys_t_interval(queries):
    values = np.random.default_rng(5).uniform(0.45, 0.55, queries)
    expected = stats.t.interval(0.95, queries - 1, values.mean(), stats.sem(values))
    assert mean_interval(values, 0) == pytest.approx(expected, rel=1e-3)
    assert mean_interval(-values, -1) == pytest.approx((-expected[1], -expected[0]), rel=1e-3)


@pytest.mark.parametrize(
    ("values", "least", "low", "high"),
    [
        ([1.0, 1.0, 0.5], 0, None, 1),
        ([0.0, 0.0, 0.5], 0, 0, None),
        ([0.0, -1.0], -1, -1, 1),
        ([0.25], 0, 0, 1),
        ([0.25], -1, -1, 1),
    ],
)
def test_mean_interval_is_clipped_to_the_range_of_the_values(values, least, low, high):
    interval = mean_interval(np.array(values), least)
    assert interval == (interval[0] if low is None else low, interval[1] if high is None else high)


# The mean of 0.1 several times is not 0.1 to the last digit.
@pytest.mark.parametrize("value", [0.0, 0.25, 0.1, 1.0, -0.3])
def test_equal_values_have_no_interval(value):
    values = np.full(9, value)
    assert mean_interval(values, -1) == (values.mean(), values.mean())


@pytest.mark.parametrize("units", [2, 5, 10, 1000])
def test_percentile_interval_is_widened_by_students_t(units):
    values = np.random.default_rng(3).normal(0, 1, 1_000_000)
    low, high = percentile_interval(values, units)
    expected = stats.norm.cdf(-np.sqrt(units / (units - 1)) * stats.t.ppf(0.975, units - 1))
    assert (low, high) == pytest.approx(np.quantile(values, [expected, 1 - expected]), rel=1e-3)


@pytest.mark.parametrize(("lost", "queries"), [(0, 10), (1, 10), (4, 30), (30, 300), (10, 10)])
def test_noninferiority_bound_of_equal_losses_is_clopper_pearson(lost, queries):
    differences = np.repeat([-1.0, 0.0], [lost, queries - lost])
    p, low = noninferiority_test(differences, 0.2, 40_000, 0)
    exact = 1.0 if lost == queries else stats.beta.ppf(0.95, lost + 1, queries - lost)
    assert low == pytest.approx(-exact, abs=0.006)
    expected = 1.0 if lost == queries else stats.binom.cdf(lost, queries, 0.2)
    assert p == pytest.approx(expected, abs=0.008)


@given(st.lists(st.sampled_from([0.0, 0.5, -0.25, -1.0]), min_size=1, max_size=8))
def test_noninferiority_p_is_below_alpha_exactly_if_the_bound_exceeds_the_margin(values):
    differences = np.array(values)
    for level in (0.05, 0.2):
        for margin in (0.1, 0.4, 0.9):
            p, low = noninferiority_test(differences, margin, 199, 0, level)
            assert 0 < p <= 1
            assert -1 <= low <= differences.mean()
            assert (p <= level) == (low > -margin)


@pytest.mark.parametrize("queries", [10, 30])
@pytest.mark.parametrize(
    ("values", "shares"),
    [
        ([-1, 0], [0.1, 0.9]),
        ([-0.5, 0], [0.2, 0.8]),
        ([-0.2, 0], [0.5, 0.5]),
        ([-1, 0, 0.5], [0.2, 0.6, 0.2]),
        ([-0.3, 0.1], [0.5, 0.5]),
        ([-1, -0.08], [0.0217, 0.9783]),
    ],
)
def test_drop_of_the_margin_passes_in_at_most_five_percent(values, shares, queries):
    """Student's t passes 30% to 40% of the first kind with 10 queries: those without a loss."""
    assert np.dot(values, shares) == pytest.approx(-0.1, abs=1e-4)
    random = np.random.default_rng(0)
    drawn = random.choice(values, (1500, queries), p=shares)
    passed = np.mean(
        [noninferiority_test(differences, 0.1, 399, 0)[0] <= 0.05 for differences in drawn]
    )
    # Three standard errors of a share of 5%.
    assert passed <= 0.05 + 0.017


@pytest.mark.parametrize("queries", [100, 400])
def test_detectable_drop_is_detected_in_eighty_percent(queries):
    random = np.random.default_rng(1)
    margin, cases = 0.02, 1000
    noise = random.normal(0, 0.15, (cases, queries)) * (random.random((cases, queries)) < 0.5)
    lows = [noninferiority_test(differences, margin, 399, 0)[1] for differences in noise[:200]]
    promised = [
        detectable_drop(differences, margin, low, 0.05, 0.8)
        for differences, low in zip(noise, lows, strict=False)
    ]
    detected = 0
    for differences in noise - np.mean(promised):
        is_significant = (
            differences.sum() < 0 and randomization_test(differences, 399, 0) / 2 <= 0.05
        )
        detected += is_significant and noninferiority_test(differences, margin, 399, 0)[0] > 0.05
    assert detected / cases == pytest.approx(0.8, abs=0.03)


def test_detectable_drop_is_none_where_no_drop_can_be_significant():
    assert detectable_drop(np.linspace(-0.1, 0.1, 99), 0.01, -0.5, 0.05, 0.8) is None
    assert detectable_drop(np.full(500, 0.1), 0.01, -0.5, 0.05, 0.8) is None
