"""Heads: what is learned and kept, what a seed fixes, and a folder that is whole or refused."""

from __future__ import annotations

import json
import resource
from dataclasses import asdict, replace
from hashlib import sha256

import numpy as np
import pytest
import torch

from retriever.encoders import EncoderSettings, EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, ModelError
from retriever.rerankers import HeadReranker, TrainedHead, train_head
from retriever.rerankers.scorers import InteractionHead
from retriever.training import (
    Epoch,
    HeadSettings,
    HeadTrainingSettings,
    JudgedPools,
    SamplingSettings,
)
from tests.retriever.training.training_samples import have_equal_weights, scripted_scores

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


def train(head, dev_score=reciprocal_rank, data=None, **settings):
    values = {"learning_rate": 0.02, "sampling": SamplingSettings(batch=8), **settings}
    return train_head(HeadTrainingSettings(**values), head, *(data or toy()), dev_score)


@pytest.mark.parametrize(
    ("interaction", "head", "initial"),
    [
        ("bilinear", "linear", "cosine"),
        ("uv", "linear", "random"),
        ("bilinear", "mlp", "random"),
        ("uv", "mlp", "cosine"),
    ],
)
def test_head_learns_separable_triples(interaction, head, initial):
    settings = HeadSettings(interaction, head, 32, 0.0, initial)
    trained = train(settings, epochs=150, patience=150)
    if initial == "cosine":
        assert trained.curve[0].dev < 0.25
    assert trained.curve[trained.best].dev == 1.0
    assert reciprocal_rank(trained.head.score) == 1.0


def test_linear_concat_head_cannot_learn_interactions():
    # Its order of two passages is the same for every question.
    questions, passages, _ = toy()
    head = train(HeadSettings("concat", "linear"), epochs=20, patience=20).head
    every = np.repeat(np.arange(QUESTIONS), 2), np.tile([0, 1], QUESTIONS)
    scores = head.score(questions, passages, *every).reshape(QUESTIONS, 2)
    apart = scores[:, 0] - scores[:, 1]
    np.testing.assert_allclose(apart, apart[0], atol=1e-5)


def test_a_seed_fixes_every_bit_and_leaves_the_random_state_alone():
    settings, sampling = HeadSettings("uv", "mlp", 16), SamplingSettings(count=2, batch=8)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    first, again, other = (
        train(settings, epochs=3, seed=seed, sampling=sampling) for seed in (7, 7, 8)
    )
    assert torch.equal(torch.rand(4), expected)
    assert first.curve == again.curve != other.curve
    assert have_equal_weights(first.head.state_dict(), again.head.state_dict())


def test_the_best_epoch_is_kept_and_the_earliest_of_equal_ones():
    settings = HeadSettings("uv", "mlp", 8)
    options = {"learning_rate": 0.01, "sampling": SamplingSettings()}
    scores = scripted_scores([0.1, 0.3, 0.5, 0.5, 0.2, 0.4, 0.9])
    trained = train(settings, scores, epochs=9, patience=3, **options)
    assert [epoch.dev for epoch in trained.curve] == [0.1, 0.3, 0.5, 0.5, 0.2, 0.4]
    assert trained.best == 2
    stopped = train(settings, scripted_scores([0, 1, 2]), epochs=2, **options)
    assert stopped.best == 2
    assert have_equal_weights(stopped.head.state_dict(), trained.head.state_dict())


def test_untrained_head_is_kept_if_training_lowers_score():
    trained = train(HeadSettings("bilinear"), scripted_scores([0.8, 0.7, 0.6]), patience=2)
    assert (trained.best, len(trained.curve)) == (0, 3)
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


def test_weight_decay_draws_random_weights_to_zero_and_a_cosine_to_the_cosine():
    # Zero vectors have no gradient: what changes the weights is the decay, once in each step.
    questions, passages, pools = toy()
    data, options = (questions, np.zeros_like(passages), pools), {"epochs": 1, "learning_rate": 0.1}
    head = HeadSettings("bilinear", initial="random")
    free, drawn = (
        train(head, scripted_scores([0, 1]), data, weight_decay=decay, **options)
        for decay in (0.0, 0.5)
    )
    torch.testing.assert_close(drawn.head.matrix, free.head.matrix * (1 - 0.1 * 0.5) ** 3)
    # learning_rate * weight_decay is 1: each step ends at the start.
    trained = train(HeadSettings("bilinear"), scripted_scores([0, 1]), weight_decay=10.0, **options)
    assert trained.curve[1].loss
    torch.testing.assert_close(trained.head.matrix, torch.eye(D))


def test_head_loss_is_zero_if_all_random_negatives_are_relevant():
    data = toy()[0][:2], toy()[1][:1], JudgedPools.of([[0], [0]], [[], []], 1)
    sampling = SamplingSettings("random", count=1)
    trained = train(
        HeadSettings("bilinear"), scripted_scores([0, 1]), data, epochs=1, sampling=sampling
    )
    assert (trained.curve[1].loss, trained.curve[1].active) == (0, 0)


