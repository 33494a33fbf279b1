"""Paired comparison of encoders on the same examples: correlations by bootstrap, accuracies by
randomisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.metrics.comparison import Score, compare_values
from eval.metrics.correlation import Correlation, CorrelationName
from eval.metrics.significance import holm
from eval.sentences.result import Difference, Value

Floats = NDArray[np.float64]
Done = Callable[[int], object]

_CELLS_AT_ONCE = 2**20


@dataclass(frozen=True, slots=True)
class Resampling:
    """How sure figures are made.

    Attributes:
        resamples: draws of the bootstrap, and signs of the randomisation test.
        seed: of both.
    """

    resamples: int = 10_000
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Pairs whose correlation is computed by itself.

    Attributes:
        gold: (pairs,) float64 scores that differ.
        weight: of its correlation in the whole; the weights of all parts sum to 1.
    """

    gold: Floats
    weight: float


def compare_correlations(
    parts: Sequence[Part],
    found: Mapping[str, tuple[float, float | None]],
    predictions: Mapping[str, Floats],
    name: CorrelationName,
    baseline: str,
    resampling: Resampling,
    done: Done = lambda draws: None,
) -> dict[str, Value]:
    """How sure the correlations of encoders are, and their differences from a baseline.

    Pairs are drawn with replacement within each part, the same for all encoders. An encoder's value
    under a draw is the weighted mean over the parts of the correlation of predicted and gold
    scores, of several seeds their mean. Intervals are the 2.5% and 97.5% points. p of a difference
    is (1 + 2 m) / (1 + resamples), at most 1, m being the draws on the rarer side of 0.

    Args:
        parts: of the test; one where all pairs count as one list.
        found: encoder to its value over all pairs, and its standard deviation over seeds.
        predictions: encoder to (seeds, pairs) float64, the pairs part after part.
        name: which correlation.
        baseline: one of the encoders.
        resampling: how often; the same seed draws the same pairs.
        done: called with the number of draws for one part; parts times resamples in all.
    """
    seeds = [len(one) for one in predictions.values()]
    rows = np.concatenate(list(predictions.values()))
    drawn = np.zeros((resampling.resamples, len(rows)))
    random = np.random.default_rng(resampling.seed)
    start = 0
    for part in parts:
        columns = rows[:, start : start + len(part.gold)]
        start += len(part.gold)
        drawn += part.weight * _drawn(part.gold, columns, name, resampling.resamples, random, done)
    ends = np.cumsum([0, *seeds])
    means = {
        encoder: drawn[:, first:last].mean(axis=1)
        for encoder, first, last in zip(predictions, ends[:-1], ends[1:], strict=True)
    }
    differences = {
        encoder: one - means[baseline] for encoder, one in means.items() if encoder != baseline
    }
    p_values = [_p_value(one) for one in differences.values()]
    tested = dict(zip(differences, zip(p_values, holm(p_values), strict=True), strict=True))
    return {
        encoder: Value(
            value,
            spread,
            *_interval(means[encoder]),
            Difference(
                value - found[baseline][0], *_interval(differences[encoder]), *tested[encoder]
            )
            if encoder in differences
            else None,
        )
        for encoder, (value, spread) in found.items()
    }


def compare_accuracies(
    found: Mapping[str, tuple[float, float | None]],
    correct: Mapping[str, Floats],
    baseline: str,
    resampling: Resampling,
) -> dict[str, Value]:
    """How sure the accuracies of encoders are, and their differences from a baseline.

    Intervals are bootstrapped over examples; p is of the paired randomisation test, which for one
    test of each example is McNemar's in its exact form. Where examples were tested differently
    often, intervals and differences count each of them once, accuracies each test.

    Args:
        found: encoder to its accuracy, and its standard deviation over seeds.
        correct: encoder to (examples,) float64 in [0, 1], how often each was right; of the same
            examples for all.
        baseline: one of the encoders.
        resampling: how often.
    """
    scores = compare_values(correct, baseline, resampling.resamples, resampling.seed)
    return {
        encoder: Value(
            value, spread, scores[encoder].low, scores[encoder].high, _against(scores[encoder])
        )
        for encoder, (value, spread) in found.items()
    }


def _against(score: Score) -> Difference | None:
    one = score.difference
    return None if one is None else Difference(one.mean, one.low, one.high, one.p, one.adjusted)


def _drawn(
    gold: Floats,
    rows: Floats,
    name: CorrelationName,
    resamples: int,
    random: np.random.Generator,
    done: Done,
) -> Floats:
    """(resamples, rows) correlations over pairs drawn with replacement."""
    units = len(gold)
    objective = Correlation(gold, name)
    at_once = max(1, _CELLS_AT_ONCE // units)
    parts = []
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        drawn = random.integers(0, units, (count, units)) + units * np.arange(count)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=count * units).reshape(count, units)
        parts.append(objective.resampled(rows, weights.astype(np.float64)))
        done(count)
    return np.concatenate(parts)


def _interval(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def _p_value(differences: Floats) -> float:
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, (1 + 2 * rarer) / (1 + len(differences)))
