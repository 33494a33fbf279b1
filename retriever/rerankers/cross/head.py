"""The two-layer MLP on [CLS] that makes a transformer a cross-encoder (Ma et al. 2019, Sec. 3)."""

from __future__ import annotations

import torch


class CrossHead(torch.nn.Module):
    """[CLS] of the top layer to a score: linear, tanh, linear, with dropout before each.

    Args:
        width: components of [CLS], and hidden units.
        dropout: 0 to 1, in training.
    """

    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, cls: torch.Tensor) -> torch.Tensor:
        """(pairs, width) float32 to (pairs,) float32."""
        hidden = torch.tanh(self.dense(self.dropout(cls)))
        scores: torch.Tensor = self.out(self.dropout(hidden)).squeeze(-1)
        return scores
