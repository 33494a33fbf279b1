"""UNSUP and SUP: their terms pair by pair, toys with known answers, resuming, odd input."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from retriever.encoders.meta import MetaSettings, UnsupSettings, attention
from retriever.encoders.meta.attention import (
    AttentionModel,
    ScoredBatch,
    WordTensors,
    fit_attention,
    orthogonality,
    pair_means,
    pool,
    unsup_loss,
)
from retriever.encoders.meta.sources import WordBatch
from retriever.errors import BadInputError, ConfigError
from retriever.training import Checkpoint
from tests.retriever.encoders.plain import unit

SENTENCES = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
TYPES = torch.tensor([4, 5, 4, 5, 6, 4, 7, 8])


def drawn(sources=3):
    """The projections of eight words by several sources, two of which lack a word."""
    chance = torch.Generator().manual_seed(0)
    projected = [torch.randn(8, 4, dtype=torch.float64, generator=chance) for _ in range(sources)]
    present = torch.ones(sources, 8, dtype=torch.bool)
    present[0, 1] = present[1, 6] = False
    return projected, present


@pytest.mark.parametrize("block", [1024, 3])
@pytest.mark.parametrize("margin", [6.0, 1.5])
def test_attention_means_equal_means_over_pairs(margin, block, monkeypatch):
    monkeypatch.setattr(attention, "BLOCK", block)
    projected, present = drawn()
    costs = [[], [], [], []]
    for (i, j), a, b in product([(0, 1), (0, 2), (1, 2)], range(8), range(8)):
        if not (present[i][a] and present[j][b]) or a // block != b // block:
            continue
        gap = float(np.sum((projected[i][a].numpy() - projected[j][b].numpy()) ** 2))
        equals = bool(SENTENCES[a] == SENTENCES[b]), bool(TYPES[a] == TYPES[b])
        term = {(True, False): 1, (False, True): 2, (False, False): 3}.get(equals)
        if a == b:
            costs[0].append(gap)
        elif term:
            costs[term].append(max(0.0, margin - gap))
    expected = [float(np.mean(one)) if one else 0.0 for one in costs]
    found = pair_means(projected, present, SENTENCES, TYPES, margin)
    np.testing.assert_allclose([float(term) for term in found], expected, rtol=1e-12)


def test_loss_terms_without_pairs_are_zero():
    projected, present = drawn(2)

    def above_zero(sentences, types):
        count = len(sentences)
        parts = ([one[:count] for one in both] for both in (projected, present))
        found = pair_means(*parts, *map(torch.tensor, (sentences, types)), margin=60.0)
        return [float(term) > 0 for term in found]

    assert above_zero([0, 1, 2], [1, 1, 2]) == [True, False, True, True]
    assert above_zero([0, 0, 0], [1, 2, 3]) == [True, True, False, False]
    assert above_zero([], []) == [False] * 4


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_orthogonality_penalty_equals_frobenius_norm_of_numpy(shape):
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    a = matrix.numpy()
    gram = a @ a.T if shape[0] < shape[1] else a.T @ a
    expected = np.linalg.norm(gram - np.eye(len(gram)), "fro") ** 2
    assert float(orthogonality(matrix)) == pytest.approx(expected)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pooling_of_words_equals_numpy_per_sentence(pooling):
    words = drawn()[0][0]
    sentences = np.array([0, 0, 0, 2, 2, 3, 3, 3])
    found = pool(words, torch.from_numpy(sentences), 5, pooling)
    reduce = {"mean": np.mean, "max": np.max}[pooling]
    for sentence in range(5):
        rows = words.numpy()[sentences == sentence]
        # Not what padding with zeros would give: the maximum of negative components is negative.
        expected = reduce(rows, 0) if len(rows) else np.zeros(4)
        np.testing.assert_allclose(found[sentence], expected, rtol=1e-12)


# Words of which two sources see the same signal, each rotated, with noise of its own.

SIGNAL, WIDTHS = 8, (20, 16)
WORDS, LENGTH, BATCH = 480, 6, 10


def changed(settings, **training):
    return replace(settings, training=replace(settings.training, **training))


TOY = changed(MetaSettings("unsup", SIGNAL), learning_rate=1e-2, epochs=30)
SHORT = changed(TOY, epochs=4)


@cache
def toy(levels=(0.3, 0.3)):
    """Sentences of `LENGTH` words, the last 20 of 80 held out; noise of these deviations."""
    chance = np.random.default_rng(0)
    signal, sources, noise = chance.standard_normal((WORDS, SIGNAL)), [], []
    for width, level in zip(WIDTHS, levels, strict=True):
        rotation = np.linalg.qr(chance.standard_normal((width, width)))[0]
        own = level * chance.standard_normal((WORDS, width - SIGNAL))
        sources.append(unit(np.concatenate([signal, own], 1) @ rotation.T).astype(np.float32))
        noise.append(rotation[:, SIGNAL:])
    types = chance.integers(0, 50, WORDS)

    def batch(sentences):
        words = (sentences[:, None] * LENGTH + np.arange(LENGTH)).ravel()
        owners = np.repeat(np.arange(len(sentences)), LENGTH)
        return WordBatch(tuple(source[words] for source in sources), owners, types[words])

    def epochs(number):
        order = np.random.default_rng([5, number]).permutation(60)
        for start in range(0, 60, BATCH):
            yield batch(order[start : start + BATCH])

    held_out = [batch(np.arange(60, 70)), batch(np.arange(70, 80))]
    return SimpleNamespace(
        signal=signal, sources=sources, noise=noise, epochs=epochs, held_out=held_out
    )


def fit_toy(settings, words, **options):
    return fit_attention(words.epochs, WIDTHS, settings, held_out=words.held_out, **options)


@cache
def fitted(settings, levels=(0.3, 0.3)):
    return fit_toy(settings, toy(levels))


def equals(a, b):
    pairs = zip((*a.matrices, a.weights), (*b.matrices, b.weights), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def agreement(vectors, signal):
    """Pearson correlation of the cosines of held-out words with those of their signal."""
    pairs = np.triu_indices(120, 1)
    found, true = (unit(one[360:]) @ unit(one[360:]).T for one in (vectors, signal))
    return float(np.corrcoef(found[pairs], true[pairs])[0, 1])


@pytest.mark.parametrize(("levels", "noisier"), [((0.3, 0.3), None), ((0.3, 1), 1), ((1, 0.3), 0)])
def test_unsupervised_training_recovers_shared_signal_of_noisy_sources(levels, noisier):
    words = toy(levels)
    projection, history = fitted(TOY, levels)
    untrained, _ = fit_toy(changed(TOY, epochs=1, learning_rate=1e-12), words)

    def measured(one):
        """The share of words that are each other's nearest, and the agreement with the signal."""
        parts = [x @ m.T for m, x in zip(one.matrices, words.sources, strict=True)]
        left, right = map(unit, parts)
        near = np.mean((left @ right.T).argmax(1) == np.arange(WORDS))
        meta = sum(w * part for w, part in zip(one.weights, parts, strict=True))
        return near, agreement(meta, words.signal)

    near, found = measured(projection)
    near_before, before = measured(untrained)
    assert near_before < 0.05
    assert near > 0.97
    assert found > max(agreement(x, words.signal) for x in words.sources)
    assert found > 0.99 > before + 0.1
    for matrix, noise in zip(projection.matrices, words.noise, strict=True):
        assert np.linalg.norm(matrix @ noise) ** 2 < 0.03 * np.linalg.norm(matrix) ** 2
    assert history.curve[history.best].held_out < history.curve[0].held_out / 2
    assert projection.weights.sum() == pytest.approx(1)
    if noisier is None:
        for matrix in projection.matrices:
            np.testing.assert_allclose(matrix @ matrix.T, np.eye(SIGNAL), atol=0.1)
        np.testing.assert_allclose(projection.weights, 0.5, atol=0.02)
        return
    assert projection.weights[noisier] < 0.45
    # With a small margin it has the shorter projections, all of them of unit vectors.
    assert fitted(changed(TOY, margin=1.0), levels)[0].weights[noisier] > 0.5


