"""The losses of a cross-encoder and their gradients, against formulas in NumPy, pair by pair."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from retriever.rerankers.scorers import hinge, pointwise, softmax
from retriever.training.sampling import JudgedPools, SamplingSettings, TripleBatch, epoch_batches

Floats = NDArray[np.float64]
Found = tuple[list[float], Floats]
# Several relevant passages, none, no other passage, and as many of each as of the other.
POSITIVES = [[0, 1], [], [2], [3, 4, 5], [6]]
NEGATIVES = [[7, 8, 9], [10, 11], [12], [13, 14], []]
MARGIN = 0.7


def batch_of(pointwise: bool) -> TripleBatch:
    pools = JudgedPools.of(POSITIVES, NEGATIVES, 15)
    chance = np.random.default_rng(3)
    (batch,) = epoch_batches(pools, SamplingSettings(), chance, pointwise=pointwise)
    return batch


def hinge_in_numpy(batch: TripleBatch, scores: Floats) -> Found:
    losses, gradient = [], np.zeros(len(scores))
    for good in np.flatnonzero(batch.relevant):
        for bad in np.flatnonzero(~batch.relevant):
            if batch.question[good] == batch.question[bad]:
                losses.append(max(0.0, MARGIN - scores[good] + scores[bad]))
                gradient[good] -= losses[-1] > 0
                gradient[bad] += losses[-1] > 0
    return losses, gradient


def softmax_in_numpy(batch: TripleBatch, scores: Floats) -> Found:
    losses, gradient = [], np.zeros(len(scores))
    for good in np.flatnonzero(batch.relevant):
        others = np.flatnonzero(~batch.relevant & (batch.question == batch.question[good]))
        if len(others) == 0:
            continue
        pool = [good, *others]
        shares = np.exp(scores[pool]) / np.exp(scores[pool]).sum()
        losses.append(-np.log(shares[0]))
        gradient[pool] += shares
        gradient[good] -= 1
    return losses, gradient


def pointwise_in_numpy(batch: TripleBatch, scores: Floats) -> Found:
    chances = 1 / (1 + np.exp(-scores))
    losses = -np.log(np.where(batch.relevant, chances, 1 - chances))
    return losses.tolist(), chances - batch.relevant


@pytest.mark.parametrize(
    ("ours", "theirs", "examples"),
    [
        (lambda scores, batch: hinge(scores, batch, MARGIN), hinge_in_numpy, 6 + 1 + 6),
        (softmax, softmax_in_numpy, 2 + 1 + 3),
        (pointwise, pointwise_in_numpy, 15),
    ],
    ids=["hinge", "softmax", "pointwise"],
)
def test_values_and_gradients_are_those_of_the_formula(
    ours: Callable[[torch.Tensor, TripleBatch], torch.Tensor],
    theirs: Callable[[TripleBatch, Floats], Found],
    examples: int,
) -> None:
    batch = batch_of(pointwise=ours is pointwise)
    scores = np.random.default_rng(0).normal(size=len(batch.question))
    losses, gradient = theirs(batch, scores)
    given = torch.tensor(scores, requires_grad=True)
    found = ours(given, batch)
    assert found.shape == (examples,)
    # Triples may come in another order.
    np.testing.assert_allclose(np.sort(found.detach().numpy()), np.sort(losses), atol=1e-12)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    np.testing.assert_allclose(given.grad.numpy(), gradient, atol=1e-12)


def test_only_the_pointwise_loss_depends_on_what_all_scores_have_in_common() -> None:
    batch = batch_of(pointwise=False)
    scores = torch.linspace(-2, 2, len(batch.question), dtype=torch.float64)
    for loss in (softmax, lambda scores, batch: hinge(scores, batch, MARGIN)):
        assert torch.allclose(loss(scores + 3, batch), loss(scores, batch))
    assert not torch.allclose(pointwise(scores + 3, batch), pointwise(scores, batch))


@pytest.mark.parametrize("loss", [softmax, pointwise])
def test_scores_far_apart_keep_losses_and_gradients_finite(
    loss: Callable[[torch.Tensor, TripleBatch], torch.Tensor],
) -> None:
    batch = batch_of(pointwise=False)
    scores = torch.where(torch.from_numpy(batch.relevant), -500.0, 500.0).requires_grad_()
    found = loss(scores, batch)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert found.isfinite().all()
    assert scores.grad.isfinite().all()


def test_a_constant_scorer_has_no_loss_with_the_margin_of_the_paper() -> None:
    batch = batch_of(pointwise=False)
    scores = torch.full((len(batch.question),), 0.3, requires_grad=True)
    hinge(scores, batch, 0.0).sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert not scores.grad.any()
    assert set(hinge(scores.detach(), batch, 1.0).tolist()) == {1.0}
