"""The transformers whose hidden states can be read layer by layer.

All of them call their layers one after the other; what goes into the first is hidden state 0, what
the k-th returns is hidden state k. Of another architecture only the last layer is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Architecture:
    """Where a model of one kind keeps its layers.

    Attributes:
        layers: the attribute path of the layers; ALBERT calls the same one again and again.
        depth: the name of the number of layers in config.json.
        width: the name of the hidden size there.
        pieces_first: whether layers see (pieces, texts, width) rather than (texts, pieces, width).
    """

    layers: str = "encoder.layer"
    depth: str = "num_hidden_layers"
    width: str = "hidden_size"
    pieces_first: bool = False


_BERT = Architecture()
ARCHITECTURES: Mapping[str, Architecture] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "electra": _BERT,
    "mpnet": _BERT,
    "albert": Architecture("encoder.albert_layer_groups"),
    "distilbert": Architecture("transformer.layer", "n_layers", "dim"),
    "xlnet": Architecture("layer", "n_layer", "d_model", pieces_first=True),
}


def architecture_of(config: Mapping[str, Any]) -> Architecture | None:
    """The architecture that a config.json names, or None if its layers cannot be read."""
    if config.get("inner_group_num", 1) != 1:
        # An ALBERT whose layers have layers.
        return None
    return ARCHITECTURES.get(str(config.get("model_type")))


def depth_of(config: Mapping[str, Any]) -> int | None:
    """The number of transformer layers, or None if config.json does not say."""
    architecture = architecture_of(config) or _BERT
    depth = config.get(architecture.depth)
    return depth if isinstance(depth, int) and depth > 0 else None
