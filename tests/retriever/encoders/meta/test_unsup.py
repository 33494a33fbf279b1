"""Training without labels: a toy with a known answer, resuming, odd input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from retriever.encoders.meta.attention import AttentionModel, Words, unsup_loss
from retriever.encoders.meta.attention_fitting import History, MetaEpoch, fit_attention
from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.settings import UnsupSettings
from retriever.encoders.meta.sources import WordBatch
from retriever.errors import ConfigError
from retriever.training.checkpoint import Checkpoint
from tests.retriever.encoders.meta.shared_signal import (
    SIGNAL,
    WIDTHS,
    SharedSignal,
    agreement,
    meta_vectors,
    unit,
)

TOY = UnsupSettings(dimensions=SIGNAL, learning_rate=1e-2, epochs=30)
SHORT = replace(TOY, epochs=4)


@cache
def _words(*levels: float) -> SharedSignal:
    return SharedSignal.drawn(levels or (0.3, 0.3))


@cache
def _fitted(settings: UnsupSettings, *levels: float) -> tuple[Projection, History]:
    words = _words(*levels)
    return fit_attention(words.epochs, WIDTHS, settings, held_out=words.held_out)


def _same(a: Projection, b: Projection) -> bool:
    pairs = zip((*a.matrices, a.weights), (*b.matrices, b.weights), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def _nearest(projection: Projection, words: SharedSignal) -> float:
    """Share of the words whose projections by the two sources are each other's nearest."""
    left, right = (
        unit(x @ matrix.T) for matrix, x in zip(projection.matrices, words.sources, strict=True)
    )
    return float(np.mean((left @ right.T).argmax(1) == np.arange(len(left))))


@pytest.mark.parametrize("levels", [(0.3, 0.3), (0.3, 1.0), (1.0, 0.3)])
def test_it_finds_what_two_rotated_noisy_sources_share(levels):
    words = _words(*levels)
    projection, history = _fitted(TOY, *levels)
    untrained, _ = fit_attention(
        words.epochs, WIDTHS, replace(TOY, epochs=1, learning_rate=1e-12), held_out=words.held_out
    )
    assert _nearest(untrained, words) < 0.05
    assert _nearest(projection, words) > 0.97
    for matrix, noise in zip(projection.matrices, words.noise, strict=True):
        assert np.linalg.norm(matrix @ noise) ** 2 < 0.03 * np.linalg.norm(matrix) ** 2
    found = agreement(meta_vectors(projection, words.sources), words.signal)
    assert found > max(agreement(x, words.signal) for x in words.sources)
    assert found > 0.99 > agreement(meta_vectors(untrained, words.sources), words.signal) + 0.1
    assert history.curve[history.best].held_out < history.curve[0].held_out / 2


def test_equal_sources_have_orthogonal_projections_and_about_equal_weights_of_sum_one():
    projection, _ = _fitted(TOY)
    for matrix in projection.matrices:
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(SIGNAL), atol=0.1)
    assert projection.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(projection.weights, 0.5, atol=0.02)


@pytest.mark.parametrize(("levels", "noisier"), [((0.3, 1.0), 1), ((1.0, 0.3), 0)])
def test_the_noisier_source_has_the_lower_weight_unless_the_margin_is_small(levels, noisier):
    assert _fitted(TOY, *levels)[0].weights[noisier] < 0.45
    # It has the shorter projections, all of them of unit vectors.
    assert _fitted(replace(TOY, margin=1.0), *levels)[0].weights[noisier] > 0.5


def test_without_weights_all_sources_count_alike():
    projection, history = _fitted(replace(SHORT, weights=False))
    assert projection.weights.tolist() == [0.5, 0.5]
    assert {epoch.weights for epoch in history.curve} == {(0.5, 0.5)}


@pytest.mark.parametrize("trained", [True, False])
def test_the_loss_is_its_definition(trained):
    """Eqs. 6 to 10 pair by pair, of two sources."""
    settings = UnsupSettings(
        weights=trained, dimensions=6, margin=2.0, lambda_=0.5, mu=2.0, nu=3.0, xi=0.25
    )
    model, batch = AttentionModel(WIDTHS, settings), _words().held_out[0]
    words = Words(batch)
    words.vectors = [one.double() for one in words.vectors]
    chance = torch.Generator().manual_seed(3)
    for name, tensor in model.tensors.items():
        value = torch.empty(tensor.shape, dtype=torch.float64)
        model.tensors[name] = value.uniform_(-0.4, 0.5, generator=chance)
    powers = np.exp(model.tensors["weights"].numpy()) if trained else np.ones(2)
    matrices = [one.numpy() for one in model.matrices]
    left, right = (
        factor * x @ matrix.T
        for factor, x, matrix in zip(
            2 * powers / powers.sum(), batch.vectors, matrices, strict=True
        )
    )
    gaps = ((left[:, None] - right[None]) ** 2).sum(2)
    sentence = batch.sentences[:, None] == batch.sentences
    form = batch.types[:, None] == batch.types
    pushes = [
        np.maximum(0, 2.0 - gaps[mask]).mean()
        for mask in (sentence & ~form, ~sentence & form, ~sentence & ~form)
    ]
    orthogonal = sum(np.linalg.norm(one @ one.T - np.eye(6)) ** 2 for one in matrices)
    expected = np.diag(gaps).mean() + np.dot([0.5, 2.0, 3.0], pushes) + 0.25 * orthogonal
    assert unsup_loss(model, words, settings).item() == pytest.approx(expected, rel=1e-9)


