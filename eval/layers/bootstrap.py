"""How sure the gain of one set of layers over another is."""

from __future__ import annotations

import numpy as np

from eval.layers.search import Task

_RESAMPLED_AT_ONCE = 2**21
_CONFIDENCE = 0.95


def bootstrap_gain(
    task: Task, best: int, baseline: int, resamples: int, seed: int | list[int]
) -> tuple[float, float]:
    """The 95% percentile interval of the objective of one set less that of another.

    Pairs (or questions) are drawn with replacement, the same for both sets, and the objective is
    computed anew on each draw.

    Args:
        task: what is drawn from.
        best: bit mask of the one.
        baseline: of the other.
        resamples: how often; at least 1.
        seed: of the draws.
    """
    cosines = task.grams.cosines(np.array([best, baseline]))
    units = task.objective.units
    random = np.random.default_rng(seed)
    at_once = max(1, _RESAMPLED_AT_ONCE // units)
    gains = []
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        drawn = random.integers(0, units, (count, units)) + units * np.arange(count)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=count * units).reshape(count, units)
        values = task.objective.resampled(cosines, weights.astype(np.float64))
        gains.append(values[:, 0] - values[:, 1])
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(gains), [tail, 1 - tail])
    return float(low), float(high)
