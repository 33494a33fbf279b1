"""From the vectors of word pieces to one vector a text: pure functions on tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def mean_pooling(hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The mean over the real word pieces, special tokens included.

    Args:
        hidden: (texts, pieces, dimensions) float.
        mask: (texts, pieces), 1 where a piece is real, 0 where it is padding; None if all are.

    Returns:
        (texts, dimensions).
    """
    if mask is None:
        return hidden.mean(dim=1)
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)