@pytest.mark.parametrize("trained", [True, False])
def test_the_loss_is_the_sum_of_its_terms(trained):
    meta = MetaSettings("unsup", 6, training=UnsupSettings(weights=trained))
    model, batch = AttentionModel(WIDTHS, meta), toy().held_out[0]
    words = WordTensors(batch)
    words.vectors = [vector.double() for vector in words.vectors]
    chance = torch.Generator().manual_seed(3)
    for name, tensor in model.tensors.items():
        value = torch.empty(tensor.shape, dtype=torch.float64)
        model.tensors[name] = value.uniform_(-0.4, 0.5, generator=chance)
    powers = np.exp(model.tensors["weights"].numpy()) if trained else np.ones(2)
    projected = [
        torch.from_numpy(factor * x @ matrix.numpy().T)
        for factor, x, matrix in zip(
            2 * powers / powers.sum(), batch.vectors, model.matrices, strict=True
        )
    ]
    terms = pair_means(projected, words.present, words.sentences, words.types, 2.0)
    expected = sum(map(float, (*terms, *map(orthogonality, model.matrices))))
    assert min(map(float, terms)) > 0
    assert unsup_loss(model, words, 2.0).item() == pytest.approx(expected, rel=1e-9)
    weights = model.projection().weights
    np.testing.assert_allclose(weights, powers / powers.sum(), rtol=1e-6)


