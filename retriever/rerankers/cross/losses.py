"""The losses of a cross-encoder: functions of the scores of a batch, one value for each example.

S(q, p) is the score of a question and a passage, P(q) and N(q) the relevant and the other passages
that were sampled for the question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from retriever.training.sampling import TripleBatch

if TYPE_CHECKING:
    import torch


def hinge(scores: torch.Tensor, batch: TripleBatch, margin: float) -> torch.Tensor:
    """max(0, margin - S(q, p) + S(q, n)) for p in P(q), n in N(q): Ma et al. 2019, Sec. 3.

    Args:
        scores: (pairs,) float32, in the order of the batch.
        batch: with triples.
        margin: in units of the score.

    Returns:
        (triples,) losses, at least 0.
    """
    import torch

    return torch.relu(margin - _gaps(scores, batch))


def softmax(scores: torch.Tensor, batch: TripleBatch) -> torch.Tensor:
    """-log(e^S(q, p) / (e^S(q, p) + sum over n in N(q) of e^S(q, n))) for p in P(q).

    It is the localized contrastive loss of Gao, Dai and Callan (2021, "Rethink Training of BERT
    Rerankers in Multi-Stage Retrieval Pipeline"). Each relevant passage is compared with the
    negatives alone: another relevant passage is not a negative.

    Args:
        scores: (pairs,) float32, in the order of the batch.
        batch: with triples, sorted by their positive.

    Returns:
        (relevant passages that are in a triple,) losses, more than 0.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    gaps = _gaps(scores, batch)
    sizes = np.unique(batch.positive, return_counts=True)[1].tolist()
    # The loss is log(1 + sum of e^-gap); the 1 is a gap of 0.
    padded = pad_sequence(
        list(torch.split(-gaps, sizes)), batch_first=True, padding_value=float("-inf")
    )
    return torch.nn.functional.pad(padded, (1, 0)).logsumexp(dim=1)


def pointwise(scores: torch.Tensor, batch: TripleBatch) -> torch.Tensor:
    """-log s(S(q, p)) for p in P(q), -log(1 - s(S(q, n))) for n in N(q), s the logistic function.

    It is the binary cross-entropy of Nogueira and Cho (2019, "Passage Re-ranking with BERT"). A
    question without a relevant passage has a loss too.

    Args:
        scores: (pairs,) float32, in the order of the batch.
        batch: pairs.

    Returns:
        (pairs,) losses, more than 0.
    """
    import torch

    relevant = torch.from_numpy(batch.relevant).to(scores)
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, relevant, reduction="none")


def _gaps(scores: torch.Tensor, batch: TripleBatch) -> torch.Tensor:
    """(triples,) score of the relevant passage minus that of the other one."""
    import torch

    return scores[torch.from_numpy(batch.positive)] - scores[torch.from_numpy(batch.negative)]
