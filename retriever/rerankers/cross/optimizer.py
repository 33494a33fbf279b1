"""Which parameters of a cross-encoder are trained, and the optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retriever.rerankers.cross.model import CrossEncoder
from retriever.rerankers.cross.settings import CrossTrainingSettings

if TYPE_CHECKING:
    import torch

_NO_DECAY_BELOW = 2


def trained_weights(
    model: CrossEncoder, settings: CrossTrainingSettings
) -> dict[str, torch.Tensor]:
    """The parameters that change, by name."""
    words = model.backbone.model.get_input_embeddings()
    for weight in words.parameters():
        weight.requires_grad_(settings.train_word_embeddings)
    named = [(f"backbone.{name}", one) for name, one in model.backbone.model.named_parameters()]
    named += [(f"head.{name}", one) for name, one in model.head.named_parameters()]
    # A pooler is not part of the score.
    return {
        name: one
        for name, one in named
        if one.requires_grad and not name.startswith("backbone.pooler.")
    }


def optimizer_of(
    weights: dict[str, torch.Tensor], settings: CrossTrainingSettings
) -> torch.optim.Optimizer:
    """AdamW with the settings' rates as the `peak` of each group; vectors have no decay."""
    import torch

    groups: dict[tuple[float, float], list[torch.Tensor]] = {}
    for name, weight in weights.items():
        head = name.startswith("head.")
        peak = settings.head_learning_rate if head else settings.learning_rate
        decay = settings.weight_decay if weight.ndim >= _NO_DECAY_BELOW else 0.0
        groups.setdefault((peak, decay), []).append(weight)
    return torch.optim.AdamW(
        [
            {"params": params, "lr": peak, "peak": peak, "weight_decay": decay}
            for (peak, decay), params in groups.items()
        ]
    )
