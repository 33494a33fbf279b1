"""From the vectors of word pieces to one vector per text: pure functions on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retriever.encoders.settings import Pooling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Pieces:
    """Which places of a padded batch are pooled, and where its special tokens are.

    Attributes:
        kept: (texts, pieces) bool, True where a piece is pooled; None if all of them are.
        cls: (texts,) int64, the place of [CLS].
        sep: (texts,) int64, the place of [SEP].
    """

    kept: torch.Tensor | None
    cls: torch.Tensor
    sep: torch.Tensor


def mean_pooling(hidden: torch.Tensor, pieces: Pieces) -> torch.Tensor:
    """The mean over the pieces that are kept; the zero vector where none is.

    Args:
        hidden: (texts, pieces, dimensions), any floating type.
        pieces: which of them count.

    Returns:
        (texts, dimensions) float32.
    """
    if pieces.kept is None:
        return hidden.float().mean(dim=1)
    counts = pieces.kept.sum(dim=1, keepdim=True).clamp(min=1)
    weights = pieces.kept.float() / counts
    return (weights.unsqueeze(1) @ hidden.float()).squeeze(1)


def max_pooling(hidden: torch.Tensor, pieces: Pieces) -> torch.Tensor:
    """The greatest value of each component over the pieces that are kept; as `mean_pooling`."""
    if pieces.kept is None:
        return hidden.amax(dim=1).float()
    out = ~pieces.kept.unsqueeze(-1)
    greatest = hidden.masked_fill(out, float("-inf")).amax(dim=1).float()
    return greatest.masked_fill(~pieces.kept.any(dim=1, keepdim=True), 0.0)


def cls_pooling(hidden: torch.Tensor, pieces: Pieces) -> torch.Tensor:
    """The vector of [CLS]; as `mean_pooling`."""
    return _at(hidden, pieces.cls)


def sep_pooling(hidden: torch.Tensor, pieces: Pieces) -> torch.Tensor:
    """The vector of the last [SEP]; as `mean_pooling`."""
    return _at(hidden, pieces.sep)


def _at(hidden: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    import torch

    return hidden[torch.arange(len(hidden), device=hidden.device), places].float()


POOLINGS: Mapping[Pooling, Callable[[torch.Tensor, Pieces], torch.Tensor]] = {
    "mean": mean_pooling,
    "max": max_pooling,
    "cls": cls_pooling,
    "sep": sep_pooling,
}
