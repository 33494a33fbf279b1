"""Training a cross-encoder: its loss, and which weights are trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from retriever.rerankers import train_cross_encoder
from retriever.training import JudgedPools, SamplingSettings, TrainingSet
from retriever.training.sampling import epoch_batches
from tests.retriever.training.training_samples import (
    DATA,
    PASSAGES,
    QUESTIONS,
    SETTINGS,
    copy_without_dropout,
    cross_encoder,
    have_equal_weights,
    scripted_scores,
    share_right,
    train,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_loss_and_active_share_are_those_of_the_triples(folders, tmp_path):
    # At a rate of 0 nothing changes, and every score can be had afterwards.
    rates = {"learning_rate": 0.0, "head_learning_rate": 0.0}
    settings = replace(SETTINGS, epochs=1, margin=0.01, **rates)
    lists = [[[0, 1], [2], [3], [], [4]], [[9, 10], [11, 12, 13], [], [14], [15, 16]]]
    pools = JudgedPools.of(*lists, len(PASSAGES))
    model = cross_encoder(
        copy_without_dropout(tmp_path / "bert", folders("bert")), training=True, dropout=0.0
    )
    _, epoch = train_cross_encoder(
        model, replace(DATA, pools=pools), settings, scripted_scores([0, 0])
    )
    losses, active = [], []
    for batch in epoch_batches(pools, settings.sampling, np.random.default_rng([0, 0])):
        texts = [QUESTIONS[row] for row in batch.question], [PASSAGES[row] for row in batch.passage]
        scores = model.score(*texts)
        each = np.maximum(0, 0.01 - scores[batch.positive] + scores[batch.negative])
        losses.append(each.mean())
        active.append((each > 0).mean())
    assert len(losses) == 2
    assert epoch.loss == pytest.approx(np.mean(losses), abs=1e-6)
    assert epoch.active == pytest.approx(np.mean(active))
    assert 0 < epoch.active < 1


def test_cross_encoder_learns_separable_triples(folders):
    _, curve = train(folders("bert"), replace(SETTINGS, epochs=12, patience=12))
    assert curve[0].dev < 1
    assert max(epoch.dev for epoch in curve) == 1
    assert curve[-1].loss < 0.8 * curve[1].loss


def test_untrained_head_is_kept_if_better_than_every_epoch(folders):
    before = weights(cross_encoder(folders("bert"), training=True))
    model, curve = train(folders("bert"), dev=scripted_scores([0.5, 0.4, 0.5, 0.3]), keep_head=True)
    assert have_equal_weights(weights(model), before)
    assert (curve[0].loss, curve[0].dev) == (0.0, 0.5)


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "distilbert", "albert"])
@pytest.mark.parametrize("words", [False, True])
def test_all_but_word_embeddings_and_the_pooler_is_trained(name, words, folders):
    model = cross_encoder(folders(name), training=True)
    before = weights(model)
    settings = replace(SETTINGS, epochs=1, train_word_embeddings=words)
    train_cross_encoder(model, DATA, settings, lambda _: 0.0)
    same_as_before = {
        one for one, value in weights(model).items() if torch.equal(value, before[one])
    }
    embedded = {one for one in before if "word_embedding" in one}
    assert len(embedded) == 1
    # No score depends on the rest of these.
    unread = {one for one in before if "pooler" in one or "mask_emb" in one}
    assert same_as_before == unread | (set() if words else embedded)


def test_only_the_weights_that_are_asked_for_are_trained(folders):
    model = cross_encoder(folders("bert"), training=True)
    before = weights(model)
    train_cross_encoder(model, DATA, replace(SETTINGS, train="last:1"), share_right)
    after = weights(model)
    found = {name for name in before if not torch.equal(after[name], before[name])}
    assert found == {
        name for name in before if name.startswith(("head.", "backbone.encoder.layer.2."))
    }


def test_cross_encoder_loss_is_zero_if_all_negatives_are_relevant(folders):
    pools = JudgedPools.of([[0]], [[]], 1)
    sampling = SamplingSettings("random", count=2, batch=1)
    model = cross_encoder(folders("bert"), training=True)
    data, settings = TrainingSet(["w1"], ["w2"], pools), replace(SETTINGS, sampling=sampling)
    curve = train_cross_encoder(model, data, settings, lambda _: 1.0)
    assert {(epoch.loss, epoch.active) for epoch in curve} == {(0.0, 0.0)}
