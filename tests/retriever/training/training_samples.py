"""Small cross-encoders, and questions that one learns in seconds."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import torch

from retriever.encoders import find_model
from retriever.encoders.transformer.backbone import Backbone
from retriever.rerankers import CrossEncoder, CrossHead, train_cross_encoder
from retriever.training import (
    Checkpoint,
    CrossTrainingSettings,
    JudgedPools,
    SamplingSettings,
    TrainingSet,
)
from retriever.training.sampling import epoch_batches

QUESTIONS = ["w1 w2", "w3", "w4 w5 w6 w11", "w1 w9", "w2 w5"]
PASSAGES = [f"w{a} w{20 + b} w{a}" for a, b in product((7, 8), range(9))] + ["w7 w10", "w8 w12 w13"]
_ANSWERS = [row for row, text in enumerate(PASSAGES) if "w7" in text]
_OTHERS = [row for row, text in enumerate(PASSAGES) if "w8" in text]
# Passages with w7 are answers, those with w8 are not; each question has its own.
POOLS = JudgedPools.of(
    [_ANSWERS[i : i + 3] for i in range(5)], [_OTHERS[i : i + 4] for i in range(5)], len(PASSAGES)
)
DATA = TrainingSet(QUESTIONS, PASSAGES, POOLS)
SETTINGS = CrossTrainingSettings(
    epochs=3,
    precision="float32",
    learning_rate=2e-3,
    head_learning_rate=5e-3,
    sampling=SamplingSettings(count=3, positives=2, batch=2),
)
STEPS = 9


def copy_without_dropout(folder, original):
    """Write a copy of a BERT without dropout; return its folder."""
    folder.mkdir()
    for path in original.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def cross_encoder(folder, *, training=False, dtype="float32", max_length=40, dropout=0.1):
    """A cross-encoder on the CPU; the head's weights are always the same."""
    backbone = Backbone(find_model(str(folder)), "cpu", dtype, training=training)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        head = CrossHead(backbone.width, dropout).train(training)
    return CrossEncoder(backbone, head, max_length, dtype)


def weights(model):
    """Return copies of all parameters by name."""
    found = {f"backbone.{name}": one for name, one in model.backbone.model.named_parameters()}
    if isinstance(model, CrossEncoder):
        found |= {f"head.{name}": one for name, one in model.head.named_parameters()}
    return {name: one.detach().clone() for name, one in found.items()}


def have_equal_weights(first, second):
    """Return whether all parameters are bitwise equal."""
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def scripted_scores(scores):
    """Return a dev score function that yields `scores` one after another."""
    left = iter(scores)
    return lambda _: float(next(left))


def share_right(model):
    """Share of the triples whose answer scores higher; 1 if all are separated."""
    rights = []
    for row, question in enumerate(QUESTIONS):
        pool = [
            POOLS.positives[POOLS.positive_starts[row] : POOLS.positive_starts[row + 1]],
            POOLS.negatives[POOLS.negative_starts[row] : POOLS.negative_starts[row + 1]],
        ]
        good, bad = (model.score([question] * len(one), [PASSAGES[i] for i in one]) for one in pool)
        rights.append(good[:, None] > bad[None])
    return float(np.mean(rights))


def train(folder, settings=SETTINGS, dev=share_right, checkpoint=None, dropout=0.1, **watch):
    """Train, with a checkpoint after each step if its folder is given; the model and the curve."""
    model = cross_encoder(folder, training=True, dropout=dropout)
    saved = checkpoint and Checkpoint(checkpoint, {"data": "made up"}, seconds=0)
    return model, train_cross_encoder(model, DATA, settings, dev, checkpoint=saved, **watch)


def epochs_of(settings):
    """The batches of each epoch."""
    chances = [np.random.default_rng([settings.seed, epoch]) for epoch in range(settings.epochs)]
    return [list(epoch_batches(POOLS, settings.sampling, chance)) for chance in chances]
