"""The architectures that run without torch.

To add one, write a module with a function `read`, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import numpy as np

from retriever.encoders.model_folders import ModelFolder
from retriever.encoders.transformer.network import Network, WeightsReader
from retriever.encoders.transformer.tensors import (
    REMEDY,
    Floats,
    MisfitError,
    UnsupportedModelError,
    map_tensors,
    read_tensors,
    to_values,
)
from retriever.errors import ModelError

# The module of each `model_type` of a configuration.
ARCHITECTURES: Mapping[str, str] = {
    "bert": "bert",
    "camembert": "roberta",
    "distilbert": "distilbert",
    "modernbert": "modernbert",
    "mpnet": "mpnet",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
}


def read_network(folder: ModelFolder) -> Network:
    """Map the weights of a model into memory. They are read on first use.

    Raises:
        UnsupportedModelError: another architecture, or one with other parts.
        ModelError: weights that are damaged, or do not fit config.json.
    """
    kind = str(folder.config.get("model_type"))
    if kind not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"the architecture {kind}, while {', '.join(ARCHITECTURES)} run without torch"
        )
    module = import_module(f"{__package__}.{ARCHITECTURES[kind]}")
    reader = WeightsReader(read_tensors(folder), folder.config)
    try:
        network: Network = module.read(reader)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{folder.path}: {error}") from error
    except MisfitError as error:
        raise ModelError(
            f"{folder.path}: the weights do not fit config.json: {error}; {REMEDY}"
        ) from error
    return network


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
        file = projection.folder / "model.safetensors"
        reader = WeightsReader(map_tensors(file), {})
        try:
            outputs = len(reader.table("linear.weight", width))
            layer = reader.affine("linear", outputs, width)
        except (UnsupportedModelError, MisfitError) as error:
            raise ModelError(f"{file}: {error}; {REMEDY}") from error
        bias = np.zeros(outputs, np.float32) if layer.bias is None else layer.bias
        projections.append((layer.weight, bias, projection.activation))
        width = outputs
    return projections
