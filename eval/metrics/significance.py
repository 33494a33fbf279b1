"""How sure a difference between two systems is: paired tests and intervals over queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CELLS_AT_ONCE = 2**21
# Up to so many queries every sign is tried: 2^16 assignments are fewer than a sample needs.
_EXACT_QUERIES = 16
# Means of the same numbers in another order differ in their last digits.
_EQUAL = 1e-12


def randomisation_test(differences: Floats, resamples: int, seed: int) -> float:
    """The two-sided p-value of the paired randomisation test (Fisher; Smucker et al. 2007).

    Under the null hypothesis the two systems are exchangeable query by query, so each difference
    could as well have the other sign. p is the share of sign assignments whose mean is at least as
    far from 0 as the one found: of all assignments for up to 16 queries, else of `resamples` random
    ones and the one found, (1 + count) / (1 + resamples), which is never 0.

    Args:
        differences: (queries,) value of one system less that of the other; at least one.
        resamples: random assignments, at least 1.
        seed: of the assignments.

    Returns:
        In (0, 1].
    """
    # A query without a difference has none under either sign.
    changed = differences[differences != 0]
    if len(changed) == 0:
        return 1.0
    found = abs(float(changed.sum())) - _EQUAL * float(np.abs(changed).sum())
    if len(changed) <= _EXACT_QUERIES:
        sums = np.zeros(1)
        for difference in changed:
            sums = np.concatenate([sums + difference, sums - difference])
        return float(np.mean(np.abs(sums) >= found))
    random = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // len(changed))
    extreme = 0
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        signs = random.integers(0, 2, (count, len(changed)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ changed) >= found).sum())
    return (1 + extreme) / (1 + resamples)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for being several (Holm 1979), in the order they came in.

    The k-th smallest of m is multiplied by m - k + 1; none is less than a smaller one's, or more
    than 1. Rejecting where the result is at most alpha keeps the chance of any false rejection at
    alpha.
    """
    adjusted = [1.0] * len(p_values)
    least = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = least
    return adjusted


def bootstrap_interval(values: Floats, resamples: int, seed: int) -> tuple[float, float]:
    """The 95% percentile interval of the mean, queries drawn with replacement (Sakai 2006).

    Args:
        values: (queries,), at least one.
        resamples: how often, at least 1.
        seed: of the draws; equal seeds draw the same queries.
    """
    random = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // len(values))
    means = [
        values[
            random.integers(0, len(values), (min(at_once, resamples - start), len(values)))
        ].mean(axis=1)
        for start in range(0, resamples, at_once)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(low), float(high)
