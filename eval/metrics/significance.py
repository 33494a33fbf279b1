"""Uncertainty: paired tests and bootstrap intervals over queries, examples or pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.errors import ConfigError

Floats = NDArray[np.float64]

_CELLS_AT_ONCE = 2**21
# Up to this many queries all signs are tried: 2^16 assignments are not too many.
_EXACT_QUERIES = 16
# Means of the same numbers in another order differ in the last digits.
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class Resampling:
    """How intervals and p-values are computed.

    Attributes:
        resamples: draws of the bootstrap, and sign assignments of the randomization test.
        seed: of both.

    Raises:
        ConfigError: fewer than 1 resample.
    """

    resamples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise ConfigError(f"resamples: expected 1 or more, found {self.resamples}")


def randomization_test(differences: Floats, resamples: int, seed: int) -> float:
    """The two-sided p-value of the paired randomization test (Fisher; Smucker et al. 2007).

    Under the null hypothesis the two systems are exchangeable for each query, so each difference
    could have the other sign. p is the share of sign assignments whose mean is at least as far from
    0 as the observed one: of all assignments for up to 16 queries, otherwise of `resamples` random
    ones and the observed one, (1 + count) / (1 + resamples), which is never 0.

    Args:
        differences: (queries,) value of one system minus that of the other; at least one.
        resamples: number of random assignments, at least 1.
        seed: of the assignments.

    Returns:
        In (0, 1].
    """
    # Either sign of a zero difference is zero.
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
    """p-values after Holm's correction (1979) for multiple tests, in the order given.

    The k-th smallest of m is multiplied by m - k + 1, then raised to the result of the one before
    it and cut at 1. Rejecting where the result is at most alpha limits the probability of any false
    rejection to alpha.
    """
    adjusted = [1.0] * len(p_values)
    least = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = least
    return adjusted


def bootstrap_interval(values: Floats, resamples: int, seed: int) -> tuple[float, float]:
    """The 95% percentile interval of the mean over queries drawn with replacement (Sakai 2006).

    Args:
        values: (queries,), at least one.
        resamples: number of draws, at least 1.
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
    return percentile_interval(np.concatenate(means))


def percentile_interval(values: Floats) -> tuple[float, float]:
    """The 2.5% and the 97.5% points of (resamples,) values."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def resampling_weights(
    units: int, resamples: int, random: np.random.Generator, cells: int = _CELLS_AT_ONCE
) -> Iterator[Floats]:
    """How often each unit is drawn in each resample of as many units, with replacement.

    Args:
        units: pairs or questions, at least 1.
        resamples: number of draws, at least 1.
        random: the generator.
        cells: limit of the size of a block.

    Yields:
        (some resamples, units) float64; each row sums to `units`.
    """
    at_once = max(1, cells // units)
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        drawn = random.integers(0, units, (count, units)) + units * np.arange(count)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=count * units).reshape(count, units)
        yield weights.astype(np.float64)