CURVE = (Epoch(0, 0.0, 0.0, 0.5), Epoch(1, 0.25, 0.75, 0.6))


def reranker(interaction="uv", head="mlp"):
    torch.manual_seed(1)
    settings = HeadSettings(interaction, head, 4, initial="random")
    trained = TrainedHead(InteractionHead(settings, D), HeadTrainingSettings(), CURVE, 1)
    return HeadReranker.of(SPEC, trained, {"data": "WikiQA"})


@pytest.fixture
def folder(tmp_path):
    reranker().save(tmp_path / "head")
    return tmp_path / "head"


def refusal_of(folder):
    with pytest.raises(ModelError) as caught:
        HeadReranker.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("interaction", "head"), [("bilinear", "linear"), ("concat", "linear"), ("uv", "mlp")]
)
def test_saved_head_is_loaded_bit_for_bit(tmp_path, interaction, head):
    saved = reranker(interaction, head)
    saved.save(tmp_path / "head")
    loaded = HeadReranker.load(tmp_path / "head")
    assert (loaded.spec, loaded.settings) == (SPEC, saved.settings)
    assert loaded.training == saved.training
    assert have_equal_weights(loaded.head.state_dict(), saved.head.state_dict())
    assert not loaded.head.training


def test_reranker_manifest_describes_kind_weights_and_encoder(folder):
    assert {path.name for path in folder.iterdir()} == {"reranker.json", "head.safetensors"}
    value = json.loads((folder / "reranker.json").read_text())
    assert value["training"].pop("settings")["sampling"]["negatives"] == "pool"
    assert value == {
        "format": 1,
        "kind": "head",
        "weights": sha256((folder / "head.safetensors").read_bytes()).hexdigest(),
        "encoder": SPEC.to_json(),
        "head": asdict(HeadSettings("uv", "mlp", 4, initial="random")),
        "training": {"data": "WikiQA", "best_epoch": 1, "curve": [asdict(one) for one in CURVE]},
    }


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("head", "hidden", 10**7),
        ("encoder", "dimensions", 10**7),
        ("encoder", "dimensions", 0),
        ("encoder", "dimensions", 1.5),
        ("encoder", "weights", 7),
    ],
)
def test_head_with_false_sizes_is_refused_without_allocating(part, key, value, folder):
    content = json.loads((folder / "reranker.json").read_text())
    content[part][key] = value
    (folder / "reranker.json").write_text(json.dumps(content))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelError) as caught:
        HeadReranker.load(folder)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18


def test_another_encoder_is_refused_and_the_same_under_another_name_is_not():
    model = reranker()
    model.check(replace(SPEC, settings=replace(SPEC.settings, model="elsewhere")))
    for other in (
        replace(SPEC, weights="cd" * 32),
        replace(SPEC, settings=replace(SPEC.settings, max_length=64)),
    ):
        with pytest.raises(EncoderMismatchError) as caught:
            model.check(other)
        for one in (SPEC, other):
            assert f"{one} ({one.fingerprint})" in str(caught.value)


def test_reranker_folder_is_replaced_but_no_other_folder(folder, tmp_path):
    reranker("bilinear").save(folder)
    assert HeadReranker.load(folder).settings.interaction == "bilinear"
    with pytest.raises(ConfigError, match=r"expected .* found head in it"):
        reranker().save(tmp_path)
    (tmp_path / "reranker.json").write_text('{"kind": "cross-encoder"}')
    with pytest.raises(ConfigError, match="found one of the kind cross-encoder; name another"):
        reranker().save(tmp_path)


@pytest.mark.parametrize(
    ("part", "changed", "message"),
    [
        ("", {"extra": 1}, "an unknown key 'extra'"),
        ("", {"kind": "cross-encoder"}, "kind head, found 'cross-encoder'"),
        ("", {"head": []}, "[] as head"),
        ("", {"weights": "00"}, "another SHA-256"),
        ("head", {"depth": 3}, "unexpected keyword argument 'depth'"),
        ("head", {"hidden": "4"}, "hidden: expected at least 2, found '4'"),
        ("head", {"hidden": 5}, "size mismatch"),
        ("head", {"interaction": "concat"}, "Unexpected key"),
        ("encoder", {"encoder": "::nothing:1"}, "json: expected what"),
        ("encoder", {"encoder": 3}, "reranker.json: expected what"),
    ],
)
def test_an_altered_manifest_is_refused(folder, part, changed, message):
    path = folder / "reranker.json"
    value = json.loads(path.read_text())
    (value[part] if part else value).update(changed)
    path.write_text(json.dumps(value))
    assert message in refusal_of(folder)


@pytest.mark.parametrize("name", ["reranker.json", "head.safetensors"])
def test_damaged_head_file_is_named_in_one_line(folder, name):
    path = folder / name
    content = path.read_bytes()
    for damaged in (content[:-5], content[:-1] + bytes([content[-1] ^ 0xC0]), None):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        assert name in refusal_of(folder)
        path.touch()
