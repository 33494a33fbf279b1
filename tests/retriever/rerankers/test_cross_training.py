"""Training a cross-encoder: losses, and which weights are trained at which rates."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from retriever.rerankers.cross_training import _CrossTask, train_cross_encoder
from retriever.training.sampling import JudgedPools, TrainingSet, epoch_batches
from retriever.training.settings import SamplingSettings
from tests.retriever.training.training_samples import (
    DATA,
    PASSAGES,
    QUESTIONS,
    SETTINGS,
    cross_encoder,
    same,
    scripted,
    share_right,
    still,
    train,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def losses_of(loss, scores, batch):
    if loss == "pointwise":
        return np.logaddexp(0, np.where(batch.relevant, -scores, scores))
    if loss == "hinge":
        return np.maximum(0, 0.01 - scores[batch.positive] + scores[batch.negative])
    pools = [[good, *batch.negative[batch.positive == good]] for good in np.unique(batch.positive)]
    return np.array([np.log(np.exp(scores[pool] - scores[pool[0]]).sum()) for pool in pools])


@pytest.mark.parametrize("loss", ["hinge", "softmax", "pointwise"])
def test_loss_and_active_share_are_those_of_the_examples(folders, tmp_path, loss):
    # At a rate of 0 nothing changes, and every score can be had afterwards.
    settings = replace(
        SETTINGS,
        **{"learning_rate": 0.0, "head_learning_rate": 0.0, "epochs": 1, "loss": loss},
        margin=0.01 if loss == "hinge" else 1.0,
    )
    # Questions with a relevant passage alone, or with none, have a pointwise loss.
    lists = [[[0, 1], [2], [3], [], [4]], [[9, 10], [11, 12, 13], [], [14], [15, 16]]]
    pools = JudgedPools.of(*lists, len(PASSAGES))
    model = cross_encoder(still(tmp_path / "bert", folders("bert")), training=True, dropout=0.0)
    _, epoch = train_cross_encoder(model, replace(DATA, pools=pools), settings, scripted([0, 0]))
    losses, active = [], []
    chance = np.random.default_rng([0, 0])
    pointwise = loss == "pointwise"
    for batch in epoch_batches(pools, settings.sampling, chance, pointwise=pointwise):
        texts = [QUESTIONS[row] for row in batch.question], [PASSAGES[row] for row in batch.passage]
        each = losses_of(loss, model.score(*texts), batch)
        losses.append(each.mean())
        active.append((each > 0).mean())
    assert len(losses) == (3 if pointwise else 2)
    assert epoch.loss == pytest.approx(np.mean(losses), abs=1e-6)
    assert epoch.active == pytest.approx(np.mean(active))
    assert (0 < epoch.active < 1) == (loss == "hinge")


@pytest.mark.parametrize("loss", ["hinge", "softmax", "pointwise"])
def test_what_can_be_told_apart_is_learnt(folders, loss):
    _, curve = train(folders("bert"), replace(SETTINGS, epochs=12, patience=12, loss=loss))
    assert curve[0].dev < 1
    assert max(one.dev for one in curve) == 1
    assert curve[-1].loss < 0.8 * curve[1].loss


def test_a_head_that_is_kept_may_be_better_than_every_epoch(folders):
    before = weights(cross_encoder(folders("bert"), training=True))
    model, curve = train(folders("bert"), dev=scripted([0.5, 0.4, 0.5, 0.3]), keep_head=True)
    assert same(weights(model), before)
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


@pytest.mark.parametrize(
    ("trained", "changed"),
    [
        ("last:1", r"encoder\.layer\.2\."),
        ("lora:2", r"encoder\.layer\.\d\..*(query|key|value|dense)\.weight"),
    ],
)
def test_only_the_weights_that_are_asked_for_are_trained(folders, trained, changed):
    model = cross_encoder(folders("bert"), training=True)
    before = weights(model)
    settings = replace(SETTINGS, train=trained)
    train_cross_encoder(model, DATA, settings, share_right)
    # Adapters are merged: the parameters are those of an ordinary model.
    after = weights(model)
    assert after.keys() == before.keys()
    found = {name for name in before if not torch.equal(after[name], before[name])}
    asked = {name for name in before if re.match(rf"head\.|backbone\.{changed}", name)}
    assert found == asked


def test_negatives_that_all_happen_to_answer_are_no_loss(folders):
    pools = JudgedPools.of([[0]], [[]], 1)
    sampling = SamplingSettings("random", count=2, batch=1)
    model = cross_encoder(folders("bert"), training=True)
    data, settings = TrainingSet(["w1"], ["w2"], pools), replace(SETTINGS, sampling=sampling)
    curve = train_cross_encoder(model, data, settings, lambda _: 1.0)
    assert {(one.loss, one.active) for one in curve} == {(0.0, 0.0)}


@pytest.mark.parametrize(
    ("name", "part", "layers"),
    [
        ("bert", "full", ["encoder.layer.0.", "encoder.layer.1.", "encoder.layer.2."]),
        ("bert", "lora:2", ["encoder.layer.0.", "encoder.layer.1.", "encoder.layer.2."]),
        ("distilbert", "full", [f"transformer.layer.{number}." for number in range(3)]),
        # One layer, computed three times.
        ("albert", "full", ["encoder.albert_layer_groups.0."]),
    ],
)
def test_rates_fall_by_a_factor_from_each_layer_to_the_one_below(folders, name, part, layers):
    settings = replace(SETTINGS, layer_decay=0.5, train=part)
    task = _CrossTask(cross_encoder(folders(name), training=True), DATA, settings, share_right)
    # Adapters learn at ten times the rate.
    top = settings.learning_rate * (10 if part == "lora:2" else 1)
    seen = set()
    for weight in task.weights:
        if weight.startswith("head."):
            assert task.rate(weight) == settings.head_learning_rate
            continue
        above = [layer for layer, start in enumerate(layers, 1) if f"backbone.{start}" in weight]
        layer = above[0] if above else 0
        assert layer or "embed" in weight
        assert task.rate(weight) == pytest.approx(top * 0.5 ** (len(layers) - layer))
        seen.add(layer)
    assert seen == set(range(part != "full", len(layers) + 1))