def test_an_interrupted_training_resumes_to_the_same_bits(tmp_path):
    words, begun, seen = toy(), [], []
    resumed = partial(
        fit_attention,
        widths=WIDTHS,
        settings=SHORT,
        held_out=words.held_out,
        checkpoint=Checkpoint(tmp_path / "checkpoint", {}),
    )

    def interrupted(number):
        for step, batch in enumerate(words.epochs(number)):
            if number == 4 and step == 3:
                raise KeyboardInterrupt
            yield batch

    def rest(number):
        begun.append(number)
        return words.epochs(number)

    with pytest.raises(KeyboardInterrupt):
        resumed(interrupted)
    projection, history = resumed(rest, done=seen.append)
    assert begun == [4]
    assert tuple(seen) == history.curve
    assert history == fitted(SHORT)[1]
    assert equals(projection, fitted(SHORT)[0])
    # A finished training gives its result again.
    assert equals(resumed(pytest.fail)[0], projection)


def test_unsupervised_training_stops_on_held_out_loss():
    projection, history = fitted(changed(TOY, epochs=200))
    losses = [epoch.held_out for epoch in history.curve]
    assert len(losses) < 201
    assert history.best == int(np.argmin(losses)) == len(losses) - 1 - TOY.training.patience
    # What is returned has that loss.
    model = AttentionModel(WIDTHS, TOY)
    with torch.no_grad():
        for tensor, matrix in zip(model.matrices, projection.matrices, strict=True):
            tensor.copy_(torch.from_numpy(matrix))
        model.tensors["weights"].copy_(torch.from_numpy(projection.weights).log())
        held_out = [
            unsup_loss(model, WordTensors(one), TOY.training.margin) for one in toy().held_out
        ]
    assert float(np.mean(held_out)) == pytest.approx(min(losses), rel=1e-4)


def test_training_accepts_three_sources_equal_weights_and_wide_meta_space():
    def three(batches):
        for batch in batches:
            yield replace(batch, vectors=(*batch.vectors, batch.vectors[0][:, :5]))

    projection, history = fit_attention(
        lambda number: three(toy().epochs(number)),
        (*WIDTHS, 5),
        changed(replace(SHORT, dimensions=None), margin=1.0, weights=False),
        held_out=list(three(toy().held_out)),
    )
    assert [matrix.shape for matrix in projection.matrices] == [(20, 20), (20, 16), (20, 5)]
    assert history.best > 0
    third = pytest.approx((1 / 3,) * 3)
    assert all(epoch.weights == third for epoch in history.curve)


@pytest.mark.parametrize("rate", [1e3, 1e30])
def test_diverging_training_raises_error(rate):
    with pytest.raises(ConfigError, match="learning_rate: the training diverged"):
        fit_toy(changed(SHORT, learning_rate=rate), toy())


# SUP: the first source is a rotated signal with noise in other dimensions, the second is noise.

SUP_SIGNAL, SUP_WIDTHS, SUP_LENGTH = 6, (12, 10), 4
SUP = changed(MetaSettings("sup", SUP_SIGNAL, "mean"), learning_rate=1e-2, epochs=6)


