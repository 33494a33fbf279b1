"""The losses, against plain formulas in NumPy, finite differences and sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from retriever.encoders.training.trainer import (
    classification,
    multiple_negatives,
    pairwise_hinge,
    similarity_error,
)

ROWS, WIDTH = 5, 7


def embeddings(seed: int, rows: int = ROWS) -> torch.Tensor:
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(rows, WIDTH, generator=chance, dtype=torch.float64)


def cosine(u: np.ndarray, v: np.ndarray) -> float:
    return float(u @ v / np.sqrt((u @ u) * (v @ v)))


def normalized(vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors)


def test_classification_is_the_cross_entropy_of_u_v_and_their_distance() -> None:
    u, v = embeddings(0), embeddings(1)
    classifier = torch.nn.Linear(3 * WIDTH, 3).double()
    labels = [2, 0, 1, 1, 0]
    found = classification(u, v, torch.tensor(labels), classifier).detach().numpy()
    w, b = classifier.weight.detach().numpy(), classifier.bias.detach().numpy()
    for row, label in enumerate(labels):
        left, right = u[row].numpy(), v[row].numpy()
        logits = w @ np.concatenate([left, right, np.abs(left - right)]) + b
        expected = np.log(np.exp(logits).sum()) - logits[label]
        assert found[row] == pytest.approx(expected, abs=1e-12)


def test_the_similarity_error_is_the_square_of_cosine_minus_score() -> None:
    u, v = embeddings(0), embeddings(1)
    scores = torch.linspace(0, 1, ROWS, dtype=torch.float64)
    found = similarity_error(u, v, scores).numpy()
    for row in range(ROWS):
        expected = (cosine(u[row].numpy(), v[row].numpy()) - float(scores[row])) ** 2
        assert found[row] == pytest.approx(expected, abs=1e-12)


def test_multiple_negatives_leaves_other_relevant_passages_out_of_the_sum() -> None:
    u, v = normalized(embeddings(0, 4)), normalized(embeddings(1, 6))
    relevant = torch.zeros(4, 6, dtype=torch.bool)
    for anchor, passage in ((0, 0), (0, 3), (1, 1), (2, 2), (3, 3), (3, 5)):
        relevant[anchor, passage] = True
    place = torch.tensor([0, 1, 2, 5])
    found = multiple_negatives(u @ v.T, relevant, place, 20.0).numpy()
    for row in range(4):
        own = np.exp(20 * cosine(u[row].numpy(), v[place[row]].numpy()))
        others = sum(
            np.exp(20 * cosine(u[row].numpy(), v[column].numpy()))
            for column in range(6)
            if not relevant[row, column]
        )
        assert found[row] == pytest.approx(-np.log(own / (own + others)), abs=1e-12)


@pytest.mark.parametrize("negatives", [0, 5])
def test_multiple_negatives_is_the_loss_of_sentence_transformers(negatives: int) -> None:
    losses = pytest.importorskip("sentence_transformers.losses")
    from sentence_transformers import util

    parts = [embeddings(seed).float() for seed in range(2 + bool(negatives))]
    loss = losses.MultipleNegativesRankingLoss(None, scale=20.0, similarity_fct=util.cos_sim)
    expected = loss.compute_loss_from_embeddings(parts, None)
    u, v = normalized(parts[0]), normalized(torch.cat(parts[1:]))
    relevant = torch.eye(ROWS, len(v)) > 0
    found = multiple_negatives(u @ v.T, relevant, torch.arange(ROWS), 20.0).mean()
    assert float(found) == pytest.approx(float(expected), abs=1e-6)


def test_the_hinge_is_zero_beyond_the_margin() -> None:
    positive, negative = torch.tensor([0.9, 0.5, 0.2]), torch.tensor([0.1, 0.4, 0.6])
    found = pairwise_hinge(positive, negative, 0.2)
    assert found.tolist() == pytest.approx([0.0, 0.1, 0.6])


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "nli": lambda u, v: classification(
        u,
        v,
        torch.tensor([0, 1, 0, 1, 1]),
        lambda features: features[:, ::WIDTH],  # type: ignore[arg-type]
    ),
    "sts": lambda u, v: similarity_error(u, v, torch.linspace(0, 1, ROWS, dtype=torch.float64)),
    "mnr": lambda u, v: multiple_negatives(
        normalized(u) @ normalized(v).T, torch.eye(ROWS) > 0, torch.arange(ROWS), 3.0
    ),
    "hinge": lambda u, v: pairwise_hinge(
        (normalized(u) * normalized(v)).sum(1), (normalized(u) * normalized(v.flip(0))).sum(1), 0.3
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    # In "hinge" the middle passage is its own negative, and its loss the margin.
    u, v = embeddings(2).requires_grad_(True), embeddings(3).requires_grad_(True)
    assert torch.autograd.gradcheck(LOSSES[name], (u, v), eps=1e-6, atol=1e-6)
