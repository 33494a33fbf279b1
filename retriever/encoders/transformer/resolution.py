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


def depth_of(config: Mapping[str, Any]) -> int | None:
    """The number of transformer layers, or None if config.json does not say."""
    architecture = architecture_of(config) or _BERT
    depth = config.get(architecture.depth)
    return depth if isinstance(depth, int) and depth > 0 else None


def resolve(asked: EncoderSettings, folder: ModelFolder) -> EncoderSettings:
    """The settings that decide the vectors of one transformer; the window only if it is given."""
    own, fuser, depth = folder.settings, fuser_of(asked, folder), depth_of(folder.config)
    chosen: dict[str, Any] = {}
    if fuser.sbert_wk is None:
        layers = "last" if depth is None else format_layers(fuser.fused, depth)
        pooling = asked.pooling or own.pooling
        chosen["layers"] = None if layers == "last" else layers
        chosen["pooling"] = None if pooling == own.pooling == "mean" else pooling
    else:
        sbert_wk = fuser.sbert_wk
        weighted, by_variance = sbert_wk.layers == "weighted", sbert_wk.words == "variance"
        chosen = {
            "wk_preset": sbert_wk.preset,
            "window": sbert_wk.window if weighted else None,
            "start_layer": sbert_wk.start_layer,
            "omega": sbert_wk.omega if weighted else None,
            "wk_variance": sbert_wk.variance if by_variance else None,
            "wk_words": None if by_variance else sbert_wk.words,
            "wk_layers": None if weighted else sbert_wk.layers,
        }
    head = bool(own.projections) if asked.head is None else asked.head
    return replace(
        asked,
        model=folder.name,
        fusion=None if asked.fusion == "mean" or len(fuser.fused) == 1 else asked.fusion,
        special_tokens=None if asked.special_tokens == "keep" else asked.special_tokens,
        head=head if head or own.projections else None,
        normalize=False if asked.normalize is False else None,
        query_prompt=_prompt(asked.query_prompt, own.query_prompt),
        passage_prompt=_prompt(asked.passage_prompt, own.passage_prompt),
        backend=None if asked.backend == "auto" else asked.backend,
        **chosen,
    )


def fuser_of(settings: EncoderSettings, folder: ModelFolder) -> Fuser:
    """What `settings` read of a model's hidden states."""
    depth = depth_of(folder.config)
    if depth is None or architecture_of(folder.config) is None:
        if settings.layers in (None, "last", "-1") and settings.fusion in (None, "mean"):
            return Fuser(settings, (depth or 1,))
        raise ConfigError(
            f"layers: the layers of a {folder.config.get('model_type')} model cannot be read "
            "one by one; leave layers and fusion out, or name another model"
        )
    if settings.fusion == "sbert-wk":
        chosen = SBERTWKSettings.of(settings, depth)
        return Fuser(settings, tuple(range(chosen.first_state, depth + 1)), chosen)
    layers = resolve_layers(settings.layers or "last", depth)
    fused = layers if settings.fusion == "concat" else tuple(sorted(layers))
    return Fuser(settings, fused)


def _prompt(asked: str | None, own: str) -> str | None:
    """None if there is no prompt, and would be none if none were named."""
    prompt = own if asked is None else asked
    return prompt if prompt or own else None