def test_the_same_seed_gives_the_same_bits_and_another_one_others():
    words = _words()
    again = fit_attention(words.epochs, WIDTHS, SHORT, held_out=words.held_out)
    assert _same(again[0], _fitted(SHORT)[0])
    assert again[1] == _fitted(SHORT)[1]
    assert not _same(_fitted(replace(SHORT, seed=1))[0], again[0])


@pytest.mark.parametrize("place", [1, 4])
def test_an_interrupted_training_resumes_to_the_same_bits(tmp_path: Path, place):
    words, settings = _words(), SHORT
    checkpoint = Checkpoint(tmp_path / "checkpoint", {})

    def interrupted(number: int) -> Iterator[WordBatch]:
        for step, batch in enumerate(words.epochs(number)):
            if number == place and step == 3:
                raise KeyboardInterrupt
            yield batch

    with pytest.raises(KeyboardInterrupt):
        fit_attention(interrupted, WIDTHS, settings, held_out=words.held_out, checkpoint=checkpoint)
    begun: list[int] = []
    seen: list[MetaEpoch] = []

    def rest(number: int) -> Iterator[WordBatch]:
        begun.append(number)
        return words.epochs(number)

    projection, history = fit_attention(
        rest, WIDTHS, settings, held_out=words.held_out, checkpoint=checkpoint, done=seen.append
    )
    assert begun == list(range(place, 5))
    assert tuple(seen) == history.curve
    assert history == _fitted(settings)[1]
    assert _same(projection, _fitted(settings)[0])
    # A finished training gives its result again.
    again = fit_attention(
        pytest.fail, WIDTHS, settings, held_out=words.held_out, checkpoint=checkpoint
    )
    assert _same(again[0], projection)


def test_without_a_score_the_held_out_loss_stops_training():
    projection, history = _fitted(replace(TOY, epochs=200))
    losses = [epoch.held_out for epoch in history.curve]
    assert len(losses) < 201
    assert history.best == int(np.argmin(losses)) == len(losses) - 1 - TOY.patience
    # What is returned has that loss.
    model = AttentionModel(WIDTHS, TOY)
    with torch.no_grad():
        for tensor, matrix in zip(model.matrices, projection.matrices, strict=True):
            tensor.copy_(torch.from_numpy(matrix))
        model.tensors["weights"].copy_(torch.from_numpy(projection.weights).log())
        held_out = [unsup_loss(model, Words(one), TOY) for one in _words().held_out]
    assert float(np.mean(held_out)) == pytest.approx(min(losses), rel=1e-4)


def _single(batch: WordBatch, words: slice, sentences: np.ndarray) -> WordBatch:
    return WordBatch(tuple(x[words] for x in batch.vectors), sentences, batch.types[words])


@pytest.mark.parametrize("case", ["one word each", "one sentence", "one word", "lacking", "empty"])
def test_odd_batches_train(case):
    whole = _words().held_out[0]
    none = np.zeros(0, np.int64)
    batch = {
        "one word each": _single(whole, slice(0, 9), np.arange(9)),
        "one sentence": _single(whole, slice(0, 6), np.zeros(6, np.int64)),
        "one word": _single(whole, slice(0, 1), np.zeros(1, np.int64)),
        "lacking": WordBatch(
            (whole.vectors[0], np.zeros_like(whole.vectors[1])), whole.sentences, whole.types
        ),
        "empty": WordBatch(tuple(x[:0] for x in whole.vectors), none, none),
    }[case]
    settings = replace(SHORT, pooling="max")
    projection, history = fit_attention(
        lambda _: [batch, whole], WIDTHS, settings, held_out=[batch, whole]
    )
    assert all(np.isfinite(matrix).all() for matrix in projection.matrices)
    assert all(math.isfinite(epoch.held_out) for epoch in history.curve)


def test_more_sources_and_a_meta_space_wider_than_one_of_them():
    words = _words()

    def three(batches):
        for one in batches:
            yield WordBatch((*one.vectors, one.vectors[0][:, :5]), one.sentences, one.types)

    projection, history = fit_attention(
        lambda number: three(words.epochs(number)),
        (*WIDTHS, 5),
        replace(SHORT, dimensions=None, margin=1.0),
        held_out=list(three(words.held_out)),
    )
    assert [matrix.shape for matrix in projection.matrices] == [(20, 20), (20, 16), (20, 5)]
    assert history.best > 0


@pytest.mark.parametrize("rate", [1e3, 1e30])
def test_a_training_that_diverges_is_an_error(rate):
    words = _words()
    settings = replace(SHORT, learning_rate=rate)
    with pytest.raises(ConfigError, match="learning_rate: the training diverged"):
        fit_attention(words.epochs, WIDTHS, settings, held_out=words.held_out)
