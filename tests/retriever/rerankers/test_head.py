"""Heads: what is learned and kept, what a seed fixes, and a folder that is whole or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from retriever.encoders.model_folders import FolderForm
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import BadInputError, ConfigError, EncoderMismatchError, ModelError
from retriever.rerankers import check_target
from retriever.rerankers.head import Epoch, HeadReranker, TrainedHead, train_head
from retriever.rerankers.scorers import InteractionHead
from retriever.rerankers.settings import HeadSettings, HeadTrainingSettings
from retriever.training.sampling import JudgedPools, SamplingSettings

D = 8
QUESTIONS, POOL = 24, 6
SPEC = EncoderSpec(EncoderSettings(model="made-up", max_length=128), "ab" * 32, D)


def unit(made):
    return (made / np.linalg.norm(made, axis=-1, keepdims=True)).astype(np.float32)


def toy():
    """Questions whose answers are their mirror images: the cosine ranks them last."""
    chance = np.random.default_rng(0)
    questions = unit(chance.standard_normal((QUESTIONS, D)))
    passages = unit(chance.standard_normal((QUESTIONS, POOL, D)))
    passages[:, 0] = unit(-questions + 0.1 * chance.standard_normal((QUESTIONS, D)))
    first = range(0, QUESTIONS * POOL, POOL)
    pools = JudgedPools.of(
        [[row] for row in first], [range(row + 1, row + POOL) for row in first], QUESTIONS * POOL
    )
    return questions, passages.reshape(-1, D), pools


def reciprocal_rank(score):
    """Mean reciprocal rank over the toy's pools, whose only answer comes first."""
    questions, passages, _ = toy()
    owners = np.repeat(np.arange(QUESTIONS), POOL)
    scores = score(questions, passages, owners, np.arange(len(passages))).reshape(-1, POOL)
    return float((1 / (scores >= scores[:, :1]).sum(1)).mean())


def scripted(scores):
    """Dev scores that are given, whatever the head."""
    left = iter(scores)
    return lambda _: next(left)


def train(head, dev_score=reciprocal_rank, data=None, done=lambda _: None, **settings):
    values = {"learning_rate": 0.02, "sampling": SamplingSettings(questions=8), **settings}
    return train_head(HeadTrainingSettings(**values), head, *(data or toy()), dev_score, done)


def same(first, second):
    ours, theirs = first.state_dict(), second.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("initial", ["cosine", "random"])
@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("interaction", ["bilinear", "uv"])
def test_what_can_be_separated_is_learned(interaction, head, initial, optimizer):
    settings = HeadSettings(interaction, head, 32, 0.0, initial)
    trained = train(settings, optimizer=optimizer, epochs=150, patience=150)
    if initial == "cosine":
        assert trained.curve[0].dev < 0.25
    assert trained.curve[trained.best].dev == 1.0
    assert reciprocal_rank(trained.head.score) == 1.0


def test_a_linear_head_on_a_concatenation_cannot_learn_what_depends_on_both():
    # Its order of two passages is the same for every question.
    questions, passages, _ = toy()
    head = train(HeadSettings("concat", "linear"), epochs=20, patience=20).head
    every = np.repeat(np.arange(QUESTIONS), 2), np.tile([0, 1], QUESTIONS)
    scores = head.score(questions, passages, *every).reshape(QUESTIONS, 2)
    apart = scores[:, 0] - scores[:, 1]
    np.testing.assert_allclose(apart, apart[0], atol=1e-5)


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("interaction", ["bilinear", "concat", "uv"])
def test_a_seed_fixes_every_bit_and_leaves_the_random_state_alone(interaction, head):
    settings = HeadSettings(interaction, head, 16)
    sampling = SamplingSettings(count=2, questions=8)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    first, again, other = (
        train(settings, epochs=3, seed=seed, sampling=sampling) for seed in (7, 7, 8)
    )
    assert torch.equal(torch.rand(4), expected)
    assert first.curve == again.curve
    assert first.curve != other.curve
    assert same(first.head, again.head)


def test_the_best_epoch_is_kept_and_the_earliest_of_equal_ones():
    settings, told = HeadSettings("uv", "mlp", 8), []
    options = {"learning_rate": 0.01, "sampling": SamplingSettings()}
    scores = scripted([0.1, 0.3, 0.5, 0.5, 0.2, 0.4, 0.9])
    trained = train(settings, scores, done=told.append, epochs=9, patience=3, **options)
    assert [epoch.dev for epoch in trained.curve] == [0.1, 0.3, 0.5, 0.5, 0.2, 0.4]
    assert trained.curve == tuple(told)
    assert trained.best == 2
    stopped = train(settings, scripted([0, 1, 2]), epochs=2, **options)
    assert stopped.best == 2
    assert same(stopped.head, trained.head)


