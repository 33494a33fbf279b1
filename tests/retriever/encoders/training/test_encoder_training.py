"""Training an encoder: what its losses are on its own vectors, and what each setting does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retriever.encoders.training import (
    LabeledExamples,
    ScoredExamples,
    TrainableEncoder,
    paired_texts,
)
from retriever.encoders.training.trainer import multiple_negatives
from retriever.errors import BadInputError, ConfigError
from retriever.training import Epoch
from retriever.training.sampling import epoch_batches
from tests.retriever.encoders.training.encoder_samples import (
    ANCHORS,
    LABELED,
    NEGATIVES,
    POSITIVES,
    RANKED,
    SCORED,
    gap,
    settings,
    train,
)
from tests.retriever.training.training_samples import (
    copy_without_dropout,
    have_equal_weights,
    scripted_scores,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def bert(folders, tmp_path_factory):
    """Without dropout."""
    return copy_without_dropout(tmp_path_factory.mktemp("still") / "bert", folders("bert"))


def ranking_losses(encoder, objective, batch):
    """Return the losses of the relevant passages or triples of a batch, one by one."""
    relevant = RANKED.pools.relevant(batch.question, batch.passage[:, None])[:, 0]
    pairs = list(zip(batch.question, batch.passage, relevant, strict=True))
    texts = list(RANKED.passages)
    u, v = encoder.encode(RANKED.questions, query=True), encoder.encode(texts)
    passages = sorted(set(batch.passage))
    losses = []
    for question, passage, relevant in pairs:
        others = [row for one, row, right in pairs if one == question and not right]
        if relevant and objective == "hinge":
            for row in others:
                losses.append(max(0, 0.2 - u[question] @ v[passage] + u[question] @ v[row]))
        elif relevant:
            scores = 20 * v[passages] @ u[question]
            losses.append(np.log(np.exp(scores).sum()) - scores[passages.index(passage)])
    return np.array(losses)


@pytest.mark.parametrize("objective", ["mnr", "hinge"])
def test_the_loss_of_an_epoch_is_that_of_the_vectors(bert, objective):
    # At a rate of 0 nothing changes, and every vector can be had afterwards.
    asked = settings(objective=objective, epochs=1, learning_rate=0.0)
    encoder, (_, epoch) = train(bert, RANKED, asked, scripted_scores([0, 0]))
    batches = list(epoch_batches(RANKED.pools, asked.sampling, np.random.default_rng([0, 0])))
    each = [ranking_losses(encoder, objective, batch) for batch in batches]
    assert len(each) == 3
    assert epoch.loss == pytest.approx(np.mean([one.mean() for one in each]), abs=1e-5)
    assert epoch.active == pytest.approx(np.mean([(one > 0).mean() for one in each]))


def test_the_loss_of_pairs_is_that_of_the_vectors(bert):
    asked = settings(epochs=1, learning_rate=0.0, head_learning_rate=0.0)
    encoder, (_, epoch) = train(bert, SCORED, asked, scripted_scores([0, 0]))
    cosines = (encoder.encode(SCORED.left) * encoder.encode(SCORED.right)).sum(axis=1)
    assert epoch.loss == pytest.approx(np.mean((cosines - SCORED.scores) ** 2), abs=1e-6)
    encoder, (_, epoch) = train(bert, LABELED, asked, scripted_scores([0, 0]))
    u, v = (
        encoder.vectors(encoder.tokenize(texts, 64, query=False))
        for texts in (LABELED.left, LABELED.right)
    )
    logits = encoder.classifier(torch.cat([u, v, (u - v).abs()], 1))
    expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(LABELED.labels))
    assert epoch.loss == pytest.approx(expected.item(), abs=1e-5)
    assert encoder.classify(LABELED.left, LABELED.right).tolist() == logits.argmax(1).tolist()


def normalized(seed, rows):
    chance = torch.Generator().manual_seed(seed)
    vectors = torch.randn(rows, 7, generator=chance, dtype=torch.float64)
    return torch.nn.functional.normalize(vectors)


def test_multiple_negatives_leaves_other_relevant_passages_out_of_the_sum():
    cosines = normalized(0, 4) @ normalized(1, 6).T
    relevant = torch.zeros(4, 6, dtype=torch.bool)
    for anchor, passage in ((0, 0), (0, 3), (1, 1), (2, 2), (3, 3), (3, 5)):
        relevant[anchor, passage] = True
    places = [0, 1, 2, 5]
    found = multiple_negatives(cosines, relevant, torch.tensor(places), 20.0)
    powers = np.exp(20 * cosines.numpy())
    own = powers[np.arange(4), places]
    others = np.where(relevant, 0, powers).sum(axis=1)
    np.testing.assert_allclose(found, -np.log(own / (own + others)), atol=1e-12)


@pytest.mark.parametrize("negatives", [0, 5])
def test_multiple_negatives_is_the_loss_of_sentence_transformers(negatives):
    losses = pytest.importorskip("sentence_transformers.losses")
    from sentence_transformers import util

    parts = [normalized(seed, 5) for seed in range(2 + bool(negatives))]
    loss = losses.MultipleNegativesRankingLoss(None, scale=20.0, similarity_fct=util.cos_sim)
    expected = loss.compute_loss_from_embeddings(parts, None)
    v = torch.cat(parts[1:])
    relevant = torch.eye(5, len(v)) > 0
    found = multiple_negatives(parts[0] @ v.T, relevant, torch.arange(5), 20.0).mean()
    assert float(found) == pytest.approx(float(expected), abs=1e-6)


def accuracy(encoder):
    return float((encoder.classify(LABELED.left, LABELED.right) == LABELED.labels).mean())


@pytest.mark.parametrize(
    ("objective", "examples", "part", "dev", "epochs", "gain"),
    [
        ("mnr", RANKED, "last:2", gap, 6, 0.02),
        ("hinge", RANKED, "full", gap, 6, 0.02),
        ("sts", SCORED, "last:1", gap, 6, 0.02),
        ("nli", LABELED, "full", accuracy, 15, 0.1),
    ],
)
def test_every_objective_is_learned(bert, objective, examples, part, dev, epochs, gain):
    changed = {"train": part, "epochs": epochs, "patience": epochs, "head_learning_rate": 2e-2}
    encoder, curve = train(bert, examples, settings(objective=objective, **changed), dev)
    assert [epoch.epoch for epoch in curve] == list(range(epochs + 1))
    best = max(epoch.dev for epoch in curve)
    assert best > curve[0].dev + gain
    assert dev(encoder) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("part", ["full", "last:2"])
def test_training_without_better_epoch_keeps_encoder_unchanged(bert, part):
    before = weights(TrainableEncoder.load(str(bert), device="cpu"))
    encoder, curve = train(
        bert, RANKED, settings(train=part), scripted_scores([0.5, 0.4, 0.5, 0.3])
    )
    assert have_equal_weights(weights(encoder), before)
    assert curve[0] == Epoch(0, 0.0, 0.0, 0.5)


@pytest.mark.parametrize(
    ("objective", "examples", "part"),
    [("mnr", RANKED, "last:2"), ("hinge", RANKED, "last:1"), ("nli", LABELED, "full")],
)
def test_an_interrupted_training_comes_to_the_same_end(
    tmp_path, folders, objective, examples, part
):
    def stop(step):
        if step.number == 3:
            raise KeyboardInterrupt

    asked = settings(objective=objective, train=part, epochs=2)
    expected, curve = train(folders("bert"), examples, asked)
    with pytest.raises(KeyboardInterrupt):
        train(folders("bert"), examples, asked, gap, tmp_path / "state", on_step=stop)
    resumed, again = train(folders("bert"), examples, asked, gap, tmp_path / "state")
    assert have_equal_weights(weights(resumed), weights(expected))
    assert again == curve


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gradient_checkpointing_gives_same_weights(folders, monkeypatch, precision):
    asked = settings(train="last:2", precision=precision)
    expected, curve = train(folders("bert"), RANKED, asked)
    monkeypatch.setattr("retriever.encoders.training.model._MOST_STATES", 0)
    found, again = train(folders("bert"), RANKED, asked)
    assert have_equal_weights(weights(found), weights(expected))
    assert again == curve
    assert found.backbone.autocast == (precision == "bfloat16")


@pytest.mark.parametrize(
    ("objective", "examples", "fitting"),
    [
        ("nli", SCORED, "choose sts"),
        ("sts", RANKED, "choose mnr or hinge"),
        ("mnr", LABELED, "choose nli"),
    ],
)
def test_an_objective_that_does_not_fit_the_data_is_refused(bert, objective, examples, fitting):
    with pytest.raises(ConfigError, match=rf"^objective: {objective} is trained on .*{fitting}$"):
        train(bert, examples, settings(objective=objective))


def test_scores_of_any_scale_become_zero_to_one_and_those_that_say_nothing_are_refused():
    found = ScoredExamples.of(["a"] * 3, ["b"] * 3, np.array([1.0, 2.0, 5.0]))
    assert found.scores.tolist() == [0.0, 0.25, 1.0]
    with pytest.raises(BadInputError, match="different scores"):
        ScoredExamples.of(["a", "b"], ["c", "d"], np.ones(2))
    with pytest.raises(BadInputError, match="at least two classes"):
        LabeledExamples.of(["a", "b"], ["c", "d"], ["yes", "yes"])


def test_equal_texts_are_one_anchor_or_passage_and_no_negative_of_their_own():
    found = paired_texts(["a", "a", "b"], ["x", "y", "x"], ["z", "x", None])
    assert (found.questions, found.passages) == (["a", "b"], ["x", "y", "z"])
    relevant = found.pools.relevant(np.arange(2), np.arange(3))
    assert relevant.tolist() == [[True, True, False], [True, False, False]]
    assert found.pools.negatives.tolist() == [2]


def test_anchors_without_negatives_are_trained_by_mnr_alone(bert):
    bare = paired_texts(ANCHORS, POSITIVES, [None] * len(ANCHORS))
    _, curve = train(bert, bare)
    assert curve[1].loss > 0
    with pytest.raises(BadInputError, match="found none"):
        train(bert, bare, settings(objective="hinge"))


def test_texts_are_cut_at_the_window_of_training(bert):
    anchors = [f"{one} w3" for one in ANCHORS]
    found = []
    for end in (" w4 w5 w6 w7 w8", " w4 w5 w6"):
        examples = paired_texts(anchors, [one + end for one in POSITIVES], NEGATIVES)
        found.append(train(bert, examples, settings(max_length=8))[0])
    assert have_equal_weights(*map(weights, found))
    assert found[0].spec.max_length == 64


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("::lc:0,2", "expected an encoder of the last layer"),
        ("::dtype=bfloat16", "expected an encoder of the last layer"),
        ("::pooling=sep", "pools by mean, max or cls, found sep"),
        ("::static=average", "a static encoder has no weights to train"),
    ],
)
def test_an_encoder_that_a_folder_cannot_hold_is_refused(bert, asked, message):
    with pytest.raises(ConfigError, match=message):
        TrainableEncoder.load(f"{bert}{asked}", device="cpu")
