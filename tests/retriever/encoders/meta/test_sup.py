"""Training on gold similarities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from retriever.encoders.meta.attention_fitting import History, ScoredPairs, fit_attention
from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.settings import UnsupSettings
from retriever.encoders.meta.sources import WordBatch
from retriever.errors import BadInputError
from tests.retriever.encoders.meta.shared_signal import unit

WIDTHS, SIGNAL, LENGTH = (12, 10), 6, 4
SETTINGS = UnsupSettings(dimensions=SIGNAL, learning_rate=1e-2, epochs=6)


def _pairs(count: int, seed: int) -> ScoredPairs:
    """The first source is a rotated signal with noise in other dimensions, the second is noise."""
    chance = np.random.default_rng(seed)
    rotation = np.linalg.qr(np.random.default_rng(99).standard_normal((12, 12)))[0]
    words = 2 * count * LENGTH
    signal = chance.standard_normal((words, SIGNAL))
    # A sentence's words have a mean of their own, and that of a pair's two is more or less shared.
    topics = chance.standard_normal((count, 2, SIGNAL))
    topics[:, 1] += chance.uniform(0, 3, (count, 1)) * topics[:, 0]
    signal = np.repeat(topics.reshape(-1, SIGNAL), LENGTH, 0) + 0.3 * signal
    first = np.concatenate([signal, chance.standard_normal((words, 6))], 1) @ rotation.T
    vectors = tuple(
        unit(one).astype(np.float32) for one in (first, chance.standard_normal((words, 10)))
    )
    means = unit(signal.reshape(-1, LENGTH, SIGNAL).mean(1))
    gold = np.clip((means[0::2] * means[1::2]).sum(1), 0, 1)
    sentences = np.repeat(np.arange(2 * count), LENGTH)
    return ScoredPairs(WordBatch(vectors, sentences, np.arange(words)), gold.astype(np.float32))


TRAIN, DEV = [_pairs(40, seed) for seed in range(6)], [_pairs(60, 100), _pairs(60, 101)]


def _epochs(number: int) -> Iterator[ScoredPairs]:
    for batch in np.random.default_rng([1, number]).permutation(len(TRAIN)):
        yield TRAIN[batch]


@cache
def _fitted(settings: UnsupSettings) -> tuple[Projection, History]:
    return fit_attention(_epochs, WIDTHS, settings, dev=DEV)


def _cosines(projection: Projection, pairs: ScoredPairs, pooling: str) -> np.ndarray:
    words = sum(
        weight * x @ matrix.T
        for weight, matrix, x in zip(
            projection.weights, projection.matrices, pairs.words.vectors, strict=True
        )
    ).reshape(-1, LENGTH, SIGNAL)
    pooled = unit({"mean": words.mean(1), "max": words.max(1)}[pooling])
    return (pooled[0::2] * pooled[1::2]).sum(1)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_epoch_of_the_highest_correlation_on_dev_is_kept(pooling):
    projection, history = _fitted(replace(SETTINGS, pooling=pooling))
    cosines = np.concatenate([_cosines(projection, one, pooling) for one in DEV])
    gold = np.concatenate([one.gold for one in DEV])
    best = history.curve[history.best]
    assert best.score == max(epoch.score for epoch in history.curve)
    assert best.score == pytest.approx(np.corrcoef(cosines, gold)[0, 1], abs=1e-5)
    assert [epoch.held_out for epoch in history.curve] == [None] * len(history.curve)


def test_it_learns_and_the_weight_of_a_source_of_noise_falls():
    projection, history = _fitted(replace(SETTINGS, epochs=30))
    assert history.curve[0].score < 0.7
    assert len(history.curve) - 1 in (30, history.best + SETTINGS.patience)
    assert history.curve[history.best].score > 0.9
    assert projection.weights[1] < 0.4
    assert projection.weights.sum() == pytest.approx(1)
    first, second = (
        weight * np.linalg.norm(matrix)
        for weight, matrix in zip(projection.weights, projection.matrices, strict=True)
    )
    assert second < 0.4 * first


def test_a_sentence_without_words_and_words_without_vectors_are_defined():
    batch = TRAIN[0]
    zeros = [x.copy() for x in batch.words.vectors]
    for x in zeros:
        x[: 2 * LENGTH] = 0
    kept = batch.words.sentences >= 2
    without = WordBatch(
        tuple(x[kept] for x in batch.words.vectors),
        batch.words.sentences[kept],
        batch.words.types[kept],
    )
    fits = [
        fit_attention(
            lambda _, words=words: [ScoredPairs(words, batch.gold)], WIDTHS, SETTINGS, dev=DEV
        )
        for words in (without, replace(batch.words, vectors=tuple(zeros)))
    ]
    # Words that no source has are as if they were not there.
    losses = [[epoch.loss for epoch in fit[1].curve[1:]] for fit in fits]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert all(np.isfinite(matrix).all() for matrix in fits[0][0].matrices)


def test_constant_cosines_have_a_correlation_of_zero():
    words = replace(DEV[0].words, vectors=tuple(x * 0 for x in DEV[0].words.vectors))
    _, history = fit_attention(
        _epochs, WIDTHS, replace(SETTINGS, epochs=1), dev=[replace(DEV[0], words=words)]
    )
    assert [epoch.score for epoch in history.curve] == [0, 0]


def test_dev_pairs_of_one_similarity_are_refused():
    same = replace(DEV[0], gold=np.full(60, 0.5, np.float32))
    with pytest.raises(BadInputError, match="dev: expected pairs of different"):
        fit_attention(_epochs, WIDTHS, SETTINGS, dev=[same])