def test_the_untrained_head_is_kept_where_training_only_harms():
    trained = train(HeadSettings("bilinear"), scripted([0.8, 0.7, 0.6]), patience=2)
    assert trained.best == 0
    assert [epoch.loss is None for epoch in trained.curve] == [True, False, False]
    assert torch.equal(trained.head.matrix, torch.eye(D))


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.0])
def test_loss_and_active_share_of_an_epoch_are_those_of_its_triples(margin):
    # A learning rate of 0 keeps the cosine, whose losses a loop can count.
    trained = train(HeadSettings("uv"), epochs=1, learning_rate=0.0, margin=margin)
    questions, passages, _ = toy()
    cosines = np.einsum("qd,qpd->qp", questions, passages.reshape(QUESTIONS, POOL, D))
    losses = np.maximum(0, margin - cosines[:, :1] + cosines[:, 1:])
    assert trained.curve[1].loss == pytest.approx(losses.mean(), rel=1e-5)
    assert trained.curve[1].active == pytest.approx((losses > 0).mean())


def test_weight_decay_draws_random_weights_to_zero():
    # Zero vectors have no gradient: what changes the weights is the decay, once in each step.
    questions, passages, pools = toy()
    data = questions, np.zeros_like(passages), pools
    head = HeadSettings("bilinear", initial="random")
    free, drawn = (
        train(head, scripted([0, 1]), data, epochs=1, learning_rate=0.1, weight_decay=decay)
        for decay in (0.0, 0.5)
    )
    torch.testing.assert_close(drawn.head.matrix, free.head.matrix * (1 - 0.1 * 0.5) ** 3)


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("interaction", ["bilinear", "uv"])
def test_weight_decay_draws_a_cosine_back_to_the_cosine(interaction, head):
    # learning_rate * weight_decay is 1: each step ends at the start.
    settings = HeadSettings(interaction, head, 16)
    trained = train(settings, scripted([0, 1]), epochs=1, learning_rate=0.1, weight_decay=10.0)
    assert trained.curve[1].loss
    u, v, _ = toy()
    rows = np.arange(len(u))
    scores = trained.head.score(u, v, rows, rows)
    np.testing.assert_allclose(scores, (u * v[: len(u)]).sum(1), atol=1e-6)


def test_random_draws_that_all_answer_are_passed_over():
    data = toy()[0][:2], toy()[1][:1], JudgedPools.of([[0], [0]], [[], []], 1)
    sampling = SamplingSettings("random", count=1)
    trained = train(HeadSettings("bilinear"), scripted([0, 1]), data, epochs=1, sampling=sampling)
    assert trained.curve[1].loss == 0
    assert torch.equal(trained.head.matrix, torch.eye(D))


def test_pools_without_an_answer_are_refused():
    questions, passages, _ = toy()
    nothing = JudgedPools.of([[]] * QUESTIONS, [[]] * QUESTIONS, len(passages))
    with pytest.raises(BadInputError, match="found none"):
        train(HeadSettings(), data=(questions, passages, nothing))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("margin", -1, "0 or more, found -1"),
        ("margin", float("nan"), "0 or more, found nan"),
        ("optimizer", "lion", "adam or sgd, found 'lion'"),
        ("learning_rate", -0.1, "0 or more, found -0.1"),
        ("weight_decay", -1, "0 or more, found -1"),
        ("epochs", 0, "1 or more, found 0"),
        ("patience", 0, "1 or more, found 0"),
        ("seed", -1, "0 or more, found -1"),
    ],
)
def test_impossible_settings_are_refused(name, value, expected):
    with pytest.raises(ConfigError, match=f"{name}: expected {expected}"):
        HeadTrainingSettings(**{name: value})


def reranker(interaction="uv", head="mlp"):
    torch.manual_seed(1)
    settings = HeadSettings(interaction, head, 4, initial="random")
    curve = (Epoch(0, None, None, 0.5), Epoch(1, 0.25, 0.75, 0.6))
    trained = TrainedHead(InteractionHead(settings, D), HeadTrainingSettings(), curve, 1)
    return HeadReranker.of(SPEC, trained, {"data": "WikiQA"})


@pytest.fixture
def folder(tmp_path):
    reranker().save(tmp_path / "head")
    return tmp_path / "head"


def refused(folder):
    with pytest.raises(ModelError) as caught:
        HeadReranker.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("interaction", "head"), list(product(("bilinear", "concat", "uv"), ("linear", "mlp")))
)
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path, interaction, head):
    saved = reranker(interaction, head)
    saved.save(tmp_path / "head")
    loaded = HeadReranker.load(tmp_path / "head")
    assert (loaded.spec, loaded.settings) == (SPEC, saved.settings)
    assert loaded.training == saved.training
    u, v = np.random.default_rng(0).standard_normal((2, 30, D)).astype(np.float32)
    pairs = u, v, np.arange(30), np.arange(30)
    np.testing.assert_array_equal(loaded.head.score(*pairs), saved.head.score(*pairs))


