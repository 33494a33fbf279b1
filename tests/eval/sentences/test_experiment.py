"""Intervals and tests between encoders against direct computation."""

import numpy as np
import pytest
import scipy.stats

from eval.metrics.comparison import Difference
from eval.sentences.experiment import (
    CorrelatedPart,
    VectorScore,
    compare_accuracies,
    compare_correlations,
)
from eval.settings import Resampling

SCIPY = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}
RESAMPLES = 100


def sample(sizes=(25, 40), seed=3):
    """Return parts and the predictions of three encoders, one with two seeds."""
    random = np.random.default_rng(seed)
    golds = [random.integers(0, 6, size).astype(np.float64) for size in sizes]
    weights = np.array(sizes) / sum(sizes)
    whole = np.concatenate(golds)
    noise = {"good": (1, 0.5), "base": (1, 1.5), "seeds": (2, 3.0)}
    rows = {
        name: (whole + wide * random.standard_normal((seeds, len(whole)))).round(2)
        for name, (seeds, wide) in noise.items()
    }
    return [CorrelatedPart(gold, weight) for gold, weight in zip(golds, weights, strict=True)], rows


def drawn_values(parts, rows, name, seed):
    """Resample pairs with scipy and return the values (resamples,) by encoder."""
    random = np.random.default_rng(seed)
    values = {encoder: np.zeros(RESAMPLES) for encoder in rows}
    start = 0
    for part in parts:
        size = len(part.gold)
        for draw, drawn_pairs in enumerate(random.integers(0, size, (RESAMPLES, size))):
            for encoder, table in rows.items():
                correlations = [
                    SCIPY[name](row[start : start + size][drawn_pairs], part.gold[drawn_pairs])[0]
                    for row in table
                ]
                values[encoder][draw] += part.weight * np.mean(correlations)
        start += size
    return values


def expanded_interval(values, units):
    """Return the expanded percentile interval (Hesterberg 2015), by scipy."""
    level = scipy.stats.norm.cdf(
        -np.sqrt(units / (units - 1)) * scipy.stats.t.ppf(0.975, units - 1)
    )
    return np.quantile(values, [level, 1 - level])


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlation_intervals_and_p_values_equal_resampling_pairs_with_scipy(name):
    parts, rows = sample()
    summary = {"good": (0.9, None), "base": (0.7, None), "seeds": (0.5, 0.01)}
    scores = {
        encoder: VectorScore({name: summary[encoder]}, rows[encoder], {}, {}) for encoder in rows
    }
    scores_by_encoder = compare_correlations(parts, scores, name, "base", Resampling(RESAMPLES, 5))
    drawn = drawn_values(parts, rows, name, 5)
    p_values = {}
    for encoder, (value, spread) in summary.items():
        score = scores_by_encoder[encoder]
        assert (score.value, score.spread) == (value, spread)
        assert (score.low, score.high) == pytest.approx(
            expanded_interval(drawn[encoder], 65), rel=1e-4
        )
        if encoder == "base":
            assert score.difference is None
            continue
        differences = drawn[encoder] - drawn["base"]
        assert score.difference.value == pytest.approx(value - 0.7)
        assert (score.difference.low, score.difference.high) == pytest.approx(
            expanded_interval(differences, 65), rel=1e-4
        )
        rarer = min((differences <= 0).sum(), (differences >= 0).sum())
        p_values[encoder] = (1 + 2 * rarer) / (1 + RESAMPLES)
        assert score.difference.p == pytest.approx(min(1, p_values[encoder]))
    small, large = sorted(p_values, key=p_values.get)
    assert scores_by_encoder[small].difference.adjusted == pytest.approx(
        min(1, 2 * p_values[small])
    )
    assert scores_by_encoder[large].difference.adjusted == pytest.approx(
        min(1, max(2 * p_values[small], p_values[large]))
    )


def test_encoder_equal_to_the_baseline_has_zero_difference():
    parts, rows = sample()
    score = VectorScore({"spearman": (0.7, None)}, rows["base"], {}, {})
    twins = {"base": score, "twin": score}
    compared = compare_correlations(parts, twins, "spearman", "base", Resampling(100))
    assert compared["twin"].difference == Difference(0, 0, 0, 1, 1)


def test_accuracy_difference_has_the_exact_mcnemar_p_value():
    random = np.random.default_rng(0)
    base = random.integers(0, 2, 80).astype(np.float64)
    other = base.copy()
    other[:3], other[3:14] = 1 - other[:3], 1 - other[3:14]
    better = int(((other == 1) & (base == 0)).sum())
    worse = int(((other == 0) & (base == 1)).sum())
    scores = {
        "base": VectorScore({"accuracy": (0.5, None)}, base[None], {}, {}),
        "other": VectorScore({"accuracy": (0.6, 0.1)}, other[None], {}, {}),
    }
    compared = compare_accuracies(scores, "base", Resampling(1000, 1))
    assert (compared["other"].value, compared["other"].spread) == (0.6, 0.1)
    expected = scipy.stats.binomtest(better, better + worse).pvalue
    difference = compared["other"].difference
    assert difference.p == difference.adjusted == pytest.approx(expected)
    assert difference.value == pytest.approx((better - worse) / 80)
    assert difference.low < difference.value < difference.high
    assert compared["other"].low < other.mean() < compared["other"].high
    assert compared["base"].difference is None
