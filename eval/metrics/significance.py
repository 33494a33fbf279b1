"""Uncertainty: paired tests and 95% intervals over queries, examples or pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Numbers in an array of resamples: 16 MiB of float64.
_CELLS_AT_ONCE = 2**21
# Up to this many queries, all 2^16 assignments of signs are tried.
_EXACT_QUERIES = 16
# Relative tolerance: sums of the same numbers in another order differ in the last digits.
_EQUAL = 1e-12
_NORMAL = NormalDist()
# The 97.5% points of Student's t with 1 to 4 degrees of freedom, where its expansion is far off.
_SMALL_SAMPLE_POINTS = (12.7062, 4.30265, 3.18245, 2.77645)

# Fewest queries for `detectable_drop`; with fewer its power is off for WikiQA's skewed scores.
_MIN_QUERIES = 100


def randomization_test(differences: Floats, resamples: int, seed: int) -> float:
    """Return the two-sided p-value of the paired randomization test (Fisher; Smucker et al. 2007).

    p is the share of sign assignments of (queries,) differences whose mean is at least as far from
    0 as the observed mean. Up to 16 queries, all assignments are tried. Otherwise `resamples` are
    drawn, and p is (1 + count) / (1 + resamples), which is never 0.
    """
    # Either sign of a zero difference is zero.
    changed = differences[differences != 0]
    if len(changed) == 0:
        return 1.0
    observed = abs(float(changed.sum())) - _EQUAL * float(np.abs(changed).sum())
    if len(changed) <= _EXACT_QUERIES:
        sums = np.zeros(1)
        for difference in changed:
            sums = np.concatenate([sums + difference, sums - difference])
        return float(np.mean(np.abs(sums) >= observed))
    random = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // len(changed))
    extreme = 0
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        signs = random.integers(0, 2, (count, len(changed)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ changed) >= observed).sum())
    return (1 + extreme) / (1 + resamples)


def noninferiority_test(
    differences: Floats, margin: float, resamples: int, seed: int, level: float = 0.05
) -> tuple[float, float]:
    """Test "the mean difference is at most -margin"; return its p-value and a lower bound.

    Gaffke's test (2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean
    of a nonnegative variable"). The (queries,) differences in [-1, 1] and the worst possible one,
    -1, get random weights, uniform on the simplex. p is the share of `resamples` weighted means
    that are -margin or less. The bound is their quantile at `level`; it is greater than -margin
    exactly where p is at most `level`.

    With few queries, or with most differences 0, the test keeps its level where Student's t does
    not: n queries without any difference have p = (1 - margin)^n. For values that are all -1 or 1,
    the bound is Clopper and Pearson's.

    Returns:
        p in (0, 1], and the least mean that is not rejected, in [-1, 1].
    """
    values = np.append(differences, -1.0)
    random = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // len(values))
    means = np.empty(resamples)
    for start in range(0, resamples, at_once):
        rows = means[start : start + at_once]
        weights = random.standard_exponential((len(rows), len(values)))
        rows[:] = np.clip(weights @ values / weights.sum(axis=1), -1.0, values.max())
    p = (1 + int((means <= -margin).sum())) / (1 + resamples)
    place = max(0, int(level * (1 + resamples)) - 1)
    return p, float(np.partition(means, place)[place])


def detectable_drop(
    differences: Floats, margin: float, low: float, level: float, power: float
) -> float | None:
    """Return the smallest drop of the mean that fails the gate with the probability `power`.

    A drop fails where the one-sided randomization test has a p of at most `level` and
    `noninferiority_test` does not reject "-margin or less"; `low` is its bound for these (queries,)
    differences. Both are approximated as tests of a mean with the deviation of these differences,
    the first by Student's t: the drop is the same for all queries.

    Returns None for fewer than 100 queries, whose means are too skewed, and where all differences
    are equal.
    """
    queries = len(differences)
    freedom = len(differences) - 1
    if queries < _MIN_QUERIES or np.ptp(differences) == 0:
        return None
    error = float(differences.std(ddof=1)) / math.sqrt(queries)
    failing_drop = _t_point(freedom, 1 - level) * error
    unpassed_drop = margin - (float(differences.mean()) - low)
    return max(failing_drop, unpassed_drop) + _t_point(freedom, power) * error


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction (1979) for multiple tests, in the order of the input.

    The k-th smallest of m is multiplied by m - k + 1, cut at 1, and raised to the corrected value
    before it. Rejecting where the result is at most alpha limits the probability of any false
    rejection to alpha.
    """
    adjusted = [1.0] * len(p_values)
    least = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = least
    return adjusted


def mean_interval(values: Floats, least: float) -> tuple[float, float]:
    """Return the 95% interval of the mean of (queries,) values by Student's t, in [`least`, 1].

    With few queries its coverage is nearer 95% than a bootstrap interval's, above all for
    differences. Values that are all equal have an interval of width 0; a single query has the whole
    range.
    """
    queries = len(values)
    if queries == 1:
        return least, 1.0
    mean = float(values.mean())
    # The deviation from the first value is exactly 0 where all are equal.
    error = float((values - values[0]).std(ddof=1)) / math.sqrt(queries)
    half = _t_point(queries - 1) * error
    return max(least, mean - half), min(1.0, mean + half)


def percentile_interval(values: Floats, units: int) -> tuple[float, float]:
    """Return the 95% expanded percentile interval of a bootstrap (Hesterberg 2015).

    The plain percentile interval is too short for few units. Its points are moved outward by as
    much as the normal interval of a mean falls short of Student's t: from 2.5% and 97.5% to 0.86%
    and 99.14% for ten units.

    Args:
        values: (resamples,) of a statistic.
        units: number of pairs or questions in a resample, at least 2.
    """
    level = _NORMAL.cdf(-math.sqrt(units / (units - 1)) * _t_point(units - 1))
    low, high = np.quantile(values, [level, 1 - level])
    return float(low), float(high)


def _t_point(freedom: int, level: float = 0.975) -> float:
    """Return a quantile of Student's t (Abramowitz and Stegun 1964, 26.7.5).

    The 97.5% quantile has a relative error of at most 1e-4; others need 5 degrees of freedom.
    """
    if freedom <= len(_SMALL_SAMPLE_POINTS):
        return _SMALL_SAMPLE_POINTS[freedom - 1]
    z = _NORMAL.inv_cdf(level)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))


def resampling_weights(
    units: int, resamples: int, random: np.random.Generator, cells: int = _CELLS_AT_ONCE
) -> Iterator[Floats]:
    """Yield (resamples, units) float64: how often each unit is drawn with replacement.

    Each array has at most `cells` numbers, or one resample.
    """
    at_once = max(1, cells // units)
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        draws = random.integers(0, units, (count, units)) + units * np.arange(count)[:, None]
        weights = np.bincount(draws.ravel(), minlength=count * units).reshape(count, units)
        yield weights.astype(np.float64)