def test_the_folder_says_what_it_is(folder):
    assert {path.name for path in folder.iterdir()} == {"reranker.json", "head.safetensors"}
    value = json.loads((folder / "reranker.json").read_text())
    assert (value["kind"], value["format"]) == ("head", 1)
    assert EncoderSpec.from_json(value["encoder"]) == SPEC
    assert value["head"]["interaction"] == "uv"
    training = value["training"]
    assert (training["data"], training["best_epoch"]) == ("WikiQA", 1)
    assert training["curve"][1] == {"epoch": 1, "loss": 0.25, "active": 0.75, "dev": 0.6}
    assert training["settings"]["sampling"]["negatives"] == "pool"
    assert [path.name for path in folder.parent.iterdir()] == ["head"]


def test_another_encoder_is_refused_and_the_same_under_another_name_is_not():
    model = reranker()
    model.check_encoder(replace(SPEC, settings=replace(SPEC.settings, model="elsewhere")))
    for other in (
        replace(SPEC, weights="cd" * 32),
        replace(SPEC, settings=replace(SPEC.settings, max_length=64)),
    ):
        with pytest.raises(EncoderMismatchError) as caught:
            model.check_encoder(other)
        for one in (SPEC, other):
            assert f"{one} ({one.fingerprint})" in str(caught.value)


def test_a_reranker_is_replaced_and_nothing_else_is(folder, tmp_path):
    reranker("bilinear").save(folder)
    assert HeadReranker.load(folder).settings.interaction == "bilinear"
    letter = tmp_path / "letters" / "letter.txt"
    letter.parent.mkdir()
    letter.write_text("Dear")
    for target, message in (
        (letter.parent, r"letters: expected .* found letter\.txt in it"),
        (letter, "found a file"),
        (tmp_path / "no" / "head", "a folder that exists"),
    ):
        with pytest.raises(ConfigError, match=message):
            reranker().save(target)
    assert letter.read_text() == "Dear"


def test_a_failure_on_the_way_leaves_what_was_there(folder, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(FolderForm, "write_settings", fail)
    with pytest.raises(KeyboardInterrupt):
        reranker("bilinear").save(folder)
    assert HeadReranker.load(folder).settings.interaction == "uv"
    assert [path.name for path in folder.parent.iterdir()] == ["head"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda value: value.update(extra=1), "an unknown key 'extra'"),
        (lambda value: value.pop("encoder"), "no key 'encoder'"),
        (lambda value: value.update(kind="cross-encoder"), "kind head, found 'cross-encoder'"),
        (lambda value: value.update(format=2), "expected format 1 or older, found 2; upgrade"),
        (lambda value: value.update(head=[]), "[] as head"),
        (lambda value: value["head"].update(depth=3), "head: unknown setting 'depth'"),
        (lambda value: value["head"].pop("hidden"), "head: missing setting 'hidden'"),
        (lambda value: value["head"].update(hidden="4"), "found '<'"),
        (lambda value: value["head"].update(hidden=5), "size mismatch"),
        (lambda value: value["head"].update(interaction="concat"), "Unexpected key"),
        (lambda value: value["encoder"].update(dimensions=7), "size mismatch"),
        (lambda value: value["encoder"].update(encoder="::nothing:1"), "json: expected what"),
        (lambda value: value["encoder"].update(encoder=3), "reranker.json: expected what"),
        (lambda value: value.update(weights="00"), "another SHA-256"),
    ],
)
def test_an_altered_manifest_is_refused(folder, edit, message):
    path = folder / "reranker.json"
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("reranker.json", lambda content: content[:-5]),
        ("reranker.json", lambda content: content[:-3] + b"\xff}\n"),
        ("reranker.json", None),
        ("head.safetensors", lambda content: content[:-5]),
        ("head.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 0x40])),
        ("head.safetensors", None),
    ],
)
def test_a_damaged_file_is_named_in_one_line(folder, name, damage):
    path = folder / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    assert name in refused(folder)


def test_a_reranker_of_another_kind_is_not_replaced(tmp_path):
    (tmp_path / "reranker.json").write_text('{"kind": "cross-encoder"}')
    with pytest.raises(ConfigError, match="found one of the kind cross-encoder; name another"):
        check_target(tmp_path, "head")
    check_target(tmp_path, "cross-encoder")


def test_training_and_folder_are_imported_without_torch():
    code = "import sys, retriever.rerankers.head; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
