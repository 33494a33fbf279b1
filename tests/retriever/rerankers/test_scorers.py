"""Heads: the split form against the plain concatenation, and where training starts; their loss."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from retriever.errors import BadInputError
from retriever.rerankers.scorers import InteractionHead, hinge
from retriever.training import HeadSettings, JudgedPools, SamplingSettings
from retriever.training.sampling import epoch_batches
from tests.retriever.training.training_samples import have_equal_weights

HEADS = list(product(("bilinear", "concat", "uv"), ("linear", "mlp")))
D = 6
MARGIN = 0.7
each_head = pytest.mark.parametrize(("interaction", "head"), HEADS)


def head_of(interaction, head, initial="random", dropout=0.0, seed=0):
    torch.manual_seed(seed)
    return InteractionHead(HeadSettings(interaction, head, 5, dropout, initial), D)


def vectors(rows, seed):
    made = np.random.default_rng(seed).standard_normal((rows, D)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def in_pairs(model, u, v):
    return model.score(u, v, np.arange(len(u)), np.arange(len(u)))


def naive(model, u, v):
    """Each pair's interaction as one vector in float64, and matrices for the whole of it."""
    state = {name: value.double().numpy() for name, value in model.state_dict().items()}
    interaction = model.settings.interaction
    parts = {
        "bilinear": lambda a, b: [(a @ state["matrix"]) * b],
        "concat": lambda a, b: [a, b],
        "uv": lambda a, b: [a, b, a * b, abs(a - b)],
    }[interaction]
    names = {"bilinear": ["product"], "concat": ["u", "v"], "uv": ["u", "v", "product", "distance"]}
    scores = []
    for a, b in zip(u.astype(np.float64), v.astype(np.float64), strict=True):
        x = np.concatenate(parts(a, b))
        if interaction == "bilinear" and model.settings.head == "linear":
            scores.append(x.sum())
            continue
        weights = np.concatenate([state[f"weights.{one}"] for one in names[interaction]], axis=1)
        values = weights @ x + state["bias"]
        if model.settings.head == "mlp":
            values = state["out.weight"] @ np.maximum(values, 0) + state["out.bias"]
        scores.append(values[0])
    return np.array(scores)


@pytest.mark.parametrize(("interaction", "head"), [one for one in HEADS if one[0] != "concat"])
def test_untrained_heads_score_as_the_cosine(interaction, head):
    model = head_of(interaction, head, "cosine").eval()
    u, v = vectors(200, 1), vectors(200, 2)
    cosines = (u.astype(np.float64) * v).sum(1)
    assert cosines.min() < 0 < cosines.max()
    np.testing.assert_allclose(in_pairs(model, u, v), cosines, atol=1e-6)


@each_head
def test_initial_head_weights_depend_on_seed(interaction, head):
    first, again, other = (head_of(interaction, head, seed=seed) for seed in (0, 0, 1))
    assert have_equal_weights(first.state_dict(), again.state_dict())
    assert not have_equal_weights(first.state_dict(), other.state_dict())
    # A concatenation cannot express the cosine.
    cosine = head_of(interaction, head, "cosine")
    assert have_equal_weights(first.state_dict(), cosine.state_dict()) == (interaction == "concat")


@pytest.mark.parametrize("initial", ["cosine", "random"])
@pytest.mark.parametrize("interaction", ["bilinear", "concat", "uv"])
def test_random_units_of_mlp_are_within_bound_of_linear_layers(interaction, initial):
    model = head_of(interaction, "mlp", initial)
    width = {"bilinear": 1, "concat": 2, "uv": 4}[interaction] * D
    for weight in model.weights.values():
        # The first two units hold the cosine where it is the start.
        assert 0.5 * width**-0.5 < weight[2:].abs().max() <= width**-0.5


def test_dropout_applies_only_in_training():
    model = head_of("uv", "mlp", dropout=0.5).train()
    u, v = vectors(50, 1), vectors(50, 2)
    rows = torch.arange(50)
    pairs = [torch.from_numpy(u), torch.from_numpy(v), rows, rows]
    assert not torch.equal(model.pairs(*pairs), model.pairs(*pairs))
    np.testing.assert_allclose(in_pairs(model, u, v), naive(model, u, v), atol=2e-6)
    assert model.training


@each_head
def test_many_pairs_are_scored_in_chunks_to_the_same_values(interaction, head):
    model = head_of(interaction, head)
    questions, passages = vectors(20, 1), vectors(30, 2)
    left, right = (
        np.random.default_rng(seed).integers(high, size=9000) for seed, high in ((3, 19), (4, 30))
    )
    # A row that no pair names has no effect.
    questions[19] = np.nan
    scores = model.score(questions, passages, left, right)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, naive(model, questions[left], passages[right]), atol=2e-6)
    assert in_pairs(model, questions[:0], passages[:0]).shape == (0,)


def test_head_rejects_vectors_of_wrong_dimension():
    with pytest.raises(BadInputError, match=r"passages: expected vectors of 6 .*\(4, 5\)"):
        in_pairs(head_of("bilinear", "linear"), vectors(4, 1), np.zeros((4, 5), np.float32))


def test_hinge_loss_equals_its_formula():
    # Several relevant passages, none, no other passage, and as many of each as of the other.
    positives = [[0, 1], [], [2], [3, 4, 5], [6]]
    negatives = [[7, 8, 9], [10, 11], [12], [13, 14], []]
    pools = JudgedPools.of(positives, negatives, 15)
    (batch,) = epoch_batches(pools, SamplingSettings(), np.random.default_rng(3))
    scores = np.random.default_rng(0).normal(size=len(batch.question))
    found = hinge(torch.tensor(scores), batch, MARGIN)
    places = {passage: place for place, passage in enumerate(batch.passage.tolist())}
    expected = [
        max(0, MARGIN - scores[places[good]] + scores[places[bad]])
        for right, wrong in zip(positives, negatives, strict=True)
        for good, bad in product(right, wrong)
    ]
    # Triples may come in another order.
    np.testing.assert_allclose(np.sort(found), np.sort(expected), atol=1e-12)