def scored_pairs(count, seed):
    chance = np.random.default_rng(seed)
    rotation = np.linalg.qr(np.random.default_rng(99).standard_normal((12, 12)))[0]
    words = 2 * count * SUP_LENGTH
    signal = chance.standard_normal((words, SUP_SIGNAL))
    # A sentence's words have a mean of their own, and that of a pair's two is more or less shared.
    topics = chance.standard_normal((count, 2, SUP_SIGNAL))
    topics[:, 1] += chance.uniform(0, 3, (count, 1)) * topics[:, 0]
    signal = np.repeat(topics.reshape(-1, SUP_SIGNAL), SUP_LENGTH, 0) + 0.3 * signal
    first = np.concatenate([signal, chance.standard_normal((words, 6))], 1) @ rotation.T
    second = chance.standard_normal((words, 10))
    vectors = tuple(unit(one).astype(np.float32) for one in (first, second))
    means = unit(signal.reshape(-1, SUP_LENGTH, SUP_SIGNAL).mean(1))
    gold = np.clip((means[0::2] * means[1::2]).sum(1), 0, 1)
    sentences = np.repeat(np.arange(2 * count), SUP_LENGTH)
    return ScoredBatch(WordBatch(vectors, sentences, np.arange(words)), gold.astype(np.float32))


TRAIN = [scored_pairs(40, seed) for seed in range(6)]
DEV = [scored_pairs(60, 100), scored_pairs(60, 101)]


def fit_sup(settings, train=TRAIN, dev=DEV):
    def epochs(number):
        for batch in np.random.default_rng([1, number]).permutation(len(train)):
            yield train[batch]

    return fit_attention(epochs, SUP_WIDTHS, settings, dev=dev)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_epoch_of_the_highest_correlation_on_dev_is_kept(pooling):
    projection, history = fit_sup(replace(SUP, pooling=pooling))
    parts = zip(projection.weights, projection.matrices, strict=True)
    vectors = [np.concatenate(one) for one in zip(*(one.words.vectors for one in DEV), strict=True)]
    words = sum(w * x @ m.T for (w, m), x in zip(parts, vectors, strict=True))
    words = words.reshape(-1, SUP_LENGTH, SUP_SIGNAL)
    pooled = unit({"mean": words.mean(1), "max": words.max(1)}[pooling])
    cosines = (pooled[0::2] * pooled[1::2]).sum(1)
    gold = np.concatenate([one.gold for one in DEV])
    best = history.curve[history.best]
    assert best.score == max(epoch.score for epoch in history.curve)
    assert best.score == pytest.approx(np.corrcoef(cosines, gold)[0, 1], abs=1e-5)
    assert [epoch.held_out for epoch in history.curve] == [None] * len(history.curve)


def test_supervised_training_learns_and_lowers_weight_of_noise_source():
    projection, history = fit_sup(changed(SUP, epochs=30))
    assert history.curve[0].score < 0.7
    assert len(history.curve) - 1 in (30, history.best + SUP.training.patience)
    assert history.curve[history.best].score > 0.9
    assert projection.weights[1] < 0.4
    lengths = [np.linalg.norm(matrix) for matrix in projection.matrices]
    first, second = projection.weights * lengths
    assert second < 0.4 * first


def test_words_unknown_to_all_sources_do_not_change_loss():
    words, kept = TRAIN[0].words, TRAIN[0].words.sentences >= 2
    zeros = replace(words, vectors=tuple(x * kept[:, None] for x in words.vectors))
    vectors = tuple(x[kept] for x in words.vectors)
    without = WordBatch(vectors, words.sentences[kept], words.types[kept])
    fits = [fit_sup(SUP, [ScoredBatch(one, TRAIN[0].gold)]) for one in (without, zeros)]
    losses = [[epoch.loss for epoch in fit[1].curve[1:]] for fit in fits]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert np.isfinite(losses).all()


def test_constant_cosines_have_a_correlation_of_zero_and_constant_scores_are_refused():
    words = replace(DEV[0].words, vectors=tuple(x * 0 for x in DEV[0].words.vectors))
    _, history = fit_sup(changed(SUP, epochs=1), dev=[replace(DEV[0], words=words)])
    assert [epoch.score for epoch in history.curve] == [0, 0]
    with pytest.raises(BadInputError, match="dev: expected pairs of different"):
        fit_sup(SUP, dev=[replace(DEV[0], gold=np.full(60, 0.5, np.float32))])
