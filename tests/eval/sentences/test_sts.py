"""Similarity under encoders against scipy."""

import numpy as np
import pytest
import scipy.stats

from eval.datasets.pairs import PairSubset, ScoredPairs, STSTask
from eval.sentences.experiment import CorrelatedPart, compare_correlations
from eval.sentences.sts import pair_cosines, score_sts, sts_correlations, sts_texts
from eval.settings import RelatednessSettings, Resampling, STSSettings
from eval.vectors import TextVectors
from retriever.errors import BadInputError

SCIPY = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}


def sample(sizes=(7, 30, 12), width=6, seed=0, identical=2):
    """Return a task of several parts with tied gold scores and identical texts."""
    random = np.random.default_rng(seed)
    subsets = []
    for number, size in enumerate(sizes):
        left = [f"{number} left {row}" for row in range(size)]
        right = [f"{number} right {row}" for row in range(size)]
        right[:identical] = left[:identical]
        gold = random.integers(0, 6, size).astype(np.float64)
        subsets.append(PairSubset(f"part{number}", ScoredPairs(gold, left, right)))
    task = STSTask("sample", tuple(subsets))
    texts = sts_texts(task)
    return task, texts, random.standard_normal((len(texts), width)).astype(np.float32)


def plain_cosines(pairs, vectors):
    left, right = (vectors.of(side).astype(np.float64) for side in (pairs.left, pairs.right))
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return ((left * right).sum(axis=1) / lengths).round(10)


@pytest.mark.parametrize("aggregation", ["all", "mean", "wmean"])
def test_sts_correlations_of_parts_and_aggregations_equal_scipy(aggregation):
    task, texts, table = sample()
    vectors = TextVectors(texts, table)
    score = sts_correlations(task, vectors, aggregation)
    cosines = [plain_cosines(subset.pairs, vectors) for subset in task.subsets]
    golds = [subset.pairs.gold for subset in task.subsets]
    named = [{"name": f"part{place}", "pairs": size} for place, size in enumerate((7, 30, 12))]
    expected = {"all": {}, "mean": {}, "wmean": {}, "parts": named}
    for name, correlate in SCIPY.items():
        parts = [correlate(*both)[0] for both in zip(cosines, golds, strict=True)]
        for part, value in zip(named, parts, strict=True):
            part[name] = pytest.approx(value)
        aggregated = (
            correlate(np.concatenate(cosines), np.concatenate(golds))[0],
            np.mean(parts),
            np.average(parts, weights=(7, 30, 12)),
        )
        assert len({round(value, 4) for value in aggregated}) == 3
        for kind, value in zip(expected, aggregated, strict=False):
            expected[kind][name] = pytest.approx(value, abs=1e-12)
        assert score.values[name] == (expected[aggregation][name], None)
        assert score.extra[f"part1 {name}"] == pytest.approx(parts[1])
    assert score.details == expected
    np.testing.assert_allclose(score.predictions, [np.concatenate(cosines)], atol=1e-9)
    single_part, texts, table = sample((7,))
    assert sts_correlations(single_part, TextVectors(texts, table), aggregation).extra == {}


def test_pair_cosine_is_zero_for_a_zero_vector_and_one_for_identical_texts():
    table = np.array([[0, 0, 0], [0.1, 0.7, 0.3], [0.9, 1e-3, 0.2]], np.float32)
    pairs = ScoredPairs(np.arange(4.0), ["a", "b", "c", "a"], ["b", "b", "c", "a"])
    cosines = pair_cosines(pairs, TextVectors(["a", "b", "c"], table))
    np.testing.assert_array_equal(cosines, [0, 1, 1, 0])


@pytest.mark.parametrize(
    ("gold", "message"),
    [([3.0, 3.0, 3.0], "found 3 for all 3 pairs"), ([1.0], "at least 2 scored pairs, found 1")],
)
def test_part_with_constant_or_single_gold_score_is_refused_by_name(gold, message):
    names = [str(row) for row in range(len(gold))]
    task = STSTask("sick", (PairSubset("test", ScoredPairs(np.array(gold), names, names)),))
    with pytest.raises(BadInputError, match=f"^sick, part test: .*{message}"):
        score_sts([task], ["::last"])
    supervised = STSSettings(supervised=RelatednessSettings())
    with pytest.raises(BadInputError, match=r"^sample: .*found no training pairs"):
        score_sts([sample()[0]], ["::last"], supervised)


@pytest.mark.parametrize("aggregation", ["all", "mean", "wmean"])
def test_score_sts_reports_values_and_intervals_of_the_chosen_aggregation(monkeypatch, aggregation):
    task, texts, _ = sample((12, 40), identical=0)
    vectors_by_encoder = [
        TextVectors(texts, np.random.default_rng(seed).random((len(texts), 5)), cut=seed)
        for seed in range(2)
    ]
    fitted, steps = [], []

    class Encoders:
        names = ("one", "two")

        def vectors(self, requested_texts, fit_on, done):
            assert requested_texts == texts
            fitted.append(fit_on)
            done(2 * len(texts))
            return iter(vectors_by_encoder)

    def progress(name, total):
        steps.append([total, 0])
        stage = steps[-1]
        return lambda count: stage.__setitem__(1, stage[1] + count)

    monkeypatch.setattr("eval.sentences.experiment.SentenceEncoders", lambda *_: Encoders())
    settings = STSSettings(aggregation, resampling=Resampling(100, 4))
    (scored_set,) = score_sts([task], Encoders.names, settings, progress=progress).sets
    assert len(steps) == 3
    assert all(total == done for total, done in steps)
    assert (scored_set.name, scored_set.texts, fitted) == ("sample", 104, [texts])
    assert scored_set.facts == {"pairs": "52", "parts": "part0 12, part1 40"}
    pairs = [(subset.name, subset.pairs) for subset in task.subsets]
    assert list(zip(*scored_set.examples.values(), strict=True)) == [
        (name, *row)
        for name, part in pairs
        for row in zip(part.left, part.right, part.gold, strict=True)
    ]
    golds = [part.gold for _, part in pairs]
    weights = {"all": [1], "mean": [0.5, 0.5], "wmean": [12 / 52, 40 / 52]}[aggregation]
    parts = list(
        map(CorrelatedPart, [np.concatenate(golds)] if aggregation == "all" else golds, weights)
    )
    alone = {
        name: sts_correlations(task, vectors, aggregation)
        for name, vectors in zip(Encoders.names, vectors_by_encoder, strict=True)
    }
    for measure in SCIPY:
        expected = compare_correlations(parts, alone, measure, "one", settings.resampling)
        assert {score.encoder: score.values[measure] for score in scored_set.scores} == expected
    for score, cut in zip(scored_set.scores, (0, 1), strict=True):
        expected = alone[score.encoder]
        assert (score.cut, score.extra, score.details) == (cut, expected.extra, expected.details)
        np.testing.assert_array_equal(score.examples, expected.predictions[0])
