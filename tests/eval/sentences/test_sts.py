"""Similarity under encoders against scipy, sentence-transformers and a published number."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial
import scipy.stats

from eval.datasets.pairs import PairSubset, ScoredPairs, STSTask, read_pairs
from eval.metrics.significance import Resampling
from eval.sentences.sts import STSSettings, pair_cosines, score_sts, sts_correlations, sts_texts
from eval.vectors import TextVectors, embed_all
from retriever.errors import BadInputError

RESAMPLES = 50
SCIPY = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}


def sample(sizes=(7, 30, 12), width=6, seed=0, identical=2):
    """A test of several parts whose gold scores have ties, with some pairs of identical texts."""
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
    found = [
        a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(left, right, strict=True)
    ]
    return np.array(found).round(10)


def test_each_part_and_each_aggregation_is_that_of_scipy_by_its_name():
    task, texts, table = sample()
    vectors = TextVectors(texts, table)
    score = sts_correlations(task, vectors)
    cosines = [plain_cosines(one.pairs, vectors) for one in task.subsets]
    golds = [one.pairs.gold for one in task.subsets]
    assert [(one.name, one.pairs) for one in score.subsets] == [
        ("part0", 7),
        ("part1", 30),
        ("part2", 12),
    ]
    for name, correlate in SCIPY.items():
        parts = [correlate(*both)[0] for both in zip(cosines, golds, strict=True)]
        assert [getattr(one.score, name) for one in score.subsets] == pytest.approx(parts)
        expected = {
            "all": correlate(np.concatenate(cosines), np.concatenate(golds))[0],
            "mean": np.mean(parts),
            "wmean": np.average(parts, weights=(7, 30, 12)),
        }
        for aggregation, value in expected.items():
            assert getattr(getattr(score, aggregation), name) == pytest.approx(value, abs=1e-12)
        assert len(set(expected.values())) == 3


@pytest.mark.parametrize(
    ("width", "identical", "signs"),
    # Vectors of 16 signs have length 4, so that cosines are exact, and many of them are equal.
    [(32, 1, False), (16, 8, True)],
)
def test_scores_are_those_of_sentence_transformers_where_no_rounded_cosines_tie(
    width, identical, signs
):
    evaluation = pytest.importorskip(
        "sentence_transformers.sentence_transformer.evaluation",
        reason="sentence-transformers is not installed: nothing to compare with",
    )
    task, texts, table = sample((200,), width=width, seed=3, identical=identical)
    vectors = TextVectors(texts, np.sign(table) if signs else table)
    pairs = task.subsets[0].pairs

    class Model:
        similarity_fn_name = "cosine"

        def encode(self, sentences, **_):
            return vectors.of(sentences)

    evaluator = evaluation.EmbeddingSimilarityEvaluator(
        pairs.left, pairs.right, pairs.gold.tolist(), main_similarity="cosine", write_csv=False
    )
    evaluator.store_metrics_in_model_card_data = lambda *_, **__: None
    theirs = evaluator(Model())
    score = sts_correlations(task, vectors)
    assert (len(set(score.cosines.tolist())) < 20) == signs
    assert score.all.pearson == pytest.approx(theirs["pearson_cosine"], abs=1e-6)
    assert score.all.spearman == pytest.approx(theirs["spearman_cosine"], abs=1e-6)


def test_the_cosine_with_a_zero_vector_is_zero_and_identical_texts_are_ties():
    table = np.array([[0, 0, 0], [0.1, 0.7, 0.3], [0.9, 1e-3, 0.2]], np.float32)
    pairs = ScoredPairs(np.arange(4.0), ["a", "b", "c", "a"], ["b", "b", "c", "a"])
    cosines = pair_cosines(pairs, TextVectors(["a", "b", "c"], table))
    np.testing.assert_array_equal(cosines, [0, 1, 1, 0])
    task, texts, _ = sample()
    score = sts_correlations(task, TextVectors(texts, np.zeros((len(texts), 3), np.float32)))
    assert score.all.spearman == score.mean.pearson == score.wmean.pearson == 0


@pytest.mark.parametrize(
    ("gold", "message"),
    [([3.0, 3.0, 3.0], "found 3 for all 3 pairs"), ([1.0], "at least 2 scored pairs, found 1")],
)
def test_a_part_that_nothing_correlates_with_is_named(gold, message):
    names = [str(row) for row in range(len(gold))]
    task = STSTask("sick", (PairSubset("test", ScoredPairs(np.array(gold), names, names)),))
    with pytest.raises(BadInputError, match=f"^sick, part test: .*{message}"):
        sts_correlations(task, TextVectors(names, np.eye(len(gold), dtype=np.float32)))


class RandomEncoders:
    """Stands in for `SentenceEncoders`: a random vector for each text."""

    def __init__(self, names):
        self.names = names
        self.fit_on = []

    def vectors(self, texts, fit_on, done=lambda vectors: None):
        self.fit_on.append(list(fit_on))
        for seed in range(len(self.names)):
            vectors = np.random.default_rng(seed).standard_normal((len(texts), 5))
            done(len(texts))
            yield TextVectors(texts, vectors.astype(np.float32), cut=seed)


@pytest.fixture
def encoders(monkeypatch):
    """Two encoders of random vectors, in place of those that are named."""
    made = RandomEncoders(("one", "two"))
    monkeypatch.setattr("eval.sentences.experiment.SentenceEncoders", lambda names, loading: made)
    return made


@pytest.mark.parametrize("aggregation", ["all", "mean", "wmean"])
def test_values_and_intervals_are_of_the_aggregation_that_is_shown(encoders, aggregation):
    task, texts, _ = sample((12, 40), identical=0)
    steps = []

    def progress(name, total):
        steps.append([total, 0])
        stage = steps[-1]
        return lambda count: stage.__setitem__(1, stage[1] + count)

    settings = STSSettings(aggregation, resampling=Resampling(RESAMPLES, 4))
    (found,) = score_sts([task], encoders.names, settings, progress=progress).sets
    assert all(total == done for total, done in steps)
    # Encoders are fitted on the texts of the test alone.
    assert sorted(encoders.fit_on[0]) == sorted(texts)
    assert len(found.examples["gold"]) == len(found.examples["sentence2"]) == 52
    golds = [subset.pairs.gold for subset in task.subsets]
    weights = {"all": [1], "mean": [0.5, 0.5], "wmean": [12 / 52, 40 / 52]}[aggregation]
    if aggregation == "all":
        golds = [np.concatenate(golds)]
    for score, one in zip(found.scores, encoders.vectors(texts, []), strict=True):
        alone = sts_correlations(task, one)
        value = score.values["spearman"]
        assert value.value == getattr(alone, aggregation).spearman
        assert score.extra["part1 spearman"] == alone.subsets[1].score.spearman
        assert score.cut == one.cut
        np.testing.assert_array_equal(score.examples, alone.cosines)
        random = np.random.default_rng(4)
        drawn, start = np.zeros(RESAMPLES), 0
        for gold, weight in zip(golds, weights, strict=True):
            cosines = score.examples[start : start + len(gold)]
            start += len(gold)
            chosen = random.integers(0, len(gold), (RESAMPLES, len(gold)))
            drawn += [
                weight * scipy.stats.spearmanr(cosines[rows], gold[rows])[0] for rows in chosen
            ]
        level = scipy.stats.norm.cdf(-np.sqrt(52 / 51) * scipy.stats.t.ppf(0.975, 51))
        expected = np.quantile(drawn, [level, 1 - level])
        assert (value.low, value.high) == pytest.approx(expected, rel=1e-4)
    first, second = (score.values["pearson"] for score in found.scores)
    assert second.difference.value == pytest.approx(second.value - first.value)


@pytest.mark.soak
def test_minilm_on_sts_b_has_the_published_correlation(minilm, stsb):
    pairs = read_pairs([stsb.path])
    task = STSTask("stsb", (PairSubset("test", pairs),))
    texts = sts_texts(task)
    (found,) = embed_all([minilm], texts, stsb.cache)
    score = sts_correlations(task, TextVectors(texts, found.vectors))
    assert 100 * score.all.spearman == pytest.approx(82.03, abs=0.05)
    for one in (score.mean, score.wmean):
        assert one.pearson == pytest.approx(score.all.pearson, abs=1e-12)
        assert one.spearman == pytest.approx(score.all.spearman, abs=1e-12)
