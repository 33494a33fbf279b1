"""What a model has after pooling: projections of its own, or the pooler of its top layer.

Hosseini et al. 2023 feed the mean of the layers through the head that SimCSE trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retriever.encoders.models.finding import ModelFolder
from retriever.encoders.models.settings import Projection
from retriever.encoders.transformer.backbone import Backbone
from retriever.errors import ModelError

if TYPE_CHECKING:
    import torch

Layer = Callable[["torch.Tensor"], "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class Head:
    """Layers after pooling, from vectors to vectors of `dimensions` components."""

    layers: Sequence[Layer]
    dimensions: int

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """(texts, width) float32 to (texts, dimensions) float32."""
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors


def make_head(backbone: Backbone, folder: ModelFolder, width: int) -> Head:
    """The head of a model: its projections if it has some, else its pooler.

    Args:
        backbone: the model.
        folder: where it came from.
        width: components of the vectors that come in.

    Raises:
        ConfigError: it has neither.
        ModelError: a projection's weights cannot be read or do not fit.
    """
    if not folder.settings.projections:
        backbone.require_pooler()
        return Head([backbone.pooler], width)
    layers: list[Layer] = []
    for projection in folder.settings.projections:
        layer, width = _dense(projection, width, backbone.device)
        layers.append(layer)
    return Head(layers, width)


def _dense(projection: Projection, width: int, device: torch.device) -> tuple[Layer, int]:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = projection.folder / "model.safetensors"
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file}: cannot be read ({error}); save the model again") from error
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    if weight is None or weight.ndim != 2 or weight.shape[1] != width:
        found = "none" if weight is None else tuple(weight.shape)
        raise ModelError(
            f"{file}: expected linear.weight of shape (any, {width}), found {found}; save the "
            "model again"
        )
    # A projection is small, and float32 in every dtype of the backbone.
    weight = weight.float().to(device)
    bias = None if bias is None else bias.float().to(device)
    activation: torch.nn.Module = getattr(torch.nn, projection.activation)()

    def layer(vectors: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = activation(torch.nn.functional.linear(vectors, weight, bias))
        return output

    return layer, int(weight.shape[0])
