"""Which weights of a backbone are trained: all, those of its last layers, or low-rank adapters."""

from __future__ import annotations

import torch
from torch.nn.utils import parametrize

from retriever.encoders.transformer.backbone import Backbone
from retriever.errors import ConfigError
from retriever.training.settings import trained_part

# Adapters are scaled by this over their rank, so that the learning rate need not follow the rank.
_ALPHA = 16.0


class LowRank(torch.nn.Module):
    """W becomes W + (alpha / rank) B A (Hu et al. 2022, Eq. 3); alpha is 16.

    B starts at 0, so that W is what it was, and A at random. W is (outputs, inputs).
    """

    def __init__(self, outputs: int, inputs: int, rank: int) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.empty(rank, inputs))
        self.b = torch.nn.Parameter(torch.zeros(outputs, rank))
        self._scale = _ALPHA / rank
        torch.nn.init.kaiming_uniform_(self.a, a=5**0.5)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight with its adapter, (outputs, inputs) float32."""
        # In full precision, as when it is merged.
        with torch.autocast(weight.device.type, enabled=False):
            return weight + self._scale * (self.b @ self.a)


def choose_weights(backbone: Backbone, train: str, *, words: bool) -> dict[str, torch.Tensor]:
    """The parameters to train, by name (word embeddings only with `words`); others are frozen."""
    part, size = trained_part(train)
    if part == "full":
        for weight in backbone.model.get_input_embeddings().parameters():
            weight.requires_grad_(words)
        named = backbone.model.named_parameters()
        # Hidden states do not depend on the pooler.
        return {
            name: one for name, one in named if one.requires_grad and not name.startswith("pooler.")
        }
    layers = backbone.layers()
    backbone.model.requires_grad_(False)
    if part == "last":
        if not size <= len(layers) == backbone.depth:
            raise ConfigError(
                f"train: expected last:1 to last:{len(layers)}, layers with weights of their own, "
                f"found {train}"
            )
        for layer in layers[-size:]:
            layer.requires_grad_(True)
    else:
        modules = [module for layer in layers for module in layer.modules()]
        maps = [module for module in modules if isinstance(module, torch.nn.Linear)]
        if not maps:
            raise ConfigError(
                "train: lora needs torch.nn.Linear layers, which this model does not use; choose "
                "full"
            )
        for one in maps:
            adapter = LowRank(one.out_features, one.in_features, size)
            parametrize.register_parametrization(one, "weight", adapter.to(backbone.device))
    return {name: one for name, one in backbone.model.named_parameters() if one.requires_grad}


def merge_adapters(model: torch.nn.Module) -> None:
    """Add each adapter to its weight; the model is an ordinary one again, with the same output."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
