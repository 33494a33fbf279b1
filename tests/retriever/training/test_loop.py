"""Fine-tuning, by the example of a cross-encoder: a plain loop, what is kept, interruptions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from retriever.errors import BadInputError, ConfigError
from retriever.rerankers import CrossEncoder, CrossHead
from retriever.training import Epoch, Step, select_epoch
from retriever.training.loop import uses_bfloat16
from tests.retriever.training.training_samples import (
    PASSAGES,
    QUESTIONS,
    SETTINGS,
    STEPS,
    copy_without_dropout,
    epochs_of,
    have_equal_weights,
    scripted_scores,
    share_right,
    train,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("scores", "tolerance", "kept", "trained"),
    [
        ((0.5,), 0.0, 0, None),
        ((0.5, 0.4, 0.3), 0.0, 0, 1),
        ((0.5, 0.5), 0.0, 0, 1),
        ((0.5, 0.6), 0.0, 1, 1),
        ((0.5, 0.6, 0.6), 0.0, 2, 2),
        ((0.5, 0.6, 0.59), 0.02, 2, 2),
        ((0.5, 0.6, 0.57), 0.02, 1, 1),
        ((0.5, 0.51, 0.5), 0.02, 1, 2),
        ((0.5, 0.4, 0.7), 0.0, 2, 2),
        ((0.5, 0.0, -1.0), 0.0, 0, 1),
    ],
)
def test_untrained_model_is_kept_unless_epoch_is_better(scores, tolerance, kept, trained):
    curve = [Epoch(number, 0.0, 0.0, dev) for number, dev in enumerate(scores)]
    assert select_epoch(curve, tolerance, untrained=True) == curve[kept]
    expected = None if trained is None else curve[trained]
    assert select_epoch(curve, tolerance, untrained=False) == expected


class Plain:
    """The same model trained the plain way: each pair alone, by the hinge loss."""

    def __init__(self, folder, settings):
        from transformers import AutoModel, AutoTokenizer

        self.settings = settings
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.transformer = AutoModel.from_pretrained(folder).train()
        torch.manual_seed(settings.seed)
        self.head = CrossHead(16, dropout=0.0)

    def scores(self, pairs):
        found = []
        for question, passage in pairs:
            inputs = self.tokenizer(QUESTIONS[question], PASSAGES[passage], return_tensors="pt")
            found.append(self.head(self.transformer(**inputs).last_hidden_state[:, 0])[0])
        return torch.stack(found)

    def loss(self, batch):
        scores = self.scores(zip(batch.question, batch.passage, strict=True))
        gaps = scores[batch.positive] - scores[batch.negative]
        return torch.clamp(self.settings.margin - gaps, min=0).mean()

    def train(self):
        """The mean loss of each epoch; ends with the moving average of the weights."""
        settings = self.settings
        self.transformer.embeddings.word_embeddings.weight.requires_grad_(False)
        if settings.train == "last:2":
            self.transformer.requires_grad_(False)
            for layer in self.transformer.encoder.layer[-2:]:
                layer.requires_grad_(True)
        groups = [
            {
                "params": [one for one in module.parameters() if one.ndim == ndim],
                "lr": rate,
                "weight_decay": settings.weight_decay if ndim == 2 else 0,
            }
            for module, rate in (
                (self.transformer, settings.learning_rate),
                (self.head, settings.head_learning_rate),
            )
            for ndim in (1, 2)
        ]
        optimizer = torch.optim.AdamW(groups)
        batches = epochs_of(settings)
        total = sum(map(len, batches))
        rising = max(1, settings.warmup * total)
        rates = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda done: min(1, (done + 1) / rising) * (total - done) / total
        )
        every = [*self.transformer.parameters(), *self.head.parameters()]
        average = [torch.zeros_like(one) for one in every]
        losses = []
        for step, batch in enumerate(one for epoch in batches for one in epoch):
            loss = self.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(every, settings.clip)
            optimizer.step()
            rates.step()
            losses.append(loss.item())
            kept = min(settings.averaging, step / (step + 1))
            average = [
                kept * old + (1 - kept) * new.detach()
                for old, new in zip(average, every, strict=True)
            ]
        with torch.no_grad():
            for one, value in zip(every, average, strict=True):
                one.copy_(value)
        return np.reshape(losses, (settings.epochs, -1)).mean(axis=1)


@pytest.fixture(scope="module")
def quiet_bert(folders, tmp_path_factory):
    return copy_without_dropout(tmp_path_factory.mktemp("still") / "bert", folders("bert"))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"warmup": 0.6, "clip": 0.02},
        {"margin": 0.3, "weight_decay": 0.5, "warmup": 0.0, "averaging": 0.0},
        {"averaging": 0.5, "train": "last:2"},
    ],
    ids=str,
)
def test_training_is_that_of_a_plain_loop_over_triples(quiet_bert, changed):
    settings = replace(
        SETTINGS, epochs=2, learning_rate=5e-4, head_learning_rate=2e-3, patience=2, **changed
    )
    expected = Plain(quiet_bert, settings)
    pairs = [(0, row) for row in range(len(PASSAGES))]
    before = expected.scores(pairs).detach().numpy()
    losses = expected.train()
    # Epochs get better and better: the last one is kept.
    model, curve = train(quiet_bert, settings, scripted_scores(range(9)), dropout=0.0)
    np.testing.assert_allclose([epoch.loss for epoch in curve[1:]], losses, atol=2e-5)
    plain = expected.scores(pairs).detach().numpy()
    scores = model.score([QUESTIONS[0]] * len(PASSAGES), PASSAGES)
    # No loss depends on what all scores have in common, and rounding moves it.
    np.testing.assert_allclose(scores - scores.mean(), plain - plain.mean(), atol=2e-4)
    # It is no coincidence: training has changed them by far more.
    assert np.abs((scores - scores.mean()) - (before - before.mean())).max() > 0.02


@pytest.mark.parametrize(
    ("tolerance", "scores", "kept"),
    [
        (0.0, [0.0, 0.1, 0.5, 0.5, 0.2, 0.4], 3),
        (0.1, [0.0, 0.5, 0.45, 0.3, 0.55, 0.44], 4),
        # A model whose MLP is random is not kept, however good it is by chance.
        (0.0, [0.9, 0.5, 0.4, 0.3], 1),
    ],
)
def test_the_last_epoch_near_the_best_is_kept_and_patience_ends_the_training(
    tmp_path, folders, tolerance, scores, kept
):
    seen = []

    def dev(model):
        seen.append(weights(model))
        return scores[len(seen) - 1]

    settings = replace(SETTINGS, epochs=5, patience=2, tolerance=tolerance)
    model, curve = train(folders("bert"), settings, dev, tmp_path / "state")
    assert [(epoch.epoch, epoch.dev) for epoch in curve] == list(enumerate(scores))
    assert [have_equal_weights(weights(model), one) for one in seen] == [
        one.epoch == kept for one in curve
    ]
    again = train(folders("bert"), settings, pytest.fail, tmp_path / "state")
    assert equals_uninterrupted(again, (weights(model), curve))


def test_training_reports_each_step_and_epoch(folders):
    steps, epochs = [], []
    settings = replace(SETTINGS, epochs=2)
    _, curve = train(folders("bert"), settings, on_step=steps.append, on_epoch=epochs.append)
    assert tuple(epochs) == curve
    pairs = [len(batch.question) for batches in epochs_of(settings) for batch in batches]
    assert steps == [Step(number, len(pairs), n) for number, n in enumerate(pairs, start=1)]


@pytest.fixture(scope="module")
def uninterrupted(folders, one_thread):
    """Weights and learning curve of an uninterrupted training."""
    model, curve = train(folders("bert"))
    return weights(model), curve


def equals_uninterrupted(trained, uninterrupted):
    return (
        have_equal_weights(weights(trained[0]), uninterrupted[0]) and trained[1] == uninterrupted[1]
    )


def test_a_seed_decides_every_bit(folders, uninterrupted):
    # What was drawn before does not matter, and what is drawn afterwards is not changed.
    torch.manual_seed(77)
    expected = torch.rand(3)
    torch.manual_seed(77)
    trained = train(folders("bert"))
    assert torch.equal(torch.rand(3), expected)
    assert equals_uninterrupted(trained, uninterrupted)
    other, _ = train(folders("bert"), replace(SETTINGS, seed=1))
    assert not have_equal_weights(weights(other), uninterrupted[0])


def test_bfloat16_trains_float32_weights(folders):
    found = {}
    for precision in ("float32", "bfloat16"):
        settings = replace(SETTINGS, epochs=6, patience=6, precision=precision)
        model, found[precision] = train(folders("bert"), settings)
        assert model.autocast == (precision == "bfloat16")
        assert {one.dtype for one in weights(model).values()} == {torch.float32}
    curve, exact = found["bfloat16"], found["float32"]
    assert curve[-1].loss < curve[1].loss - 0.1
    assert curve[1].loss != exact[1].loss
    assert curve[1].loss == pytest.approx(exact[1].loss, abs=0.05)
    assert not uses_bfloat16("auto", torch.device("mps"))


@pytest.mark.parametrize("rate", [1e20, 1e30])
def test_a_loss_that_is_not_finite_ends_the_training(quiet_bert, rate):
    broken = replace(SETTINGS, learning_rate=rate, warmup=0.0, epochs=2)
    with pytest.raises(BadInputError, match=r"expected a finite loss, found \S+ at step \d+"):
        train(quiet_bert, broken, lambda _: 0.5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bert", "last:4", "train: expected last:1 to last:3, .* found last:4"),
        ("albert", "last:1", "layers with weights of their own"),
        ("deberta-v2", "last:1", "cannot be read one by one"),
        ("xlnet", "last:9", "train: expected last:1 to last:3"),
    ],
)
def test_layers_that_a_model_does_not_have_are_refused(folders, name, text, message):
    with pytest.raises(ConfigError, match=message):
        train(folders(name), replace(SETTINGS, train=text))


class StopError(Exception):
    """Error that interrupts a training."""


def stop_at(number):
    """Stops at the call of this number."""
    calls = count(1)

    def stop(given):
        if next(calls) == number:
            raise StopError
        return share_right(given) if isinstance(given, CrossEncoder) else 0.0

    return stop


@pytest.mark.parametrize(
    ("where", "part"),
    [("on_step", "full"), ("on_step", "last:1"), ("on_epoch", "full"), ("dev", "full")],
)
def test_repeatedly_interrupted_training_ends_with_same_weights(
    tmp_path, folders, uninterrupted, where, part
):
    settings = replace(SETTINGS, train=part)
    if part != "full":
        model, curve = train(folders("bert"), settings)
        uninterrupted = weights(model), curve
    saved = {"settings": settings, "checkpoint": tmp_path / "state"}
    steps: list[int] = []
    for life in count():
        told: list[Epoch] = []
        watch = {"on_step": lambda step: steps.append(step.number), "on_epoch": told.append}
        # Epochs before a checkpoint are told again.
        watch[where] = stop_at(life + 2 if where == "on_epoch" else 2)
        with suppress(StopError):
            resumed = train(folders("bert"), **saved, **watch)
            break
        assert [path.name for path in tmp_path.iterdir()] == ["state"]
    # The step at which it stopped was not saved.
    assert life == (STEPS - 1 if where == "on_step" else 3)
    assert steps == ([] if where == "on_step" else list(range(1, STEPS + 1)))
    assert equals_uninterrupted(resumed, uninterrupted)
    told.clear()
    again = train(folders("bert"), dev=pytest.fail, on_epoch=told.append, **saved)
    assert equals_uninterrupted(again, uninterrupted)
    assert tuple(told) == again[1]
