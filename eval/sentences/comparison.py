"""Paired comparison of encoders on the same examples: correlations by bootstrap, accuracies by a
randomization test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eval.metrics.comparison import Difference, Score, compare_values
from eval.metrics.correlation import Correlation, CorrelationName
from eval.metrics.significance import (
    Resampling,
    holm,
    percentile_interval,
    resampling_weights,
)

Floats = NDArray[np.float64]
Done = Callable[[int], object]

_CELLS_AT_ONCE = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Pairs whose correlation is computed separately.

    Attributes:
        gold: (pairs,) float64 scores, not all equal.
        weight: of the correlation in the result; the weights of all parts sum to 1.
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
) -> dict[str, Score]:
    """The correlations of encoders with intervals, and their differences from a baseline.

    Pairs are drawn with replacement within each part, the same for all encoders. An encoder's value
    in a draw is the weighted mean over the parts of the correlation of predicted and gold scores,
    averaged over seeds. Intervals are those of `percentile_interval`. p of a difference is
    (1 + 2 m) / (1 + resamples), at most 1, where m is the number of draws on the rarer side of 0.

    Args:
        parts: of the test; one where all pairs count as one list.
        found: encoder to its value over all pairs, and its standard deviation over seeds.
        predictions: encoder to (seeds, pairs) float64, the pairs part after part.
        name: which correlation.
        baseline: one of the encoders.
        resampling: number of draws; the same seed draws the same pairs.
        done: called with the number of draws done for one part; parts times resamples in all.
    """
    seeds = [len(one) for one in predictions.values()]
    rows = np.concatenate(list(predictions.values()))
    pairs = rows.shape[1]
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
        encoder: Score(
            value,
            spread,
            *percentile_interval(means[encoder], pairs),
            Difference(
                value - found[baseline][0],
                *percentile_interval(differences[encoder], pairs),
                *tested[encoder],
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
) -> dict[str, Score]:
    """The accuracies of encoders with intervals, and their differences from a baseline.

    Intervals are those of `mean_interval`; p is that of the paired randomization test, which is
    McNemar's exact test where each example is tested once. Where examples are tested unequally
    often, intervals and differences count each example once, accuracies each test.

    Args:
        found: encoder to its accuracy, and its standard deviation over seeds.
        correct: encoder to (examples,) float64 in [0, 1], the share of tests in which each is
            right; of the same examples for all encoders.
        baseline: one of the encoders.
        resampling: number of resamples, and the seed.
    """
    scores = compare_values(correct, baseline, resampling.resamples, resampling.seed)
    return {
        encoder: replace(scores[encoder], value=value, spread=spread)
        for encoder, (value, spread) in found.items()
    }


def _drawn(
    gold: Floats,
    rows: Floats,
    name: CorrelationName,
    resamples: int,
    random: np.random.Generator,
    done: Done,
) -> Floats:
    """(resamples, rows) correlations over pairs drawn with replacement."""
    objective = Correlation(gold, name)
    parts = []
    for weights in resampling_weights(len(gold), resamples, random, _CELLS_AT_ONCE):
        parts.append(objective.resampled(rows, weights))
        done(len(weights))
    return np.concatenate(parts)


def _p_value(differences: Floats) -> float:
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, (1 + 2 * rarer) / (1 + len(differences)))
