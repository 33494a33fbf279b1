"""Tests and intervals against scipy, by enumeration, and on cases that are known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eval.metrics.significance import bootstrap_interval, holm, randomization_test


def by_enumeration(differences):
    found = abs(differences.sum())
    sums = [
        abs((np.array(signs) * differences).sum())
        for signs in product((1, -1), repeat=len(differences))
    ]
    return np.mean([one >= found - 1e-9 for one in sums])


@pytest.mark.parametrize("seed", range(6))
def test_few_queries_get_the_exact_p_value(seed):
    random = np.random.default_rng(seed)
    differences = np.round(random.normal(0.1, 0.3, 3 + seed), 1)
    assert randomization_test(differences, 100, 0) == pytest.approx(by_enumeration(differences))


def test_an_exact_p_value_is_that_of_scipy():
    random = np.random.default_rng(0)
    ours, theirs = random.random((2, 12))
    expected = stats.permutation_test(
        (ours, theirs), lambda a, b: (a - b).mean(), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert randomization_test(ours - theirs, 100, 0) == pytest.approx(expected)


def test_a_sampled_p_value_is_near_the_exact_one():
    random = np.random.default_rng(1)
    differences = random.normal(0.15, 0.4, 18)
    sampled = randomization_test(differences, 40_000, 0)
    assert sampled == pytest.approx(by_enumeration(differences), abs=0.01)


def test_a_sampled_p_value_is_never_zero_and_depends_on_the_seed_alone():
    differences = np.ones(50)
    assert randomization_test(differences, 999, 0) == 1 / 1000
    noisy = np.random.default_rng(2).normal(0, 1, 40)
    assert randomization_test(noisy, 500, 7) == randomization_test(noisy, 500, 7)


def test_sampling_in_blocks_changes_nothing(monkeypatch):
    differences = np.random.default_rng(3).normal(0.2, 1, 30)
    whole = randomization_test(differences, 4_000, 0)
    monkeypatch.setattr("eval.metrics.significance._CELLS_AT_ONCE", 30 * 64)
    assert randomization_test(differences, 4_000, 0) == pytest.approx(whole, abs=0.02)


@given(st.lists(st.sampled_from([0.0, 0.5, -0.5, 1.0]), min_size=1, max_size=10))
def test_the_sign_of_all_differences_and_queries_without_one_do_not_matter(values):
    differences = np.array(values)
    p = randomization_test(differences, 100, 0)
    assert 0 < p <= 1
    assert randomization_test(-differences, 100, 0) == p
    assert randomization_test(np.append(differences, [0.0, 0.0]), 100, 0) == p


def test_equal_systems_are_not_told_apart():
    assert randomization_test(np.zeros(20), 100, 0) == 1


def test_a_true_null_hypothesis_is_rejected_at_its_rate():
    random = np.random.default_rng(4)
    p_values = [randomization_test(random.normal(0, 1, 25), 200, seed) for seed in range(300)]
    assert np.mean(np.array(p_values) <= 0.1) == pytest.approx(0.1, abs=0.05)


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


def test_an_interval_is_that_of_scipy():
    values = np.random.default_rng(5).beta(2, 5, 60)
    low, high = bootstrap_interval(values, 20_000, 0)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", random_state=1
    ).confidence_interval
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.003)


def test_equal_values_have_no_interval():
    assert bootstrap_interval(np.full(9, 0.25), 100, 0) == (0.25, 0.25)
