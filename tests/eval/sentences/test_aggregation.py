"""STS scores against scipy, sentence-transformers and a published number."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from eval.datasets.pairs import PairSubset, ScoredPairs, STSTask, read_pairs
from eval.metrics.correlation import Correlations, correlations
from eval.sentences.sts import pair_cosines, sts_correlations, sts_texts
from eval.vectors import TextVectors, embed_all
from retriever.errors import BadInputError


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
    return np.array(
        [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(left, right, strict=True)]
    )


def test_each_part_and_each_aggregation_is_that_of_scipy_by_its_name():
    task, texts, table = sample()
    vectors = TextVectors(texts, table)
    score = sts_correlations(task, vectors)
    parts = []
    for subset, found in zip(task.subsets, score.subsets, strict=True):
        cosines = plain_cosines(subset.pairs, vectors).round(10)
        parts.append(
            (
                scipy.stats.pearsonr(cosines, subset.pairs.gold)[0],
                scipy.stats.spearmanr(cosines, subset.pairs.gold)[0],
            )
        )
        assert (found.score.pearson, found.score.spearman) == pytest.approx(parts[-1], abs=1e-12)
        assert (found.name, found.pairs) == (subset.name, len(subset.pairs))
    sizes = [len(subset.pairs) for subset in task.subsets]
    together = np.concatenate([plain_cosines(one.pairs, vectors) for one in task.subsets]).round(10)
    gold = np.concatenate([one.pairs.gold for one in task.subsets])
    assert score.all.spearman == pytest.approx(scipy.stats.spearmanr(together, gold)[0], abs=1e-12)
    assert score.all.pearson == pytest.approx(scipy.stats.pearsonr(together, gold)[0], abs=1e-12)
    for place, name in enumerate(("pearson", "spearman")):
        values = [part[place] for part in parts]
        weighted = sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
        assert getattr(score.mean, name) == pytest.approx(sum(values) / len(values), abs=1e-12)
        assert getattr(score.wmean, name) == pytest.approx(weighted, abs=1e-12)
    assert len({score.all.spearman, score.mean.spearman, score.wmean.spearman}) == 3


def sentence_transformers_scores(pairs, vectors):
    evaluation = pytest.importorskip(
        "sentence_transformers.sentence_transformer.evaluation",
        reason="sentence-transformers is not installed: nothing to compare with",
    )

    class Model:
        similarity_fn_name = "cosine"

        def encode(self, sentences, **_):
            return vectors(sentences)

    evaluator = evaluation.EmbeddingSimilarityEvaluator(
        pairs.left, pairs.right, pairs.gold.tolist(), main_similarity="cosine", write_csv=False
    )
    evaluator.store_metrics_in_model_card_data = lambda *_, **__: None
    found = evaluator(Model())
    return found["pearson_cosine"], found["spearman_cosine"]


def test_scores_are_those_of_sentence_transformers_for_the_same_vectors():
    task, texts, table = sample((200,), width=32, seed=3, identical=1)
    vectors = TextVectors(texts, table)
    ours = sts_correlations(task, vectors).all
    theirs = sentence_transformers_scores(task.subsets[0].pairs, vectors.of)
    assert (ours.pearson, ours.spearman) == pytest.approx(theirs, abs=1e-6)


def test_where_no_cosine_is_rounded_ties_are_those_of_sentence_transformers_too():
    # Vectors of 16 signs have length 4, so that cosines are exact, and many of them are equal.
    task, texts, table = sample((200,), width=16, seed=3, identical=8)
    vectors = TextVectors(texts, np.sign(table))
    score = sts_correlations(task, vectors)
    assert len(set(score.cosines.tolist())) < 20
    theirs = sentence_transformers_scores(task.subsets[0].pairs, vectors.of)
    assert (score.all.pearson, score.all.spearman) == pytest.approx(theirs, abs=1e-6)


def test_the_cosine_with_a_zero_vector_is_zero_and_identical_texts_are_ties():
    table = np.array([[0, 0, 0], [0.1, 0.7, 0.3], [0.9, 1e-3, 0.2]], np.float32)
    pairs = ScoredPairs(np.arange(4.0), ["a", "b", "c", "a"], ["b", "b", "c", "a"])
    cosines = pair_cosines(pairs, TextVectors(["a", "b", "c"], table))
    np.testing.assert_array_equal(cosines, [0, 1, 1, 0])


def test_an_encoder_without_any_difference_correlates_with_nothing():
    task, texts, _ = sample()
    score = sts_correlations(task, TextVectors(texts, np.zeros((len(texts), 3), np.float32)))
    assert score.all.spearman == score.mean.pearson == score.wmean.pearson == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=30))
def test_tied_values_share_their_mean_rank(values):
    scores, gold = (np.array(side, np.float64) for side in zip(*values, strict=True))
    if len(set(gold)) == 1:
        with pytest.raises(BadInputError, match="expected gold scores that differ"):
            correlations(scores, gold)
        return
    if len(set(scores)) == 1:
        assert correlations(scores, gold) == Correlations(0, 0)
        return

    def ranks(side):
        return np.array([(side < one).sum() + ((side == one).sum() + 1) / 2 for one in side])

    expected = np.corrcoef(ranks(scores), ranks(gold))[0, 1]
    found = correlations(scores, gold)
    assert found.spearman == pytest.approx(expected, abs=1e-9)
    assert found.pearson == pytest.approx(np.corrcoef(scores, gold)[0, 1], abs=1e-9)


@pytest.mark.parametrize(
    ("gold", "message"),
    [([3.0, 3.0, 3.0], "found 3 for all 3 pairs"), ([1.0], "at least 2 scored pairs, found 1")],
)
def test_a_part_that_nothing_correlates_with_is_named(gold, message):
    names = [str(row) for row in range(len(gold))]
    task = STSTask("sick", (PairSubset("test", ScoredPairs(np.array(gold), names, names)),))
    vectors = TextVectors(names, np.eye(len(gold), dtype=np.float32))
    with pytest.raises(BadInputError, match=message) as caught:
        sts_correlations(task, vectors)
    assert str(caught.value).startswith("sick, part test: ")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_neither_scipy_nor_scikit_learn_is_needed():
    code = "import sys; sys.modules.update(scipy=None, sklearn=None); import numpy as np; "
    code += "from eval.metrics.correlation import correlations; "
    code += "print(correlations(np.arange(4.0), np.arange(4.0)).spearman)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == 1


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
