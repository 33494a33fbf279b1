"""What the settings of an encoder mean for a model.

The result names a setting only if it differs from the plain meaning that
`retriever.encoders.settings` fixes forever, or from what the model would do if it were not named;
so pasted anywhere, it is the same encoder. Of an unknown architecture only the last layer is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from retriever.encoders.fusion.pooling import Fuser
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.encoders.model_folders import ModelFolder
from retriever.encoders.settings import EncoderSettings, format_layers, resolve_layers
from retriever.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Architecture:
    """Where a model of one kind keeps its layers; ALBERT calls the same one again and again."""

    layers: str = "encoder.layer"
    depth: str = "num_hidden_layers"
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
    "distilbert": Architecture("transformer.layer", "n_layers"),
    "xlnet": Architecture("layer", "n_layer", pieces_first=True),
}


def architecture_of(config: Mapping[str, Any]) -> Architecture | None:
    """The architecture that a config.json names, or None if its layers cannot be read."""
    if config.get("inner_group_num", 1) != 1:
        # An ALBERT whose layers have layers.
        return None
    return ARCHITECTURES.get(str(config.get("model_type")))


def resolve(asked: EncoderSettings, folder: ModelFolder) -> Fuser:
    """What is read of one transformer, with the settings that decide its vectors.

    The window is among these only if it is given.
    """
    own, architecture = folder.settings, architecture_of(folder.config)
    depth = folder.config.get((architecture or _BERT).depth)
    head = bool(own.projections) if asked.head is None else asked.head
    chosen: dict[str, Any] = {
        "model": folder.name,
        "special_tokens": None if asked.special_tokens == "keep" else asked.special_tokens,
        "head": head if head or own.projections else None,
        "normalize": False if asked.normalize is False else None,
        "backend": None if asked.backend == "auto" else asked.backend,
    }
    for name in ("query_prompt", "passage_prompt"):
        usual = getattr(own, name)
        prompt = usual if getattr(asked, name) is None else getattr(asked, name)
        # None if there is no prompt, and would be none if none were named.
        chosen[name] = prompt if prompt or usual else None
    sbert_wk = None
    if architecture is None or not isinstance(depth, int) or depth <= 0:
        if asked.layers not in (None, "last", "-1") or asked.fusion not in (None, "mean"):
            raise ConfigError(
                f"layers: the layers of a {folder.config.get('model_type')} model cannot be read "
                "one by one; leave layers and fusion out, or name another model"
            )
        fused: tuple[int, ...] = (1,)
        chosen["layers"] = None
    elif asked.fusion == "sbert-wk":
        sbert_wk = SBERTWKSettings.of(asked, depth)
        fused = tuple(range(sbert_wk.first_state, depth + 1))
        chosen |= sbert_wk.named()
    elif asked.layers is None:
        fused = (depth,)
    else:
        fused = resolve_layers(asked.layers, depth)
        fused = fused if asked.fusion == "concat" else tuple(sorted(fused))
        canonical = format_layers(fused, depth)
        chosen["layers"] = None if canonical == "last" else canonical
    if sbert_wk is None:
        pooling = asked.pooling or own.pooling
        chosen["pooling"] = None if pooling == own.pooling == "mean" else pooling
    if asked.fusion == "mean" or len(fused) == 1:
        chosen["fusion"] = None
    return Fuser(replace(asked, **chosen), fused, tuple(sorted(fused)), sbert_wk)
