"""Many encoders on one test of similarity: intervals go by the same aggregation as values."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from eval.datasets.pairs import PairSubset, ScoredPairs, STSTask
from eval.metrics.significance import Resampling
from eval.sentences.sts import STSSettings, check_sts, score_sts, sts_correlations
from eval.sentences.supervised import RelatednessSettings
from eval.vectors import SentenceVectors, TextVectors
from retriever.errors import BadInputError, ConfigError

RESAMPLES = 50


class RandomEncoders:
    """Stands in for `SentenceEncoders`: a random vector for each text."""

    def __init__(self, names):
        self.names = names
        self.fit_on = []

    def vectors(self, texts, fit_on, done=lambda vectors: None):
        self.fit_on.append(list(fit_on))
        for seed, name in enumerate(self.names):
            vectors = np.random.default_rng(seed).standard_normal((len(texts), 5))
            done(len(texts))
            yield SentenceVectors(name, TextVectors(texts, vectors.astype(np.float32)), seed)


def pairs(size, seed, name):
    random = np.random.default_rng(seed)
    return ScoredPairs(
        random.integers(0, 6, size).astype(np.float64),
        [f"{name} left {row}" for row in range(size)],
        [f"{name} right {row}" for row in range(size)],
    )


@pytest.fixture
def task():
    subsets = tuple(PairSubset(f"p{size}", pairs(size, size, f"p{size}")) for size in (12, 40))
    return STSTask("sample", subsets, pairs(20, 1, "train"), pairs(20, 2, "dev"))


@pytest.fixture
def encoders(monkeypatch):
    """Two encoders of random vectors, in place of those that are named."""
    made = RandomEncoders(("one", "two"))
    monkeypatch.setattr("eval.sentences.experiment.SentenceEncoders", lambda names, loading: made)
    return made


def stages(steps):
    """A `Progress` that keeps the total of each stage, and the number of steps done."""

    def begin(name, total):
        steps.append([total, 0])
        place = steps[-1]

        def done(count):
            place[1] += count

        return done

    return begin


@pytest.mark.parametrize("aggregation", ["all", "mean", "wmean"])
def test_intervals_are_of_the_aggregation_that_is_shown(task, encoders, aggregation):
    steps = []
    settings = STSSettings(aggregation, resampling=Resampling(RESAMPLES, 4))
    (found,) = score_sts([task], encoders.names, settings, progress=stages(steps)).sets
    assert all(total == done for total, done in steps)
    golds = [subset.pairs.gold for subset in task.subsets]
    weights = {"all": [1], "mean": [0.5, 0.5], "wmean": [12 / 52, 40 / 52]}[aggregation]
    if aggregation == "all":
        golds = [np.concatenate(golds)]
    for score in found.scores:
        random = np.random.default_rng(4)
        drawn, start = np.zeros(RESAMPLES), 0
        for gold, weight in zip(golds, weights, strict=True):
            cosines = score.examples[start : start + len(gold)]
            start += len(gold)
            chosen = random.integers(0, len(gold), (RESAMPLES, len(gold)))
            drawn += [weight * scipy.stats.spearmanr(cosines[one], gold[one])[0] for one in chosen]
        value = score.values["spearman"]
        level = scipy.stats.norm.cdf(-np.sqrt(52 / 51) * scipy.stats.t.ppf(0.975, 51))
        expected = np.quantile(drawn, [level, 1 - level])
        assert (value.low, value.high) == pytest.approx(expected, rel=1e-4)
    first, second = (score.values["pearson"] for score in found.scores)
    assert second.difference.value == pytest.approx(second.value - first.value)


def test_the_numbers_are_those_of_scoring_each_encoder_alone(task, encoders):
    settings = STSSettings(resampling=Resampling(100))
    (found,) = score_sts([task], encoders.names, settings).sets
    texts = [text for subset in task.subsets for text in (*subset.pairs.left, *subset.pairs.right)]
    # Encoders are fitted on the texts of the test alone.
    assert sorted(encoders.fit_on[0]) == sorted(texts)
    for score, one in zip(found.scores, encoders.vectors(encoders.fit_on[0], []), strict=True):
        expected = sts_correlations(task, one.vectors)
        assert score.values["pearson"].value == expected.all.pearson
        assert score.extra["p40 spearman"] == expected.subsets[1].score.spearman
        assert score.cut == one.cut
        np.testing.assert_array_equal(score.examples, expected.cosines)
    assert len(found.examples["gold"]) == len(found.examples["sentence2"]) == 52


def test_the_supervised_protocol_needs_training_and_dev_pairs(task):
    settings = STSSettings(supervised=RelatednessSettings(seeds=1))
    check_sts(task, settings)
    for lacking in ("train", "dev"):
        parts = {"train": task.train, "dev": task.dev, lacking: None}
        with pytest.raises(BadInputError, match=r"no (training|dev) pairs"):
            check_sts(STSTask("sample", task.subsets, **parts), settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aggregation": "sum"}, "aggregation: expected all, mean, wmean, found 'sum'"),
        (
            {"aggregation": "mean", "supervised": RelatednessSettings()},
            "the supervised protocol takes all pairs of a test as one list",
        ),
        ({"poolings": ("mean",), "baseline": "one"}, "every hidden state is scored"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        STSSettings(**settings)


def test_tests_and_encoders_that_a_table_could_not_distinguish_are_refused(task, encoders):
    with pytest.raises(ConfigError, match="two data sets are called sample"):
        score_sts([task, task], encoders.names)
    with pytest.raises(ConfigError, match="one is one again"):
        score_sts([task], ["one", "one"])
    with pytest.raises(ConfigError, match="expected one of the encoders"):
        score_sts([task], encoders.names, STSSettings(baseline="three"))
    assert encoders.fit_on == []
