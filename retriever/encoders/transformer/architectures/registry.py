"""The architectures that run without torch.

To add one, write a module with a function `read`, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from retriever.encoders.model_folders import REMEDY, ModelFolder
from retriever.encoders.transformer.network import Network, WeightsReader
from retriever.encoders.transformer.tensors import (
    UnsupportedModelError,
    WeightsMismatchError,
    read_tensors,
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
    model_type = str(folder.config.get("model_type"))
    if model_type not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"the architecture {model_type}, while {', '.join(ARCHITECTURES)} run without torch"
        )
    module = import_module(f"{__package__}.{ARCHITECTURES[model_type]}")
    reader = WeightsReader(read_tensors(folder), folder.config)
    try:
        network: Network = module.read(reader)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{folder.path}: {error}") from error
    except WeightsMismatchError as error:
        raise ModelError(
            f"{folder.path}: the weights do not fit config.json: {error}; {REMEDY}"
        ) from error
    return network
