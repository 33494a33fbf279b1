"""The architectures that run without torch.

To add one, write a module with a function `read`, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from retriever.encoders.model_folders import ModelFolder
from retriever.encoders.transformer.network import Network, WeightsReader
from retriever.encoders.transformer.tensors import (
    Floats,
    UnsupportedModelError,
    read_tensors,
    to_values,
)

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
        UnsupportedModelError: another architecture, or weights that do not fit config.json.
    """
    kind = str(folder.config.get("model_type"))
    if kind not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"the architecture {kind}, while {', '.join(ARCHITECTURES)} run without torch"
        )
    module = import_module(f"{__package__}.{ARCHITECTURES[kind]}")
    try:
        network: Network = module.read(WeightsReader(read_tensors(folder), folder.config))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{folder.path}: {error}") from error
    return network


def read_pooler(folder: ModelFolder, width: int) -> tuple[Floats, Floats]:
    """Return the (width, width) weights and (width,) bias of a model's pooler."""
    tensors = read_tensors(folder)
    suffix = "pooler.dense.weight"
    name = next((tensor for tensor in tensors if tensor.endswith(suffix)), None)
    if name is None or tensors[name].shape != (width, width):
        raise UnsupportedModelError(f"{folder.path}: no pooler")
    return to_values(tensors[name]), to_values(tensors[name.removesuffix("weight") + "bias"])
