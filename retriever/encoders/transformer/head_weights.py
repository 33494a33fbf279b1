"""Weights of an encoder's head: the pooler of its model, or projections after pooling."""

from __future__ import annotations

import numpy as np

from retriever.encoders.model_folders import REMEDY, WEIGHTS_FILE, ModelFolder
from retriever.encoders.transformer.network import WeightsReader
from retriever.encoders.transformer.tensors import (
    Floats,
    UnsupportedModelError,
    WeightsMismatchError,
    map_tensors,
    read_tensors,
    to_values,
)
from retriever.errors import ModelError


def read_pooler(folder: ModelFolder, width: int) -> tuple[Floats, Floats]:
    """Return the (width, width) weights and (width,) bias of a model's pooler."""
    tensors = read_tensors(folder)
    suffix = "pooler.dense.weight"
    name = next((tensor for tensor in tensors if tensor.endswith(suffix)), None)
    bias = tensors.get(f"{name}".removesuffix("weight") + "bias")
    if name is None or tensors[name].shape != (width, width):
        raise UnsupportedModelError(f"{folder.path}: no pooler")
    if bias is None or bias.shape != (width,):
        raise UnsupportedModelError(f"{folder.path}: no biases of the pooler")
    return to_values(tensors[name]), to_values(bias)


def read_projections(folder: ModelFolder, width: int) -> list[tuple[Floats, Floats, str]]:
    """Read weights, bias and activation of each projection, for vectors of `width` components."""
    projections = []
    for projection in folder.settings.projections:
        file = projection.folder / WEIGHTS_FILE
        reader = WeightsReader(map_tensors(file), {})
        try:
            outputs = len(reader.table("linear.weight", width))
            layer = reader.affine("linear", outputs, width)
        except (UnsupportedModelError, WeightsMismatchError) as error:
            raise ModelError(f"{file}: {error}; {REMEDY}") from error
        bias = np.zeros(outputs, np.float32) if layer.bias is None else layer.bias
        projections.append((layer.weight, bias, projection.activation))
        width = outputs
    return projections
