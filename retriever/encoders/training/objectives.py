"""The losses of a bi-encoder: pure functions of embeddings, one value for each example.

Embeddings are (n, d) float32, not normalized; cosines of a zero vector are 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def classification(
    left: torch.Tensor, right: torch.Tensor, labels: torch.Tensor, classifier: torch.nn.Module
) -> torch.Tensor:
    """Softmax over (u, v, |u - v|): Reimers and Gurevych 2019, Sec. 3, "classification".

    Args:
        left: the embeddings u.
        right: the embeddings v.
        labels: (n,) int64, the class of each pair.
        classifier: a linear layer from 3 d components to the classes.

    Returns:
        (n,) cross-entropies, at least 0.
    """
    import torch

    logits = classifier(pair_features(left, right))
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def pair_features(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """(u, v, |u - v|), (n, 3 d)."""
    import torch

    return torch.cat([left, right, (left - right).abs()], dim=1)


def similarity_error(left: torch.Tensor, right: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """(cos(u, v) - score)^2: Reimers and Gurevych 2019, Sec. 3, "regression".

    Args:
        left: the embeddings u.
        right: the embeddings v.
        scores: (n,) in [0, 1].

    Returns:
        (n,) errors, 0 to 4.
    """
    import torch

    return (torch.nn.functional.cosine_similarity(left, right) - scores) ** 2


def multiple_negatives(
    cosines: torch.Tensor, relevant: torch.Tensor, place: torch.Tensor, scale: float
) -> torch.Tensor:
    """Multiple negatives ranking (Henderson et al. 2017, Sec. 4.4): softmax over a batch.

    The loss of anchor i with passage p is -log(e^(s c_ip) / (e^(s c_ip) + sum e^(s c_ij))), the sum
    over the passages j that are not relevant to i; another relevant passage is not a negative.

    Args:
        cosines: (anchors, passages).
        relevant: (anchors, passages) bool; True at `place`.
        place: (anchors,) int64, the passage of each anchor.
        scale: s, more than 0.

    Returns:
        (anchors,) losses, at least 0.
    """
    import torch

    rows = torch.arange(len(cosines), device=cosines.device)
    # The one at `place` stays, the other relevant ones go.
    others = relevant.clone()
    others[rows, place] = False
    logits = (cosines * scale).masked_fill(others, float("-inf"))
    return torch.nn.functional.cross_entropy(logits, place, reduction="none")


def pairwise_hinge(positive: torch.Tensor, negative: torch.Tensor, margin: float) -> torch.Tensor:
    """max(0, margin - cos(q, a+) + cos(q, a-)): Ma et al. 2019, Sec. 3, for the cosine.

    Args:
        positive: (triples,) cosines of questions with their relevant passages.
        negative: (triples,) cosines with the other ones.
        margin: in units of the cosine.

    Returns:
        (triples,) losses, at least 0.
    """
    import torch

    return torch.relu(margin - positive + negative)
